"""What `classify` and `heads` print: counts by type, and the strongest heads of each."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.colours import colour, letter
from headscope.heads import head_name
from headscope.run import Run
from headscope.tags import SINK, UNCLASSIFIED
from headscope.verify import Verification

STRONGEST = 5
WIDE = 36  # heads that fit into 80 columns with a blank between them


def summary(run: Run) -> RenderableType:
    """Counts by type, and for each type its strongest heads with their numbers."""
    model = run.info["model"]
    title = (
        f"{model['name']}: {model['layers']} layers × {model['heads']} heads"
        if "layers" in model
        else model["name"]
    )
    parts: list[RenderableType] = [Text(title, style="bold"), atlas_grid(run), Text(), _counts(run)]
    strongest = list(_strongest(run))
    if strongest:
        parts += [Text(), _strongest_table(strongest)]
    notes = list(run.info.get("notes", ()))
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    unsure = [n for n in (tagged["type"] + "/" + tagged["relation"]).unique() if run.unsure(n)]
    if unsure:
        notes.append(f"unreliable, two halves of the corpus disagree: {', '.join(unsure)}")
    if run.info.get("settings", {}).get("twin") is False:
        notes.append("no twin: no tag was tested against what the model shows by chance")
    parts += [Text(f"note: {note}", style="yellow") for note in notes]
    return Group(*parts)


def atlas_grid(run: Run) -> Text:
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
    table = plain_table("head", "primary", "tags", "relation", "score", "control", "lift", "95 %")
    for row in heads.itertuples():
        table.add_row(
            head_name(row.layer, row.head),
            row.primary,
            row.tags.replace(";", ", "),
            row.relation,
            *_numbers(row.score, row.control, row.lift),
            _interval(row.ci_low, row.ci_high),
        )
    return table


def _counts(run: Run) -> Table:
    table = plain_table("type", "heads", "with the tag")
    primary = run.heads["primary"].value_counts()
    tags = run.heads["tags"].str.split(";").explode().value_counts()
    for name in sorted(set(primary.index) | (set(tags.index) - {""})):
        also = "" if name == UNCLASSIFIED else str(tags.get(name, 0))
        table.add_row(name, str(primary.get(name, 0)), also)
    return table


def _strongest(run: Run) -> Iterator[pd.DataFrame]:
    """For each type the tagged evidence of its strongest heads, one relation per head."""
    tagged = run.evidence[run.evidence["tagged"]]
    # heads that only rest say little about their type: they come last
    order = (tagged["type"] + "/" + tagged["relation"] == SINK).map(float) - tagged["lift"] / 2
    for _, rows in tagged.loc[order.sort_values().index].groupby("type", sort=False):
        yield rows.drop_duplicates(["layer", "head"]).head(STRONGEST)


def _strongest_table(groups: list[pd.DataFrame]) -> Table:
    table = plain_table("strongest", "head", "relation", "mass", "control", "lift", "95 %", "n")
    for group in groups:
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


def plain_table(*columns: str) -> Table:
    """A table without lines whose numbers stand right."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        numeric = column in ("score", "mass", "control", "lift", "n", "heads", "with the tag")
        table.add_column(
            column,
            justify="right" if numeric else "left",
            no_wrap=column == "head",
            overflow="fold",
        )
    return table


def _numbers(*values: float) -> list[str]:
    return [f"{value:.2f}" for value in values]


def _interval(low: float, high: float) -> str:
    return f"{low:.2f} … {high:.2f}"


def verification_lines(result: Verification) -> RenderableType:
    """Published heads with their masses here, then the matrices that were compared."""
    heads = plain_table("head", "published as", "published", "mass", "found", "kind")
    for row in result.heads.itertuples():
        published = "" if pd.isna(row.published) else f"{row.published:.2f}"
        found = "yes" if row.found else "no"
        heads.add_row(
            head_name(row.layer, row.head), row.type, published, f"{row.mass:.2f}", found, row.kind
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
    clear = result.heads[result.heads["kind"] == "clear"]
    recall = f"{int(clear['found'].sum())} of {len(clear)} clear heads found"
    notes = [Text(f"note: {note}", style="yellow") for note in result.notes]
    return Group(Text(f"{result.model}: {recall}", style="bold"), heads, Text(), scores, *notes)
