"""The heads that carry tasks, and what few-shot accuracy is without them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.studies.function_vectors.ablation import UNTOUCHED
from headscope.studies.function_vectors.head_effects import SCORED
from headscope.studies.function_vectors.judge import AMONG_ANSWERS, FLOOR, MIN_TASKS
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import interval_text, number_text, plain_table

LISTED = 12
"""Heads that the terminal shows."""
TASK_COLUMNS = [
    *("task", "pairs", "accuracy", "shuffled_accuracy", "zero_shot_accuracy"),
    *("log_probability", "shuffled_log_probability", "zero_shot_log_probability", "verdict"),
]


@dataclass(frozen=True, eq=False)
class FunctionVectors(Study):
    """What single heads add to few-shot tasks; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """A row per head, the largest lift first; docs/formats.md describes the columns."""
    effects: pd.DataFrame
    """A row per head × task that is scored."""
    tasks: pd.DataFrame
    """A row per task: whether the model can do it, and why it is not scored."""
    ablation: pd.DataFrame
    """A row per group of heads that were silenced together; none where nothing was."""
    notes: tuple[str, ...] = ()

    main_table: ClassVar[str] = "heads"

    @property
    def scored(self) -> list[str]:
        """The tasks that the model can do."""
        return list(self.tasks.loc[self.tasks["verdict"] == SCORED, "task"])

    @property
    def tagged(self) -> list[str]:
        """Names of the heads that are tagged."""
        rows = self.heads[self.heads["function_vector"].astype(bool)]
        return [head_name(row.layer, row.head) for row in rows.itertuples()]

    def figure(self) -> Figure:
        """The lift of every head by layer, and the accuracy with groups of heads silenced."""
        figure = Figure(figsize=(7.2, 3.6), layout="constrained")
        axes, bars = figure.subplots(1, 2, width_ratios=(3, 2))
        if self.heads["lift"].notna().any():
            wide = self.heads.pivot(index="head", columns="layer", values="lift")
            largest = max(float(np.abs(wide.to_numpy()).max()), 1e-9)
            style = {"aspect": "auto", "cmap": "RdBu_r", "vmin": -largest, "vmax": largest}
            image = axes.imshow(wide.to_numpy(), **style)
            columns = {layer: column for column, layer in enumerate(wide.columns)}
            for row in self.heads[self.heads["function_vector"].astype(bool)].itertuples():
                axes.plot(columns[row.layer], row.head, "o", mfc="none", color="black", ms=6)
            step = max(1, len(columns) // 8)
            axes.set_xticks(range(0, len(columns), step), list(wide.columns)[::step], fontsize=7)
            figure.colorbar(image, ax=axes, label="lift (nats); circles: tagged")
        axes.set_xlabel("layer")
        axes.set_ylabel("head")
        axes.set_title(short_title(self.model), fontsize=9)
        rows = self.ablation.iloc[::-1].reset_index(drop=True)
        errors = [rows["accuracy"] - rows["ci_low"], rows["ci_high"] - rows["accuracy"]]
        spread = [error.clip(lower=0).fillna(0) for error in errors]
        bars.barh(rows.index, rows["accuracy"], xerr=spread, color="#0072b2", height=0.6)
        bars.set_yticks(rows.index, rows["silenced"], fontsize=7)
        bars.set_xlim(0, 1)
        bars.set_xlabel("few-shot accuracy with heads silenced")
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope function vectors of {self.model}: {len(self.tagged)} heads, "
            f"{len(self.scored)} of {len(self.tasks)} tasks>"
        )


def function_vectors_lines(result: FunctionVectors) -> RenderableType:
    """The tasks, the heads with the largest lifts, and the accuracy without some of them."""
    count = len(result.scored)
    parts: list[RenderableType] = [
        Text(
            f"{result.model}: {count} of {len(result.tasks)} tasks can be asked; "
            f"{len(result.tagged)} function-vector heads",
            style="bold",
        ),
        _tasks(result.tasks),
        *(Text(note, style="dim") for note in result.notes),
    ]
    if len(result.effects):
        parts += [
            Text("\nwhat heads' mean outputs add to the right answer (nats, over tasks):"),
            _heads(result.heads),
        ]
    if len(result.ablation):
        parts += [Text("\nfew-shot accuracy with heads silenced:"), _ablation(result.ablation)]
    if count < MIN_TASKS:
        words = f"fewer than {MIN_TASKS} tasks: no head is tagged"
        parts.append(Text(words, style="bold"))
    return Group(*parts)


def _tasks(tasks: pd.DataFrame) -> Table:
    numbers = ("pairs", "clean", "shuffled", "zero-shot")
    rendered = plain_table("task", *numbers, "verdict", right=numbers)
    for row in tasks.itertuples():
        shares = (row.accuracy, row.shuffled_accuracy, row.zero_shot_accuracy)
        cells = [number_text(share, ".0%", "–") for share in shares]
        rendered.add_row(row.task, str(row.pairs), *cells, row.verdict)
    return rendered


def _heads(heads: pd.DataFrame) -> Table:
    numbers = ("lift", "95 %", "halves", "among answers", "held in", "on answers", "chance")
    rendered = plain_table("head", *numbers, "tagged", "induction", right=numbers)
    listed_heads = heads.head(max(LISTED, int(heads["function_vector"].sum())))
    for row in listed_heads.itertuples():
        rendered.add_row(
            head_name(row.layer, row.head),
            f"{row.lift:+.3f}",
            interval_text(row.ci_low, row.ci_high, "+.2f"),
            f"{row.first_half:+.2f}, {row.second_half:+.2f}",
            f"{row.among_answers:+.3f}",
            str(row.held_in),
            f"{row.on_answers:.2f}",
            f"{row.chance:.2f}",
            "yes" if row.function_vector else _reason(row),
            row.induction_head or "–",
        )
    return rendered


def _reason(row: Any) -> str:
    """The first thing that speaks against a tag."""
    if min(row.first_half, row.second_half) < FLOOR:
        return f"below {FLOOR:g} in a half of the tasks"
    if not row.among_answers_low > 0 or row.among_answers < AMONG_ANSWERS * row.lift:
        return "raises all answers alike"
    return "not surely in tasks of both halves"


def _ablation(ablation: pd.DataFrame) -> Table:
    numbers = ("heads", "accuracy", "95 %", "log-probability")
    rendered = plain_table("silenced", *numbers, right=numbers)
    for row in ablation.itertuples():
        rendered.add_row(
            "none" if row.silenced == UNTOUCHED else row.silenced,
            str(row.heads),
            f"{row.accuracy:.2f}",
            interval_text(row.ci_low, row.ci_high, ".2f"),
            f"{row.log_probability:.2f}",
        )
    return rendered
