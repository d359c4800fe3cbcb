"""How Sphinx builds the documentation: offline, from the code and the notebooks as they are."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

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
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"
"""The tests run the notebooks; they are committed without output."""

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

generate(HERE)
