"""Effects of knocking out the edges of a tag: at its queries, attention to its targets.

For each tag the attention that its queries pay to their targets is moved to the sink, which is the
first token, or the model's own learned sink. The control moves as much attention of the same layer
at the same queries from other cells (`Moves`). Two effects are measured at these queries: the
divergence of the next-token distribution, which has no direction, and the loss of the token that
follows. Effects on later tokens, through heads that read what the head wrote, are not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.causal.moved_attention import ALL, AS_MUCH, Changed, Moves, move_attention
from headscope.causal.rerun import Rerunner
from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.measure.batches import assign_blocks
from headscope.measure.study_windows import edge_windows
from headscope.measure.tally import MIN_BLOCKS
from headscope.models.model import Model
from headscope.progress import OnProgress
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.runs.listing import Head
from headscope.statistics.causes import EDGES, UNTESTED
from headscope.statistics.general_labels import tag_names
from headscope.statistics.ratio import Estimate, estimate
from headscope.statistics.tags import SINK_RELATIONS

QUERIES = 48
"""Queries at which a tag is tested, of as many documents as possible."""
CONTROLS = 4
"""Draws of other attention for each query."""
ROWS_PER_QUERY = 2 + CONTROLS
"""Rows of `_moves` for each query: all targets, as much as other cells hold, and the draws."""
MIN_CONTROL_SHARE = 0.25
"""Share of the targets' attention that other cells must hold for a query to have a control. If they
hold less than all of it, only as much of the targets' attention is moved for the comparison."""
FEWEST = 20
"""There is no verdict on fewer queries, or on fewer than `MIN_BLOCKS` blocks of documents."""
TRIFLE = 1e-4
"""Nats that are added to both divergences before their ratio is taken."""


class Tag(NamedTuple):
    """One tag of one head, whose edges are knocked out."""

    layer: int
    head: int
    name: str
    """Name of the relation, or of the general label that stands for several."""
    relations: tuple[str, ...]
    """Relations whose queries are tested, all those of a general label."""


class TargetedQuery(NamedTuple):
    """One query of a relation in one window, with its target keys."""

    window: int
    query: int
    targets: Int[ndarray, " target"]


def edge_row(tag: Tag, parts: Sequence[tuple[int, Changed]], *, seed: int) -> dict[str, object]:
    """The row of a tag in the table of causes, yet without a verdict.

    `parts` has for each query its block of documents, and the changes of the rows of `_moves`.
    """
    # each query with all its rows: its targets moved, as much of other cells, and drawn cells
    block = np.array([number for number, _ in parts], np.int64)
    divergence = _by_query([part.divergence for _, part in parts])
    moved = _by_query([part.moved for _, part in parts])
    changed = _by_query([part.changed for _, part in parts])
    clean = _by_query([part.clean for _, part in parts]).all_targets
    # controls that moved too little attention say nothing
    enough = moved.as_much >= MIN_CONTROL_SHARE * moved.all_targets
    control = np.where(enough, divergence.controls.mean(1), np.nan)
    changed_of_control = np.where(enough, changed.controls.mean(1), np.nan)

    def estimated(values: Float[ndarray, " query"]) -> Estimate:
        known = ~np.isnan(values)
        counts = np.bincount(block[known])
        sums = np.bincount(block[known], values[known]).astype(float)
        return estimate(sums, counts, seed=seed)

    effect = estimated(divergence.all_targets)
    of_control = estimated(control)
    excess = estimated(divergence.as_much - control)
    # few queries change a hundred times as much as most, so the logarithm of the ratio is tested
    ratio = (divergence.as_much + TRIFLE) / (control + TRIFLE)
    times = estimated(np.log(ratio))
    loss = estimated(clean - changed.all_targets)
    loss_excess = estimated(changed_of_control - changed.as_much)
    # two tests of one tag: by divergence and by loss
    smaller_p_value = float(np.fmin(times.p_value, loss_excess.p_value))
    # a general label is the name of several relations, which are one test
    kind, _, relation = tag.name.partition("/")
    return {
        "kind": "tag",
        "layer": tag.layer,
        "head": tag.head,
        "type": kind,
        "behaviour": EDGES,
        "how": "to the sink",
        "n": len(block),
        "clean": _mean(clean),
        "ablated": _mean(changed.all_targets),
        "effect": effect.mean,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "control": of_control.mean,
        "control_low": of_control.low,
        "control_high": of_control.high,
        "relation": relation,
        "moved": _mean(moved.all_targets),
        "excess": excess.mean,
        "excess_low": excess.low,
        "excess_high": excess.high,
        "times": float(np.exp(times.mean)),
        "times_low": float(np.exp(times.low)),
        "times_high": float(np.exp(times.high)),
        "loss": loss.mean,
        "loss_excess": loss_excess.mean,
        "loss_low": loss_excess.low,
        "loss_high": loss_excess.high,
        "p_value": min(1.0, 2 * smaller_p_value),
        "verdict": _reason(block, block[~np.isnan(control)]),
    }


@dataclass(frozen=True, eq=False)
class _ByQuery:
    """A value of `Changed` for each query of a tag; see `_moves`."""

    all_targets: Float[ndarray, " query"]
    """The value with all attention of the targets moved."""
    as_much: Float[ndarray, " query"]
    """With as much of it as the layer's other cells can give."""
    controls: Float[ndarray, "query draw"]
    """With as much attention of other cells moved."""


def _by_query(values: Sequence[Float[ndarray, " item"]]) -> _ByQuery:
    columns = np.array(values, float).reshape(-1, ROWS_PER_QUERY)
    return _ByQuery(columns[:, 0], columns[:, 1], columns[:, 2:])


def _reason(block: Int[ndarray, " query"], compared: Int[ndarray, " compared"]) -> str:
    """The reason why there is no verdict; empty if there can be one."""
    documents = len(np.unique(block))
    if len(block) < FEWEST or documents < MIN_BLOCKS:
        return f"{UNTESTED}: {len(block)} queries in {documents} documents"
    if len(compared) < FEWEST or len(np.unique(compared)) < MIN_BLOCKS:
        return (
            f"{UNTESTED}: the layer's other attention is enough to compare with at "
            f"{len(compared)} of {len(block)} queries"
        )
    return ""


def _mean(values: Float[ndarray, " query"]) -> float:
    """Mean without NaN: no token follows the last one of a window."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def edge_effects(
    model: Model,
    corpora: Sequence[str | Path],
    tags: Sequence[Tag],
    *,
    queries: int,
    seed: int,
    progress: OnProgress,
) -> pd.DataFrame:
    """Knock out the edges of each tag in text and stimuli; a row per tag, without a verdict.

    `verdict` has the reason if the model's edges cannot be knocked out.

    Raises:
        ModelError: its heads cannot be changed at all; see `Rerunner`.
    """
    # edges are those of relations that a tag names
    tested = {name for tag in tags for name in tag.relations}
    relations = [relation for relation in relations_of([*head_types()]) if relation.id in tested]

    def untested(reason: str) -> pd.DataFrame:
        rows = [edge_row(tag, [], seed=seed) for tag in tags]
        return pd.DataFrame(rows).assign(verdict=f"{UNTESTED}: {reason}")

    # a model whose tokens mix otherwise cannot keep its other keys
    if not model.attention_kind.predicts_next:
        return untested("all tokens of an encoder see each other")
    rerunner = Rerunner(model)
    try:
        rerunner.check_tokens_alone()
    except ModelError:
        return untested("this model mixes tokens by more")
    windows = edge_windows(model, corpora, {s for r in relations for s in r.stimuli}, seed=seed)
    return knock_out_edges(rerunner, windows, tags, seed=seed, queries=queries, progress=progress)


def knock_out_edges(
    rerunner: Rerunner,
    windows: Sequence[Window],
    tags: Sequence[Tag],
    *,
    seed: int,
    queries: int = QUERIES,
    progress: OnProgress = lambda done, total: None,
) -> pd.DataFrame:
    """Knock out the edges of each tag at up to `queries` of its queries in some windows.

    The queries are of as many documents as possible; a tag of an unknown relation has none.
    """
    # blocks of documents, as in the run's own intervals
    blocks = assign_blocks(windows).blocks
    every = relations_of([*head_types()], in_chat=True, in_haystack=True)
    known = {relation.id: relation for relation in every}
    targeted: dict[tuple[str, ...], list[TargetedQuery]] = {}
    for names in {tag.relations for tag in tags}:
        relations = [known[name] for name in names if name in known]
        targeted[names] = queries_by_block(relations, windows, blocks, queries=queries, seed=seed)
    # each tag with the queries of its relations, by the number of the window
    by_window: dict[int, list[tuple[Tag, TargetedQuery]]] = {}
    for tag in tags:
        for query in targeted[tag.relations]:
            by_window.setdefault(query.window, []).append((tag, query))
    # window by window: its clean keys serve all tags with queries there
    by_tag: dict[Tag, list[tuple[int, Changed]]] = {tag: [] for tag in tags}
    for done, (index, tests) in enumerate(sorted(by_window.items())):
        changed = move_attention(rerunner, windows[index].tokens, _moves(tests, seed))
        block = int(blocks[index])
        for number, (tag, _) in enumerate(tests):
            start = number * ROWS_PER_QUERY
            of_query = changed.between(start, start + ROWS_PER_QUERY)
            by_tag[tag].append((block, of_query))
        progress(done + 1, len(by_window))
    return pd.DataFrame([edge_row(tag, parts, seed=seed) for tag, parts in by_tag.items()])


def queries_by_block(
    relations: Sequence[Relation],
    windows: Sequence[Window],
    blocks: Int[ndarray, " window"],
    *,
    queries: int,
    seed: int,
) -> list[TargetedQuery]:
    """Queries of some relations, one block of documents after the other in turn.

    A query of several relations has the targets of all.
    """
    waiting: dict[int, list[TargetedQuery]] = {}
    for index, window in enumerate(windows):
        rng = np.random.default_rng([seed, index])
        keys_of: dict[int, list[int]] = {}
        for relation in relations:
            draw = int(rng.integers(2**31))
            cells = WindowPairs(window).cells(relation, [draw])
            if cells is None:
                continue
            targets = cells.targets
            for query, key in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
                keys_of.setdefault(query, []).append(key)
        queries_here = []
        for query, keys in keys_of.items():
            queries_here.append(TargetedQuery(index, query, np.unique(keys)))
        # the first queries of a window would all stand at its beginning
        rng.shuffle(queries_here)
        waiting.setdefault(int(blocks[index]), []).extend(queries_here)

    # one of each block in turn, because blocks are what is resampled
    in_turn: list[TargetedQuery] = []
    for turn in range(max(map(len, waiting.values()), default=0)):
        in_turn += [block[turn] for block in waiting.values() if turn < len(block)]
        if len(in_turn) >= queries:
            break
    return in_turn[:queries]


def _moves(items: Sequence[tuple[Tag, TargetedQuery]], seed: int) -> Moves:
    """`ROWS_PER_QUERY` rows of each item."""
    # row 0 moves all targets, row 1 as much of other cells, and the others drawn cells
    first_draw = 1 + CONTROLS * seed
    draws = [ALL, AS_MUCH, *range(first_draw, first_draw + CONTROLS)]

    # a query stands in one row for each draw
    def repeated(values: Iterable[int]) -> Int[ndarray, " row"]:
        return np.repeat(np.fromiter(values, np.int64), ROWS_PER_QUERY)

    targets: list[ndarray] = []
    for _, query in items:
        targets += [query.targets] * ROWS_PER_QUERY
    counts = [len(keys) for keys in targets]
    return Moves(
        query=repeated(query.query for _, query in items),
        layer=repeated(tag.layer for tag, _ in items),
        head=repeated(tag.head for tag, _ in items),
        draw=np.tile(np.array(draws, np.int64), len(items)),
        item=np.repeat(np.arange(len(targets)), counts),
        key=np.concatenate(targets).astype(np.int64),
    )


def tags_of(evidence: pd.DataFrame, heads: Collection[Head]) -> list[Tag]:
    """Tags of some heads without attention sinks; tags with one general label are one."""
    tagged = evidence[evidence["tagged"].astype(bool)]
    names = tag_names(tagged)
    is_sink_tag = names.isin(SINK_RELATIONS)
    tagged = tagged.assign(id=tagged["type"] + "/" + tagged["relation"], name=names)
    tags = []
    groups = tagged[~is_sink_tag].groupby(["layer", "head", "name"], sort=False)
    for (layer, head, name), rows in groups:
        if (layer, head) in heads:
            tag = Tag(int(layer), int(head), str(name), tuple(rows["id"]))
            tags.append(tag)
    return tags
