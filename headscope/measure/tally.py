"""The running sums of a run.

Batches add up exactly and in any order. A merge of blocks has its place in the order of batches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.relations import all_stimuli
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.stimulus import MAX_DOCUMENTS, MIN_DOCUMENTS

BLOCKS = MAX_DOCUMENTS
"""Documents are dealt into blocks like cards; intervals come from resampling blocks."""
MIN_BLOCKS = MIN_DOCUMENTS
"""Fewer blocks than this cannot say how sure they are: no interval, no q value, no tag."""
PROFILES = 16
"""Windows that are profiled at most. A profile describes and decides nothing, so that its cost need
not grow with the run."""
OFFSETS = 9
"""Diagonals of the profile: from the current token to eight back."""
CORNER = 10
"""Tokens of the corner on which variability is measured (Vig & Belinkov 2019 use 10)."""
SIDE = 24
"""Tokens of a window whose mean pattern is kept, as a picture of the head."""
GRAIN = 2.0**-24
"""Unit of all numbers that are added to a tally, finer than the rounding of single precision.
Doubles add multiples of it without any rounding up to 2²⁹, so that a tally does not depend on the
order in which its parts were added, nor on how they were dealt to processes."""


def pictured() -> list[str]:
    """Stimuli beside text of which mean patterns are kept."""
    return [row.name for row in all_stimuli().values() if row.picture and row is not TEXT]


def picture_title(stimulus: str) -> str:
    """Words for what a picture shows; the first token, where heads attend to sinks, is left out of
    it.
    """
    picture = all_stimuli()[stimulus].picture
    return picture.format(side=SIDE, half=SIDE // 2, start=SIDE // 2 - 1)


def grained(values: Float[ndarray, "*shape"]) -> Float[ndarray, "*shape"]:
    """Values rounded to what a tally adds exactly."""
    return np.asarray(np.rint(values / GRAIN) * GRAIN)


@dataclass
class Profile:
    """Sums that describe a head's pattern on at most 16 text windows.

    All are sums over the queries from position 1 on, whose number is `queries`. `corner`, `mean`
    and `stimulus_mean` are sums of patterns, cell by cell; `stimulus_mean` is of other stimuli's
    windows. `headscope.measure.profile` divides them and says what they mean.
    """

    queries: Float[ndarray, ""]
    entropy: Float[ndarray, "layer head"]
    distance: Float[ndarray, "layer head"]
    first_token: Float[ndarray, "layer head"]
    sink: Float[ndarray, "layer head"]
    spread: Float[ndarray, "layer head"]
    diagonal: Float[ndarray, "layer head offset"]
    stripe: Float[ndarray, "layer head"]
    sentence: Float[ndarray, "layer head"]
    corners: Float[ndarray, " window"]
    corner: Float[ndarray, "window layer head cell"]
    mean: Float[ndarray, "layer head pixel"]
    mean_queries: Float[ndarray, " query"]
    """Number of windows that `mean` is summed over, by query position."""
    stimulus_mean: Float[ndarray, "stimulus layer head pixel"]
    """The same as `mean` on windows of each of `pictured()`."""
    stimulus_queries: Float[ndarray, "stimulus query"]

    @classmethod
    def zeros(cls, layers: int, heads: int) -> Profile:
        """An empty profile."""
        # corners stay apart by window, as variability compares windows; all else is a sum over them
        per_head = (layers, heads)
        return cls(
            queries=np.zeros(()),
            entropy=np.zeros(per_head),
            distance=np.zeros(per_head),
            first_token=np.zeros(per_head),
            sink=np.zeros(per_head),
            spread=np.zeros(per_head),
            diagonal=np.zeros((*per_head, OFFSETS)),
            stripe=np.zeros(per_head),
            sentence=np.zeros(per_head),
            corners=np.zeros(PROFILES),
            corner=np.zeros((PROFILES, *per_head, CORNER * CORNER)),
            mean=np.zeros((*per_head, SIDE * SIDE)),
            mean_queries=np.zeros(SIDE),
            stimulus_mean=np.zeros((len(pictured()), *per_head, SIDE * SIDE)),
            stimulus_queries=np.zeros((len(pictured()), SIDE)),
        )

    def __iadd__(self, other: Profile) -> Profile:
        """Add another profile of the same layers and heads."""
        for column in fields(Profile):
            array = getattr(self, column.name)
            array += getattr(other, column.name)
        return self


@dataclass
class Tally:
    """Sums per block × relation × layer × head, and what they are divided by.

    A relation here is a relation of attention, a direct effect, or a part of either
    (`headscope.relations.parts`). What they sum differs:

    =================== ======================== ========================= ===================
    relation            `target`, `control`      `hits`                    divisor
    =================== ======================== ========================= ===================
    of attention        attention on the cells   queries whose largest     `queries`
                                                 attention is on a target
    hard, easy queries  see below                preference for targets    `queries`
    direct effect       logits of the tokens     weights of the queries    `hits`, by head
    =================== ======================== ========================= ===================

    Hard and easy queries have no control, so that columns serve another purpose: `target` is the
    number of queries whose largest attention, sinks left out, is on a target; `control` and
    `chance` are the parts of `hits` and `queries` that lie in the challenge set.
    """

    relations: tuple[str, ...]
    target: Float[ndarray, "block relation layer head"]
    control: Float[ndarray, "block relation layer head"]
    hits: Float[ndarray, "block relation layer head"]
    queries: Float[ndarray, "block relation"]
    chance: Float[ndarray, "block relation"]
    profile: Profile
    numbers: tuple[int, ...]
    """Numbers of the read layers in the model: of a hybrid not all are read."""

    @classmethod
    def zeros(cls, relations: tuple[str, ...], layers: int | Sequence[int], heads: int) -> Tally:
        """An empty tally."""
        numbers = tuple(range(layers) if isinstance(layers, int) else layers)
        layers = len(numbers)
        per_head, per_block = (layers, heads), (BLOCKS, len(relations))
        return cls(
            relations=relations,
            numbers=numbers,
            target=np.zeros((*per_block, *per_head)),
            control=np.zeros((*per_block, *per_head)),
            hits=np.zeros((*per_block, *per_head)),
            queries=np.zeros(per_block),
            chance=np.zeros(per_block),
            profile=Profile.zeros(layers, heads),
        )

    @property
    def layers(self) -> int:
        """Number of layers that are read."""
        return int(self.target.shape[2])

    @property
    def heads(self) -> int:
        """Number of heads in a layer."""
        return int(self.target.shape[3])

    @property
    def size(self) -> int:
        """Bytes of all sums."""
        return sum(array.nbytes for array in self.arrays().values())

    def arrays(self) -> dict[str, ndarray]:
        """Every array by name, those of the profile as `profile.NAME`; not copies."""
        arrays: dict[str, ndarray] = {}
        for column in fields(self):
            if column.name not in _NO_ARRAYS:
                arrays[column.name] = getattr(self, column.name)
        for column in fields(Profile):
            arrays[f"profile.{column.name}"] = getattr(self.profile, column.name)
        return arrays

    def merge(self, into: Int[ndarray, " block"], untouched: Collection[str] = ()) -> None:
        """Give the sums of each block to the block `into[block]`; several may become one.

        Args:
            into: the block that each block's sums go to.
            untouched: relations whose blocks stay as they are, as they are of other documents.
        """
        moved = np.array([name not in untouched for name in self.relations])
        for array in (self.target, self.control, self.hits, self.queries, self.chance):
            before = array[:, moved]
            after = np.zeros_like(before)
            np.add.at(after, into, before)
            array[:, moved] = after


_NO_ARRAYS = ("relations", "profile", "numbers")
