"""Effects of silencing a tag's edges: at its queries, attention to its targets.

For each tag the attention that its queries pay to their targets is moved to the sink, which is the
first token, or the model's own learned sink; and, as control, as much attention of the same layer
at the same queries, drawn by what each cell holds from all that the tag does not speak of
(`Moves`). Two things change at these queries: the distribution of the next token, by a divergence
that has no direction, and the log-probability of the token that does follow. A tag's effect on
later tokens, through heads that read what it left, is not seen.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.block_assignment import assign_blocks
from headscope.measure.progress import OnProgress
from headscope.measure.tally import MIN_BLOCKS
from headscope.relations import head_types, relations_of
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Relation, find
from headscope.runs.listing import Head
from headscope.statistics.causes import EDGES, UNTESTED
from headscope.statistics.general_labels import tag_names
from headscope.studies.ablate.ablation_effects import Estimate, by_block, estimate
from headscope.studies.ablate.query_rerun import ALL, AS_MUCH, Changed, Moves, QueryRerunner

QUERIES = 48
"""Queries at which a tag is tested, of as many documents as there are."""
CONTROLS = 4
"""Draws of other attention for each query."""
MIN_CONTROL_SHARE = 0.25
"""Share of what the targets held that a control must find; else the query has none. Where it finds
less than all, as much of the targets' is compared with it."""
FEWEST = 20
"""Queries below which, and `MIN_BLOCKS` blocks of documents below which, there is no verdict."""
TRIFLE = 1e-4
"""Nats that are added to both divergences before their ratio is taken: less is no change."""
TO_SINK = "to the sink"


class Tag(NamedTuple):
    """One tag of one head, whose edges are silenced."""

    layer: int
    head: int
    name: str
    """The relation's, or that of the general label that stands for several."""
    members: tuple[str, ...] = ()
    """The relations that the general label stands for."""

    @property
    def relations(self) -> tuple[str, ...]:
        """Those whose queries it is tested at."""
        return self.members or (self.name,)


class TargetedQuery(NamedTuple):
    """One query of a relation in one window, and the keys that it should look at."""

    window: int
    query: int
    targets: Int[ndarray, " target"]


@dataclass(frozen=True, eq=False)
class Measured:
    """Changes by silencing, at each query of one tag."""

    tag: Tag
    block: Int[ndarray, " query"]
    moved: Float[ndarray, " query"]
    divergence: Float[ndarray, " query"]
    """With the edges to the targets silenced, in nats."""
    matched: Float[ndarray, " query"]
    """The same with as much of them silenced as the control moves."""
    control: Float[ndarray, " query"]
    """With as much moved from other cells; the mean of their draws. NaN where the layer's other
    attention rests, so that there is next to nothing to move."""
    clean: Float[ndarray, " query"]
    silenced: Float[ndarray, " query"]
    loss_excess: Float[ndarray, " query"]
    """By how many nats the token that follows loses more than with the control's cells moved."""

    def row(self, seed: int) -> dict[str, object]:
        """Its row of the table of causes, before it is judged."""
        kind, _, relation = self.tag.name.partition("/")
        effect = self._estimate(self.divergence, seed)
        control = self._estimate(self.control, seed)
        excess = self._estimate(self.matched - self.control, seed)
        # a few queries change a hundred times as much as most: not so the logarithm of the ratio
        ratio = np.log((self.matched + TRIFLE) / (self.control + TRIFLE))
        times = self._estimate(ratio, seed)
        loss = self._estimate(self.clean - self.silenced, seed)
        loss_excess = self._estimate(self.loss_excess, seed)
        return {
            "kind": "tag",
            "layer": self.tag.layer,
            "head": self.tag.head,
            "type": kind,
            "heads": head_name(self.tag.layer, self.tag.head),
            "behaviour": EDGES,
            "how": TO_SINK,
            "n": len(self.block),
            "clean": _mean(self.clean),
            "ablated": _mean(self.silenced),
            "effect": effect.mean,
            "ci_low": effect.low,
            "ci_high": effect.high,
            "control": control.mean,
            "control_low": control.low,
            "control_high": control.high,
            "relation": relation,
            "moved": _mean(self.moved),
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
            # one tag, two tests: by divergence and by loss
            "p_value": min(1.0, 2 * float(np.fmin(times.p_value, loss_excess.p_value))),
            "verdict": self._reason(),
        }

    def _estimate(self, values: Float[ndarray, " query"], seed: int) -> Estimate:
        known = ~np.isnan(values)
        return estimate(*by_block(values[known], self.block[known]), seed=seed)

    def _reason(self) -> str:
        """Why there is no verdict; nothing if there can be one."""
        if len(self.block) < FEWEST or len(np.unique(self.block)) < MIN_BLOCKS:
            documents = len(np.unique(self.block))
            return f"{UNTESTED}: {len(self.block)} queries in {documents} documents"
        compared = self.block[~np.isnan(self.control)]
        if len(compared) < FEWEST or len(np.unique(compared)) < MIN_BLOCKS:
            return (
                f"{UNTESTED}: the layer's other attention is enough to compare with at "
                f"{len(compared)} of {len(self.block)} queries"
            )
        return ""


def _mean(values: Float[ndarray, " query"]) -> float:
    """The mean of what is known: the last token of a window is followed by none."""
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else float("nan")


def silence_edges(
    runner: QueryRerunner,
    windows: Sequence[Window],
    tags: Sequence[Tag],
    *,
    seed: int,
    queries: int = QUERIES,
    progress: OnProgress = lambda done, total: None,
) -> list[Measured]:
    """Silence the edges of each tag at some of its own queries.

    Args:
        runner: the model.
        windows: of every stimulus.
        tags: what to test; one of a relation that is not known here has no queries.
        seed: seeds the controls.
        queries: at how many queries each tag is tested at most, dealt over documents.
        progress: called with the windows done and in all.

    Returns:
        For each tag what was measured, one of no queries where it has none.
    """
    blocks, _ = assign_blocks(windows)
    known = {relation.id: relation for relation in relations_of([*head_types()], in_chat=True)}
    targeted = {
        names: queries_by_block(
            [known[name] for name in names if name in known],
            windows,
            blocks,
            queries=queries,
            seed=seed,
        )
        for names in dict.fromkeys(tag.relations for tag in tags)
    }
    by_window: dict[int, list[tuple[int, TargetedQuery]]] = {}
    for number, tag in enumerate(tags):
        for query in targeted[tag.relations]:
            by_window.setdefault(query.window, []).append((number, query))
    by_tag: dict[int, list[tuple[int, Changed]]] = {}
    for done, (index, tests) in enumerate(sorted(by_window.items())):
        items = [(tags[number], query) for number, query in tests]
        changed = runner.run(windows[index].tokens, _moves(items, seed))
        step = 2 + CONTROLS
        for i, (number, _) in enumerate(tests):
            part = Changed(*(column[i * step : (i + 1) * step] for column in changed))
            by_tag.setdefault(number, []).append((int(blocks[index]), part))
        progress(done + 1, len(by_window))
    return [_measured(tag, by_tag.get(number, [])) for number, tag in enumerate(tags)]


def queries_by_block(
    relations: Sequence[Relation],
    windows: Sequence[Window],
    blocks: Int[ndarray, " window"],
    *,
    queries: int,
    seed: int,
) -> list[TargetedQuery]:
    """Queries of some relations, one block of documents after the other in turn.

    At a query of several it has the targets of all.
    """
    waiting: dict[int, list[TargetedQuery]] = {}
    for index, window in enumerate(windows):
        rng = np.random.default_rng([seed, index])
        queries_here = list(_targeted_queries(relations, window, index, rng))
        rng.shuffle(queries_here)
        waiting.setdefault(int(blocks[index]), []).extend(queries_here)
    in_turn: list[TargetedQuery] = []
    for turn in range(max(map(len, waiting.values()), default=0)):
        in_turn += [block[turn] for block in waiting.values() if turn < len(block)]
        if len(in_turn) >= queries:
            break
    return in_turn[:queries]


def _targeted_queries(
    relations: Sequence[Relation], window: Window, index: int, rng: np.random.Generator
) -> Iterator[TargetedQuery]:
    """Queries of the relations in a window with their targets."""
    keys_of: dict[int, list[int]] = {}
    for relation in relations:
        pairs = find(relation, window, [int(rng.integers(2**31))])
        if pairs is not None:
            for query, targets in _by_query(pairs.targets).items():
                keys_of.setdefault(query, []).extend(targets)
    for query, keys in keys_of.items():
        yield TargetedQuery(index, query, np.unique(keys))


def _by_query(pairs: Pairs) -> dict[int, Int[ndarray, " key"]]:
    keys_of: dict[int, list[int]] = {}
    for query, key in zip(pairs.query.tolist(), pairs.key.tolist(), strict=True):
        keys_of.setdefault(query, []).append(key)
    return {query: np.unique(keys) for query, keys in keys_of.items()}


def _moves(items: Sequence[tuple[Tag, TargetedQuery]], seed: int) -> Moves:
    """For each item a row for all of its targets, one for as much as others hold, and the draws."""
    rows: list[tuple[int, int, int, int]] = []
    cells: list[ndarray] = []
    for tag, query in items:
        draws = range(1 + CONTROLS * seed, 1 + CONTROLS * (seed + 1))
        for draw in (ALL, AS_MUCH, *draws):
            cells.append(np.stack([np.full(len(query.targets), len(rows)), query.targets]))
            rows.append((query.query, tag.layer, tag.head, draw))
    queries, layer, head, draw_numbers = np.array(rows, np.int64).T
    item, key = np.concatenate(cells, 1).astype(np.int64)
    return Moves(queries, layer, head, draw_numbers, item, key)


def _measured(tag: Tag, parts: Sequence[tuple[int, Changed]]) -> Measured:
    def silenced(name: str, row: int = 0) -> Float[ndarray, " query"]:
        return np.array([getattr(part, name)[row] for _, part in parts], float)

    def controls(name: str) -> Float[ndarray, " query"]:
        """The mean of the draws, where there was enough to draw."""
        enough = [part.moved[1] >= MIN_CONTROL_SHARE * part.moved[0] for _, part in parts]
        draws = [getattr(part, name)[2:].mean() for _, part in parts]
        return np.where(enough, draws, np.nan)

    return Measured(
        tag,
        np.array([block for block, _ in parts], np.int64),
        silenced("moved"),
        silenced("divergence"),
        silenced("divergence", 1),
        controls("divergence"),
        silenced("clean"),
        silenced("silenced"),
        controls("silenced") - silenced("silenced", 1),
    )


def nothing(tag: Tag, why: str) -> dict[str, object]:
    """The row of a tag that was not tested."""
    none = np.zeros(0)
    row = Measured(tag, np.zeros(0, np.int64), *[none] * 7).row(0)
    return row | {"verdict": f"{UNTESTED}: {why}"}


def tags_of(evidence: pd.DataFrame, heads: Collection[Head]) -> list[Tag]:
    """The tags of some heads, those with one general label as one.

    Args:
        evidence: a row per head × relation with `tagged`.
        heads: whose tags are wanted.
    """
    tagged = evidence[evidence["tagged"].astype(bool)]
    ids, names = tagged["type"] + "/" + tagged["relation"], tag_names(tagged)
    members: dict[tuple[int, int, str], list[str]] = {}
    for layer, head, name, relation in zip(
        tagged["layer"], tagged["head"], names, ids, strict=True
    ):
        if (layer, head) in heads:
            members.setdefault((int(layer), int(head), name), []).append(relation)
    return [
        Tag(*key, () if relations == [key[-1]] else tuple(relations))
        for key, relations in members.items()
    ]
