"""Tags that the zoo's heads earned, with those that are true of them."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.studies.validation.heuristic_benchmark.oracles import QUIET
from headscope.views.colours import colour
from headscope.views.study import Study
from headscope.views.tables import plain_table

HEADS = ["kind", "name", "relation", "noise", "n", "verdict", "found", "tags", "false"]
"""Columns of the table of heads."""
HABITS = ("habit", "unseen habit")
"""Kinds of heads that follow a simple rule: rules were chosen by the first alone."""
UNTOLD = "not identifiable"
"""The verdict where a text does not tell a relation from a simple rule."""


@dataclass(frozen=True, eq=False)
class Zoo(Study):
    """Habits and the tags that are not true of them; oracles and whether they were found."""

    heads: pd.DataFrame
    """A row per head: `kind` (`habit`, `unseen habit` or `oracle`), `name`, `relation` (what it
    must earn, joined by `;`), `noise`, `n` (queries of that relation), `verdict`, `found`, `tags`
    and `false`."""
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
        return self.heads[self.heads["kind"].isin(HABITS)]

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
        """False tags of habits, as a share of habit × relation, in [0, 1]; NaN if there is none."""
        pairs = int(self.judged["habits"].sum())
        return len(self.false_tags) / pairs if pairs else float("nan")

    @property
    def found_share(self) -> float:
        """Share of oracles with at most `QUIET` noise that were found, where the text can tell."""
        rows = self.by_noise[self.by_noise["noise"] <= QUIET]
        distinguishable = int((rows["oracles"] - rows["untold"]).sum())
        return float(rows["found"].sum() / distinguishable) if distinguishable else float("nan")

    @property
    def unseen(self) -> tuple[int, int]:
        """False tags of habits that no rule was chosen by, and how many such habits there are."""
        rows = self.heads[self.heads["kind"] == HABITS[True]]
        return int(rows["false"].str.split(";").map(lambda tags: sum(map(bool, tags))).sum()), len(
            rows
        )

    def figure(self) -> Figure:
        """False tags of habits by relation, and the share of oracles found by noise."""
        rows = self.by_relation
        rows = rows[rows["false_tags"] > 0].sort_values("false_tags")
        figure = Figure(figsize=(8.4, max(3.4, 1.2 + 0.2 * len(rows))), layout="constrained")
        habits_axes, oracles_axes = figure.subplots(1, 2)
        fill = [colour(str(name).split("/")[0]) for name in rows["relation"]]
        habits_axes.barh(rows["relation"], rows["false_tags"], color=fill)
        habits_axes.tick_params(axis="y", labelsize=7)
        habits_axes.set_xlabel(f"habits with a tag that is not true, of {len(self.habits)}")
        habits_axes.set_title(f"{len(self.false_tags)} in all: {self.false_rate:.2%}", fontsize=9)
        shares = self.by_noise
        oracles_axes.plot(shares["noise"], shares["share"], marker="o", ms=4)
        oracles_axes.set_ylim(-0.03, 1.03)
        oracles_axes.set_xlabel("noise, as a share of the attention")
        oracles_axes.set_ylabel("share of oracles found, where the text can tell")
        return figure

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


def zoo_lines(zoo: Zoo) -> RenderableType:
    """The two shares, then oracles by noise, relations, and the tags that are not true."""
    unseen_tags, unseen = zoo.unseen
    false, pairs = len(zoo.false_tags), int(zoo.judged["habits"].sum())
    lines = [
        f"{zoo.words:,} words, {len(zoo.habits)} habits, {zoo.oracles['name'].nunique()} oracles",
        f"tags that are not true of a habit: {false} of {pairs:,} habit × relation "
        f"({zoo.false_rate:.2%})",
        f"of them {unseen_tags} of the {unseen} habits that no rule was chosen by",
        f"oracles found with noise up to {QUIET:g}, where the text can tell: {zoo.found_share:.1%}",
    ]
    missed = zoo.habits[zoo.habits["found"].eq(False)]
    if len(missed):
        lines.append(f"habits without their own tag: {', '.join(missed['name'])}")
    parts = [_noises(zoo), _types(zoo), _relations(zoo), _false(zoo)]
    return Group(Text("\n".join(lines), style="bold"), *(x for p in parts for x in (Text(), p)))


def _noises(zoo: Zoo) -> RenderableType:
    table = plain_table("noise", "oracles", "not identifiable", "found", "share", "false tags")
    for row in zoo.by_noise.itertuples():
        cells = (f"{row.noise:g}", str(row.oracles), str(row.untold), str(row.found))
        table.add_row(*cells, f"{row.share:.1%}", str(row.false_tags))
    return table


def _types(zoo: Zoo) -> RenderableType:
    table = plain_table("type", "habit × relation", "false tags", "rate")
    for row in zoo.by_type.itertuples():
        rate = f"{row.false_rate:.2%}" if row.pairs else "–"  # every habit may rest
        table.add_row(row.type, f"{row.pairs:,}", str(row.false_tags), rate)
    return table


def _relations(zoo: Zoo) -> RenderableType:
    """Relations with false tags, or with an oracle."""
    table = plain_table("relation", "n", "false tags", "rate", "oracle found up to noise")
    with_oracle = set(zoo.oracles["relation"])
    untold = set(zoo.oracles.loc[zoo.oracles["verdict"] != "", "relation"])
    rows = zoo.by_relation
    rows = rows[(rows["false_tags"] > 0) | rows["relation"].isin(with_oracle)]
    for row in rows.itertuples():
        reach = "never" if pd.isna(row.found_up_to) else f"{row.found_up_to:g}"
        reach = "" if row.relation not in with_oracle else reach
        if row.relation in untold and reach == "never":
            reach = "not identifiable"
        table.add_row(
            row.relation, f"{row.n:,}", str(row.false_tags), f"{row.false_rate:.1%}", reach
        )
    return table


def _false(zoo: Zoo) -> RenderableType:
    table = plain_table("tag that is not true", "of these habits")
    for relation, rows in zoo.false_tags.groupby("relation"):
        table.add_row(str(relation), "; ".join(rows["name"]))
    return table
