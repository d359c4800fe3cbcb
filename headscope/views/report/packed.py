"""The page's larger parts, deflated: they are unpacked in the browser when they are needed."""

from __future__ import annotations

import base64
import zlib


def packed(text: str) -> str:
    """A text's length in bytes, a colon, and the deflated text (RFC 1951) in base64.

    Nothing in it can end a script element. `inflate.js` reads it.
    """
    raw = text.encode("utf-8")
    deflate = zlib.compressobj(9, zlib.DEFLATED, -zlib.MAX_WBITS)
    small = deflate.compress(raw) + deflate.flush()
    return f"{len(raw)}:{base64.b64encode(small).decode('ascii')}"
