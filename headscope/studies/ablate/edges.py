"""What breaks when a tag's own edges are silenced: at its queries, attention to its targets.

For each tag the attention that its queries pay to their targets is moved to the sink, which is the
first token, or the model's own learned sink; and, as control, as much attention of the same layer
at the same queries, drawn by what each cell holds from all that the tag does not speak of
(`Moves`). Two things change at these queries: the distribution of the next token, by a divergence
that has no direction, and the log-probability of the token that does follow. A tag's effect on
later tokens, through heads that read what it left, is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.evidence.causes import EDGES, UNTESTED
from headscope.heads import head_name
from headscope.measure.deal import deal
from headscope.measure.tally import MIN_BLOCKS
from headscope.relations import relations_of
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Relation, find
from headscope.runs.listing import Head
from headscope.studies.ablate.at_queries import ALL, AS_MUCH, AtQueries, Changed, Moves
from headscope.studies.ablate.uncertainty import Estimate, by_block, estimate

QUERIES = 48
"""Queries at which a tag is tested, of as many documents as there are."""
CONTROLS = 4
"""Draws of other attention for each query."""
HELD = 0.25
"""Share of what the targets held that a control must find; else the query has none. Where it finds
less than all, as much of the targets' is compared with it."""
FEWEST = 20
"""Queries below which, and `MIN_BLOCKS` blocks of documents below which, there is no verdict."""
TRIFLE = 1e-4
"""Nats that are added to both divergences before their ratio is taken: less is no change."""
TO_SINK = "to the sink"

Progress = Callable[[int, int], None]


class Tag(NamedTuple):
    """What is tested: one relation of one head."""

    layer: int
    head: int
    relation: str


class _Asked(NamedTuple):
    """One query of a relation in one window, and the keys that it should look at."""

    window: int
    query: int
    targets: Int[ndarray, " target"]


@dataclass(frozen=True, eq=False)
class Measured:
    """What silencing did at each query of one tag."""

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
    further: Float[ndarray, " query"]
    """By how many nats the token that follows loses more than with the control's cells moved."""

    def row(self, seed: int) -> dict[str, object]:
        """What a row of the table of causes says of it, before it is judged."""
        kind, _, relation = self.tag.relation.partition("/")
        own = self._estimate(self.divergence, seed)
        control = self._estimate(self.control, seed)
        excess = self._estimate(self.matched - self.control, seed)
        # a few queries change a hundred times as much as most: not so the logarithm of the ratio
        ratio = np.log((self.matched + TRIFLE) / (self.control + TRIFLE))
        times = self._estimate(ratio, seed)
        loss = self._estimate(self.clean - self.silenced, seed)
        further = self._estimate(self.further, seed)
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
            "effect": own.mean,
            "ci_low": own.low,
            "ci_high": own.high,
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
            "loss_excess": further.mean,
            "loss_low": further.low,
            "loss_high": further.high,
            # one tag, two tests: by divergence and by loss
            "p_value": min(1.0, 2 * float(np.fmin(times.p_value, further.p_value))),
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
    runner: AtQueries,
    windows: Sequence[Window],
    tags: Sequence[Tag],
    *,
    seed: int,
    queries: int = QUERIES,
    progress: Progress = lambda done, total: None,
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
    blocks, _ = deal(windows)
    known = {relation.id: relation for relation in relations_of()}
    asked = {
        name: choose_queries(known[name], windows, blocks, queries=queries, seed=seed)
        for name in dict.fromkeys(tag.relation for tag in tags)
        if name in known
    }
    of_window: dict[int, list[tuple[int, int]]] = {}
    for number, tag in enumerate(tags):
        for place, each in enumerate(asked.get(tag.relation, ())):
            of_window.setdefault(each.window, []).append((number, place))
    found: dict[int, list[tuple[int, Changed]]] = {}
    for done, (index, own) in enumerate(sorted(of_window.items())):
        items = [(tags[number], asked[tags[number].relation][place]) for number, place in own]
        changed = runner.run(windows[index].tokens, _moves(items, seed))
        step = 2 + CONTROLS
        for i, (number, _) in enumerate(own):
            part = Changed(*(each[i * step : (i + 1) * step] for each in changed))
            found.setdefault(number, []).append((int(blocks[index]), part))
        progress(done + 1, len(of_window))
    return [_measured(tag, found.get(number, [])) for number, tag in enumerate(tags)]


def choose_queries(
    relation: Relation,
    windows: Sequence[Window],
    blocks: Int[ndarray, " window"],
    *,
    queries: int,
    seed: int,
) -> list[_Asked]:
    """Queries of a relation, one block of documents after the other in turn."""
    waiting: dict[int, list[_Asked]] = {}
    for index, window in enumerate(windows):
        rng = np.random.default_rng([seed, index])
        own = list(_asked(relation, window, index, rng))
        rng.shuffle(own)
        waiting.setdefault(int(blocks[index]), []).extend(own)
    found: list[_Asked] = []
    for turn in range(max(map(len, waiting.values()), default=0)):
        found += [own[turn] for own in waiting.values() if turn < len(own)]
        if len(found) >= queries:
            break
    return found[:queries]


def _asked(
    relation: Relation, window: Window, index: int, rng: np.random.Generator
) -> Iterator[_Asked]:
    """A relation's queries in a window with their targets."""
    pairs = find(relation, window, [int(rng.integers(2**31))])
    if pairs is None:
        return
    for query, targets in _by_query(pairs.targets).items():
        yield _Asked(index, query, targets)


def _by_query(pairs: Pairs) -> dict[int, Int[ndarray, " key"]]:
    found: dict[int, list[int]] = {}
    for query, key in zip(pairs.query.tolist(), pairs.key.tolist(), strict=True):
        found.setdefault(query, []).append(key)
    return {query: np.unique(keys) for query, keys in found.items()}


def _moves(items: Sequence[tuple[Tag, _Asked]], seed: int) -> Moves:
    """For each item a row for all of its targets, one for as much as others hold, and the draws."""
    rows: list[tuple[int, int, int, int]] = []
    cells: list[ndarray] = []
    for tag, asked in items:
        for draw in (ALL, AS_MUCH, *range(1 + CONTROLS * seed, 1 + CONTROLS * (seed + 1))):
            cells.append(np.stack([np.full(len(asked.targets), len(rows)), asked.targets]))
            rows.append((asked.query, tag.layer, tag.head, draw))
    query, layer, head, draws = np.array(rows, np.int64).T
    item, key = np.concatenate(cells, 1).astype(np.int64)
    return Moves(query, layer, head, draws, item, key)


def _measured(tag: Tag, found: Sequence[tuple[int, Changed]]) -> Measured:
    def own(name: str, row: int = 0) -> Float[ndarray, " query"]:
        return np.array([getattr(part, name)[row] for _, part in found], float)

    def beside(name: str) -> Float[ndarray, " query"]:
        """The mean of the draws, where there was enough to draw."""
        enough = [part.moved[1] >= HELD * part.moved[0] for _, part in found]
        draws = [getattr(part, name)[2:].mean() for _, part in found]
        return np.where(enough, draws, np.nan)

    return Measured(
        tag,
        np.array([block for block, _ in found], np.int64),
        own("moved"),
        own("divergence"),
        own("divergence", 1),
        beside("divergence"),
        own("clean"),
        own("silenced"),
        beside("silenced") - own("silenced", 1),
    )


def nothing(tag: Tag, why: str) -> dict[str, object]:
    """The row of a tag that was not tested."""
    none = np.zeros(0)
    row = Measured(tag, np.zeros(0, np.int64), *[none] * 7).row(0)
    return row | {"verdict": f"{UNTESTED}: {why}"}


def tags_of(evidence: pd.DataFrame, heads: Collection[Head]) -> list[Tag]:
    """The tags of some heads, from a row per head × relation with `tagged`."""
    tagged = evidence[evidence["tagged"].astype(bool)]
    found = [
        Tag(int(row.layer), int(row.head), f"{row.type}/{row.relation}")
        for row in tagged.itertuples()
    ]
    return [tag for tag in found if (tag.layer, tag.head) in heads]
