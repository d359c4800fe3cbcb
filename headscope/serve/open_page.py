"""Opening the live page in a browser, without showing its token to other users of the machine."""

from __future__ import annotations

import webbrowser
from html import escape
from pathlib import Path


def open_page(address: str, folder: Path) -> None:
    """Open an address in the user's browser, by a file that leads there.

    The arguments of a process can be read by every user of a machine, so the browser gets the name
    of the file and not the address.

    Args:
        address: the address of the page.
        folder: a folder that this user alone can read; the file must stay until it was read.
    """
    target = escape(address, quote=True)
    page = folder / "open.html"
    page.write_text(
        f'<!doctype html><meta http-equiv="refresh" content="0; url={target}">'
        f'<a href="{target}">the live page</a>\n',
        encoding="utf-8",
    )
    webbrowser.open(page.as_uri())
