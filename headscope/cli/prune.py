"""Commands that change heads and read what it costs: one pattern for all, or fewer heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import PICTURES, app, check_suffix, draw, print_rich, write_file
from headscope.errors import HeadscopeError

_MODEL = typer.Argument(help="mini, a hub name such as gpt2, a folder, or a .gguf file.")
_CORPUS = typer.Option(
    help="CoNLL-U or plain text: a file or a folder; repeatable; ours by default."
)
_TOKENS = typer.Option(help="Tokens of text to read, about.")
_SEED = typer.Option(help="Seeds every draw.")
_FIGURE = typer.Option(help="A .png, .svg or .pdf file with the curves.")
_QUIET = typer.Option("--quiet", "-q", help="No progress on stderr.")


@app.command()
def collapse(
    model: Annotated[str, _MODEL],
    corpus: Annotated[list[Path] | None, _CORPUS] = None,
    max_tokens: Annotated[int, _TOKENS] = 8_192,
    out: Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")] = None,
    figure: Annotated[Path | None, _FIGURE] = None,
    seed: Annotated[int, _SEED] = 0,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """Say what head diversity is worth: the loss when a layer's heads share one pattern."""
    _check_targets(out, figure)
    from headscope.interventions.collapse import collapse as run_collapse
    from headscope.interventions.curves import collapse_figure, collapse_lines
    from headscope.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        table = run_collapse(
            model, corpus or (), max_tokens=max_tokens, seed=seed, progress=advance
        )
    files = {out: _csv(table)} if out else {}
    if figure:
        files[figure] = draw(collapse_figure(table, model), figure)
    print_rich(collapse_lines(table, model))
    _write(files)


def _check_targets(out: Path | None, figure: Path | None) -> None:
    """Minutes of work must not end at a file that cannot be written."""
    for path, suffixes in ((out, (".csv",)), (figure, PICTURES)):
        if path is not None:
            check_suffix(path, *suffixes)
            if path.is_dir():
                raise HeadscopeError(f"{path} is a folder; name a file")


def _csv(table: object) -> bytes:
    text: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")  # type: ignore[attr-defined]
    return text.encode()


def _write(files: dict[Path, bytes]) -> None:
    for path, content in files.items():
        write_file(path, content)
        print(f"written to {path}")
