"""Commands that change heads and read what it costs: one pattern for all, or fewer heads."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, check_targets, draw, print_rich, write_files
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
    mixing: Annotated[
        bool, typer.Option("--mixing", help="Also put an identity in W_O's place, layer by layer.")
    ] = False,
    seed: Annotated[int, _SEED] = 0,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """Say what head diversity is worth: the loss when a layer's heads share one pattern."""
    check_targets(out, figure)
    from headscope.interventions.collapse import collapse as run_collapse
    from headscope.interventions.curves import collapse_figure, collapse_lines
    from headscope.progress import progress_bar

    with progress_bar(quiet=quiet) as advance:
        table = run_collapse(
            model, corpus or (), mixing=mixing, max_tokens=max_tokens, seed=seed, progress=advance
        )
    files = {out: _csv(table)} if out else {}
    if figure:
        files[figure] = draw(collapse_figure(table, model), figure)
    print_rich(collapse_lines(table, model))
    write_files(files)


@app.command()
def prune(
    model: Annotated[str, _MODEL],
    run: Annotated[
        Path | None, typer.Option(help="A run folder of this model: heads are pruned by type too.")
    ] = None,
    corpus: Annotated[list[Path] | None, _CORPUS] = None,
    max_tokens: Annotated[int, _TOKENS] = 8_192,
    out: Annotated[
        Path | None,
        typer.Option(help="Write the curve to this .csv file, and each head to FILE-heads.csv."),
    ] = None,
    figure: Annotated[Path | None, _FIGURE] = None,
    save: Annotated[
        Path | None,
        typer.Option(help="Write a smaller model with the most important heads; needs --keep."),
    ] = None,
    keep: Annotated[
        float | None, typer.Option(help="Share of every layer's heads to keep, e.g. 0.5.")
    ] = None,
    seed: Annotated[int, _SEED] = 0,
    quiet: Annotated[bool, _QUIET] = False,
) -> None:
    """Rank heads by importance, and say what the loss is as more and more are masked."""
    check_targets(out, figure)
    if (save is None) != (keep is None):
        raise HeadscopeError("--save FOLDER and --keep SHARE go together; one of them is missing")
    from headscope.interventions.curves import prune_figure, prune_lines, smaller_lines
    from headscope.interventions.prune import prune as run_prune
    from headscope.interventions.smaller import check_smaller, save_smaller
    from headscope.models import load_model
    from headscope.progress import progress_bar
    from headscope.store import load

    classified = None if run is None else load(run)
    with progress_bar(quiet=quiet) as advance:
        loaded = load_model(model)
        if save is not None and keep is not None:
            check_smaller(loaded, keep, save)
        result = run_prune(
            loaded, corpus or (), run=classified, max_tokens=max_tokens, seed=seed,
            progress=advance,
        )  # fmt: skip
        smaller = None
        if save is not None and keep is not None:
            smaller = save_smaller(loaded, result.importance, keep, save, text=result.text)
    files = {}
    if out:
        files[out] = _csv(result.curve)
        files[out.with_name(f"{out.stem}-heads.csv")] = _csv(result.heads)
    if figure:
        files[figure] = draw(prune_figure(result), figure)
    print_rich(prune_lines(result))
    if smaller is not None:
        print_rich(smaller_lines(smaller))
        print(f"written to {save}")
    write_files(files)


def _csv(table: object) -> bytes:
    text: str = table.to_csv(index=False, float_format="%.6g", lineterminator="\n")  # type: ignore[attr-defined]
    return text.encode()
