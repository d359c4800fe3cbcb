"""Tags that the zoo's heads earned, with those that are true of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.studies.validation.heuristic_benchmark.oracles import QUIET
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

HEADS = ["kind", "name", "relation", "noise", "n", "verdict", "found", "tags", "false"]
"""Columns of the table of heads."""
UNTOLD = "not identifiable"
"""The verdict where a text does not tell a relation from a simple rule."""


@dataclass(frozen=True, eq=False)
class Zoo(Study):
    """Habits and the tags that are not true of them; oracles and whether they were found."""

    heads: pd.DataFrame
    """A row per head: `kind` (`habit` or `oracle`), `name`, `relation` (what it must earn, joined
    by `;`), `noise`, `n` (queries of that relation), `verdict`, `found`, `tags` and `false`."""
    judged: pd.DataFrame
    """A row per relation that could be earned: `relation`, `n`, and `habits`, of how many habits it
    would not be true."""
    words: int
    """Words of the text that was read."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per head."""
        return self.heads

    @property
    def habits(self) -> pd.DataFrame:
        """The rows of habits."""
        return self.heads[self.heads["kind"] == "habit"]

    @property
    def oracles(self) -> pd.DataFrame:
        """The rows of oracles whose relation had enough queries."""
        return self.heads[(self.heads["kind"] == "oracle") & (self.heads["relation"] != "")]

    @property
    def false_tags(self) -> pd.DataFrame:
        """A row per tag of a habit that is not true of it: `relation`, `name`."""
        rows = self.habits.assign(relation=self.habits["false"].str.split(";")).explode("relation")
        rows = rows[rows["relation"] != ""]
        return rows[["relation", "name"]].sort_values("relation", kind="stable", ignore_index=True)

    @property
    def by_relation(self) -> pd.DataFrame:
        """For each relation `relation`, `n`, `habits`, `false_tags`, `false_rate`, `found_up_to`.

        `found_up_to` is the largest noise at which its oracle was found, here and at all smaller
        noises; missing where it was never found, or where there is none.
        """
        counts = self.false_tags["relation"].value_counts()
        table = self.judged.assign(
            false_tags=self.judged["relation"].map(counts).fillna(0).astype(int)
        )
        table["false_rate"] = table["false_tags"] / table["habits"]
        reach = {name: _reach(rows) for name, rows in self.oracles.groupby("relation")}
        table["found_up_to"] = table["relation"].map(reach).astype(float)
        return table

    @property
    def by_type(self) -> pd.DataFrame:
        """For each head type that can be earned `type`, `pairs` (of a habit and a relation that is
        not true of it), `false_tags` and `false_rate`, in [0, 1].
        """
        table = self.by_relation.assign(type=self.judged["relation"].str.split("/").str[0])
        table = table.groupby("type", as_index=False, sort=False).agg(
            pairs=("habits", "sum"), false_tags=("false_tags", "sum")
        )
        pairs = table["pairs"].where(table["pairs"] > 0)
        return table.assign(false_rate=table["false_tags"] / pairs)

    @property
    def by_noise(self) -> pd.DataFrame:
        """For each noise `noise`, `oracles`, `untold` (of which the text cannot tell), `found`,
        `false_tags`, and `share`, the found among those that it can tell, in [0, 1].
        """
        rows = self.oracles.assign(
            untold=self.oracles["verdict"] == UNTOLD,
            found=self.oracles["found"].eq(True),
            false=self.oracles["false"].str.split(";").map(lambda tags: sum(map(bool, tags))),
        )
        table = rows.groupby("noise", as_index=False).agg(
            oracles=("name", "size"),
            untold=("untold", "sum"),
            found=("found", "sum"),
            false_tags=("false", "sum"),
        )
        distinguishable = table["oracles"] - table["untold"]
        table["share"] = table["found"] / distinguishable.where(distinguishable > 0)
        return table

    @property
    def false_rate(self) -> float:
        """False tags of habits, as a share of habit × relation, in [0, 1]."""
        return float(len(self.false_tags) / self.judged["habits"].sum())

    @property
    def found_share(self) -> float:
        """Share of oracles with at most `QUIET` noise that were found, where the text can tell."""
        rows = self.by_noise[self.by_noise["noise"] <= QUIET]
        distinguishable = int((rows["oracles"] - rows["untold"]).sum())
        return float(rows["found"].sum() / distinguishable) if distinguishable else float("nan")

    def figure(self) -> Figure:
        """False tags of habits by relation, and the share of oracles found by noise."""
        from headscope.studies.validation.heuristic_benchmark.benchmark_view import zoo_figure

        return zoo_figure(self)

    def __repr__(self) -> str:
        return (
            f"<headscope zoo: {len(self.false_tags)} false tags of {len(self.habits)} habits "
            f"({self.false_rate:.2%} of habit × relation), {self.found_share:.0%} of oracles found>"
        )


def _reach(rows: pd.DataFrame) -> float:
    """The largest noise up to which all are found; NaN if not even the smallest is."""
    ordered = rows.sort_values("noise")
    held = ordered["found"].astype(bool).cummin()
    return float(ordered.loc[held, "noise"].max()) if held.any() else float("nan")
