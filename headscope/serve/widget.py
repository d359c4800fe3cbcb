"""The live page's heads in a notebook: a widget whose choices are values in Python."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Unpack

from headscope.arguments import either, takes
from headscope.heads import check_head
from headscope.models.packages import optional_package
from headscope.runs.resolve import A_MODEL, A_RUN, Named
from headscope.serve.live_page import DRAWING, SERVE
from headscope.views.html_page import REPORT, page_file, page_style

if TYPE_CHECKING:
    from headscope.serve.head_widget import HeadWidget


SCRIPTS = {"inflate.js": REPORT, "widget_page.js": SERVE} | DRAWING | {"widget.js": SERVE}
"""The scripts of a widget in order, each with where it lies: the live page's, on ground of its own."""


@takes(model=either(A_RUN, A_MODEL))
def widget(
    model: Any, head: str, text: str, *, source: Any = None, **options: Unpack[Named]
) -> HeadWidget:
    """A widget for notebooks: all heads on a sentence, of which one is shown large.

    The arguments are those of `show`. What is chosen in the notebook is in `head`, `type` and
    `token` of the widget, and what is set there is drawn::

        chosen = hs.widget("runs/mini", "L5H1", "one two three one two three")
        chosen  # as the last line of a cell
        chosen.observe(print, names=["head", "type", "token"])

    Args:
        model: a run or its folder, or a model as for `classify`, which has no tags.
        head: `L5H1` or `5.1`.
        text: any text of at most 256 tokens.
        source: the run's model, or where it is now if it is not where it was.
        options: see `Named`.

    Raises:
        ModelError: anywidget is not installed; the model cannot be loaded, or has an encoder and a
            decoder.
        RunError: there is no such run.
        HeadscopeError: there is no such head; the text is empty, or too long.
    """
    optional_package("a widget", "anywidget")
    from headscope.serve.head_widget import HeadWidget
    from headscope.serve.server import live_of

    check_head(head)
    return HeadWidget(live_of(model, source=source, **options), head, text)


def widget_module() -> str:
    """The widget as an ES module that asks no network: the live page's scripts in one function."""
    style = page_style(page_file(SERVE, "live.css"), page_file(SERVE, "widget.css"))
    scripts = "\n".join(page_file(package, name) for name, package in SCRIPTS.items())
    return (
        f"const STYLE = {json.dumps(style)};\n"
        # scripts that say "use strict" stand in no function that takes its argument apart
        f"function render(view) {{\nconst traits = view.model, home = view.el;\n{scripts}}}\n"
        "export default { render };\n"
    )
