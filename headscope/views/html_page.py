"""HTML pages that ask no network, put together of templates, sheets and scripts in the package."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import pandas as pd
from jinja2 import Environment

from headscope.corpus.visible import visible
from headscope.views.colours import is_resting, letter, type_class, type_style

REPORT = "headscope.views.report"


@cache
def page_file(package: str, name: str) -> str:
    """The text of a template, a sheet or a script that lies in a package."""
    return (files(package) / name).read_text(encoding="utf-8")


def page_style(*sheets: str) -> str:
    """The types' colours, the report's sheet and further sheets, one after another."""
    return "".join((type_style(), "\n", page_file(REPORT, "report.css"), *sheets))


def fill_page(package: str, template: str, sheet: str, **values: Any) -> str:
    """A page in the report's style.

    Args:
        package: where the template and the sheet lie.
        template: the name of its file, in which `visible`, `letter`, `type_class` and `style_class`
            are filters and `missing` is a test.
        sheet: the name of the file with what the report's sheet lacks.
        values: what the template names, beside `style`.
    """
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"visible": visible, "letter": letter}
    environment.filters |= {"type_class": type_class, "style_class": style_class}
    environment.tests["missing"] = pd.isna
    style = page_style(page_file(package, sheet))
    return environment.from_string(page_file(package, template)).render(style=style, **values)


def style_class(type_name: str) -> str:
    """The classes of an element that is drawn as a type.

    >>> style_class("induction")
    'type-induction'
    """
    return f"type-{type_class(type_name)}{' resting' if is_resting(type_name) else ''}"
