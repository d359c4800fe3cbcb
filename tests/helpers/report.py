"""Tokens that a page must show as text."""

from __future__ import annotations

EVIL = "</script><script>alert(1)</script>"
TOKENS = (
    "<bos>",
    EVIL,
    "\"'<b>&amp;",
    "\u202eabc\u200f",
    "\ufffd",
    "\ud83d",
    "a\nb",
    " $x$",
    "end",
)
