"""The result of patching heads and edges between two prompts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.views.study import Study
from headscope.views.tables import plain_table

COLUMNS = [
    "kind",
    "layer",
    "head",
    "tags",
    "query",
    "key",
    "query_token",
    "key_token",
    "relation",
    "denoised",
    "recovered",
    "attention_recovered",
    "noised",
    "lost",
    "attention_lost",
    "same_recovered",
    "same_lost",
    "carries_answer",
]
LISTED = 12
"""Heads, and edges, that the terminal and the figure show; the table has all."""


@dataclass(frozen=True, eq=False)
class Patching(Study):
    """Effects of heads and edges on one pair of prompts; `table` is `patches`."""

    main_table: ClassVar[str] = "patches"

    model: str
    patches: pd.DataFrame
    """A row per head, then a row per edge. `recovered` is the share of the metric's difference
    between the prompts that the part restores in the corrupt one, `lost` the share that goes with
    the corrupt part in the clean one; with `attention_` before it when its attention alone is
    exchanged. 1 is all of the difference, below 0 the part works against it. Shares of parts do not
    add up to 1. `same_recovered` and `same_lost` are the same with the part of the third prompt,
    which shares the clean one's answer; a part that carries the answer, and not the words that the
    clean prompt has it from, restores at least three quarters as much and costs at most a quarter
    as much (`carries_answer`)."""
    clean: float
    """The metric after the clean prompt; `corrupt` after the other."""
    corrupt: float
    compared: tuple[str, ...] = ()
    """The two tokens whose logits are compared; none for a metric of one's own."""
    same_answer: float | None = None
    """The metric after the third prompt, where there is one."""

    def figure(self) -> Figure:
        """Bars of what the largest heads and edges restore and lose, the largest on top."""
        rows = pd.concat([_largest(self.patches, kind) for kind in ("edge", "head")])[::-1]
        figure = Figure(figsize=(6.0, 1.2 + 0.28 * len(rows)), layout="constrained")
        axes = figure.subplots()
        places = range(len(rows))
        axes.barh([at + 0.2 for at in places], rows["recovered"], 0.4, label="restored (denoising)")
        axes.barh([at - 0.2 for at in places], rows["lost"], 0.4, label="lost (noising)")
        axes.axvline(0, color="grey", lw=0.6)
        names = [_name(row).replace("$", r"\$") for row in rows.itertuples()]
        axes.set_yticks(places, names, fontsize=7)
        axes.set_xlabel("share of the metric's difference between the prompts")
        axes.legend(fontsize=7)
        return figure

    def __repr__(self) -> str:
        counts = self.patches["kind"].value_counts()
        return (
            f"<headscope patching of {self.model}: {counts.get('head', 0)} heads, "
            f"{counts.get('edge', 0)} edges>"
        )


def patch_lines(result: Patching) -> RenderableType:
    """The metric of both prompts, and the heads and edges with the largest effects."""
    metric = "the metric"
    if result.compared:
        metric = "the logit of {!r} less that of {!r}".format(*result.compared)
    title = (
        f"{metric}: {result.clean:+.3f} after the clean prompt, {result.corrupt:+.3f} after the "
        "corrupt one"
    )
    if result.same_answer is not None:
        title += f", {result.same_answer:+.3f} after the same-answer one"
    parts: list[RenderableType] = [Text(title, style="bold")]
    for kind in ("head", "edge"):
        rows = result.patches[result.patches["kind"] == kind]
        if len(rows):
            parts.append(_rendered(_largest(rows, kind), kind, result.same_answer is not None))
            if len(rows) > LISTED:
                parts.append(Text(f"{LISTED} of {len(rows)} {kind}s, the largest", style="dim"))
    meaning = (
        "restored: share of the difference that the clean part gives back to the corrupt prompt; "
        "lost: share that goes with the corrupt part in the clean prompt; attention: the same with "
        "the part's attention alone. One pair of prompts; shares do not add up"
    )
    if result.same_answer is not None:
        meaning += (
            ". Same answer: with the part of the third prompt, which gives as much back and takes "
            "little if the part carries the answer"
        )
    return Group(*parts, Text(meaning, style="dim"))


def _rendered(rows: pd.DataFrame, kind: str, third: bool) -> Table:
    numbers = ["restored", "by attention", "lost", "by attention "]
    same = ["same answer restored", "same answer lost"] if third else []
    names = [kind, "tags" if kind == "head" else "relation", *numbers, *same]
    rendered = plain_table(*names, *(["carries the answer"] if third else []), right=numbers + same)
    for row in rows.itertuples():
        shares = [row.recovered, row.attention_recovered, row.lost, row.attention_lost]
        shares += [row.same_recovered, row.same_lost] if third else []
        rendered.add_row(
            _name(row),
            str(row.tags if kind == "head" else row.relation),
            *(f"{share:+.2f}" for share in shares),
            *([row.carries_answer or "–"] if third else []),
        )
    return rendered


def _largest(patches: pd.DataFrame, kind: str) -> pd.DataFrame:
    """Rows of a kind, those with the largest effects first."""
    rows = patches[patches["kind"] == kind]
    size = rows[["recovered", "lost"]].abs().max(axis=1)
    return rows.loc[size.sort_values(ascending=False, kind="stable").index[:LISTED]]


def _name(row: Any) -> str:
    name = head_name(int(row.layer), int(row.head))
    if row.kind == "head":
        return name
    query, key = (str(text).strip() or repr(text) for text in (row.query_token, row.key_token))
    return f"{name} {query} ({row.query}) → {key} ({row.key})"
