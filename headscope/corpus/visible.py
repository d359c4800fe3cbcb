"""Untrusted text as text that can be seen."""

from __future__ import annotations


def visible(token: str) -> str:
    r"""A token as text that can be seen and does no harm: no control or direction marks.

    >>> visible("a b"), visible("\n"), visible("\x1b"), visible("")
    ('a b', '↵', '⟨1b⟩', '∅')
    """
    shown = []
    for char in token:
        if char == "\n":
            shown.append("↵")
        elif char == "\t":
            shown.append("⇥")
        elif not char.isprintable() and char != " ":
            shown.append(f"⟨{ord(char):x}⟩")
        else:
            shown.append(char)
    return "".join(shown) or "∅"
