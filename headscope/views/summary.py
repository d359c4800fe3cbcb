"""What `classify` and `heads` print: counts by type, and the strongest heads of each."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.evidence.ranking import strongest
from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import head_name
from headscope.runs.shareable import name_of
from headscope.views.colours import colour, letter
from headscope.views.tables import plain_table

STRONGEST = 5
WIDE = 36  # heads that fit into 80 columns with a blank between them


def summary(run: Result) -> RenderableType:
    """Counts by type, and for each type its strongest heads with their numbers."""
    model = run.info["model"]
    title = (
        f"{name_of(run.name)}: {model['layers']} layers × {model['heads']} heads"
        if "layers" in model
        else name_of(run.name)
    )
    parts: list[RenderableType] = [Text(title, style="bold"), *_loss_line(run)]
    parts += [atlas_grid(run), Text(), _counts(run)]
    best = strongest(run.evidence)
    if len(best):
        parts += [Text(), _strongest_table(best)]
    notes = list(run.info.get("notes", ()))
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    unsure = [n for n in (tagged["type"] + "/" + tagged["relation"]).unique() if run.unsure(n)]
    if unsure:
        notes.append(f"unreliable, two halves of the corpus disagree: {', '.join(unsure)}")
    if run.info.get("settings", {}).get("twin") is False:
        notes.append("no twin: no tag was tested against what the model shows by chance")
    parts += [Text(f"note: {note}", style=_weight(note)) for note in notes]
    return Group(*parts)


def _weight(note: str) -> str:
    """Notes that begin in capitals are those that make a run worthless: they are printed bold."""
    return "bold red" if note[:12].isupper() else "yellow"


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
    for layer, own in run.heads.groupby("layer", sort=True):
        grid.append(f"L{layer:<3}", "dim")
        for row in own.sort_values("head").itertuples():
            style = "dim" if row.primary == UNCLASSIFIED else f"bold {colour(row.primary)}"
            grid.append(letter(row.primary).ljust(cell), style)
        grid.append("\n")
    names = list(dict.fromkeys(run.evidence["type"]))
    for name in names:
        grid.append(letter(name), f"bold {colour(name)}").append(f" {name}  ")
    return grid


def head_lines(heads: pd.DataFrame) -> Table:
    """A table of heads, one row each, as `headscope heads` prints it."""
    table = plain_table("head", "primary", "tags", "relation", "mass", "control", "lift", "95 %")
    for row in heads.itertuples():
        table.add_row(
            head_name(row.layer, row.head),
            row.primary,
            row.tags.replace(";", ", "),
            row.relation,
            *_numbers(row.mass, row.control, row.lift),
            _interval(row.ci_low, row.ci_high),
        )
    return table


def _counts(run: Result) -> Table:
    table = plain_table("type", "heads", "with the tag")
    primary = run.heads["primary"].value_counts()
    tags = run.heads["tags"].str.split(";").explode().value_counts()
    for name in sorted(set(primary.index) | (set(tags.index) - {""})):
        also = "" if name == UNCLASSIFIED else str(tags.get(name, 0))
        table.add_row(name, str(primary.get(name, 0)), also)
    return table


def _strongest_table(best: pd.DataFrame) -> Table:
    table = plain_table("strongest", "head", "relation", "mass", "control", "lift", "95 %", "n")
    for _, of_the_type in best.groupby("type", sort=False):
        group = of_the_type.head(STRONGEST)
        for place, row in enumerate(group.itertuples()):
            table.add_row(
                row.type if place == 0 else "",
                head_name(row.layer, row.head),
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
