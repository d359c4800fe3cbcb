"""Sentences about a head's rule, and about its tags: those that stand by themselves."""

from __future__ import annotations

import pandas as pd

from headscope.statistics.columns import rows_of_head

MIN_UNIQUE = 0.005
"""The least share of a head's bits that is some: less is within what a refit moves."""
MAX_TERMS = 5


def account_lines(accounts: pd.DataFrame, heads: pd.DataFrame, layer: int, head: int) -> list[str]:
    """A head's rule in words, what it explains, and its features.

    Args:
        accounts: a row per head × feature; see docs/formats.md, `explain`.
        heads: a row per head, with the columns `explained` and `rule`.
        layer: of the head.
        head: its number.
    """
    account = rows_of_head(heads, layer, head).iloc[0]
    lines = [
        f"{account['rule']}",
        f"explains {account['explained']:.0%} of its bits above even attention",
    ]
    terms = rows_of_head(accounts, layer, head)
    for row in terms.head(MAX_TERMS).itertuples():
        at = f" on a {row.queries}" if row.queries else ""
        lines.append(f"{row.feature}{at}: weight {row.weight:+.2f}, {row.unique:.1%} unique bits")
    return lines


def explained_by(
    accounts: pd.DataFrame, layer: int, head: int, tags: list[str]
) -> list[tuple[str, str]]:
    """Tags whose relation has no bits of its own, each with the feature that has most instead.

    A relation that stands in the rule with unique bits stands by itself. Positions, the first token
    and delimiters are features under names of their own and are not asked here.
    """
    terms = rows_of_head(accounts, layer, head)
    if terms.empty:
        return []
    alone = set(terms.loc[(terms["unique"] >= MIN_UNIQUE) & (terms["weight"] > 0), "feature"])
    instead = terms.loc[terms["weight"] > 0, "feature"]
    words = [tag for tag in tags if not tag.startswith(_PLAIN)]
    return [(tag, str(instead.iloc[0])) for tag in words if tag not in alone and len(instead)]


_PLAIN = ("positional/", "sink/", "delimiter/", "induction/")
