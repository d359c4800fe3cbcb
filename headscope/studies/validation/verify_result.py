"""A run beside the heads and scores that are published for its model."""

from __future__ import annotations

from dataclasses import dataclass, field

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.heads import head_name
from headscope.views.study import Study
from headscope.views.tables import number_text, plain_table


@dataclass(frozen=True, eq=False)
class Verification(Study):
    """A run beside what is published for its model; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """A row per published head: `layer,head,type,relation,published,mass,kind,found`; `mass` is the
    lift in logits where the head is known for what it writes; `kind` is
    `clear`, `weak` (published below the relation's floor) or `fuzzy`."""
    scores: pd.DataFrame
    """A row per published matrix: `metric`, the run's `relation`, `pearson`,
    `largest_difference` and the head it is `at`, `accepted`, `within`, and `same_set`: the same
    heads are strong."""
    measured: bool
    """Whether the model ran on the published stimulus, or on its like where its seed is unknown."""
    notes: tuple[str, ...]
    ranks: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row per metric of a file of published scores; see `published_scores.compare_ranks`."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per published head; where only a file of scores knows the model, its `ranks`."""
        return self.ranks if self.heads.empty and len(self.ranks) else self.heads

    @property
    def recall(self) -> float:
        """Share of the clear published heads whose tag the run found, in [0, 1]; NaN if none."""
        clear = self.heads[self.heads["kind"] == "clear"]
        return float(clear["found"].mean()) if len(clear) else float("nan")

    @property
    def holds(self) -> bool:
        """True where the matrices lie within the accepted differences.

        Without the published stimulus one matrix for each relation must: those for 50 and for
        100 tokens differ among themselves by up to 0.15. Without any
        matrix all clear heads must be found; where only a file of scores knows the model, those
        of attention, or all where there are none, must share more first heads than 19 of 20
        permutations do.
        """
        if self.heads.empty and self.scores.empty:
            attention = self.ranks[self.ranks["quantity"] == "attention"]
            ranks = attention if len(attention) else self.ranks
            return bool(len(ranks) and (ranks["p_value"] < 0.05).all())
        if self.scores.empty:
            return self.recall == 1
        if self.measured:
            return bool(self.scores["within"].all())
        return bool(self.scores.groupby("relation")["within"].any().all())

    def figure(self) -> Figure:
        """A line per published head: a bar as long as its mass, hollow if the tag was not
        earned, and a mark at the score that was published.
        """
        rows = self.heads.iloc[::-1].reset_index(drop=True)
        figure = Figure(figsize=(6.4, 1.2 + 0.24 * len(rows)), layout="constrained")
        axes = figure.subplots()
        fill = ["#0072b2" if recovered else "white" for recovered in rows["found"]]
        axes.barh(rows.index, rows["mass"], color=fill, edgecolor="#0072b2", height=0.7)
        axes.plot(rows["published"], rows.index, "k|", markersize=9, label="published")
        names = [f"{head_name(r.layer, r.head)}  {r.relation}  {r.kind}" for r in rows.itertuples()]
        axes.set_yticks(rows.index, names, fontsize=7)
        axes.set_xlim(0, 1)
        axes.set_xlabel("mass; hollow: the tag was not earned")
        axes.set_title(self.model, fontsize=9)
        axes.legend(fontsize=7, loc="lower right")
        return figure

    def __repr__(self) -> str:
        return f"<headscope verification against {self.model}: recall {self.recall:.0%}>"


def verification_lines(result: Verification) -> RenderableType:
    """Published heads with their masses here, then the matrices that were compared."""
    heads = plain_table("head", "published as", "published", "mass", "found", "kind")
    for row in result.heads.itertuples():
        heads.add_row(
            head_name(row.layer, row.head),
            row.type,
            number_text(row.published, ".2f"),
            f"{row.mass:.2f}",
            "yes" if row.found else "no",
            row.kind,
        )
    scores = plain_table("score matrix", "correlation", "largest difference", "accepted", "", "")
    for row in result.scores.itertuples():
        scores.add_row(
            row.metric,
            f"{row.pearson:.4f}",
            f"{row.largest_difference:.3f} at {row.at}",
            f"{row.accepted:g}",
            "within" if row.within else "BEYOND",
            "same strong heads" if row.same_set else "other strong heads",
        )
    ranks = plain_table("published", "like", "what", "rank correlation", "first heads", "p")
    for row in result.ranks.itertuples():
        ranks.add_row(
            f"{row.metric} ({row.revision})",
            row.relation,
            f"{row.quantity}, other stimulus: {row.stimulus}",
            f"{row.spearman:+.2f}, within layers {row.spearman_control:+.2f}",
            f"{row.shared} of {row.top} the same, by chance {row.shared_control:.1f}",
            f"{row.p_value:.3f}",
        )
    clear = result.heads[result.heads["kind"] == "clear"]
    recall = f"{int(clear['found'].sum())} of {len(clear)} clear heads found"
    notes = [Text(f"note: {note}", style="yellow") for note in result.notes]
    tables = [table for table in (heads, scores, ranks) if table.row_count]
    title = Text(f"{result.model}: {recall}", style="bold")
    return Group(title, *(part for table in tables for part in (table, Text())), *notes)
