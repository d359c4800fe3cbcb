"""What a process of a sweep does: keep a model loaded, and read the batches that it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeVar

import numpy as np
import torch
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, ModelError
from headscope.measure.in_process import InProcess
from headscope.measure.measure import Setting, empty_pass
from headscope.measure.schedule import Step
from headscope.measure.tally import Tally
from headscope.models.engines.engine import OnLayer, Read, Tile
from headscope.models.load import Model
from headscope.models.shuffled import shuffled
from headscope.relations.relation import Relation
from headscope.relations.writes.effect import Effect

if TYPE_CHECKING:
    from headscope.measure.example import Example, Wanted
    from headscope.measure.sanity import Targets

Packed = dict[str, tuple[ndarray, ndarray]]
"""A tally's arrays by name: where they are not 0, and what is there."""


class Asked(NamedTuple):
    """A model as `headscope.models.load.load_model` is asked for it."""

    name: str
    how: dict[str, Any]


class Failed(NamedTuple):
    """The message of an error that the user can put right."""

    message: str


_P = ParamSpec("_P")
_T = TypeVar("_T")


def _told(method: Callable[_P, _T]) -> Callable[_P, _T | Failed]:
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
        self._state: tuple[Asked, int | None] | None = None

    @_told
    def facts(self, asked: Asked) -> Model:
        """What is known of the model, without the model."""
        model = self._load(asked, None)
        return replace(model, engine=Elsewhere(model.engine.name, model.layers))

    @_told
    def read(
        self,
        asked: Asked,
        steps: Sequence[Step],
        relations: Sequence[Relation],
        seed: int,
        twin: int | None,
        effects: Sequence[Effect] = (),
    ) -> tuple[Packed, int]:
        """The sums of some batches, of the model itself or of its twin, shuffled by this seed, and
        how many of them were read in halves.
        """
        model = self._load(asked, twin)
        setting = Setting(model, relations, seed, effects)
        done = empty_pass(model, relations, effects)
        halved = 0
        for step in steps:
            part = setting.read(step, setting.prepare(step.batch))
            part.add_to(done.tally)
            halved += part.halved
        return pack(done.tally), halved

    @_told
    def token_losses(self, asked: Asked, targets: Sequence[Targets]) -> ndarray:
        """The model's loss of some tokens; see `headscope.measure.sanity.token_losses`."""
        self._load(asked, None)
        return self._here.token_losses(targets)

    @_told
    def find_examples(
        self,
        asked: Asked,
        windows: Sequence[Window],
        relations: Sequence[Relation],
        wanted: Sequence[Wanted],
        seed: int,
    ) -> list[Example]:
        """Examples of some heads; see `headscope.measure.examples.find_examples`."""
        self._load(asked, None)
        return self._here.find_examples(windows, relations, wanted, seed=seed)

    def _load(self, asked: Asked, twin: int | None) -> Model:
        if self._state != (asked, twin):
            self._state = None
            self._twin.close()  # every entry goes back to where it was
            model = self._here.open(asked.name, **asked.how)
            if twin is not None:
                self._twin.enter_context(shuffled(model.engine, seed=twin))
            self._state = asked, twin
        return self._here.model


@dataclass
class Elsewhere:
    """The engine of a model that other processes hold: nothing but its name can be had here."""

    name: str
    layers: int
    logarithms: bool = False

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Not here."""
        raise ModelError(_ELSEWHERE)

    def run(
        self,
        tokens: torch.Tensor,
        tiles: Sequence[Read],
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


def pack(tally: Tally) -> Packed:
    """A tally's arrays without their zeros, which are most of those of a few batches."""
    packed = {}
    for name, array in tally.arrays().items():
        places = np.flatnonzero(array)
        packed[name] = (places, array.ravel()[places])
    return packed


def unpack(packed: Packed, like: Tally) -> Tally:
    """The tally again, in the shape of another."""
    tally = Tally.zeros(like.relations, like.numbers, like.heads)
    for name, array in tally.arrays().items():
        places, values = packed[name]
        array.reshape(-1)[places] = values
    return tally
