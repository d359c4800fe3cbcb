"""A gallery's runs and heads as tables for other programs."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from headscope.runs.tables import table_to_csv
from headscope.statistics.tags import NO_TYPE
from headscope.views.gallery.card import Card, functions_first


def heads_csv(cards: Sequence[Card]) -> str:
    """A row per head of every run: `run`, `model`, `revision`, the head's name, then `heads.csv`.

    A column that only some runs have is empty in the others.
    """
    tables = [
        card.heads.reset_index().assign(run=card.name, model=card.model, revision=card.revision)
        for card in cards
    ]
    columns = dict.fromkeys(column for table in tables for column in table.columns)
    first = ["run", "model", "revision", "name"]
    table = pd.concat(tables, ignore_index=True)
    return table_to_csv(table[[*first, *(c for c in columns if c not in first)]])


def runs_csv(cards: Sequence[Card]) -> str:
    """A row per run with its heads of each primary type; empty where that was not measured."""
    types = types_of(cards)
    rows = [
        {
            "run": card.name,
            "folder": card.folder,
            "model": card.model,
            "revision": card.revision,
            "corpus": card.text,
            "tokens": card.tokens,
            "layers": card.layers,
            "heads": card.total,
            **{name: card.count(name) for name in types},
        }
        for card in cards
    ]
    numbers = dict.fromkeys(("tokens", *types), "Int64")
    return table_to_csv(pd.DataFrame(rows).astype(numbers))


def types_of(cards: Sequence[Card]) -> list[str]:
    """Types that heads of any run are drawn as or could have earned, in the order of the legend."""
    types = {share.type for card in cards for share in card.shares}
    types |= {name for card in cards for name in card.countable}
    return functions_first(types | {*NO_TYPE})
