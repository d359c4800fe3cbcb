"""Patterns in a notebook: small pictures without any script, and circuitsvis in their place."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from itertools import count
from zlib import crc32

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.printing import visible

_numbers = count()
_brought = False
"""Whether a view of this process brought the library along: one output of a notebook does."""
LEAST = 0.02
"""Attention that a small picture draws; what is less cannot be seen."""


def notebook_html(
    title: str,
    tokens: Sequence[str],
    patterns: Float[ndarray, "head query key"],
    names: Sequence[str],
) -> str:
    """Heads on one text, for a notebook: pictures, which circuitsvis replaces where it is.

    The first view of a process brings the library, which is 1.3 MB; the others use what is in the
    page already, and stay pictures where it is not, as when that output was cleared.

    Args:
        title: what is shown.
        tokens: of the text.
        patterns: attention in [0, 1].
        names: of the heads.
    """
    global _brought
    page, _brought = whole_html(title, tokens, patterns, names, library=not _brought), True
    return page


def whole_html(
    title: str,
    tokens: Sequence[str],
    patterns: Float[ndarray, "head query key"],
    names: Sequence[str],
    *,
    library: bool = True,
) -> str:
    """The same, with the library or without it."""
    from headscope.views.report.data import to_json
    from headscope.views.report.page import circuitsvis_script

    # a checksum, so that the same text gives the same page, and a number for a second showing
    text = repr((title, tuple(tokens))).encode("utf-8", "backslashreplace")
    element_id = json.dumps(f"headscope-view-{crc32(text)}-{next(_numbers)}")
    props = {
        "tokens": [visible(token) for token in tokens],
        "attention": np.asarray(patterns, float).round(4).tolist(),
        "attentionHeadNames": list(names),
        "maskUpperTri": not bool(np.triu(patterns, 1).any()),
    }
    pictures = "".join(
        f'<figure style="display:inline-block;margin:4px">{_picture(tokens, pattern)}'
        f"<figcaption>{escape(name)}</figcaption></figure>"
        for name, pattern in zip(names, patterns, strict=True)
    )
    return (
        f"<div id={element_id}>{pictures}</div>"
        f"<script>{circuitsvis_script() if library else ''};"
        f"if (window.CircuitsVis) {{ const view = document.getElementById({element_id});"
        'view.replaceChildren(); view.style.cssText = "background:#fff;color:#1b1b1f";'
        f"CircuitsVis.render({element_id},CircuitsVis.AttentionHeads,{to_json(props)}) }}"
        "</script>"
    )


def _picture(tokens: Sequence[str], pattern: Float[ndarray, "query key"]) -> str:
    """Queries downward, keys to the right; a cell says its tokens when it is pointed at."""
    names = [escape(visible(token)) for token in tokens]
    seen = np.argwhere(pattern >= LEAST).tolist()
    shares = ((query, key, f"{pattern[query, key]:.2f}") for query, key in seen)
    cells = "".join(
        f'<rect x="{key}" y="{query}" width="1" height="1" fill-opacity="{share}">'
        f"<title>{names[query]} → {names[key]} {share}</title></rect>"
        for query, key, share in shares
    )
    size = len(names)
    # a middle blue is seen on light pages and on dark ones
    return (
        f'<svg viewBox="0 0 {size} {size}" width="{min(320, 60 + 8 * size)}" fill="#3b82c4" '
        f'role="img" style="background:#8882">{cells}</svg>'
    )
