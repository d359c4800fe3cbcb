"""What `classify` and `heads` print: counts by type, and the strongest heads of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.evidence.ranking import strongest
from headscope.evidence.result import Result
from headscope.evidence.tags import NO_TAG, UNCLASSIFIED, UNIDENTIFIABLE
from headscope.evidence.undecided import undecided
from headscope.heads import ONE_STACK, Stacks, head_name
from headscope.runs.shareable import name_of
from headscope.views.colours import (
    LABELS,
    NO_TYPE,
    colour,
    is_resting,
    legend_groups,
    letter,
    marks,
)
from headscope.views.tables import plain_table

STRONGEST = 5
CLOSEST_MEANS = (
    "the numbers are those of the relation that the head comes closest to without earning its tag; "
    "`headscope why` says what it lacks"
)
WIDE = 36  # heads that fit into 80 columns with a blank between them


def summary(run: Result) -> RenderableType:
    """Counts by type, and for each type its strongest heads with their numbers."""
    model = run.info["model"]
    title = (
        f"{name_of(run.name)}: {_layers_said(model)} × {model['heads']} heads"
        if "layers" in model
        else name_of(run.name)
    )
    parts: list[RenderableType] = [Text(title, style="bold"), *_read_line(run), *_loss_line(run)]
    parts += [atlas_grid(run), Text(), _counts(run)]
    best = strongest(run.evidence)
    if len(best):
        parts += [Text(), _strongest_table(best, run.stacks)]
    if len(untold := undecided(run.heads, run.evidence)):
        parts += [Text(), _undecided_table(untold)]
    notes = list(run.info.get("notes", ()))
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    unsure = [n for n in (tagged["type"] + "/" + tagged["relation"]).unique() if run.unsure(n)]
    if unsure:
        notes.append(f"unreliable, two halves of the corpus disagree: {', '.join(unsure)}")
    if run.info.get("settings", {}).get("twin") is False:
        notes.append("no twin: no tag was tested against what the model shows by chance")
    parts += [Text(f"note: {note}", style=_weight(note)) for note in notes]
    return Group(*parts)


def _layers_said(model: Mapping[str, Any]) -> str:
    """How many layers; of a hybrid how many of them have heads."""
    own = model.get("attention_layers")
    return f"{model['layers']} layers" if own is None else f"{len(own)} of {model['layers']} layers"


def _weight(note: str) -> str:
    """Notes that begin in capitals are those that make a run worthless: they are printed bold."""
    return "bold red" if note[:12].isupper() else "yellow"


def _read_line(run: Result) -> list[RenderableType]:
    """How much of the text was read; nothing where all of it was."""
    read = run.info.get("text_read", {})
    if read.get("expected_changes") is None:
        return []
    return [
        Text(
            f"read {read['tokens']:,} of {read['of']:,} tokens of text: the rest would change "
            f"about {_count(read['expected_changes'])} (--all reads it)"
        )
    ]


def _count(tags: float) -> str:
    whole = round(tags)
    return f"{whole} tag" if whole == 1 else f"{whole} tags"


def _loss_line(run: Result) -> list[RenderableType]:
    """How well the model predicts its run's own text; nothing where that was not measured."""
    loss = run.info.get("text_loss")
    if not loss:
        return []
    model, unigram = loss["model"], loss["unigram"]
    said = (
        f"loss on its own text: {'no number' if model is None else f'{model:.2f}'} nats per token; "
        f"token frequencies alone: {unigram:.2f} ({loss['tokens']} tokens; "
        f"better on {loss['better']} of {loss['windows']} windows)"
    )
    sound = model is not None and model < unigram
    return [Text(said, style="" if sound else "bold red")]


def atlas_grid(run: Result) -> Text:
    """Layers × heads as coloured letters, a row per layer; readable without colours."""
    heads = int(run.heads["head"].max()) + 1
    cell = 2 if heads <= WIDE else 1  # 80 columns
    grid = Text(no_wrap=True)
    drawn = run.heads.assign(mark=marks(run))
    for layer, own in drawn.groupby("layer", sort=True):
        grid.append(f"{run.stacks.row(int(layer)):<4}", "dim")
        for mark in own.sort_values("head")["mark"]:
            grid.append(letter(mark).ljust(cell), _style(mark))
        grid.append("\n")
    groups = legend_groups({*run.evidence["type"], *drawn["mark"]} - {UNCLASSIFIED})
    for names in groups.values():
        for name in names:
            label = "rests" if is_resting(name) else LABELS.get(name, name)
            grid.append(letter(name), _style(name)).append(f" {label}  ")
    return grid


def _style(mark: str) -> str:
    """What rests, or has no type, is dim."""
    faint = mark in NO_TYPE or is_resting(mark)
    return "dim" if faint else f"bold {colour(mark)}"


def head_lines(
    heads: pd.DataFrame, untold: pd.Series | None = None, stacks: Stacks = ONE_STACK
) -> Table:
    """A table of heads, one row each, as `headscope heads` prints it.

    A head without a tag stands with the relation that it comes closest to; the table says so.

    Args:
        heads: a row per head, as in `heads.csv`.
        untold: by their names, what heads cannot be told from; see `evidence.undecided`.
        stacks: how they are called.
    """
    table = plain_table("head", "primary", "tags", "relation", "mass", "control", "lift", "95 %")
    for row in heads.itertuples():
        name = head_name(row.layer, row.head, stacks)
        said = None if untold is None else untold.get(name)
        table.add_row(
            name,
            UNIDENTIFIABLE if said else row.primary,
            row.tags.replace(";", ", ") or ("no tag, either" if said else NO_TAG),
            said or row.relation,
            *_numbers(row.mass, row.control, row.lift),
            _interval(row.ci_low, row.ci_high),
        )
    if (heads["tags"] == "").any():
        table.caption = f"{NO_TAG} …: {CLOSEST_MEANS}"
        table.caption_justify = "left"
    return table


def _counts(run: Result) -> Table:
    table = plain_table("type", "heads", "with the tag")
    drawn = marks(run).value_counts()
    tags = run.heads["tags"].str.split(";").explode().value_counts()
    groups = legend_groups(set(drawn.index) | (set(tags.index) - {""}))
    for name in [name for names in groups.values() for name in names]:
        also = "" if name in NO_TYPE else str(tags.get(name, 0))
        label = f"{name} (rests)" if is_resting(name) else LABELS.get(name, name)
        table.add_row(label, str(drawn.get(name, 0)), also)
    return table


def _undecided_table(untold: pd.DataFrame) -> Table:
    """What heads that the text cannot tell may be doing, and how few queries could say it."""
    table = plain_table(
        LABELS[UNIDENTIFIABLE], "heads", "head", "contested queries", right=("contested queries",)
    )
    for said, own in untold.groupby("said", sort=False):
        names = ", ".join(own.index[:STRONGEST]) + (", …" if len(own) > STRONGEST else "")
        first = own.iloc[0]
        of = f"{first['contested_n']:.0f} of {first['n']}"
        table.add_row(str(said), str(len(own)), names, of)
    return table


def _strongest_table(best: pd.DataFrame, stacks: Stacks) -> Table:
    table = plain_table("strongest", "head", "relation", "mass", "control", "lift", "95 %", "n")
    for _, of_the_type in best.groupby("type", sort=False):
        group = of_the_type.head(STRONGEST)
        for place, row in enumerate(group.itertuples()):
            table.add_row(
                row.type if place == 0 else "",
                head_name(row.layer, row.head, stacks),
                row.relation,
                *_numbers(row.mass, row.control, row.lift),
                _interval(row.ci_low, row.ci_high),
                str(row.n),
                end_section=place == len(group) - 1,
            )
    return table


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _interval(low: float, high: float) -> str:
    return f"{low:.2f} … {high:.2f}"


def short_title(model: str) -> str:
    """A model's name without its folders, fit for matplotlib."""
    return model.rstrip("/").rsplit("/", 1)[-1].replace("$", r"\$")
