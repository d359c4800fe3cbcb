"""Names of heads in a file of the user's."""

from __future__ import annotations

from pathlib import Path

from headscope.errors import HeadscopeError
from headscope.heads import parse_head
from headscope.runs.user_file import given_file


def heads_of_file(path: str | Path) -> list[str]:
    """The names of heads in a file, a name on a line; blank lines and those with `#` are left out.

    Raises:
        HeadscopeError: it cannot be read, a line is no head, or it names none.
    """
    would_do = "a text file with a head such as L5H1 on each line"
    try:
        text = given_file(path, would_do).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise HeadscopeError(f"{path}: no UTF-8 text; give {would_do}") from error
    names = []
    for number, line in enumerate(text.splitlines(), start=1):
        name = line.partition("#")[0].strip()
        if not name:
            continue
        try:
            parse_head(name)
        except HeadscopeError as error:
            raise HeadscopeError(f"{path}:{number}: {error}") from error
        names.append(name)
    if not names:
        raise HeadscopeError(f"{path}: it names no head; give {would_do}")
    return names
