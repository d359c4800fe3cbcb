"""Sums of benchmark heads over the text that ships, kept so that judging is repeated in seconds."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd
import torch
from headscope.relations.contested import (
    ChosenBaseline,
    contested_stimuli,
    is_contested,
    rule_picks,
)
from jaxtyping import Float
from numpy import ndarray

from headscope.attention_kind import AttentionKind
from headscope.corpus.shipped import shipped_corpora
from headscope.corpus.window import Window
from headscope.measure.batch_reader import attention_readers
from headscope.measure.batches import assign_blocks
from headscope.measure.layer_reader import ReaderConfig, read_layer, shared_requests
from headscope.measure.run_windows import run_windows
from headscope.measure.shadow import ShadowRows, choose_windows, row_cells, tokens_again
from headscope.measure.surface import Surface
from headscope.measure.tally import Tally
from headscope.models.engines.engine import full_tile, slice_pattern
from headscope.models.load import open_model
from headscope.relations import relations_of
from headscope.relations.heuristics import ALL_RULES
from headscope.relations.relation import (
    MIN_QUERIES,
    NATURAL,
    SYNTHETIC,
    Relation,
    part_name,
    targets_of,
)
from headscope.settings import Settings
from tests.oracles.annotation_heads import KINDS, Oracle, oracles
from tests.oracles.baseline_heads import BaselineHead, baseline_heads
from tests.oracles.lazy_heads import lazy_heads
from tests.oracles.window_features import WindowFeatures

WIDTH = 60
"""Heads of a layer of the pseudo-model; all kinds of an oracle are in one layer."""
EASY = 100
"""Queries of a relation that are kept beside the hard ones of syntax, reference and meaning."""
NEAR_FLOOR = 0.8
"""Least mass, as a share of the floor, of a head whose surrogate is fitted."""
LEAST_HITS = 0.15
"""Least hit rate at hard queries of such a head if it prefers the distractor to the target."""
TYPES = ("syntactic", "coreference", "semantic", "retrieval")
"""Types whose tags a lazy head must not earn; it does earn others."""
PAIRED = ("target", "distractor", "other", "best_target", "largest")


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of all heads, and paired values at single queries."""

    model: str
    """Name of the model whose tokens are read."""
    attention_kind: AttentionKind
    heads: pd.DataFrame
    """A row per head: `kind` (`old`, `new`, or the name of one of `KINDS`), `name`, `relation`
    (that an oracle answers, else empty)."""
    tally: Tally = field(repr=False)
    record: Mapping[str, Any] = field(repr=False)
    """Fields of the run's record: facts of baselines by relation, and names of parts."""
    queries: pd.DataFrame = field(repr=False)
    """A row per query, easy ones a sample: `relation`, `window`, `position` (of
    the token), `block`, `part` (`contested`, i.e. natural text, `synthetic`, or another stimulus:
    empty), `hard` (the baseline picks no target), `weighed` (the relation's sums count it),
    `upos`, `target_upos`, `distance` (tokens to the nearest target)."""
    right: ndarray = field(repr=False)
    """Bits `[query rule]`: rules of `ALL_RULES` that are right at each query; `numpy.unpackbits`."""
    paired: Mapping[str, Float[ndarray, "query head"]] = field(repr=False)
    """By name in `PAIRED` the attention, in half precision, on all targets, on the distractor
    (what the baseline picks; 0 at easy queries), on the largest other word of the target's class,
    on the largest target word, and on the largest word that is no target, the first token aside."""
    shadows: pd.DataFrame = field(repr=False)
    """A row per head × relation × query at which surrogates are compared: `number` of the head,
    `relation`, `window`, `position` and `block` as in `queries`, `right` (the surrogate's strongest
    word is a target), `mass` (of the head on the targets), `pick` (of the head on that word),
    `targets` (number of target words), `best` (of the head on its largest target), `shadow_mass`
    (of the surrogate on the targets)."""
    seed: int = 0

    @property
    def relations(self) -> list[Relation]:
        """Relations with the rules of the code as it is now."""
        return relations_of(TYPES, self.attention_kind)

    @property
    def lazy(self) -> dict[str, BaselineHead]:
        """Lazy heads by name, which know what tags are true of them."""
        everyone = (*baseline_heads(self.attention_kind), *lazy_heads(self.attention_kind))
        return {head.name: head for head in everyone}


@dataclass(frozen=True, eq=False)
class Bench:
    """Heads, layer by layer; those of a layer are all lazy or all oracles."""

    layers: Sequence[Sequence[BaselineHead | Oracle]]
    heads: pd.DataFrame
    """See `Sums.heads`."""

    @classmethod
    def of(cls, lazy: Mapping[str, Sequence[BaselineHead]], readers: Sequence[Oracle]) -> Bench:
        """Heads of each kind, then oracles of all of `KINDS`."""
        named = [(kind, head) for kind, members in lazy.items() for head in members]
        heads, size = [head for _, head in named], WIDTH // len(KINDS)
        layers: list[Sequence[BaselineHead | Oracle]] = [
            heads[i : i + WIDTH] for i in range(0, len(heads), WIDTH)
        ]
        rows = [(kind, head.name, "") for kind, head in named]
        rows += [("", "", "")] * (len(layers) * WIDTH - len(rows))
        rows += [(kind.name, reader.name, reader.name) for reader in readers for kind in KINDS]
        layers += [readers[i : i + size] for i in range(0, len(readers), size)]
        rows += [("", "", "")] * (len(layers) * WIDTH - len(rows))
        return cls(layers, pd.DataFrame(rows, columns=["kind", "name", "relation"]))

    def __call__(self, window: Window) -> Float[ndarray, "layer head query key"]:
        """The patterns of all layers on a window."""
        reading = WindowFeatures(window)
        return np.stack([self.pattern(layer, reading) for layer in range(len(self.layers))])

    def pattern(self, layer: int, reading: WindowFeatures) -> Float[ndarray, "head query key"]:
        """The patterns of a layer; places without a head rest on the first token."""
        patterns = np.zeros((WIDTH, len(reading.window), len(reading.window)), np.float32)
        patterns[:, :, 0] = 1
        of_heads = chain.from_iterable(head.patterns(reading) for head in self.layers[layer])
        for number, rows in enumerate(of_heads):
            patterns[number] = rows
        return patterns


def read_heads(model_name: str, max_tokens: int, *, step: int = 1, seed: int = 0) -> Sums:
    """Sum lazy heads and oracles over the text that ships, as `classify` reads it.

    Args:
        model_name: model whose tokenizer and kind of attention are taken.
        max_tokens: tokens of text.
        step: 1 for all old lazy heads, 4 for every fourth.
        seed: seeds all draws.
    """
    model = open_model(model_name)
    kind = model.attention_kind
    relations = relations_of(TYPES, kind)
    settings = Settings(max_tokens=max_tokens, seed=seed)
    prepared = run_windows(model, relations, [], shipped_corpora(), settings)
    text = list(prepared.stream)
    windows = [*text, *prepared.others]
    new_step = max(1, step // 4)  # of encoders there are twice as many
    lazy = {"old": baseline_heads(kind)[::step], "new": lazy_heads(kind)[::new_step]}
    bench = Bench.of(lazy, oracles(windows, _testable(windows, relations)))
    parts = prepared.baselines.parts(relations)
    dealt = assign_blocks(windows)
    paired = PairedValues(windows, dealt.blocks, relations, prepared.baselines.heuristics)
    names = tuple(relation.id for relation in parts)
    tally = Tally.zeros(names, len(bench.layers), WIDTH)
    for i, window in enumerate(windows):
        print(f"\r{i} of {len(windows)} windows", end="", file=sys.stderr, flush=True)
        config = ReaderConfig(parts, seed, len(bench.layers), WIDTH)
        batch = replace(dealt.take([i]), windows=[window])
        tile = full_tile(1, len(window))
        readers = [make() for make in attention_readers(batch, [tile], config)]
        shared, reading = shared_requests(readers), WindowFeatures(window)
        for layer in range(len(bench.layers)):
            pattern = bench.pattern(layer, reading)
            rows = torch.from_numpy(pattern)[None]
            read_layer(layer, shared, (slice_pattern(rows, request) for request, _ in shared))
            paired.add(i, layer, pattern)
        for reader in readers:
            reader.add_to(tally)
    queries, right, values = paired.tables(len(bench.heads))
    shadows = surrogates(bench, windows, relations, tally, seed)
    return Sums(
        model_name,
        kind,
        bench.heads,
        tally,
        prepared.baselines.record(parts),
        queries,
        right,
        values,
        shadows,
        seed,
    )


def _testable(windows: Sequence[Window], relations: Sequence[Relation]) -> set[str]:
    """Relations with enough queries for a tag."""
    queries = {
        relation.id: sum(
            len(relation.pairs(window).queries)
            for window in windows
            if window.stimulus in relation.stimuli
        )
        for relation in relations
    }
    return {name for name, count in queries.items() if count >= MIN_QUERIES}


class PairedValues:
    """Attention of heads at single queries: on targets, distractors and other words."""

    def __init__(
        self,
        windows: Sequence[Window],
        blocks: ndarray,
        relations: Sequence[Relation],
        baselines: Mapping[str, ChosenBaseline],
    ) -> None:
        asked = [relation for relation in relations if relation.id in baselines]
        tables = [
            _queries_in(relation, window, baselines[relation.id]).assign(
                window=number, block=int(blocks[number])
            )
            for number, window in enumerate(windows)
            for relation in asked
            if window.stimulus in {*relation.stimuli, *_CONTESTED}
            and len(targets_of(relation, window))
        ]
        table = pd.concat(tables, ignore_index=True)
        turn = np.random.default_rng(0).permutation(len(table))
        rank = pd.Series(turn).groupby([table["relation"], table["hard"]]).rank()
        deciding = [relation.id for relation in asked if relation.rule.beats_shadow]
        kept = (table["hard"] & table["relation"].isin(deciding)) | (rank <= EASY)
        self.queries = table[kept].reset_index(drop=True)
        self._windows = windows
        self._of_window = {
            int(number): rows.index.to_numpy() for number, rows in self.queries.groupby("window")
        }
        self._parts: dict[tuple[int, int], ndarray] = {}

    def add(self, number: int, layer: int, pattern: Float[ndarray, "head query key"]) -> None:
        """Note a layer's attention on a window."""
        if number not in self._of_window:
            return
        rows = self.queries.loc[self._of_window[number]]
        surface = Surface(self._windows[number], np.empty(0, np.int64))
        starts = np.append(0, surface.last[:-1] + 1)
        position, place = np.unique(rows["position"], return_inverse=True)
        items = np.add.reduceat(pattern[:, position], starts, axis=2)[:, place]
        row, key = np.nonzero(np.stack(rows["target"].to_list()))
        first = np.searchsorted(row, np.arange(len(rows)))
        on_targets, distractor = items[:, row, key], rows["distractor"].to_numpy()
        on_distractor = items[:, np.arange(len(rows)), distractor] * (distractor >= 0)
        items[:, row, key] = 0
        largest = items[:, :, 1:].max(2)
        items *= np.stack(rows["candidate"].to_list())
        columns = (
            np.add.reduceat(on_targets, first, axis=1),
            on_distractor,
            items.max(2),
            np.maximum.reduceat(on_targets, first, axis=1),
            largest,
        )
        self._parts[number, layer] = np.stack(columns).astype(np.float16)

    def tables(self, heads: int) -> tuple[pd.DataFrame, ndarray, dict[str, ndarray]]:
        """The queries, the bits of rules that are right, and the values by name."""
        values = np.zeros((len(PAIRED), len(self.queries), heads), np.float16)
        for (number, layer), part in self._parts.items():
            slots = slice(layer * WIDTH, (layer + 1) * WIDTH)
            values[:, self._of_window[number], slots] = part.transpose(0, 2, 1)
        right = np.packbits(np.stack(self.queries["rules"].to_list()), axis=1)
        columns = ["target", "candidate", "distractor", "rules"]
        queries = self.queries.drop(columns=columns)
        return queries, right, dict(zip(PAIRED, values, strict=True))


_CONTESTED = (*contested_stimuli(NATURAL), *contested_stimuli(SYNTHETIC))


def _queries_in(relation: Relation, window: Window, baseline: ChosenBaseline) -> pd.DataFrame:
    """The queries of a relation in a window, with masks of their targets and other candidates."""
    targets = targets_of(relation, window)
    surface = Surface(window, np.empty(0, np.int64))
    item, upos = surface.item_of_token, surface.upos
    queries, row = np.unique(targets.query, return_inverse=True)
    target = np.zeros((len(queries), len(upos)), bool)
    target[row, item[targets.key]] = True
    picks = baseline.picks(relation, window)
    hard = np.zeros(len(queries), bool)
    hard[row] = is_contested(targets, picks)
    rules = np.zeros((len(queries), len(ALL_RULES)), bool)
    right = (rule_picks(relation, window)[:, targets.query] == targets.key).T
    np.logical_or.at(rules[:, : right.shape[1]], row, right)
    distance = np.full(len(queries), len(window))
    np.minimum.at(distance, row, np.abs(targets.key - targets.query))
    target_upos = upos[target.argmax(1)]
    own = item[queries]
    seen = window.attention_kind.sees(queries[:, None], surface.last[None, :])
    candidate = (upos[None, :] == target_upos[:, None]) & seen & ~target
    candidate[np.arange(len(queries)), own] = False
    natural = window.stimulus in contested_stimuli(NATURAL)
    synthetic = window.stimulus in contested_stimuli(SYNTHETIC)
    return pd.DataFrame(
        {
            "relation": relation.id,
            "position": queries,
            "part": NATURAL if natural else SYNTHETIC if synthetic else "",
            "hard": hard,
            "weighed": window.stimulus in relation.stimuli,
            "upos": upos[own],
            "target_upos": target_upos,
            "distance": distance,
            "distractor": np.where(hard, item[picks[queries]], -1),
            "target": list(target),
            "candidate": list(candidate),
            "rules": list(rules),
        }
    )


class ComparedRows(ShadowRows):
    """Rows of attention whose surrogates are compared query by query."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._found: dict[str, tuple[ndarray, ndarray]] = {}

    def _targets(self, relation: Relation) -> tuple[ndarray, ndarray]:
        if relation.id not in self._found:  # many heads ask for the same
            self._found[relation.id] = super()._targets(relation)
        return self._found[relation.id]

    def compared(
        self, slot: int, relation: Relation, shadow: Float[ndarray, " cell"]
    ) -> pd.DataFrame:
        """The columns of `Sums.shadows` for one head and relation."""
        rows, cells = self._targets(relation)
        queries, query = np.unique(rows, return_inverse=True)
        picks = self._strongest(shadow, queries)
        right, best = np.zeros(len(queries), bool), np.zeros(len(queries), np.float32)
        np.logical_or.at(right, query, cells == picks[query])
        np.maximum.at(best, query, self.attention[slot, cells])
        window = np.searchsorted(self._first_row, queries, side="right") - 1
        tokens = np.concatenate([self.tokens.get(i, []) for i in range(len(self.surfaces))])
        return pd.DataFrame(
            {
                "relation": relation.id,
                "window": window,
                "position": tokens[queries].astype(np.int64),
                "block": self.block[queries],
                "right": right,
                "mass": np.bincount(query, self.attention[slot, cells]),
                "pick": self.attention[slot, picks],
                "targets": np.bincount(query),
                "best": best,
                "shadow_mass": np.bincount(query, shadow[cells]),
            }
        )

    def upos_asked(self, relation: Relation) -> list[int]:
        """Parts of speech of a relation's queries."""
        rows, _ = self._targets(relation)
        return [int(upos) for upos in np.unique(self.upos[rows])]


def surrogates(
    bench: Bench, windows: Sequence[Window], relations: Sequence[Relation], tally: Tally, seed: int
) -> pd.DataFrame:
    """Surrogates of all heads that come near a floor, at the queries of the relation."""
    wanted = _near_floor(relations, tally)
    asked = {i: relations[i] for i in sorted({i for names in wanted.values() for i in names})}
    tokens = tokens_again(sum(map(len, windows)))
    sample = choose_windows(windows, list(asked.values()), tokens=tokens, seed=seed)
    blank = ComparedRows.of(sample, asked, WIDTH)
    assert isinstance(blank, ComparedRows)
    readings = [WindowFeatures(window) for window in sample]
    tables = []
    for layer in range(len(bench.layers)):
        print(f"\rsurrogates, layer {layer}", end="", file=sys.stderr, flush=True)
        for number, tokens_asked in blank.tokens.items():
            pattern = bench.pattern(layer, readings[number])
            query, key = row_cells(sample[number], tokens_asked)
            for slot in range(WIDTH):
                blank.add(number, slot, pattern[slot][query, key])
        for slot in range(WIDTH):
            head = layer * WIDTH + slot
            shadow_of = cache(partial(blank.shadow, slot))
            for relation in (relations[i] for i in wanted.get(head, ())):
                classes = blank.upos_asked(relation)
                if classes:
                    shadow = np.sum([shadow_of(upos) for upos in classes], axis=0)
                    tables.append(blank.compared(slot, relation, shadow).assign(number=head))
    table = pd.concat(tables, ignore_index=True)
    number_of = {id(window): number for number, window in enumerate(windows)}
    table["window"] = np.array([number_of[id(window)] for window in sample])[table["window"]]
    return table


def _near_floor(relations: Sequence[Relation], tally: Tally) -> dict[int, list[int]]:
    """Numbers of the relations whose floor each head comes near, unless it follows the baseline."""
    wanted: dict[int, list[int]] = {}
    place = {name: i for i, name in enumerate(tally.relations)}
    for number, relation in enumerate(relations):
        row = place[relation.id]
        queries = tally.queries[:, row].sum()
        if not relation.rule.beats_shadow or queries < MIN_QUERIES:
            continue
        mass = tally.target[:, row].sum(0).ravel() / queries
        control = tally.control[:, row].sum(0).ravel() / queries
        better = np.zeros(len(mass), bool)
        near = (mass >= NEAR_FLOOR * relation.rule.floor) & (mass > control)
        for part in (NATURAL, SYNTHETIC):
            hard = place.get(part_name(relation.id, part))
            if hard is not None:
                lift = (tally.target - tally.control)[:, hard].sum(0).ravel()
                hits, asked = tally.hits[:, hard].sum(0).ravel(), tally.queries[:, hard].sum()
                better |= (lift > 0) | (hits > LEAST_HITS * asked)
        near &= better
        for head in np.flatnonzero(near).tolist():
            wanted.setdefault(head, []).append(number)
    return wanted
