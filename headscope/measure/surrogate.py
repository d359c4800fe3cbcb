"""Surrogates: models of single heads that are fitted on the surface of a text alone.

A head's surrogate is the flattest attention that gives every class of cells of `surface.VIEWS` the
share that the head gives it: a softmax over keys of a sum with one weight for each class, those of
each part of speech of the query separately, found by iterative scaling (Darroch and Ratcliff 1972).
It is fitted on one half of the documents and judged on the other, on all words of a part of speech,
and never sees what a relation asks for. What a head has from the surface its surrogate has too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch, assign_blocks, batches, in_memory
from headscope.measure.bootstrap import estimate
from headscope.measure.surface import Surface
from headscope.measure.surrogate_model import fit, predict, strongest_cells
from headscope.models.engines.engine import Rows, full_tile
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on
from headscope.progress import OnProgress, silent
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.challenge import CHALLENGE

MAX_TOKENS, MIN_TOKENS, SHARE = 16_384, 4_096, 0.3
"""Tokens that are read again for surrogates: a share of those of the run, between two limits."""
QUERIES = (50, 200)
"""Queries of a relation after which windows are chosen for other relations first, and after which
none is chosen for it."""
HEADS_AT_ONCE = 64
"""Heads that are fitted together, which bounds memory."""
LONGEST = 128
"""Tokens of a window that are read again. The cells of a window grow with the square of its length,
and many beginnings come from more documents than a few whole windows."""
Heads = Sequence[tuple[int, int]]


class SurrogateRequest(NamedTuple):
    """A head, and by its number among a run's relations one that its surrogate is judged by."""

    layer: int
    head: int
    relation: int


class SurrogateScore(NamedTuple):
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

RowTokens = Mapping[int, Int[ndarray, " query"]]
"""Tokens whose rows are read, by number of a window."""
ReadRows = Callable[
    [Sequence[Window], RowTokens, Heads],
    Iterable[tuple[int, Sequence[int], Float[ndarray, "head cell"]]],
]
"""Reads rows of heads: a window's number, slots among the heads, and the rows of the tokens one
after the other, each with the keys that it sees."""


class SurrogateText(NamedTuple):
    """Windows that surrogates may be fitted and judged on."""

    windows: Sequence[Window]
    tokens: int
    """To read again, to the end of a window."""
    seed: int
    """Seeds the choice of windows and the bootstrap."""


def score_surrogates(
    read: ReadRows,
    text: SurrogateText,
    relations: Sequence[Relation],
    requests: Sequence[SurrogateRequest],
    *,
    progress: OnProgress = silent,
) -> list[SurrogateScore]:
    """Scores of the surrogates of some heads, in the order of the requests."""
    if not requests:
        return []
    questions = {number: relations[number] for number in {want.relation for want in requests}}
    sample = chosen_pairs(text, list(questions.values()))
    if not sample:
        return [NO_SURROGATE] * len(requests)
    heads = sorted({(want.layer, want.head) for want in requests})
    rows = SurrogateRows.of(sample, questions, len(heads))
    sample_windows = [window_pairs.given for window_pairs in sample]
    length, read_rows = sum(map(len, sample_windows)), 0
    for window, slots, values in read(sample_windows, rows.tokens, heads):
        rows.add(window, slots, values)
        read_rows += len(slots)
        progress(length * read_rows // (len(rows.tokens) * len(heads)), 2 * length)
    targets = {number: rows.targets(relation) for number, relation in questions.items()}
    slots_of = {
        number: [heads.index(want[:2]) for want in requests if want.relation == number]
        for number in questions
    }
    classes = np.unique(rows.upos).tolist()
    for number, upos in enumerate(classes):
        tested = [number for number, cells in targets.items() if upos in rows.upos[cells.row]]
        slots = sorted({slot for relation in tested for slot in slots_of[relation]})
        for start in range(0, len(slots), HEADS_AT_ONCE):
            part = slots[start : start + HEADS_AT_ONCE]
            rows.fit_class(upos, part, [targets[relation] for relation in tested])
        progress(length + length * (number + 1) // len(classes), 2 * length)
    return [
        rows.score(heads.index(want[:2]), targets[want.relation], text.seed) for want in requests
    ]


def tokens_again(tokens_read: int) -> int:
    """Tokens that are read again after a run of so many tokens.

    >>> [tokens_again(tokens) for tokens in (1_000, 40_000, 1_000_000)]
    [4096, 12000, 16384]
    """
    return min(MAX_TOKENS, max(MIN_TOKENS, int(SHARE * tokens_read)))


def chosen_pairs(text: SurrogateText, relations: Sequence[Relation]) -> list[WindowPairs]:
    """The pairs of the windows of a text that are read again."""
    windows = choose_windows(text.windows, relations, tokens=text.tokens, seed=text.seed)
    return [WindowPairs(window) for window in windows]


def choose_windows(
    windows: Sequence[Window], relations: Sequence[Relation], *, tokens: int, seed: int
) -> list[Window]:
    """Windows with queries of relations, drawn at random for the rarest relation first.

    First until each relation has a few queries, then until it has enough, or no tokens are left.
    The turn of a window depends on its own tokens only: other windows do not change it.
    """
    # the pairs of all windows would not fit into memory: those of chosen ones are found again
    counts = np.array([_query_counts(WindowPairs(window), relations) for window in windows])
    order = np.argsort([_turn(window, seed) for window in windows], kind="stable")
    numbers: dict[int, None] = {}
    queries = np.zeros(len(relations), np.int64)
    for enough in QUERIES:
        for column in np.argsort(counts.sum(0), kind="stable") if len(counts) else ():
            for number in order[counts[order, column] > 0].tolist():
                if queries[column] >= enough or tokens <= 0:
                    break
                if number not in numbers:
                    numbers[number] = None
                    tokens -= len(windows[number])
                    queries += counts[number]
    return [windows[number] for number in sorted(numbers)]


def _turn(window: Window, seed: int) -> int:
    """A number of 63 bits, as good as drawn at random for this window by this seed."""
    tokens = np.ascontiguousarray(window.tokens, np.int64)
    digest = blake2b(str(seed).encode() + tokens.tobytes(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def _query_counts(window_pairs: WindowPairs, relations: Sequence[Relation]) -> list[int]:
    return [len(_targets(relation, window_pairs).queries) for relation in relations]


def _targets(relation: Relation, window_pairs: WindowPairs) -> Pairs:
    """Targets of a relation in windows of its stimuli and of the challenge set."""
    stimuli = (*relation.stimuli, CHALLENGE.name)
    return window_pairs.targets(relation) if window_pairs.window.stimulus in stimuli else no_pairs()


class TargetCells(NamedTuple):
    """Cells of the targets of a relation, each once."""

    row: Int[ndarray, " target"]
    cell: Int[ndarray, " target"]
    surrogate: Float[ndarray, "head target"]
    """Attention of the heads' surrogates on the targets; 0 before the fit."""


@dataclass(eq=False)
class SurrogateRows:
    """Rows of attention, word by word, with the classes of their cells; row follows row."""

    window_pairs: Sequence[WindowPairs]
    """Pairs of each window."""
    surfaces: Sequence[Surface]
    """Surface of each window; queries are all words of the parts of speech that relations ask."""
    views: Sequence[Int[ndarray, " cell"]]
    sizes: Int[ndarray, " row"]
    """Cells of each row, one for each word or other token that its query sees."""
    upos: Int[ndarray, " row"]
    block: Int[ndarray, " row"]
    is_word: Bool[ndarray, " cell"]
    """Cells whose key is a word, and another than the query."""
    attention: Float[ndarray, "head cell"]

    @classmethod
    def of(
        cls, sample: Sequence[WindowPairs], questions: Mapping[int, Relation], heads: int
    ) -> SurrogateRows:
        """Rows without attention, of the words of every part of speech that queries have."""
        windows = [window_pairs.window for window_pairs in sample]
        all_words = [Surface(window, np.empty(0, np.int64)) for window in windows]
        classes: set[int] = set()
        for window_pairs, surface in zip(sample, all_words, strict=True):
            for relation in questions.values():
                items = surface.item_of_token[_targets(relation, window_pairs).query]
                classes.update(surface.upos[items].tolist())
        surfaces = [surface.with_queries(classes) for surface in all_words]
        seen = [surface.is_seen for surface in surfaces]
        per_window = [surface.classes() for surface in surfaces]
        views = [
            np.concatenate([cells[mask] for cells, mask in zip(parts, seen, strict=True)])
            for parts in zip(*per_window, strict=True)
        ]
        words = [
            ((surface.word >= 0)[None, :] & (surface.steps != 0))[mask]
            for surface, mask in zip(surfaces, seen, strict=True)
        ]
        blocks = assign_blocks(windows).blocks
        return cls(
            sample,
            surfaces,
            views,
            np.concatenate([mask.sum(1) for mask in seen]),
            np.concatenate([surface.upos[surface.queries] for surface in surfaces]),
            np.repeat(blocks, [len(surface.queries) for surface in surfaces]),
            np.concatenate(words),
            np.zeros((heads, len(views[0])), np.float32),
        )

    def __post_init__(self) -> None:
        self.starts = np.cumsum(self.sizes) - self.sizes
        counts = [len(surface.queries) for surface in self.surfaces]
        self._first_row = np.cumsum([0, *counts])
        self.tokens = {
            number: surface.last[surface.queries]
            for number, surface in enumerate(self.surfaces)
            if len(surface.queries)
        }
        """The tokens whose rows are read, by window."""
        self.strongest = np.zeros((len(self.attention), len(self.sizes)), np.int64)
        """The cell of each row that a head's surrogate picks among words."""

    def add(self, window: int, slots: Sequence[int], values: Float[ndarray, "head cell"]) -> None:
        """Keep the rows of some heads on a window; attention on the tokens of a word is summed."""
        surface = self.surfaces[window]
        rows = slice(*self._first_row[window : window + 2])
        sizes, last = self.sizes[rows], surface.last
        row_tokens = last[sizes - 1] + 1
        offset = np.repeat(np.cumsum(row_tokens) - row_tokens, sizes)
        item = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first = np.append(0, last[:-1] + 1)
        start = int(self.starts[rows][0])
        summed = np.add.reduceat(values, offset + first[item], axis=1)
        self.attention[slots, start : start + len(item)] = summed

    def targets(self, relation: Relation) -> TargetCells:
        """The targets of a relation, without attention of surrogates."""
        pairs = [np.empty((2, 0), np.int64)]
        for number, surface in enumerate(self.surfaces):
            targets = _targets(relation, self.window_pairs[number])
            items = surface.item_of_token
            query, key = items[targets.query], items[targets.key]
            row = np.searchsorted(surface.queries, query)
            known = np.append(surface.queries, -1)[row] == query
            known &= surface.last[query] == targets.query
            row = self._first_row[number] + row[known]
            pairs.append(np.stack([row, self.starts[row] + key[known]]))
        row, cell = np.unique(np.concatenate(pairs, axis=1), axis=1)
        return TargetCells(row, cell, np.zeros((len(self.attention), len(cell)), np.float32))

    def fit_class(self, upos: int, slots: Sequence[int], relations: Sequence[TargetCells]) -> None:
        """Fit surrogates of heads at the words of a part of speech, each half on the other half.

        Keep the strongest cells of the surrogates, and their attention on targets.
        """
        is_fitted = self.upos == upos
        for half in (0, 1):
            in_half = self.block % 2 == half
            fitted, judged = is_fitted & ~in_half, np.flatnonzero(is_fitted & in_half)
            if not len(judged):
                continue
            logits = fit(*self._cells(fitted), self._attention(slots, fitted))
            surrogate = predict(logits, *self._cells(is_fitted & in_half)).T.numpy()
            cells = np.flatnonzero(np.repeat(is_fitted & in_half, self.sizes))
            for slot, of_head in zip(slots, surrogate, strict=True):
                self.strongest[slot, judged] = cells[
                    strongest_cells(
                        np.where(self.is_word[cells], of_head, -1.0), self.sizes[judged]
                    )
                ]
            for targets in relations:
                numbers = np.flatnonzero(np.isin(targets.row, judged))
                cell = np.searchsorted(cells, targets.cell[numbers])
                targets.surrogate[np.array(slots)[:, None], numbers] = surrogate[:, cell]

    def _cells(self, rows: Bool[ndarray, " row"]) -> tuple[list[ndarray], ndarray]:
        """Views of the cells of some rows, and the sizes of these rows."""
        cells = np.repeat(rows, self.sizes)
        return [view[cells] for view in self.views], self.sizes[rows]

    def _attention(
        self, slots: Sequence[int], rows: Bool[ndarray, " row"]
    ) -> Float[Tensor, "cell head"]:
        cells = np.flatnonzero(np.repeat(rows, self.sizes))
        return torch.from_numpy(self.attention[np.array(slots), cells[:, None]])

    def score(self, slot: int, targets: TargetCells, seed: int) -> SurrogateScore:
        """The score of a head's surrogate by a relation."""
        if not len(targets.row):
            return NO_SURROGATE
        queries, query = np.unique(targets.row, return_inverse=True)
        picks, cells = self.strongest[slot, queries], targets.cell
        right = np.zeros(len(queries), bool)
        np.logical_or.at(right, query, cells == picks[query])
        attention = self.attention[slot]
        surrogate_mass = np.bincount(query, targets.surrogate[slot])
        # one word against one word: a head that is right may attend to one target of many
        best_target = np.zeros(len(queries))
        np.maximum.at(best_target, query, attention[cells])
        margin = best_target - attention[picks]
        block = self.block[queries[~right]]
        # bincount of nothing has integers
        beyond = np.bincount(block, margin[~right]).astype(float)
        mean, low, high, _ = estimate(beyond, np.bincount(block), seed=seed)
        return SurrogateScore(float(surrogate_mass.mean()), float(right.mean()), mean, low, high)


def rows_of_model(
    model: Model, windows: Sequence[Window], tokens: RowTokens, heads: Heads
) -> Iterator[tuple[int, Sequence[int], ndarray]]:
    """Rows of a loaded model, which runs to the last layer of the heads; see `ReadRows`."""
    # in place of its block each window has its number
    numbered = Batch(windows, np.arange(len(windows)))
    for batch in batches(numbered, tokens=batch_tokens_on(model.device)):
        for rows in in_memory(batch, lambda part: _rows(model, part, tokens, heads)):
            yield from rows


def _rows(
    model: Model, batch: Batch, tokens: RowTokens, heads: Heads
) -> list[tuple[int, Sequence[int], ndarray]]:
    """Rows of some heads in a batch."""
    members = [
        (row, number, *map(torch.from_numpy, row_cells(batch.windows[row], tokens[number])))
        for row, number in enumerate(batch.blocks.tolist())
        if number in tokens
    ]
    results: list[tuple[int, Sequence[int], Tensor]] = []

    def on_layer(layer: int, all_rows: Iterable[Rows]) -> None:
        slots = [slot for slot, (at, _) in enumerate(heads) if at == layer]
        of_layer = [head for at, head in heads if at == layer]
        for rows in all_rows if slots else ():
            for row, number, query, key in members:
                values = rows[row, of_layer][:, query, key].float()
                results.append((number, slots, values.exp() if model.engine.logarithms else values))

    if members:
        ids, last = batch.tokens().to(model.device), max(layer for layer, _ in heads)
        model.engine.run(ids, [full_tile(*ids.shape)], on_layer, last + 1)
    return [(number, slots, values.cpu().numpy()) for number, slots, values in results]


def rows_of_patterns(
    patterns: Callable[[Sequence[Window]], Iterable[Float[Tensor, "layer head query key"]]],
    windows: Sequence[Window],
    tokens: RowTokens,
    heads: Heads,
) -> Iterator[tuple[int, Sequence[int], ndarray]]:
    """Rows of given patterns; see `ReadRows`."""
    for number, (pattern, window) in enumerate(zip(patterns(windows), windows, strict=True)):
        if number in tokens:
            query, key = row_cells(window, tokens[number])
            rows = [np.asarray(pattern[layer, head])[query, key] for layer, head in heads]
            yield number, range(len(heads)), np.stack(rows)


def row_cells(
    window: Window, tokens: Int[ndarray, " query"]
) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of the rows of some tokens, one row after the other."""
    ends = window.attention_kind.row_end(tokens, len(window))
    query = np.repeat(tokens, ends)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(ends) - ends, ends)
