"""How Sphinx builds the documentation: offline, from the code and the notebooks as they are."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `generate`
sys.path.insert(0, str(HERE.parent))

from generate import SECTIONS, generate  # noqa: E402

import headscope  # noqa: E402

project = "headscope"
author = "The headscope authors"
copyright = f"2026, {author}"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["_build", "_static", "_templates"]
myst_heading_anchors = 3
nb_execution_mode = "off"
"""The tests run the notebooks."""

smartquotes = False
"""`--quick` is an option, not a dash."""
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
# an attribute's docstring is prose, in which "full name, e.g. a:b" gives no type before the colon
GoogleDocstring._parse_attribute_docstring = GoogleDocstring._consume_to_end

html_theme = "pydata_sphinx_theme"
html_title = f"headscope {release}"
html_theme_options = {
    "github_url": "https://github.com/headscope/headscope",
    "use_edit_page_button": False,
    "header_links_before_dropdown": 7,
    "navbar_persistent": ["search-button"],
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    # the theme's default pages ask the network for nothing; neither do ours
    "icon_links": [],
}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["headscope.css"]
html_js_files = ["copy.js"]
templates_path = ["_templates"]
html_sidebars = {"**": ["pages"]}


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the tables of contents to the first page and to that of the results."""
    sections = [*SECTIONS]
    sections.insert(4, "Results <results/index>")
    pages = {"index": sections, "results/index": ["*"]}
    if name in pages:
        tree = ["```{toctree}", ":hidden:", ":maxdepth: 1", ":glob:", "", *pages[name], "```"]
        source[0] += "\n\n" + "\n".join(tree) + "\n"
    # GitHub shows the notebooks where they are, these pages their copies
    source[0] = re.sub(r"\]\((?:\.\./)+notebooks/", "](/generated/notebooks/", source[0])


def columns_as_table(app: Sphinx, kind: str, name: str, what: Any, *rest: Any) -> None:
    """Show the columns of a study's table as a table."""
    lines: list[str] = rest[-1]
    if "Columns:" not in lines or not hasattr(what, "study"):
        return
    start = lines.index("Columns:")
    end = lines.index("", start)
    rows = [".. list-table::", "   :header-rows: 1", ""]
    for cells in (("column", "unit and range", "meaning"), *what.study.columns):
        marks = ("   * -", "     -", "     -")
        rows += [f"{mark} {cell}" for mark, cell in zip(marks, cells, strict=True)]
    lines[start:end] = rows


def link_classes(app: Sphinx, kind: str, name: str, what: Any, *rest: Any) -> None:
    """Link names of exported classes, and of functions that are written as `hs.name`."""
    lines: list[str] = rest[-1]
    exported = "|".join(headscope.__all__)
    classes = "|".join(each for each in headscope.__all__ if each[0].isupper())
    for index, line in enumerate(lines):
        lines[index] = re.sub(
            rf"(?<![`:])`(?:(?:hs|headscope)\.({exported})|({classes}))`(?!`)",
            lambda found: f":py:obj:`{found[1] or found[2]} <headscope.{found[1] or found[2]}>`",
            line,
        )


def dashes_after_names(app: Sphinx, tree: nodes.document) -> None:
    """Write the dash between a parameter's name and its meaning, which autodoc leaves as two."""
    for field in tree.findall(nodes.field_body):
        for text in field.findall(nodes.Text):
            if text == " -- ":
                text.parent.replace(text, nodes.Text(" – "))


def setup(app: Sphinx) -> None:
    app.connect("doctree-read", dashes_after_names)
    app.connect("source-read", add_contents)
    for change in (columns_as_table, link_classes):  # before napoleon, which reads sections
        app.connect("autodoc-process-docstring", change, priority=400)


generate(HERE)
