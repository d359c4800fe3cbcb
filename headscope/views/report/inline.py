"""The atlas as a table without any script, for notebooks."""

from __future__ import annotations

from html import escape

from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED
from headscope.heads import Stacks, head_name
from headscope.views.colours import LABELS, NO_TYPE, colour, is_resting, letter, marks


def atlas_html(run: Result) -> str:
    """Layers × heads as an HTML table; each cell says its head, tags and lift when hovered."""
    rows = []
    drawn = run.heads.assign(mark=marks(run))
    for layer, heads in drawn.groupby("layer", sort=True):
        cells = "".join(_cell(row, run.stacks) for row in heads.sort_values("head").itertuples())
        row_name = run.stacks.row(int(layer))
        rows.append(f'<tr><th style="text-align:right">{row_name}</th>{cells}</tr>')
    counts = drawn["mark"].value_counts()
    legend = " ".join(
        f'<span style="{_style(str(name), 1.0)};padding:0 6px">{escape(letter(str(name)))} '
        f"{escape(LABELS.get(str(name), str(name)))} {count}</span>"
        for name, count in counts.items()
    )
    name = escape(str(run.info.get("model", {}).get("name", "")))
    return (
        f'<div style="overflow-x:auto"><b>{name}</b><br>{legend}'
        f'<table style="font-size:11px;line-height:1.2">{"".join(rows)}</table></div>'
    )


def _cell(row: object, stacks: Stacks) -> str:
    mark, tags = str(row.mark), str(row.tags)  # type: ignore[attr-defined]
    lift = float(row.lift)  # type: ignore[attr-defined]
    name = head_name(row.layer, row.head, stacks)  # type: ignore[attr-defined]
    said = tags.replace(";", ", ") or LABELS.get(mark, UNCLASSIFIED)
    title = f"{name}: {said}, lift {lift:.2f}"
    style = _style(mark, min(1.0, max(0.0, lift)))
    return (
        f'<td title="{escape(title)}" style="{style};text-align:center;min-width:18px">'
        f"{escape(letter(mark))}</td>"
    )


def _style(mark: str, strength: float) -> str:
    share = 100 if mark in NO_TYPE else 20 if is_resting(mark) else round(20 + 50 * strength)
    return f"background:color-mix(in srgb,{colour(mark)} {share}%,white);color:#1b1b1f"
