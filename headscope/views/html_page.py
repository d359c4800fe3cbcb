"""HTML pages without network requests, put together of templates, sheets and scripts in the
package.

And the atlas as a table without any script, for notebooks.
"""

from __future__ import annotations

from functools import cache
from html import escape
from importlib.resources import files
from itertools import groupby

from headscope.heads import layer_name
from headscope.statistics.columns import PRELIMINARY
from headscope.statistics.result import Result
from headscope.views.atlas_cells import atlas_cells, caution_legend, colour_share
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
    for layer, cells in groupby(atlas_cells(run), key=lambda cell: cell.layer):
        of_layer = []
        for cell in cells:
            style = _style(cell.type, cell.share)
            if cell.is_below_baseline:
                style += ";outline:1.5px solid #1b1b1f;outline-offset:-1.5px"
            of_layer.append(
                f'<td title="{escape(cell.title)}" style="{style};text-align:center;'
                f'min-width:18px">{escape(cell.letter)}</td>'
            )
        heading = f'<th style="text-align:right">{layer_name(layer)}</th>'
        rows.append(f"<tr>{heading}{''.join(of_layer)}</tr>")
    # each type with its letter, its colour and its number of heads
    entries = []
    for name, count in run.heads["primary"].value_counts().items():
        style = _style(name, colour_share(name, 1.0))
        text = escape(f"{letter(name)} {name} {count}")
        entries.append(f'<span style="{style};padding:0 6px">{text}</span>')
    model = run.info.get("model", {})
    name = escape(str(model.get("name", "")))
    marked = f" ({PRELIMINARY})" if run.preliminary else ""
    cautions = "".join(f"<br>{line}" for line in caution_legend(run.heads))
    return (
        f'<div style="overflow-x:auto"><b>{name}</b>{marked}<br>{" ".join(entries)}{cautions}'
        f'<table style="font-size:11px;line-height:1.2">{"".join(rows)}</table></div>'
    )


def _style(name: str, share: float) -> str:
    percent = round(100 * share)
    return f"background:color-mix(in srgb,{colour(name)} {percent}%,white);color:#1b1b1f"
