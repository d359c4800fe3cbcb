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
from functools import cache, partial
from hashlib import blake2b
from itertools import product
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
from headscope.models.engines.engine import Rows, full_tile
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on
from headscope.progress import OnProgress, silent
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation, targets_of
from headscope.stimuli.challenge import CHALLENGE

ROUNDS = 6
"""Times that the weights of every view are scaled."""
PRIOR = 0.5
"""Rows' worth of attention that is added to what a class has and to what it should have: of a rare
class the other views decide."""
TOKENS = 16_384
"""Tokens of a run's windows that are read again for surrogates, at most."""
SHARE = 0.15
"""Share of what the model has read that is read again, and at least …"""
FEWEST_TOKENS = 4_096
"""… so many tokens."""
QUERIES = (50, 200)
"""Queries of a relation after which others come first, and no further window is taken for it."""

LONGEST = 1_024
"""Tokens of the longest window that is read again: cells of rows grow with their square."""
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
    """Margin at queries at which that word is no target: the head's attention on the targets less
    that on the word, times the number of the targets; 0 or less for a head that is a surrogate."""
    low: float
    """Lower bound of its 95 % interval, blocks of documents drawn anew."""
    high: float


NO_SURROGATE = SurrogateScore(*[float("nan")] * 5)

RowTokens = Mapping[int, Int[ndarray, " query"]]
"""Tokens whose rows are read, by number of a window."""
ReadRows = Callable[
    [Sequence[Window], RowTokens, Heads],
    Iterable[tuple[int, int, Float[ndarray, " cell"]]],
]
"""Reads rows of heads: a window's number, the head's slot among the heads, and the rows of the
tokens one after the other, each with the keys that it sees."""


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
    sample = choose_windows(
        text.windows, list(questions.values()), tokens=text.tokens, seed=text.seed
    )
    if not sample:
        return [NO_SURROGATE] * len(requests)
    heads = sorted({(want.layer, want.head) for want in requests})
    rows = SurrogateRows.of(sample, questions, len(heads))
    length = sum(map(len, sample))
    parts = len(rows.tokens) * len(heads)
    for part, (window, slot, values) in enumerate(read(sample, rows.tokens, heads)):
        rows.add(window, slot, values)
        progress(length * (part + 1) // parts, 2 * length)
    scores: dict[SurrogateRequest, SurrogateScore] = {}
    for slot, head in enumerate(heads):
        surrogate_of = cache(
            partial(rows.surrogate, slot)
        )  # of one head at a time, as they are large
        for want in requests:
            if (want.layer, want.head) == head:
                scores[want] = rows.score(slot, questions[want.relation], surrogate_of, text.seed)
        progress(length + length * (slot + 1) // len(heads), 2 * length)
    return [scores[want] for want in requests]


def tokens_again(tokens_read: int) -> int:
    """Tokens that are read again after so many.

    >>> [tokens_again(tokens) for tokens in (1_000, 60_000, 1_000_000)]
    [4096, 9000, 16384]
    """
    return min(TOKENS, max(FEWEST_TOKENS, int(SHARE * tokens_read)))


def choose_windows(
    windows: Sequence[Window], relations: Sequence[Relation], *, tokens: int, seed: int
) -> list[Window]:
    """Windows with queries of relations, drawn at random for the rarest relation first.

    First until each relation has a few queries, then until it has enough, or no tokens are left.
    A window's turn hangs on its own tokens alone, so that others that are read do not change it.
    """
    counts = np.array([[len(_targets(r, window).queries) for r in relations] for window in windows])
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


def _targets(relation: Relation, window: Window) -> Pairs:
    """A relation's targets in windows that it is asked in, or decided by."""
    stimuli = (*relation.stimuli, CHALLENGE.name)
    return targets_of(relation, window) if window.stimulus in stimuli else no_pairs()


@dataclass(eq=False)
class SurrogateRows:
    """Rows of attention, word by word, with the classes of their cells; row follows row."""

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
        cls, windows: Sequence[Window], questions: Mapping[int, Relation], heads: int
    ) -> SurrogateRows:
        """Rows without attention, of the words of every part of speech that is asked."""
        all_words = [Surface(window, np.empty(0, np.int64)) for window in windows]
        classes: set[int] = set()
        for surface, relation in product(all_words, questions.values()):
            items = surface.item_of_token[_targets(relation, surface.window).query]
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

    def add(self, window: int, slot: int, values: Float[ndarray, " cell"]) -> None:
        """Keep the rows of a head on a window, the tokens of a word added up."""
        surface = self.surfaces[window]
        rows = slice(*self._first_row[window : window + 2])
        sizes, last = self.sizes[rows], surface.last
        row_tokens = last[sizes - 1] + 1
        offset = np.repeat(np.cumsum(row_tokens) - row_tokens, sizes)
        item = np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        first = np.append(0, last[:-1] + 1)
        start = int(self.starts[rows][0])
        summed = np.add.reduceat(values, offset + first[item])
        self.attention[slot, start : start + len(summed)] = summed

    def surrogate(self, slot: int, upos: int) -> Float[ndarray, " cell"]:
        """A head's surrogate at the words of a part of speech, both halves; 0 in all other rows."""
        surrogate = np.zeros(self.attention.shape[1])
        for half in (0, 1):
            of_class = self.upos == upos
            fitted, judged = (
                of_class & (self.block % 2 != half),
                of_class & (self.block % 2 == half),
            )
            cells = np.repeat(judged, self.sizes)
            if cells.any():
                weights = self._fit(slot, fitted)
                views = [view[cells] for view in self.views]
                surrogate[cells] = predict(weights, views, self.sizes[judged])
        return surrogate

    def _fit(self, slot: int, rows: Bool[ndarray, " row"]) -> list[Float[ndarray, " class"]]:
        cells, sizes = np.repeat(rows, self.sizes), self.sizes[rows]
        attention = self.attention[slot, cells].astype(float)
        if len(sizes):
            # a learned sink leaves less than 1
            total = np.add.reduceat(attention, np.cumsum(sizes) - sizes)
            attention /= np.repeat(np.where(total > 0, total, 1), sizes)
        return fit([view[cells] for view in self.views], sizes, attention)

    def score(
        self,
        slot: int,
        relation: Relation,
        surrogate_of: Callable[[int], Float[ndarray, " cell"]],
        seed: int,
    ) -> SurrogateScore:
        """The score of a head's surrogate by a relation."""
        rows, cells = self._targets(relation)
        if not len(rows):
            return NO_SURROGATE
        queries, query = np.unique(rows, return_inverse=True)
        classes = np.unique(self.upos[queries]).tolist()
        surrogate = np.sum([surrogate_of(upos) for upos in classes], axis=0)
        picks = self._strongest(surrogate, queries)
        right = np.zeros(len(queries), bool)
        np.logical_or.at(right, query, cells == picks[query])
        attention = self.attention[slot]
        mass, surrogate_mass, targets = (
            np.bincount(query, values)
            for values in (attention[cells], surrogate[cells], cells >= 0)
        )
        block = self.block[queries[~right]]
        # bincount of nothing has integers
        beyond = np.bincount(block, (mass - targets * attention[picks])[~right]).astype(float)
        mean, low, high, _ = estimate(beyond, np.bincount(block), seed=seed)
        return SurrogateScore(float(surrogate_mass.mean()), float(right.mean()), mean, low, high)

    def _targets(self, relation: Relation) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
        """Rows of a relation's queries, and the cells of their targets, each once."""
        pairs = [np.empty((2, 0), np.int64)]
        for number, surface in enumerate(self.surfaces):
            targets = _targets(relation, surface.window)
            items = surface.item_of_token
            query, key = items[targets.query], items[targets.key]
            row = np.searchsorted(surface.queries, query)
            known = np.append(surface.queries, -1)[row] == query
            known &= surface.last[query] == targets.query
            row = self._first_row[number] + row[known]
            pairs.append(np.stack([row, self.starts[row] + key[known]]))
        rows, cells = np.unique(np.concatenate(pairs, axis=1), axis=1)
        return rows, cells

    def _strongest(
        self, surrogate: Float[ndarray, " cell"], rows: Int[ndarray, " query"]
    ) -> Int[ndarray, " query"]:
        strength = np.where(self.is_word, surrogate, -1.0)
        maximum = np.maximum.reduceat(strength, self.starts)
        strongest = np.flatnonzero(strength == np.repeat(maximum, self.sizes))
        return np.asarray(strongest[np.searchsorted(strongest, self.starts[rows])])


def fit(
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
    attention: Float[ndarray, " cell"],
) -> list[Float[ndarray, " class"]]:
    """Weights of a surrogate in logits, for each view those of its classes.

    Args:
        views: the class of each cell, by view.
        sizes: the cells of each row; rows follow one another.
        attention: the head's, each row summing to 1.
    """
    weights = [np.zeros(int(view.max(initial=-1)) + 1) for view in views]
    if not len(sizes):
        return weights
    starts = np.cumsum(sizes) - sizes
    attended = [np.bincount(view, attention) for view in views]
    surrogate = np.repeat(1 / sizes, sizes)
    for _ in range(ROUNDS):
        for view, weight, goal in zip(views, weights, attended, strict=True):
            step = np.log((goal + PRIOR) / (np.bincount(view, surrogate) + PRIOR))
            weight += step
            surrogate *= np.exp(step)[view]
            surrogate /= np.repeat(np.add.reduceat(surrogate, starts), sizes)
    return weights


def predict(
    weights: Sequence[Float[ndarray, " class"]],
    views: Sequence[Int[ndarray, " cell"]],
    sizes: Int[ndarray, " row"],
) -> Float[ndarray, " cell"]:
    """The rows of a surrogate, each summing to 1; classes that it was not fitted on weigh
    nothing.
    """
    logits = np.zeros(len(views[0]))
    for weight, view in zip(weights, views, strict=True):
        known = view < len(weight)
        logits[known] += weight[view[known]]
    starts = np.cumsum(sizes) - sizes
    strength = np.exp(logits - np.repeat(np.maximum.reduceat(logits, starts), sizes))
    return np.asarray(strength / np.repeat(np.add.reduceat(strength, starts), sizes))


def rows_of_model(
    model: Model, windows: Sequence[Window], tokens: RowTokens, heads: Heads
) -> Iterator[tuple[int, int, ndarray]]:
    """Rows of a loaded model, which runs to the last layer that is asked for; see `ReadRows`."""
    # in place of its block each window has its number
    numbered = Batch(windows, np.arange(len(windows)))
    for batch in batches(numbered, tokens=batch_tokens_on(model.device)):
        for rows in in_memory(batch, lambda part: _rows(model, part, tokens, heads)):
            yield from rows


def _rows(
    model: Model, batch: Batch, tokens: RowTokens, heads: Heads
) -> list[tuple[int, int, ndarray]]:
    """Rows of some heads in a batch."""
    members = [
        (row, number, *map(torch.from_numpy, row_cells(batch.windows[row], tokens[number])))
        for row, number in enumerate(batch.blocks.tolist())
        if number in tokens
    ]
    results: list[tuple[int, int, ndarray]] = []

    def on_layer(layer: int, all_rows: Iterable[Rows]) -> None:
        slots = [slot for slot, (at, _) in enumerate(heads) if at == layer]
        for rows in all_rows if slots else ():
            for row, number, query, key in members:
                for slot in slots:
                    values = rows[row, heads[slot][1]][query, key].float()
                    values = values.exp() if model.engine.logarithms else values
                    results.append((number, slot, values.cpu().numpy()))

    if members:
        ids, last = batch.tokens().to(model.device), max(layer for layer, _ in heads)
        model.engine.run(ids, [full_tile(*ids.shape)], on_layer, last + 1)
    return results


def rows_of_patterns(
    patterns: Callable[
        [Sequence[Window]], Iterable[tuple[Float[Tensor, "layer head query key"], Window]]
    ],
    windows: Sequence[Window],
    tokens: RowTokens,
    heads: Heads,
) -> Iterator[tuple[int, int, ndarray]]:
    """Rows of given patterns; see `ReadRows`."""
    for number, (pattern, window) in enumerate(patterns(windows)):
        if number in tokens:
            query, key = row_cells(window, tokens[number])
            for slot, (layer, head) in enumerate(heads):
                yield number, slot, np.asarray(pattern[layer, head])[query, key]


def row_cells(
    window: Window, tokens: Int[ndarray, " query"]
) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of the rows of some tokens, one row after the other."""
    ends = window.attention_kind.row_end(tokens, len(window))
    query = np.repeat(tokens, ends)
    return query, np.arange(len(query)) - np.repeat(np.cumsum(ends) - ends, ends)
