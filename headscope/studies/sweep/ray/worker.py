"""A process of a sweep: it keeps a model loaded, and reads the batches that it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from numpy import ndarray

from headscope.attention_kind import AttentionKind
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, ModelError
from headscope.measure.in_process import InProcess
from headscope.measure.measure import BatchReader, empty_state
from headscope.measure.schedule import Step
from headscope.measure.tally import Tally
from headscope.models.engines.engine import OnLayer, Request, Tile
from headscope.models.load import Model
from headscope.models.null_model import null_model
from headscope.relations.relation import Relation

if TYPE_CHECKING:
    from headscope.measure.example import Example, ExampleRequest
    from headscope.measure.loss_check import Targets
    from headscope.measure.shadow import ShadowRequest, ShadowScore

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
    def token_losses(self, request: ModelRequest, targets: Sequence[Targets]) -> ndarray:
        """The model's loss of some tokens; see `headscope.measure.loss_check.token_losses`."""
        self._load(request, None)
        return self._here.token_losses(targets)

    @_errors_as_messages
    def score_shadows(
        self,
        request: ModelRequest,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        requests: Sequence[ShadowRequest],
        limits: Mapping[str, int],
    ) -> list[ShadowScore]:
        """Shadows of some heads; see `headscope.measure.shadow.score_shadows`."""
        self._load(request, None)
        return self._here.score_shadows(
            windows, relations, requests, tokens=limits["tokens"], seed=limits["seed"]
        )

    @_errors_as_messages
    def find_examples(
        self,
        request: ModelRequest,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        requests: Sequence[ExampleRequest],
        seed: int,
    ) -> list[Example]:
        """Examples of some heads; see `headscope.measure.examples.find_examples`."""
        self._load(request, None)
        return self._here.find_examples(windows, relations, requests, seed=seed)

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
