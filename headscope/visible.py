"""Untrusted text as text that can be seen."""

from __future__ import annotations


def visible(token: str) -> str:
    """A token as text that can be seen and does no harm: no control or direction marks."""
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
