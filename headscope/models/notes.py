"""What the reader of a model's results should know about how it is read."""

from __future__ import annotations

from typing import Any

from headscope.models.encoders import cut_note
from headscope.models.hybrids import hybrid_note
from headscope.models.layout import Layout
from headscope.models.spread import spread_note


def notes_on(network: Any, stated: Layout, asked: int | None, context: int) -> tuple[str, ...]:
    """Where its parts lie, which of its layers are not read, and where its texts are cut.

    Args:
        network: of transformers.
        stated: what its configuration says.
        asked: tokens of the longest window that was asked for; None for the longest there is.
        context: its longest input.
    """
    lie, layers = spread_note(network), hybrid_note(stated.others)
    return (*lie, *layers, *cut_note(stated, asked, context))
