"""Surrogates: models of single heads that are fitted on the surface of a text alone.

A head's surrogate is the flattest attention that gives every class of cells of `surface.VIEWS` the
share that the head gives it. This is a softmax over keys of a sum with one weight for each class.
The weights are found by iterative scaling (Darroch and Ratcliff 1972), separately for each part of
speech of the query. The surrogate is fitted on one half of the documents and judged on the other,
on all words of a part of speech, and never sees what a relation asks for. What a head has from the
surface its surrogate has too.

Head and surrogate are compared on the same rows as at hard queries: among the words of the parts of
speech that targets have, the one with most attention is a target or is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.measure.sparse import summing_matrix
from headscope.measure.surrogate_rows import Cells, SurrogateRequest, SurrogateRows
from headscope.progress import OnProgress, silent
from headscope.relations.hard_queries import least_attention
from headscope.relations.relation import Relation
from headscope.statistics.conditions import FEWEST_WRONG
from headscope.statistics.ratio import rate_interval, ratio_influence

HEADS_AT_ONCE = 64
"""Heads that are fitted together, which bounds memory."""
ROUNDS = 6
"""Number of rounds; each scales the weights of every view once, and then the rows to sum to 1."""
PRIOR = 0.5
"""Attention, in rows, that is added to both sums of a class, that of the head and that of the
surrogate, so that the weight of a rare class stays near 1."""


@dataclass(frozen=True)
class SurrogateScore:
    """A head beside its surrogate, at the queries of a relation on both halves of the documents."""

    mass: float
    """The surrogate's attention on the targets, in [0, 1]."""
    hit_rate: float
    """Share of queries at which the surrogate gives a target more attention than every other
    candidate, in [0, 1]."""
    wrong: float
    """Number of queries at which it does not."""
    beyond: float
    """Share of these at which the head gives a target the most attention of all candidates; NaN if
    they are fewer than five."""
    low: float
    """Lower end of its 95 % interval: the wider of Wilson's, and Student's over blocks."""
    high: float

    def columns(self) -> dict[str, float]:
        """The score as columns of `evidence.csv`: `SURROGATE_COLUMNS`."""
        return {
            "surrogate_mass": self.mass,
            "surrogate_hit_rate": self.hit_rate,
            "surrogate_wrong": self.wrong,
            "beyond_surrogate": self.beyond,
            "beyond_low": self.low,
            "beyond_high": self.high,
        }


_UNKNOWN = float("nan")
NO_SURROGATE = SurrogateScore(
    mass=_UNKNOWN,
    hit_rate=_UNKNOWN,
    wrong=0.0,
    beyond=_UNKNOWN,
    low=_UNKNOWN,
    high=_UNKNOWN,
)
"""Score of a head that was asked for, where no query of its relation was read again."""


def score_surrogates(
    rows: SurrogateRows | None,
    relations: Sequence[Relation],
    requests: Sequence[SurrogateRequest],
    *,
    progress: OnProgress = silent,
) -> dict[SurrogateRequest, SurrogateScore]:
    """Scores of the surrogates of some heads.

    Args:
        rows: rows of these heads; None if no window has a query.
        relations: the relations that requests number.
        requests: heads, each with a relation.
        progress: called in the second half of a progress whose first is the reading of the rows.
    """
    if rows is None:
        return dict.fromkeys(requests, NO_SURROGATE)
    surrogates = _Surrogates.of(rows, relations, requests)
    surrogates.fit(progress)
    return {request: surrogates.score(request) for request in requests}


@dataclass(frozen=True, eq=False)
class _Groups:
    """Cells of rows, grouped by row, so that sums and maxima of each row are taken at once."""

    rows: Int[ndarray, " group"]
    starts: Int[ndarray, " group"]
    cell: Int[ndarray, " cell"]

    @classmethod
    def of(cls, cells: Cells) -> _Groups:
        """Groups of cells, which are in the order of rows."""
        rows, starts = np.unique(cells.row, return_index=True)
        return cls(rows, starts, cells.cell)

    def of_rows(self, is_row: Bool[ndarray, " row"]) -> _Groups:
        """The groups of some rows."""
        is_group = is_row[self.rows]
        sizes = np.diff(self.starts, append=len(self.cell))
        kept_sizes = sizes[is_group]
        return _Groups(
            rows=self.rows[is_group],
            starts=np.cumsum(kept_sizes) - kept_sizes,
            cell=self.cell[np.repeat(is_group, sizes)],
        )

    def sums(self, attention: Float[ndarray, "head cell"]) -> Float[ndarray, "head group"]:
        """Attention of each group, of its cells' own attention in their order."""
        return np.asarray(np.add.reduceat(attention, self.starts, axis=1))

    def largest(self, attention: Float[ndarray, "head cell"]) -> Float[ndarray, "head group"]:
        """Largest attention in each group."""
        return np.asarray(np.maximum.reduceat(attention, self.starts, axis=1))


@dataclass(frozen=True, eq=False)
class _Judged:
    """Queries of a relation, and how the heads' surrogates do there."""

    slots: Sequence[int]
    """Heads that are judged by this relation."""
    targets: _Groups
    others: _Groups
    """Other candidates; a query may have none."""
    mass: Float[ndarray, "head query"]
    """Attention of surrogates on targets; 0 before the fit, as for heads of other relations."""
    least_attention: float
    """Least attention on targets; with less the head does not count as right."""
    prefers: Bool[ndarray, "head query"]
    """True where the surrogate has more attention on a target than on every other candidate."""

    @classmethod
    def of(cls, rows: SurrogateRows, relation: Relation, slots: Sequence[int]) -> _Judged:
        """Queries of a relation before the fit."""
        cells = rows.targets(relation)
        targets = _Groups.of(cells)
        shape = len(rows.heads), len(targets.rows)
        return cls(
            slots=slots,
            targets=targets,
            others=_Groups.of(rows.other_candidates(cells)),
            mass=np.zeros(shape),
            least_attention=least_attention(relation),
            prefers=np.zeros(shape, bool),
        )

    def keep(
        self,
        slots: Sequence[int],
        judged: Bool[ndarray, " row"],
        surrogate: Float[ndarray, "head cell"],
        cells: Int[ndarray, " cell"],
    ) -> None:
        """Keep what surrogates attend to on some rows, of whose cells `cells` are the places."""
        targets = self.targets.of_rows(judged)
        if not len(targets.rows):
            return
        on_targets = surrogate[:, np.searchsorted(cells, targets.cell)]
        others = self.others.of_rows(judged)
        on_others = surrogate[:, np.searchsorted(cells, others.cell)]
        query = np.searchsorted(self.targets.rows, targets.rows)
        cells_of_slots = np.array(slots)[:, None], query
        self.mass[cells_of_slots] = targets.sums(on_targets)
        self.prefers[cells_of_slots] = _prefers(targets, on_targets, others, on_others)

    def preferred_by(self, attention: Float[ndarray, " cell"]) -> Bool[ndarray, " query"]:
        """Queries at which a head gives a target the most attention, by its attention on cells."""
        on_targets = attention[None, self.targets.cell]
        on_others = attention[None, self.others.cell]
        prefers = _prefers(self.targets, on_targets, self.others, on_others)[0]
        attends = self.targets.sums(on_targets)[0] >= self.least_attention
        return np.asarray(prefers & attends)


def _prefers(
    targets: _Groups,
    on_targets: Float[ndarray, "head target"],
    others: _Groups,
    on_others: Float[ndarray, "head other"],
) -> Bool[ndarray, "head query"]:
    """True where a target has more attention than every other candidate of its query."""
    largest_other = np.full((len(on_targets), len(targets.rows)), -1.0)
    if len(others.rows):
        query = np.searchsorted(targets.rows, others.rows)
        largest_other[:, query] = others.largest(on_others)
    return np.asarray(targets.largest(on_targets) > largest_other)


@dataclass(frozen=True, eq=False)
class _Surrogates:
    """The surrogates of heads, fitted one part of speech of queries after the other."""

    rows: SurrogateRows
    judged: dict[int, _Judged]
    """Judged queries by the number of a relation."""
    slot_of_head: dict[tuple[int, int], int]

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
        judged = {}
        for number, slots in slots_of.items():
            judged[number] = _Judged.of(rows, relations[number], slots)
        return cls(rows, judged, slot_of_head)

    def fit(self, progress: OnProgress) -> None:
        """Fit surrogates, each half of the documents on the other half."""
        rows = self.rows
        classes = np.unique(rows.upos).tolist()
        for done, upos in enumerate(classes, start=1):
            # a part of speech is fitted only for heads that have a query of it
            judged_by_class = []
            slots_of_class: set[int] = set()
            for judged in self.judged.values():
                if upos in rows.upos[judged.targets.rows]:
                    judged_by_class.append(judged)
                    slots_of_class.update(judged.slots)
            slots = sorted(slots_of_class)
            for start in range(0, len(slots), HEADS_AT_ONCE):
                batch = slots[start : start + HEADS_AT_ONCE]
                self._fit_class(upos, batch, judged_by_class)
            progress(rows.length + rows.length * done // len(classes), 2 * rows.length)

    def _fit_class(self, upos: int, slots: Sequence[int], relations: Sequence[_Judged]) -> None:
        """Fit surrogates of heads at the words of a part of speech, and compare them there."""
        rows = self.rows
        is_of_class = rows.upos == upos
        # halves are of blocks of documents, so that no document is on both sides
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
            cells = np.flatnonzero(np.repeat(judged, rows.sizes))
            for relation in relations:
                relation.keep(slots, judged, surrogate, cells)

    def _cells(
        self, is_row: Bool[ndarray, " row"]
    ) -> tuple[list[Int[ndarray, " cell"]], Int[ndarray, " kept"]]:
        """Views of the cells of some rows, and the sizes of these rows."""
        cells = np.repeat(is_row, self.rows.sizes)
        return [view[cells] for view in self.rows.views], self.rows.sizes[is_row]

    def _attention(
        self, slots: Sequence[int], is_row: Bool[ndarray, " row"]
    ) -> Float[Tensor, "cell head"]:
        cells = np.flatnonzero(np.repeat(is_row, self.rows.sizes))
        return torch.from_numpy(self.rows.attention[np.array(slots), cells[:, None]])

    def score(self, request: SurrogateRequest) -> SurrogateScore:
        """The score of a head's surrogate by a relation."""
        judged = self.judged[request.relation]
        queries = judged.targets.rows
        # no window with a query of this relation was read again
        if not len(queries):
            return NO_SURROGATE
        slot = self.slot_of_head[request.layer_and_head]
        is_right = judged.prefers[slot]
        wrong = int((~is_right).sum())
        score = SurrogateScore(
            mass=float(judged.mass[slot].mean()),
            hit_rate=float(is_right.mean()),
            wrong=float(wrong),
            beyond=_UNKNOWN,
            low=_UNKNOWN,
            high=_UNKNOWN,
        )
        if wrong < FEWEST_WRONG:
            return score
        # where the surrogate is wrong the surface does not explain what the head does
        head_is_right = judged.preferred_by(self.rows.attention[slot])[~is_right]
        beyond = np.array([head_is_right.mean()])
        # queries of a block of documents resemble each other
        block = self.rows.block[queries[~is_right]]
        hits_of_block = np.bincount(block, head_is_right)[:, None]
        queries_of_block = np.bincount(block)[:, None]
        interval = rate_interval(
            beyond,
            ratio_influence(hits_of_block, queries_of_block),
            queries=float(wrong),
            items=int((queries_of_block > 0).sum()),
        )
        return replace(
            score, beyond=float(beyond[0]), low=float(interval.low[0]), high=float(interval.high[0])
        )


def fit(
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
    attention: Float[Tensor, "cell head"],
) -> list[Float[Tensor, "class head"]]:
    """Logits of surrogates, for each view those of its classes.

    Args:
        views: the class of each cell, by view.
        sizes: the cells of each row; rows follow one another.
        attention: of the heads; a row that sums to less than 1 has a learned sink.
    """
    heads = attention.shape[1]
    if not len(sizes):
        return [attention.new_zeros(0, heads)] * len(views)
    row, row_sums = _grouped(_row_of_cell(sizes))
    # a learned sink takes part of a row: what is left of it sums to 1
    attended = (row_sums @ attention)[row]
    attention = attention / attended.where(attended > 0, 1)
    # each class shall have as much attention of the surrogate as of the head
    groups = [_grouped(view) for view in views]
    goals = [sums @ attention + PRIOR for _, sums in groups]
    logits = [torch.zeros_like(goal) for goal in goals]
    # from even attention, each view in turn, and rows to 1 after each round
    surrogate = torch.ones_like(attention)
    surrogate /= (row_sums @ surrogate)[row]
    tiny = torch.finfo(surrogate.dtype).tiny
    for _ in range(ROUNDS):
        for (cell_class, sums), logit, goal in zip(groups, logits, goals, strict=True):
            reached = sums @ surrogate + PRIOR
            step = goal / reached
            logit += step.log()
            surrogate *= step.index_select(0, cell_class)
        total = (row_sums @ surrogate).clamp_min(tiny)
        surrogate *= (1 / total).index_select(0, row)
    return logits


def predict(
    logits: Sequence[Float[Tensor, "class head"]],
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
) -> Float[Tensor, "cell head"]:
    """The rows of surrogates, each summing to 1; classes that were not fitted have logit 0."""
    heads = logits[0].shape[1]
    cells = torch.zeros(len(views[0]), heads)
    for logit, view in zip(logits, views, strict=True):
        classes = int(view.max()) + 1
        unknown = max(0, classes - len(logit))
        known = nn.functional.pad(logit, (0, 0, 0, unknown))
        cell_class = torch.from_numpy(view).int()
        cells += known.index_select(0, cell_class)
    # a softmax of each row; less its largest, so that nothing overflows
    row, row_sums = _grouped(_row_of_cell(sizes))
    lengths = torch.from_numpy(sizes)
    largest = torch.segment_reduce(cells, "max", lengths=lengths, axis=0)
    largest_of_row = largest.index_select(0, row)
    strength = (cells - largest_of_row).exp()
    total = row_sums @ strength
    return strength / total.index_select(0, row)


def _row_of_cell(sizes: Int[ndarray, " row"]) -> Int[ndarray, " cell"]:
    return np.repeat(np.arange(len(sizes)), sizes)


def _grouped(
    group: Int[ndarray, " cell"],
) -> tuple[Int[Tensor, " cell"], Float[Tensor, "group cell"]]:
    """The group of each cell, and the matrix that adds up the cells of each group."""
    cells = np.arange(len(group))
    groups = int(group.max()) + 1
    weights = np.ones(len(cells))
    matrix = summing_matrix(group, cells, weights, (groups, len(cells)))
    return torch.from_numpy(group).int(), matrix
