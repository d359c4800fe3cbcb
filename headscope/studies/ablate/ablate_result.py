"""The result of silencing heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.arguments import takes
from headscope.statistics.causes import AWAY, EDGES
from headscope.statistics.reasons import why
from headscope.statistics.result import Result
from headscope.views.study import Study
from headscope.views.tables import interval_text, number_text, plain_table

MOST_LINES = 40
"""Effects that a figure shows; the table has all."""


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


HEADS_MEAN = (
    "clean, ablated: the behaviour without and with the heads silenced; effect: the difference, "
    "with its interval; like heads: the mean effect of untagged heads of like depth and size"
)
EDGES_MEAN = (
    "moved: the share of attention on the tag's targets that is moved elsewhere; targets, others: "
    "how far the next token's distribution then moves (KL divergence, nats), and when as much "
    "other attention is; times: their ratio; loss: by how much the next token's loss rises; "
    "beyond: by how much more than with the other attention"
)


def causes_table(table: pd.DataFrame) -> Group:
    """The types together, the heads, then the tags by their edges, as the terminal shows them."""
    edges = table["behaviour"] == EDGES
    parts: list[RenderableType] = []
    if not edges.all():
        parts += [_heads_table(table[~edges]), Text(HEADS_MEAN, style="dim")]
    if edges.any():
        parts += _edges_parts(table[edges])
    return Group(*parts)


def _edges_parts(table: pd.DataFrame) -> list[RenderableType]:
    """The table of tags; a sentence where none was tested, for one and the same reason."""
    reasons = set(table["verdict"])
    if len(reasons) == 1 and table["effect"].isna().all():
        return [Text(f"edges of {len(table)} tags: {reasons.pop()}", style="dim")]
    return [_edges_table(table), Text(EDGES_MEAN, style="dim")]


def _heads_table(table: pd.DataFrame) -> Table:
    numbers = ("clean", "ablated", "effect", "95 %", "like heads", "q")
    rendered = plain_table("type", "heads", "behaviour", *numbers, "verdict", right=numbers)
    order = table.assign(first=table["kind"] != "type").sort_values("first", kind="stable")
    for row in order.itertuples():
        rendered.add_row(
            row.type,
            _who(row),
            row.behaviour,
            f"{row.clean:.2f}",
            f"{row.ablated:.2f}",
            f"{row.effect:+.3f}",
            f"{row.ci_low:+.3f} … {row.ci_high:+.3f}",
            number_text(row.control, "+.3f"),
            number_text(row.q_value, ".2g"),
            row.verdict,
        )
    return rendered


def _edges_table(table: pd.DataFrame) -> Table:
    numbers = ("moved", "targets", "others", "times", "95 %", "loss", "beyond", "q")
    rendered = plain_table("tag", "head", *numbers, "verdict", right=numbers)
    for row in table.sort_values("excess", ascending=False).itertuples():
        rendered.add_row(
            f"{row.type}/{row.relation}",
            row.heads,
            number_text(row.moved, ".2f"),
            number_text(row.effect, ".4f"),
            number_text(row.control, ".4f"),
            number_text(row.times, ".1f"),
            interval_text(row.times_low, row.times_high, ".1f"),
            number_text(row.loss, "+.3f"),
            number_text(row.loss_excess, "+.3f"),
            number_text(row.q_value, ".2g"),
            row.verdict,
        )
    return rendered


def _who(row: Any) -> str:
    return str(row.heads) if row.kind == "head" else f"all {row.heads.count(';') + 1}"


def _line(row: Any) -> str:
    if row.behaviour == EDGES:
        return f"{row.type}/{row.relation}  {row.heads}".replace("$", r"\$")
    return f"{row.type}: {row.behaviour}  {_who(row)}".replace("$", r"\$")
