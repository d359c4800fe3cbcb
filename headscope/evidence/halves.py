"""Two halves of the documents: what is found on the one, and whether the other says so too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headscope.evidence.tags import TAGGED, verdicts
from headscope.evidence.weigh import NO_FACTS, Facts, weigh
from headscope.measure.tally import Tally
from headscope.relations.relation import MIN_QUERIES, Relation

_CELL = ["layer", "head", "type", "relation"]
HALVES = (slice(0, None, 2), slice(1, None, 2))
"""Documents are dealt like cards, so that every other block holds every other document."""


def tags_of_halves(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    facts: Facts = NO_FACTS,
    twin: Tally | None = None,
) -> pd.DataFrame:
    """The tags that each half of the documents gives by itself, asked for half as many queries.

    Returns:
        `layer`, `head`, `type`, `relation`, `first`, `second`: a row per head × relation that both
        halves could decide; the last two are bool.
    """
    rules = {relation.id: relation.rule for relation in relations}
    tables = []
    for name, blocks in zip(("first", "second"), HALVES, strict=True):
        table = weigh(tally, relations, seed=seed, facts=facts, twin=twin, half=blocks)
        fewest = MIN_QUERIES // 2
        table[name] = verdicts(table, rules, fewest=fewest) == TAGGED
        table = table[(table["n"] >= fewest) & table["ci_low"].notna()]
        tables.append(table[[*_CELL, name]])
    return tables[0].merge(tables[1], on=_CELL)


def confirmed(evidence: pd.DataFrame, halves: pd.DataFrame) -> pd.Series:
    """1 for each tag that both halves give by themselves, else 0; NaN where they could not say."""
    both = evidence[_CELL].merge(halves, on=_CELL, how="left")
    found = (both["first"].eq(True) & both["second"].eq(True)).astype(float)
    found[both["first"].isna() | ~evidence["tagged"].to_numpy()] = np.nan
    return found.set_axis(evidence.index)


def agreement(halves: pd.DataFrame) -> dict[str, float]:
    """For each relation with a tag in either half, Cohen's κ of the heads' tags between them.

    1 where both halves tag the same heads, 0 where they agree as chance would have it. Cohen 1960.

    >>> rows = [(0, head, "t", "r", head < 2, head < 2) for head in range(9)]
    >>> agreement(pd.DataFrame(rows, columns=[*_CELL, "first", "second"]))
    {'t/r': 1.0}
    """
    found = {}
    for (kind, relation), own in halves.groupby(["type", "relation"], sort=False):
        first, second = own["first"].astype(bool), own["second"].astype(bool)
        if not (first | second).any():
            continue
        a, b = first.mean(), second.mean()
        chance = a * b + (1 - a) * (1 - b)
        agree = float((first == second).mean())
        kappa = 1.0 if chance == 1 else (agree - chance) / (1 - chance)
        found[f"{kind}/{relation}"] = round(float(kappa), 4)
    return found
