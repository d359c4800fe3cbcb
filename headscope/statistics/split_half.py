"""Two halves of the documents: what is found on the one, and whether the other says so too."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from headscope.measure.tally import Tally
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.statistics.estimates import NO_FACTS, Facts, Half, weigh
from headscope.statistics.tags import OPEN, TAGGED, verdicts

_CELL = ["layer", "head", "type", "relation"]
HALVES = (Half(slice(0, None, 2)), Half(slice(1, None, 2)))
"""Documents are dealt like cards, so that every other block holds every other document."""
EFFECT_HALVES = tuple(half._replace(tested=half.decided, decided=0) for half in HALVES)
"""Those that effects are judged by: heads have queries of their own, few where others have many."""


def tags_of_halves(
    tally: Tally,
    relations: Sequence[Relation],
    *,
    seed: int,
    facts: Facts = NO_FACTS,
    twin: Tally | None = None,
    halves: Sequence[Half] = HALVES,
) -> pd.DataFrame:
    """The tags that each half of the documents gives by itself, asked for half as many queries.

    Returns:
        `layer`, `head`, `type`, `relation`, `first`, `second`: a row per head × relation that both
        halves decide, which a narrow refusal does not; the last two are bool.
    """
    rules = {relation.id: relation.rule for relation in relations}
    tables = []
    for name, half in zip(("first", "second"), halves, strict=True):
        table = weigh(tally, relations, seed=seed, facts=facts, twin=twin, half=half)
        verdict = verdicts(table, rules, fewest=MIN_QUERIES // 2)
        table[name] = verdict == TAGGED
        is_decided = (table["n"] >= half.decided) & table["ci_low"].notna() & ~verdict.isin(OPEN)
        table = table[is_decided]
        tables.append(table[[*_CELL, name]])
    return tables[0].merge(tables[1], on=_CELL)


def confirmed(evidence: pd.DataFrame, halves: pd.DataFrame) -> pd.Series:
    """1 for each tag that both halves give by themselves, else 0; NaN where they could not say."""
    both = evidence[_CELL].merge(halves, on=_CELL, how="left")
    is_confirmed = (both["first"].eq(True) & both["second"].eq(True)).astype(float)
    is_confirmed[both["first"].isna() | ~evidence["tagged"].to_numpy()] = np.nan
    return is_confirmed.set_axis(evidence.index)


def split_half_agreement(halves: pd.DataFrame) -> dict[str, float]:
    """For each relation with a tag in either half, Cohen's κ of the heads' tags between them.

    1 where both halves tag the same heads, 0 where they agree as chance would have it. Cohen 1960.

    >>> rows = [(0, head, "t", "r", head < 2, head < 2) for head in range(9)]
    >>> split_half_agreement(pd.DataFrame(rows, columns=[*_CELL, "first", "second"]))
    {'t/r': 1.0}
    """
    kappas = {}
    for (kind, relation), relation_halves in halves.groupby(["type", "relation"], sort=False):
        first, second = (
            relation_halves["first"].astype(bool),
            relation_halves["second"].astype(bool),
        )
        if not (first | second).any():
            continue
        a, b = first.mean(), second.mean()
        chance = a * b + (1 - a) * (1 - b)
        agree = float((first == second).mean())
        kappa = 1.0 if chance == 1 else (agree - chance) / (1 - chance)
        kappas[f"{kind}/{relation}"] = round(float(kappa), 4)
    return kappas
