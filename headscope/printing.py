"""Printed text: untrusted characters made visible."""

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


def one_line(name: object) -> str:
    r"""A path, a name or a message on one line, without what steers a terminal.

    >>> one_line("my\nmodel"), one_line("model"), one_line("")
    ('my↵model', 'model', '')
    """
    text = str(name)
    return text if text.isprintable() else visible(text)
