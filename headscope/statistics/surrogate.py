"""Surrogates: models of single heads that are fitted on the surface of a text alone.

A head's surrogate is the flattest attention that gives every class of cells of `surface.VIEWS` the
share that the head gives it: a softmax over keys of a sum with one weight for each class, those of
each part of speech of the query separately, found by iterative scaling (Darroch and Ratcliff 1972).
It is fitted on one half of the documents and judged on the other, on all words of a part of speech,
and never sees what a relation asks for. What a head has from the surface its surrogate has too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.surrogate_rows import Cells, SurrogateRequest, SurrogateRows
from headscope.progress import OnProgress, silent
from headscope.relations.relation import Relation
from headscope.statistics.bootstrap import estimate
from headscope.statistics.surrogate_model import fit, predict, strongest_cells

HEADS_AT_ONCE = 64
"""Heads that are fitted together, which bounds memory."""


@dataclass(frozen=True)
class SurrogateScore:
    """A head beside its surrogate, at the queries of a relation on both halves of the documents."""

    mass: float
    """The surrogate's attention on the targets, in [0, 1]."""
    hit_rate: float
    """Share of queries at which the surrogate's strongest word is a target, in [0, 1]."""
    beyond: float
    """Margin at queries at which that word is not a target: the head's attention on the target
    word that has most of it, minus that on the word; 0 or less for a surrogate."""
    low: float
    """Lower bound of its 95 % interval, from resampled blocks of documents."""
    high: float


NO_SURROGATE = SurrogateScore(*[float("nan")] * 5)


def score_surrogates(
    rows: SurrogateRows | None,
    relations: Sequence[Relation],
    requests: Sequence[SurrogateRequest],
    *,
    seed: int,
    progress: OnProgress = silent,
) -> list[SurrogateScore]:
    """Scores of the surrogates of some heads, in the order of the requests.

    Args:
        rows: rows of these heads; None if no window has a query.
        relations: the relations that requests number.
        requests: heads, each with a relation.
        seed: seeds the bootstrap.
        progress: called in the second half of a progress whose first is the reading of the rows.
    """
    if rows is None:
        return [NO_SURROGATE] * len(requests)
    surrogates = _Surrogates.of(rows, relations, requests)
    surrogates.fit(progress)
    return [surrogates.score(request, seed) for request in requests]


@dataclass(frozen=True, eq=False)
class _Targets:
    """Targets of a relation, and what the heads' surrogates attend to them."""

    cells: Cells
    slots: Sequence[int]
    """Heads that are judged by this relation."""
    surrogate: Float[ndarray, "head target"]
    """0 before the fit."""


@dataclass(frozen=True, eq=False)
class _Surrogates:
    """The surrogates of heads, fitted one part of speech of queries after the other."""

    rows: SurrogateRows
    targets: dict[int, _Targets]
    """Targets by the number of a relation."""
    slot_of_head: dict[tuple[int, int], int]
    strongest: Int[ndarray, "head row"]
    """The cell of each row that a head's surrogate picks among words."""

    @classmethod
    def of(
        cls,
        rows: SurrogateRows,
        relations: Sequence[Relation],
        requests: Sequence[SurrogateRequest],
    ) -> _Surrogates:
        """Surrogates that are not yet fitted."""
        slot_of_head = {head: slot for slot, head in enumerate(rows.heads)}
        slots_of: dict[int, list[int]] = {}
        for request in requests:
            slots = slots_of.setdefault(request.relation, [])
            slots.append(slot_of_head[request.layer_and_head])
        targets = {}
        for number, slots in slots_of.items():
            cells = rows.targets(relations[number])
            no_attention = np.zeros((len(rows.heads), len(cells.cell)), np.float32)
            targets[number] = _Targets(cells, slots, no_attention)
        strongest = np.zeros((len(rows.heads), len(rows.sizes)), np.int64)
        return cls(rows, targets, slot_of_head, strongest)

    def fit(self, progress: OnProgress) -> None:
        """Fit surrogates, each half of the documents on the other half."""
        rows = self.rows
        classes = np.unique(rows.upos).tolist()
        for done, upos in enumerate(classes, start=1):
            targets_of_class = []
            slots_of_class: set[int] = set()
            for targets in self.targets.values():
                if upos in rows.upos[targets.cells.row]:
                    targets_of_class.append(targets)
                    slots_of_class.update(targets.slots)
            slots = sorted(slots_of_class)
            for start in range(0, len(slots), HEADS_AT_ONCE):
                batch = slots[start : start + HEADS_AT_ONCE]
                self._fit_class(upos, batch, targets_of_class)
            progress(rows.length + rows.length * done // len(classes), 2 * rows.length)

    def _fit_class(self, upos: int, slots: Sequence[int], relations: Sequence[_Targets]) -> None:
        """Fit surrogates of heads at the words of a part of speech.

        Keep the strongest cells of the surrogates, and their attention on targets.
        """
        rows = self.rows
        is_of_class = rows.upos == upos
        half_of_row = rows.block % 2
        for half in (0, 1):
            fitted = is_of_class & (half_of_row != half)
            judged = is_of_class & (half_of_row == half)
            if not judged.any():
                continue
            views, sizes = self._cells(fitted)
            logits = fit(views, sizes, self._attention(slots, fitted))
            views, sizes = self._cells(judged)
            surrogate = predict(logits, views, sizes).T.numpy()
            self._keep_strongest(slots, judged, surrogate)
            cells = np.flatnonzero(np.repeat(judged, rows.sizes))
            for targets in relations:
                numbers = np.flatnonzero(judged[targets.cells.row])
                column = np.searchsorted(cells, targets.cells.cell[numbers])
                targets.surrogate[np.array(slots)[:, None], numbers] = surrogate[:, column]

    def _keep_strongest(
        self,
        slots: Sequence[int],
        judged: Bool[ndarray, " row"],
        surrogate: Float[ndarray, "head cell"],
    ) -> None:
        """Keep the strongest word of each of some rows."""
        cells = np.flatnonzero(np.repeat(judged, self.rows.sizes))
        is_word = self.rows.is_word[cells]
        for slot, of_head in zip(slots, surrogate, strict=True):
            strength = np.where(is_word, of_head, -1.0)
            strongest = strongest_cells(strength, self.rows.sizes[judged])
            self.strongest[slot, judged] = cells[strongest]

    def _cells(
        self, judged: Bool[ndarray, " row"]
    ) -> tuple[list[Int[ndarray, " cell"]], Int[ndarray, " judged"]]:
        """Views of the cells of some rows, and the sizes of these rows."""
        cells = np.repeat(judged, self.rows.sizes)
        return [view[cells] for view in self.rows.views], self.rows.sizes[judged]

    def _attention(
        self, slots: Sequence[int], judged: Bool[ndarray, " row"]
    ) -> Float[Tensor, "cell head"]:
        cells = np.flatnonzero(np.repeat(judged, self.rows.sizes))
        return torch.from_numpy(self.rows.attention[np.array(slots), cells[:, None]])

    def score(self, request: SurrogateRequest, seed: int) -> SurrogateScore:
        """The score of a head's surrogate by a relation."""
        targets = self.targets[request.relation]
        cells = targets.cells
        if not len(cells.row):
            return NO_SURROGATE
        slot = self.slot_of_head[request.layer_and_head]
        queries, query = np.unique(cells.row, return_inverse=True)
        picks = self.strongest[slot, queries]
        is_pick = cells.cell == picks[query]
        right = np.zeros(len(queries), bool)
        np.logical_or.at(right, query, is_pick)
        attention = self.rows.attention[slot]
        surrogate_mass = np.bincount(query, targets.surrogate[slot])
        # one word against one word: a head that is right may attend to one target of many
        best_target = np.zeros(len(queries))
        np.maximum.at(best_target, query, attention[cells.cell])
        margin = best_target - attention[picks]
        block = self.rows.block[queries[~right]]
        # bincount of nothing has integers
        beyond = np.bincount(block, margin[~right]).astype(float)
        margin_estimate = estimate(beyond, np.bincount(block), seed=seed)
        return SurrogateScore(
            mass=float(surrogate_mass.mean()),
            hit_rate=float(right.mean()),
            beyond=margin_estimate.mean,
            low=margin_estimate.low,
            high=margin_estimate.high,
        )
