"""Names of heads: `L5H1` is layer 5, head 1, both counted from 0; `5.1` means the same."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headscope.errors import HeadscopeError, RunError

_LAYER = re.compile(r"[Ll](\d{1,6})")
_HEAD = re.compile(r"[Ll]?(\d{1,6})[Hh.](\d{1,6})")


def layer_name(layer: int) -> str:
    """The printed name of a layer, e.g. `L5`."""
    return f"L{layer}"


def head_name(layer: int, head: int) -> str:
    """The printed name of a head, e.g. `L5H1`.

    >>> head_name(5, 1)
    'L5H1'
    """
    return f"{layer_name(layer)}H{head}"


def parse_head(name: str | tuple[int, int]) -> tuple[int, int]:
    """`(layer, head)` of a name such as `L5H1` or `5.1`, or of such a pair.

    Raises:
        HeadscopeError: a text of neither form.

    >>> parse_head("L5H1"), parse_head("5.1"), parse_head((5, 1))
    ((5, 1), (5, 1), (5, 1))
    >>> parse_head("5")
    Traceback (most recent call last):
    headscope.errors.HeadscopeError: '5' is not a head; write L5H1 or 5.1 for layer 5, head 1
    """
    if isinstance(name, tuple):
        return name
    match = _HEAD.fullmatch(name.strip())
    if match is None:
        raise HeadscopeError(f"{name!r:.60} is not a head; write L5H1 or 5.1 for layer 5, head 1")
    return int(match[1]), int(match[2])


def check_head_exists(
    layer: int, head: int, *, layers: Sequence[int], heads: int, where: str
) -> None:
    """Check that a model or a run has a head.

    Args:
        layer: its layer.
        head: its number.
        layers: those with softmax attention, in order.
        heads: heads of a layer.
        where: the model or the run in words.

    Raises:
        RunError: it has no such head.

    >>> check_head_exists(1, 9, layers=[0, 2], heads=12, where="my model")
    Traceback (most recent call last):
    headscope.errors.RunError: no head L1H9 in my model: layer 1 has no softmax attention
    """
    if layer in layers and head < heads:
        return
    last = layers[-1]
    others = sorted(set(range(last)) - {*layers})
    limit = f"they go up to {head_name(last, heads - 1)}"
    reason = without_softmax(others) if layer in others else limit
    raise RunError(f"no head {head_name(layer, head)} in {where}: {reason}")


def parse_layer(text: str) -> int | None:
    """The layer of a name such as `L5`; None for another name.

    >>> parse_layer("L5"), parse_layer("L5H1")
    (5, None)
    """
    match = _LAYER.fullmatch(text.strip())
    return None if match is None else int(match[1])


def without_softmax(others: Sequence[int]) -> str:
    """A clause that names the layers without softmax attention.

    >>> without_softmax((0, 1, 2, 4))
    'layers 0–2, 4 have no softmax attention'
    >>> without_softmax((3,))
    'layer 3 has no softmax attention'
    """
    verb = "has" if len(others) == 1 else "have"
    return f"{layer_ranges(others)} {verb} no softmax attention"


def layer_ranges(layers: Sequence[int]) -> str:
    """The numbers of some layers in words.

    >>> layer_ranges((0, 1, 2, 4))
    'layers 0–2, 4'
    """
    stretches: list[list[int]] = []
    for layer in sorted(layers):
        if stretches and layer == stretches[-1][-1] + 1:
            stretches[-1].append(layer)
        else:
            stretches.append([layer])
    spans = [str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in stretches]
    subject = "layer" if len(layers) == 1 else "layers"
    return f"{subject} {', '.join(spans)}"
