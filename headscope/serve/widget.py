"""The live page's heads in a notebook: a widget whose choices are values in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Unpack

from headscope.arguments import either, takes
from headscope.heads import parse_head
from headscope.models.packages import optional_package
from headscope.runs.resolve import A_MODEL, A_RUN, Named

if TYPE_CHECKING:
    from headscope.serve.head_widget import HeadWidget


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

    parse_head(head)
    return HeadWidget(live_of(model, source=source, **options), head, text)
