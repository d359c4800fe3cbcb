"""HTML pages without network requests, put together of templates, sheets and scripts in the
package.

And the atlas as a table without any script, for notebooks.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files

from headscope.heads import head_name, layer_name
from headscope.statistics.columns import BELOW_BASELINE, PRELIMINARY
from headscope.statistics.in_words import HeadRow, has_caution, marked_tag
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.views.caution_marks import caution_legend, head_letter
from headscope.views.colours import colour, is_sink_type, letter, type_class, type_style

REPORT = "headscope.views.report"


@cache
def page_file(package: str, name: str) -> str:
    """The text of a template, a sheet or a script that lies in a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def page_style(*sheets: str) -> str:
    """The types' colours, the report's sheet and further sheets, one after another."""
    return "".join((type_style(), "\n", page_file(REPORT, "report.css"), *sheets))


def style_class(type_name: str) -> str:
    """The classes of an element that is drawn as a type.

    >>> style_class("induction")
    'type-induction'
    """
    return f"type-{type_class(type_name)}{' of-sink' if is_sink_type(type_name) else ''}"


def atlas_html(run: Result) -> str:
    """Layers × heads as an HTML table; each cell says its head, tags and lift when hovered."""
    rows = []
    for layer, heads in run.heads.groupby("layer", sort=True):
        in_order = heads.sort_values("head").to_dict("records")
        cells = "".join(_cell(row) for row in in_order)
        name_of_row = layer_name(int(layer))
        rows.append(f'<tr><th style="text-align:right">{name_of_row}</th>{cells}</tr>')
    counts = run.heads["primary"].value_counts()
    entries = [_legend_entry(str(name), count) for name, count in counts.items()]
    model = run.info.get("model", {})
    name = escape(str(model.get("name", "")))
    marked = f" ({PRELIMINARY})" if run.preliminary else ""
    cautions = "".join(f"<br>{line}" for line in caution_legend(run.heads))
    return (
        f'<div style="overflow-x:auto"><b>{name}</b>{marked}<br>{" ".join(entries)}{cautions}'
        f'<table style="font-size:11px;line-height:1.2">{"".join(rows)}</table></div>'
    )


def _legend_entry(name: str, count: int) -> str:
    """A type with its letter, its colour and its number of heads."""
    return (
        f'<span style="{_style(name, 1.0)};padding:0 6px">{escape(letter(name))} '
        f"{escape(name)} {count}</span>"
    )


def _cell(row: HeadRow) -> str:
    primary = str(row["primary"])
    lift = float(row["lift"])
    types = str(row["tags"]).split(";")
    tags = [marked_tag(row, name) for name in types if name]
    label = ", ".join(tags) or primary
    title = f"{head_name(row['layer'], row['head'])}: {label}, lift {lift:.2f}"
    strength = min(1.0, max(0.0, lift))
    style = _style(primary, strength)
    if has_caution(row, BELOW_BASELINE):
        style += ";outline:1.5px solid #1b1b1f;outline-offset:-1.5px"
    return (
        f'<td title="{escape(title)}" style="{style};text-align:center;min-width:18px">'
        f"{escape(head_letter(row))}</td>"
    )


def _style(name: str, strength: float) -> str:
    share = round(20 + 50 * strength)
    if name in NO_TYPE:
        share = 100
    elif is_sink_type(name):
        share = 20
    return f"background:color-mix(in srgb,{colour(name)} {share}%,white);color:#1b1b1f"
