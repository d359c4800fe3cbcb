"""A process of a sweep: it keeps a model loaded, and reads the batches that it is given.

In the process that starts them SIGTERM stays the program's own, and Ray ends without a word.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from numpy import ndarray

from headscope.attention_kind import AttentionKind
from headscope.errors import HeadscopeError, ModelError
from headscope.measure.in_process import InProcess
from headscope.measure.measure import BatchReader, empty_state
from headscope.measure.schedule import Step
from headscope.measure.tally import Tally
from headscope.models.engines.engine import OnLayer, Request, Tile
from headscope.models.load import Model
from headscope.models.null_model import null_model
from headscope.relations.relation import Relation

Packed = dict[str, tuple[ndarray, ndarray]]
"""A tally's arrays by name: where they are not 0, and what is there."""


class ModelRequest(NamedTuple):
    """A model as `headscope.models.load.load_model` is asked for it."""

    name: str
    load_options: dict[str, Any]


class Failed(NamedTuple):
    """The message of an error that the user can put right."""

    message: str


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _errors_as_messages(method: Callable[_P, _T]) -> Callable[_P, _T | Failed]:
    """An error travels as a message: not all of them survive being sent to another process."""

    @wraps(method)  # Ray reads its signature
    def safely(*args: _P.args, **kwargs: _P.kwargs) -> _T | Failed:
        try:
            return method(*args, **kwargs)
        except HeadscopeError as error:
            return Failed(str(error))

    return safely


class Worker:
    """Reads parts of runs. It can be started anew at any time: each call says all that it needs."""

    def __init__(self, threads: int) -> None:
        torch.set_num_threads(threads)
        self._here = InProcess()
        self._twin = ExitStack()
        self._state: tuple[ModelRequest, int | None] | None = None

    @_errors_as_messages
    def facts(self, request: ModelRequest) -> Model:
        """Facts known of the model, without the model."""
        model = self._load(request, None)
        engine = Elsewhere(model.engine.name, model.layers, model.attention_kind)
        return replace(model, engine=engine)

    @_errors_as_messages
    def read(
        self,
        request: ModelRequest,
        steps: Sequence[Step],
        relations: Sequence[Relation],
        seed: int,
        twin: int | None,
    ) -> tuple[Packed, int]:
        """The sums of some batches, of the model itself or of its twin, shuffled by this seed, and
        how many of them were read in halves.
        """
        model = self._load(request, twin)
        setting = BatchReader(model, relations, seed)
        done = empty_state(model, relations)
        halved = 0
        for step in steps:
            part = setting.read(step, setting.prepare(step.batch))
            part.add_to(done.tally)
            halved += part.halved
        return pack_tally(done.tally), halved

    @_errors_as_messages
    def call(self, request: ModelRequest, method: str, *arguments: Any, **options: Any) -> Any:
        """What a method of `InProcess` gives for the model, such as its `find_examples`."""
        self._load(request, None)
        return getattr(self._here, method)(*arguments, **options)

    def _load(self, request: ModelRequest, twin: int | None) -> Model:
        if self._state != (request, twin):
            self._state = None
            self._twin.close()  # every entry goes back to where it was
            model = self._here.open(request.name, **request.load_options)
            if twin is not None:
                self._twin.enter_context(null_model(model.engine, seed=twin))
            self._state = request, twin
        return self._here.model


@dataclass
class Elsewhere:
    """The engine of a model that other processes hold: nothing but its name can be had here."""

    name: str
    layers: int
    attention_kind: AttentionKind
    logarithms: bool = False

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Not here."""
        raise ModelError(_ELSEWHERE)

    def run(
        self,
        tokens: torch.Tensor,
        tiles: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Not here."""
        raise ModelError(_ELSEWHERE)

    def matrices(self) -> list[torch.Tensor]:
        """Not here."""
        raise ModelError(_ELSEWHERE)


_ELSEWHERE = "this model is in other processes, and cannot be run here"


def pack_tally(tally: Tally) -> Packed:
    """A tally's arrays without their zeros, which are most of those of a few batches."""
    packed = {}
    for name, array in tally.arrays().items():
        places = np.flatnonzero(array)
        packed[name] = (places, array.ravel()[places])
    return packed


def unpack_tally(packed: Packed, like: Tally) -> Tally:
    """The tally again, in the shape of another."""
    tally = Tally.zeros(like.relations, like.numbers, like.heads)
    for name, array in tally.arrays().items():
        places, values = packed[name]
        array.reshape(-1)[places] = values
    return tally


STDERR = 2
"""The number of the file that C++ code writes its errors to."""


@contextmanager
def own_termination() -> Iterator[None]:
    """Put the program's handler of SIGTERM back after Ray was started or shut down.

    Ray's core installs a handler for faults that takes SIGTERM for one of them: it prints the
    stack of the C++ code and aborts, without a word of what was kept. Ray's shutdown sets the
    signal back to the system's default. What ends in `sys.exit` by one of Ray's handlers in Python
    meanwhile goes to the program's handler instead.
    """
    if threading.current_thread() is not threading.main_thread():  # no other may set handlers
        yield
        return
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    except SystemExit:
        _put_back(before)
        signal.raise_signal(signal.SIGTERM)
        raise
    finally:
        _put_back(before)


@contextmanager
def silent_core() -> Iterator[None]:
    """Nothing reaches standard error meanwhile, not even from Ray's C++ code.

    As it shuts down with work left over, its core says of each part that it cannot say so.
    """
    sys.stderr.flush()
    before, nowhere = os.dup(STDERR), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, STDERR)
    os.close(nowhere)
    try:
        yield
    finally:
        os.dup2(before, STDERR)
        os.close(before)


def _put_back(before: object) -> None:
    if before is not None:  # which no handler of Python's is
        signal.signal(signal.SIGTERM, before)  # type: ignore[arg-type]
