"""Untrusted text as text that can be seen."""

from __future__ import annotations


def visible(token: str) -> str:
    r"""A token as text that can be seen and does no harm: no control or direction marks.

    >>> visible("a b"), visible("\n"), visible("\x1b"), visible("")
    ('a b', '↵', '⟨1b⟩', '∅')
    """
    characters = []
    for char in token:
        if char == "\n":
            characters.append("↵")
        elif char == "\t":
            characters.append("⇥")
        elif not char.isprintable() and char != " ":
            characters.append(f"⟨{ord(char):x}⟩")
        else:
            characters.append(char)
    return "".join(characters) or "∅"
