"""How heads are written: `L5H1` is layer 5, head 1, both counted from 0; `5.1` means the same."""

from __future__ import annotations

import re

from headscope.errors import HeadscopeError

_HEAD = re.compile(r"[Ll]?(\d{1,6})[Hh.](\d{1,6})")


def head_name(layer: int, head: int) -> str:
    """The printed name of a head, e.g. `L5H1`.

    >>> head_name(5, 1)
    'L5H1'
    """
    return f"L{layer}H{head}"


def parse_head(text: str) -> tuple[int, int]:
    """`(layer, head)` of a name such as `L5H1` or `5.1`.

    Raises:
        HeadscopeError: the text is neither form.

    >>> parse_head("L5H1"), parse_head("5.1")
    ((5, 1), (5, 1))
    >>> parse_head("5")
    Traceback (most recent call last):
    headscope.errors.HeadscopeError: '5' is not a head; write L5H1 or 5.1 for layer 5, head 1
    """
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise HeadscopeError(f"{text!r:.60} is not a head; write L5H1 or 5.1 for layer 5, head 1")
    return int(match[1]), int(match[2])
