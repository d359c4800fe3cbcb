"""The live page's heads in a notebook: a widget whose choices are values in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headscope.heads import head_name, parse_head
from headscope.options import Device, Head, Plain, Revision, Source, Text, checked
from headscope.packages import optional_package
from headscope.resolve import ModelOrRun, model_or_run

if TYPE_CHECKING:
    from headscope.serve.head_widget import HeadWidget


@checked
def widget(
    model: ModelOrRun,
    head: Head,
    text: Text,
    *,
    plain: Plain = False,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> HeadWidget:
    """Notebook widget: all heads on a sentence, one of them enlarged.

    The arguments are those of `show`. The attributes `head`, `type` and `token` hold the
    selection, and setting them changes the widget::

        chosen = hs.widget("runs/mini", "L5H1", "one two three one two three")
        chosen  # as the last line of a cell
        chosen.observe(print, names=["head", "type", "token"])

    Raises:
        ModelError: the model cannot be loaded, or has an encoder and a decoder.
        RunError: there is no such run.
        HeadscopeError: anywidget is not installed; there is no such head; the text is empty, or too
            long.
    """
    optional_package("a widget", "anywidget")
    from headscope.serve.head_widget import HeadWidget
    from headscope.serve.live import Live

    name = head_name(*parse_head(head))
    loaded, run = model_or_run(model, source=source, revision=revision, device=device)
    return HeadWidget(Live(loaded.with_plain_prompts(plain), run), name, text)
