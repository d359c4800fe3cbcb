"""Tables and records that users give as files, read the same way for every command."""

from __future__ import annotations


def is_unicode(text: str) -> bool:
    r"""True if a text can be encoded; half of a character, a lone surrogate, cannot.

    >>> is_unicode("né"), is_unicode("\ud800")
    (True, False)
    """
    return text.encode("utf-8", "replace").decode() == text
