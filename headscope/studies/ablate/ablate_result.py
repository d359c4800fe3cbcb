"""The result of silencing heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.arguments import takes
from headscope.statistics.causes import AWAY, EDGES
from headscope.statistics.reasons import why
from headscope.statistics.result import Result
from headscope.views.study import Study
from headscope.views.tables import frame_table

MOST_LINES = 40
"""Effects that a figure shows; the table has all."""
HEAD_COLUMNS = [
    *("type", "heads", "behaviour", "clean", "ablated", "effect", "ci_low", "ci_high"),
    *("control", "q_value", "verdict"),
]
EDGE_COLUMNS = [
    *("type", "relation", "heads", "moved", "effect", "control", "times", "times_low"),
    *("times_high", "loss", "loss_excess", "q_value", "verdict"),
]


@dataclass(frozen=True, eq=False)
class Ablation(Study):
    """Losses of a model without heads, or without what tags speak of; `table` is `causes`."""

    main_table: ClassVar[str] = "causes"

    run: Result
    """The run whose heads were silenced, which now knows the causes."""
    causes: pd.DataFrame
    """A row per group of heads × behaviour: `effect` below 0 is what is lost without them; and a
    row per tag: how far the next token's distribution moves without its edges. Its columns are
    those of `headscope.statistics.causes`."""

    @classmethod
    def of(cls, run: Result, causes: pd.DataFrame) -> Ablation:
        """The causes, and the run that knows them."""
        return cls(replace(run, causes=causes), causes)

    @takes()
    def why(self, head: str) -> str:
        """Why a head has its tags, with what it causes.

        Raises:
            RunError: the run has no such head.
        """
        return why(self.run, head)

    def figure(self) -> Figure:
        """A line per type and behaviour, or per head where heads were named, the worst loss on top.

        The point is the effect with its interval; the grey bar spans what the heads do that it is
        compared with. Where edges alone were silenced, a line per tag; its bar is the control's
        interval.
        """
        table = self.causes
        rows = table[~table["behaviour"].isin(AWAY) & table["effect"].notna()]
        heads = rows[rows["behaviour"] != EDGES]
        edges = heads.empty
        rows = rows if edges else heads
        together = rows[rows["kind"] == "type"]
        rows = (together if len(together) else rows).sort_values("effect", ascending=edges)
        rows = rows.tail(MOST_LINES).reset_index(drop=True)
        figure = Figure(figsize=(6.4, 1.2 + 0.3 * len(rows)), layout="constrained")
        axes = figure.subplots()
        errors = [rows["effect"] - rows["ci_low"], rows["ci_high"] - rows["effect"]]
        spread = (rows["control_high"] - rows["control_low"]).to_numpy(float)
        control_low = rows["control_low"].to_numpy(float)
        axes.barh(rows.index, spread, left=control_low, color="0.8", height=0.6, label="control")
        axes.errorbar(
            rows["effect"],
            rows.index,
            xerr=[error.clip(lower=0) for error in errors],
            fmt="o",
            color="black",
            ms=4,
            lw=1,
            label="silenced, 95 %",
        )
        axes.axvline(0, color="grey", lw=0.6)
        axes.set_yticks(rows.index, [_line(row) for row in rows.itertuples()], fontsize=7)
        what = "effect of silencing (nats per token, or log-odds; below 0 it suffers)"
        axes.set_xlabel("change of the next token's distribution (nats)" if edges else what)
        axes.legend(fontsize=7)
        return figure

    def __repr__(self) -> str:
        judged = self.causes[~self.causes["behaviour"].isin(AWAY)]
        return (
            f"<headscope ablation of {self.run.name}: {len(judged)} effects, "
            f"{int(judged['agrees'].sum())} agree with their tags>"
        )


def causes_table(table: pd.DataFrame) -> Group:
    """Heads and then tags for the terminal, with columns of `causal.csv`.

    Rows without a measurement are counted by their reason.
    """
    tested = table[table["effect"].notna()]
    edges = tested["behaviour"] == EDGES
    parts: list[RenderableType] = []
    for rows, columns, order in (
        (tested[~edges], HEAD_COLUMNS, "kind"),
        (tested[edges], EDGE_COLUMNS, "excess"),
    ):
        if len(rows):
            rows = rows.sort_values(order, ascending=False, kind="stable")
            parts.append(
                frame_table(rows.assign(heads=list(map(_who, rows.itertuples())))[columns])
            )
    for reason, count in table.loc[table["effect"].isna(), "verdict"].value_counts().items():
        parts.append(Text(f"edges of {count} tags: {reason}", style="dim"))
    return Group(*parts)


def _who(row: Any) -> str:
    return f"all {row.heads.count(';') + 1}" if row.kind == "type" else str(row.heads)


def _line(row: Any) -> str:
    if row.behaviour == EDGES:
        return f"{row.type}/{row.relation}  {row.heads}".replace("$", r"\$")
    return f"{row.type}: {row.behaviour}  {_who(row)}".replace("$", r"\$")
