"""How Sphinx builds the documentation: offline, from the code and the notebooks as they are."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.ext.napoleon.docstring import GoogleDocstring

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # for `generate`
sys.path.insert(0, str(HERE.parent))

from generate import generate  # noqa: E402

project = "headscope"
author = "The headscope authors"
copyright = f"2026, {author}"
release = tomllib.loads((HERE.parent / "pyproject.toml").read_text("utf-8"))["project"]["version"]

extensions = ["sphinx.ext.autodoc", "sphinx.ext.napoleon", "myst_nb"]
exclude_patterns = ["_build", "_static", "_templates"]
myst_heading_anchors = 3
nb_execution_mode = "off"
"""The tests run the notebooks."""

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
    "show_prev_next": True,
    "secondary_sidebar_items": ["page-toc"],
    # the theme's default pages ask the network for nothing; neither do ours
    "icon_links": [],
}
html_show_sourcelink = False
html_static_path = ["_static"]
html_css_files = ["headscope.css"]
templates_path = ["_templates"]
html_sidebars = {"**": ["pages"]}

PAGES = {
    "Tutorials": [
        "tutorials/first_run",
        "tutorials/reading_a_report",
        "tutorials/from_pattern_to_cause",
    ],
    "How-to guides": ["how-to/*"],
    "Explanation": ["explanation/*"],
    "Reference": [
        "generated/commands/index",
        "generated/api",
        "generated/relations",
        "reference/*",
    ],
    "Results": ["results/index", "results/*"],
    "Notebooks": ["generated/notebooks/*"],
    "Project": ["generated/changelog", "generated/contributing"],
}
"""Pages of each section, in order: directives in the pages would be code on GitHub."""


def add_contents(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the tables of contents to the first page."""
    if name == "index":
        for title, pages in PAGES.items():
            options = f":hidden:\n:maxdepth: 1\n:glob:\n:caption: {title}"
            source[0] += "\n\n".join(["", "```{toctree}\n" + options, "\n".join(pages) + "\n```"])


def setup(app: Sphinx) -> None:
    app.connect("source-read", add_contents)


generate(HERE)
