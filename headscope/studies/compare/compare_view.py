"""Output of `headscope compare`: changed heads, agreement by relation, shares by depth."""

from __future__ import annotations

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.printing import visible
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.result import layers_of
from headscope.studies.compare.compare_result import Comparison
from headscope.views.tables import number_text, plain_table

WIDTH = 100
MAX_HEADS = 40
"""Changed heads that are printed; all are in the CSV."""
MOST_RELATIONS = 20


def comparison_lines(comparison: Comparison) -> RenderableType:
    """Runs, changed heads and relations where shapes are the same, shares by depth, notes.

    No line has more than 100 columns.
    """
    parts: list[RenderableType] = [_runs(comparison)]
    if comparison.heads is not None and comparison.correlation is not None:
        parts += [
            Text(),
            *_changes(comparison, comparison.heads),
            Text(),
            *_agreement(comparison.correlation),
        ]
    else:
        parts += [
            Text(),
            Text("different numbers of layers or heads: compared by depth only", style="bold"),
        ]
    parts += [Text(), _shares(comparison)]
    parts += [_note(f"note: {visible(note)}") for note in comparison.notes]
    return Group(*parts)


def _runs(comparison: Comparison) -> Table:
    widths = {"run": 26, "model": 36, "layers": 6, "heads": 5, "tagged": 12}
    table = plain_table(widths=widths)
    for run, name in zip(comparison.runs, comparison.names, strict=True):
        tagged = int((run.heads["tags"] != "").sum())
        model = str(run.info.get("model", {}).get("name", "?"))
        heads = int(run.heads["head"].max()) + 1
        table.add_row(
            visible(name),
            visible(model),
            str(len(layers_of(run))),
            str(heads),
            f"{tagged} of {len(run.heads)}",
        )
    return table


def _changes(comparison: Comparison, heads: pd.DataFrame) -> list[RenderableType]:
    changed = comparison.changed
    sure = int((changed["sure"] != "").sum())
    summary = f"{len(changed)} of {len(heads)} heads changed their tags"
    parts: list[RenderableType] = [
        Text(summary, style="bold"),
        _note(
            f"{sure} of them clearly (*): the 95 % intervals of that relation's lift do not "
            "overlap; "
            "the others may be noise near a threshold"
        ),
    ]
    if changed.empty:
        return parts
    widths = {"head": 8, "run": 14, "was": 13, "is": 13, "gained": 13, "lost": 13}
    widths["largest difference"] = 19
    if len(comparison.runs) == 2:
        del widths["run"]
        widths["largest difference"] = 34
    table = plain_table(widths=widths)
    # the surest first, then the largest
    order = changed.assign(
        unsure=changed["sure"] == "", size=-changed["lift_difference"].abs().fillna(0)
    ).sort_values(["unsure", "size"], kind="stable")
    for row in order.head(MAX_HEADS).itertuples():
        head = head_name(row.layer, row.head)
        name = [head, *([visible(row.run)] if "run" in widths else [])]
        difference = f"{row.lift_difference:+.2f} {visible(row.relation)}" if row.apart else "–"
        table.add_row(
            *name,
            visible(row.primary_first),
            visible(row.primary),
            _marked(row.gained, row.sure),
            _marked(row.lost, row.sure),
            difference,
        )
    parts.append(table)
    if len(order) > MAX_HEADS:
        parts.append(_note(f"and {len(order) - MAX_HEADS} more: --format csv has all"))
    return parts


def _marked(tags: str, sure: str) -> str:
    known = sure.split(";")
    return ", ".join(visible(tag) + "*" * (tag in known) for tag in tags.split(";") if tag)


def _agreement(correlation: pd.DataFrame) -> list[RenderableType]:
    """The relations with enough queries, those first that differ most."""
    enough = correlation[correlation[["n_first", "n"]].min(axis=1) >= MIN_QUERIES]
    order = enough.sort_values(["apart", "rank_correlation"], ascending=[False, True])
    runs = list(dict.fromkeys(correlation["run"]))
    table = plain_table(widths={"relation": 34} | ({"run": 20} if len(runs) > 1 else {}))
    for column in ("rank correlation", "intervals apart", "queries"):
        table.add_column(column, justify="right", overflow="fold", max_width=16)
    for row in order.head(MOST_RELATIONS).itertuples():
        name = [visible(f"{row.type}/{row.relation}"), *([visible(row.run)] * (len(runs) > 1))]
        rho = number_text(row.rank_correlation, ".2f", "–")
        queries = f"{row.n_first:,}, {row.n:,}"
        table.add_row(*name, rho, f"{row.apart} of {row.heads}", queries)
    title = (
        f"the {min(MOST_RELATIONS, len(order))} that differ most of {len(order)} relations with "
    )
    note = f"{MIN_QUERIES} queries or more in both runs; --table correlation has all"
    return [_note(title + note), table]


def _shares(comparison: Comparison) -> Table:
    """Rows of type and run, a column per stretch of depth."""
    ends = comparison.depth[["depth_low", "depth_high"]].drop_duplicates()
    table = plain_table(widths={"primary, by depth": 18, "run": 26})
    for low, high in ends.itertuples(index=False):
        table.add_column(f"{low:.2g}–{high:.2g}", justify="right", max_width=9, no_wrap=True)
    grouped = comparison.depth.groupby(["type", "run"], sort=False)
    for kind in comparison.types:
        for index, name in enumerate(comparison.names):
            rows = grouped.get_group((kind, name))
            if not (comparison.depth.loc[comparison.depth["type"] == kind, "share"] > 0).any():
                continue
            shares = [_share(share) for share in rows["share"]]
            table.add_row("" if index else visible(kind), visible(name), *shares)
    for index, name in enumerate(comparison.names):
        rows = grouped.get_group((comparison.types[0], name))
        counts = [str(count) for count in rows["heads"]]
        table.add_row("" if index else "heads in all", visible(name), *counts, style="dim")
    return table


def _share(share: float) -> str:
    """A share of heads; nothing where none was measured."""
    return "" if pd.isna(share) else f"{share:.0%}" if share else "·"


def _note(text: str) -> Table:
    """Text that is folded at 100 columns; a pipe has no width of its own."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(max_width=WIDTH, style="yellow")
    table.add_row(text)
    return table
