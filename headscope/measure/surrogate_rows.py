"""Rows of attention that surrogates are fitted and judged on; see `headscope.statistics.surrogate`.

Some windows of a run are read once more. Of each word whose part of speech a relation asks for, the
attention of some heads is kept, summed over the tokens of each key word, beside the classes of its
cells by `surface.VIEWS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.baseline_hits import MIN_SHARE
from headscope.measure.batches import Batch, assign_blocks, batches, in_memory
from headscope.measure.surface import VIEWS, Surface
from headscope.models.engines.engine import Rows, full_tile
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on
from headscope.progress import OnProgress, silent
from headscope.relations.hard_queries import ChosenBaseline
from headscope.relations.pairs import Pairs, no_pairs
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.challenge import CHALLENGE

MAX_TOKENS, MIN_TOKENS, SHARE = 16_384, 4_096, 0.3
"""Tokens that are read again for surrogates: a share of those of the run, between two limits."""
HARD_QUERIES = (50, 200)
"""Hard queries of a relation after which windows are chosen for other relations first, and after
which no window is chosen for it."""
NO_WORD = -1
"""Class of a key that belongs to no word, or is the query itself."""
LONGEST = 128
"""Tokens of a window that are read again. The cells of a window grow with the square of its length,
and many beginnings come from more documents than a few whole windows."""
Heads = Sequence[tuple[int, int]]


@dataclass(frozen=True)
class SurrogateRequest:
    """A head, and by its number among a run's relations one that its surrogate is judged by."""

    layer: int
    head: int
    relation: int

    @property
    def layer_and_head(self) -> tuple[int, int]:
        """Layer and head."""
        return self.layer, self.head


@dataclass(frozen=True, eq=False)
class WindowRows:
    """Rows of some heads in a window, those of its tokens one after the other."""

    window: int
    """Number of the window."""
    slots: Sequence[int]
    """Places of the heads among those that are read."""
    attention: Float[ndarray, "head cell"]
    """Each row has the keys that its query sees."""


RowTokens = Mapping[int, Int[ndarray, " query"]]
"""Tokens whose rows are read, by number of a window."""
ReadRows = Callable[[Sequence[Window], RowTokens, Heads], Iterable[WindowRows]]
"""Reads rows of heads in windows."""


@dataclass(frozen=True, eq=False)
class SurrogateText:
    """Windows that surrogates may be fitted and judged on."""

    windows: Sequence[Window]
    choices: Mapping[str, ChosenBaseline]
    """The baseline of each relation by its name; without one all its queries count as hard."""
    tokens: int
    """To read again, to the end of a window."""
    seed: int
    """Seeds the choice of windows."""


def read_surrogate_rows(
    read: ReadRows,
    text: SurrogateText,
    relations: Sequence[Relation],
    requests: Sequence[SurrogateRequest],
    *,
    progress: OnProgress = silent,
) -> SurrogateRows | None:
    """Rows of the heads that are requested; None if no window has a query.

    The first half of the progress is reading, the second is left to the fit.
    """
    # windows that tell most about the relations whose heads need a surrogate
    numbers = sorted({request.relation for request in requests})
    judging_relations = [relations[number] for number in numbers]
    windows = choose_windows(text, judging_relations)
    if not windows:
        return None
    heads = sorted({request.layer_and_head for request in requests})
    sample = [WindowPairs(window) for window in windows]
    rows = SurrogateRows.of(sample, judging_relations, heads)
    # reading is the first half of the work, fitting the second
    length = rows.length
    rows_to_read = len(rows.tokens) * len(heads)
    rows_read = 0
    for of_window in read(windows, rows.tokens, heads):
        rows.add(of_window)
        rows_read += len(of_window.slots)
        progress(length * rows_read // rows_to_read, 2 * length)
    return rows


def tokens_again(tokens_read: int) -> int:
    """Tokens that are read again after a run of so many tokens.

    >>> [tokens_again(tokens) for tokens in (1_000, 40_000, 1_000_000)]
    [4096, 12000, 16384]
    """
    return min(MAX_TOKENS, max(MIN_TOKENS, int(SHARE * tokens_read)))


def choose_windows(text: SurrogateText, relations: Sequence[Relation]) -> list[Window]:
    """Windows with hard queries of relations, those with most of the rarest relation first.

    First until each relation has a few queries, then until it has enough, or no tokens are left.
    The turn of windows with as many depends on their own tokens only: others do not change it.
    """
    # number of hard queries of each relation in each window
    counts = np.zeros((len(text.windows), len(relations)), np.int64)
    for row, candidate in enumerate(text.windows):
        # the pairs of all windows would not fit into memory: those of chosen ones are found again
        window_pairs = WindowPairs(candidate)
        for number, relation in enumerate(relations):
            targets = targets_to_judge(relation, window_pairs)
            baseline = text.choices.get(relation.id)
            if baseline is not None and len(targets):
                targets = window_pairs.compared(relation, baseline).hard
            counts[row, number] = len(targets.queries)
    # 63 bits by window and seed, as good as drawn, so that a text's order decides nothing
    turns = []
    for window in text.windows:
        tokens = np.ascontiguousarray(window.tokens, np.int64)
        content = str(text.seed).encode() + tokens.tobytes()
        digest = blake2b(content, digest_size=8).digest()
        turns.append(int.from_bytes(digest, "little") >> 1)
    rarest_first = np.argsort(counts.sum(0), kind="stable")
    # the rarest relation chooses first, from its richest windows
    tokens_left = text.tokens
    numbers: set[int] = set()
    queries = np.zeros(len(relations), np.int64)
    for enough in HARD_QUERIES:
        for column in rarest_first:
            order = np.lexsort((np.array(turns), -counts[:, column]))
            has_queries = counts[order, column] > 0
            for number in order[has_queries].tolist():
                if queries[column] >= enough or tokens_left <= 0:
                    break
                if number in numbers:
                    continue
                numbers.add(number)
                tokens_left -= len(text.windows[number])
                queries += counts[number]
    return [text.windows[number] for number in sorted(numbers)]


def targets_to_judge(relation: Relation, window_pairs: WindowPairs) -> Pairs:
    """Targets of a relation in windows of its stimuli and of the challenge set."""
    stimuli = (*relation.stimuli, CHALLENGE.name)
    if window_pairs.window.stimulus not in stimuli:
        return no_pairs()
    return window_pairs.targets(relation)


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of some rows, each once, in the order of rows."""

    row: Int[ndarray, " cell"]
    cell: Int[ndarray, " cell"]
    """Places among all cells of `SurrogateRows`."""


@dataclass(eq=False)
class SurrogateRows:
    """Rows of attention, word by word, with the classes of their cells; row follows row."""

    heads: Heads
    """Layers and heads, whose places are called slots."""
    window_pairs: Sequence[WindowPairs]
    """Pairs of each window."""
    surfaces: Sequence[Surface]
    """Surface of each window; queries are all words of the parts of speech that relations ask."""
    views: Sequence[Int[ndarray, " cell"]]
    sizes: Int[ndarray, " row"]
    """Cells of each row, one for each word or other token that its query sees."""
    upos: Int[ndarray, " row"]
    block: Int[ndarray, " row"]
    key_upos: Int[ndarray, " cell"]
    """Part of speech of each key word, or `NO_WORD`."""
    attention: Float[ndarray, "head cell"]

    @classmethod
    def of(
        cls, sample: Sequence[WindowPairs], relations: Sequence[Relation], heads: Heads
    ) -> SurrogateRows:
        """Rows without attention, of the words of every part of speech that queries have."""
        # parts of speech of the queries of all relations
        windows = [window_pairs.window for window_pairs in sample]
        all_words = [Surface(window, np.empty(0, np.int64)) for window in windows]
        classes: set[int] = set()
        for window_pairs, surface in zip(sample, all_words, strict=True):
            for relation in relations:
                targets = targets_to_judge(relation, window_pairs)
                items = surface.item_of_token[targets.query]
                classes.update(surface.upos[items].tolist())
        # features of each cell that a query sees
        surfaces = [surface.with_queries(classes) for surface in all_words]
        views: list[list[ndarray]] = [[] for _ in VIEWS]
        key_upos, sizes = [], []
        for surface in surfaces:
            seen = surface.is_seen
            for parts, cells in zip(views, surface.classes(), strict=True):
                parts.append(cells[seen])
            is_other_word = (surface.word >= 0)[None, :] & (surface.steps != 0)
            upos_of_cell = np.where(is_other_word, surface.upos[None, :], NO_WORD)
            key_upos.append(upos_of_cell[seen])
            sizes.append(seen.sum(1))
        # blocks as in the run, so that documents stay apart
        upos = [surface.upos[surface.queries] for surface in surfaces]
        dealt = assign_blocks(windows)
        blocks = [
            dealt.blocks_of_queries(row)[surface.last[surface.queries]]
            for row, surface in enumerate(surfaces)
        ]
        cell_count = sum(map(len, key_upos))
        return cls(
            heads=heads,
            window_pairs=sample,
            surfaces=surfaces,
            views=[np.concatenate(parts) for parts in views],
            sizes=np.concatenate(sizes),
            upos=np.concatenate(upos),
            block=np.concatenate(blocks),
            key_upos=np.concatenate(key_upos),
            attention=np.zeros((len(heads), cell_count), np.float32),
        )

    def __post_init__(self) -> None:
        self.starts = row_starts(self.sizes)
        counts = [len(surface.queries) for surface in self.surfaces]
        self._first_row = np.cumsum([0, *counts])
        self.tokens = {
            number: surface.last[surface.queries]
            for number, surface in enumerate(self.surfaces)
            if len(surface.queries)
        }
        """The tokens whose rows are read, by window."""

    @property
    def length(self) -> int:
        """Tokens of all windows."""
        return sum(len(surface.window) for surface in self.surfaces)

    def add(self, rows: WindowRows) -> None:
        """Keep the rows of some heads on a window; attention on the tokens of a word is summed."""
        # the rows of this window, and the tokens of each of its items
        surface = self.surfaces[rows.window]
        first_row = self._first_row[rows.window]
        end_row = self._first_row[rows.window + 1]
        sizes = self.sizes[first_row:end_row]
        last_token = surface.last
        first_token = np.append(0, last_token[:-1] + 1)
        # a row has a value for each token that its query sees, and a cell for each item
        row_tokens = last_token[sizes - 1] + 1
        start_of_row = np.repeat(row_starts(row_tokens), sizes)
        first_item = np.repeat(row_starts(sizes), sizes)
        item = np.arange(len(first_item)) - first_item
        start_of_item = start_of_row + first_token[item]
        summed = np.add.reduceat(rows.attention, start_of_item, axis=1)
        # the rows of a window stand side by side
        start = int(self.starts[first_row])
        end = start + len(item)
        self.attention[rows.slots, start:end] = summed

    def targets(self, relation: Relation) -> Cells:
        """The targets of a relation at the queries that have rows."""
        rows = [np.empty(0, np.int64)]
        cells = [np.empty(0, np.int64)]
        # only queries at the last token of their word have a row
        for number, surface in enumerate(self.surfaces):
            targets = targets_to_judge(relation, self.window_pairs[number])
            query = surface.item_of_token[targets.query]
            key = surface.item_of_token[targets.key]
            place_of_query = np.searchsorted(surface.queries, query)
            is_query = np.append(surface.queries, -1)[place_of_query] == query
            is_last_token = surface.last[query] == targets.query
            known = is_query & is_last_token
            row = self._first_row[number] + place_of_query[known]
            rows.append(row)
            cells.append(self.starts[row] + key[known])
        row_and_cell = np.stack([np.concatenate(rows), np.concatenate(cells)])
        row, cell = np.unique(row_and_cell, axis=1)
        return Cells(row, cell)

    def other_candidates(self, targets: Cells) -> Cells:
        """Other words than targets at the targets' queries, of parts of speech that targets have.

        A part of speech counts if it has at least `MIN_SHARE` of the targets.
        """
        upos = self.key_upos[targets.cell]
        counts = np.bincount(upos[upos != NO_WORD])
        classes = np.flatnonzero(counts >= MIN_SHARE * len(upos))
        is_query = np.zeros(len(self.sizes), bool)
        is_query[targets.row] = True
        is_of_query = np.repeat(is_query, self.sizes)
        is_candidate = np.isin(self.key_upos, classes) & is_of_query
        is_candidate[targets.cell] = False
        cell = np.flatnonzero(is_candidate)
        row_of_cell = np.searchsorted(self.starts, cell, side="right") - 1
        return Cells(row_of_cell, cell)


def rows_of_model(
    model: Model, windows: Sequence[Window], tokens: RowTokens, heads: Heads
) -> Iterator[WindowRows]:
    """Rows of a loaded model, which runs to the last layer of the heads."""
    # in place of its block each window has its number
    numbered = Batch(windows, np.arange(len(windows)))
    for batch in batches(numbered, tokens=batch_tokens_on(model.device)):
        for rows in in_memory(batch, lambda part: _rows(model, part, tokens, heads)):
            yield from rows


def _rows(model: Model, batch: Batch, tokens: RowTokens, heads: Heads) -> list[WindowRows]:
    """Rows of some heads in a batch."""
    device = model.device
    # rows of the batch that are asked for, with their cells
    members = []
    for row, number in enumerate(batch.blocks.tolist()):
        if number in tokens:
            cells = np.stack(row_cells(batch.windows[row], tokens[number]))
            query, key = torch.from_numpy(cells).to(device)
            members.append((row, number, query, key))
    if not members:
        return []
    # rows of each window stay on the device until the last layer has run
    slots_read: list[int] = []
    shares_of: dict[int, list[Tensor]] = {number: [] for _, number, _, _ in members}

    def on_layer(layer: int, all_rows: Iterable[Rows]) -> None:
        slots = [slot for slot, (layer_of_slot, _) in enumerate(heads) if layer_of_slot == layer]
        if not slots:
            return
        slots_read.extend(slots)
        heads_of_layer = [heads[slot][1] for slot in slots]
        for rows in all_rows:
            for row, number, query, key in members:
                # an index of Python's numbers would be copied to the device for each window
                patterns = torch.stack([rows[row, head] for head in heads_of_layer])
                values = patterns[:, query, key].float()
                shares = values.exp() if model.engine.logarithms else values
                shares_of[number].append(shares)

    ids = batch.tokens().to(model.device)
    last = max(layer for layer, _ in heads)
    model.engine.run(ids, [full_tile(*ids.shape)], on_layer, last + 1)
    return [
        WindowRows(number, slots_read, torch.cat(shares).cpu().numpy())
        for number, shares in shares_of.items()
    ]


def rows_of_patterns(
    patterns: Callable[[Sequence[Window]], Iterable[Float[Tensor, "layer head query key"]]],
    windows: Sequence[Window],
    tokens: RowTokens,
    heads: Heads,
) -> Iterator[WindowRows]:
    """Rows of given patterns."""
    slots = range(len(heads))
    for number, (pattern, window) in enumerate(zip(patterns(windows), windows, strict=True)):
        if number not in tokens:
            continue
        query, key = row_cells(window, tokens[number])
        rows = []
        for layer, head in heads:
            cells = np.asarray(pattern[layer, head])
            rows.append(cells[query, key])
        yield WindowRows(number, slots, np.stack(rows))


def row_cells(
    window: Window, tokens: Int[ndarray, " query"]
) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of the rows of some tokens, one row after the other."""
    ends = window.attention_kind.row_end(tokens, len(window))
    query = np.repeat(tokens, ends)
    start_of_row = np.repeat(row_starts(ends), ends)
    key = np.arange(len(query)) - start_of_row
    return query, key


def row_starts(sizes: Int[ndarray, " row"]) -> Int[ndarray, " row"]:
    """Start of each of some rows that follow one another."""
    return np.asarray(np.cumsum(sizes) - sizes)
