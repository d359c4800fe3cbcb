"""The application that commands join, and what they share: printing and writing."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from headscope.errors import HeadscopeError


class _Commands(TyperGroup):
    """Commands that say what is left when they are interrupted; typer's end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            print(f"headscope: {str(stop) or 'stopped; nothing was written'}", file=sys.stderr)
            raise typer.Exit(130) from stop


app = typer.Typer(
    cls=_Commands,
    help="What does each attention head of a pretrained transformer do, and how sure are we?",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
PICTURES = (".png", ".svg", ".pdf")


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        from importlib.metadata import version as installed

        print(f"headscope {installed('headscope')}")
        raise typer.Exit


def print_rich(what: object) -> None:
    """Print a table or text by rich."""
    from rich.console import Console

    # a pipe has no width: do not fold rows for it
    # names and tokens are no markup
    console = Console(width=None if sys.stdout.isatty() else 160, markup=False)
    console.print(what, highlight=False)


def check_suffix(path: Path, *known: str) -> str:
    """The suffix of a file to write, one of those known."""
    if path.suffix not in known:
        raise HeadscopeError(
            f"{path}: cannot write {path.suffix or 'a file without suffix'}; "
            f"choose {', '.join(known)}"
        )
    return path.suffix


def check_targets(out: Path | None, figure: Path | None) -> None:
    """Refuse a table or picture that cannot be written: minutes of work must not end there."""
    for path, suffixes in ((out, (".csv",)), (figure, PICTURES)):
        if path is not None:
            check_suffix(path, *suffixes)
            if path.is_dir():
                raise HeadscopeError(f"{path} is a folder; name a file")


def draw(figure: Any, path: Path) -> bytes:
    """A figure as the bytes of a picture."""
    from io import BytesIO

    buffer = BytesIO()
    figure.savefig(buffer, format=path.suffix.removeprefix("."), dpi=200)
    return buffer.getvalue()


def check_new(path: Path) -> None:
    """Refuse a file to write where something is already."""
    if os.path.lexists(path):
        raise HeadscopeError(f"{path} exists already; choose another name")


def write_new(files: Mapping[Path, bytes]) -> None:
    """Write files that were not there: all of them, each whole, or none."""
    made: list[Path] = []
    try:
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as file:
                made.append(path)
                file.write(content)
    except OSError as error:
        for path_made in made:
            path_made.unlink()
        raise HeadscopeError(f"{path} cannot be written: {error.strerror or error}") from error


def write_file(path: Path, content: bytes) -> None:
    """Write a file, or say why it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    except OSError as error:
        raise HeadscopeError(f"{path} cannot be written: {error.strerror or error}") from error


def write_files(files: Mapping[Path, bytes], *, tell: bool = True) -> None:
    """Write files, replacing what is there, and say so."""
    for path, content in files.items():
        write_file(path, content)
        if tell:
            print(f"written to {path}")
