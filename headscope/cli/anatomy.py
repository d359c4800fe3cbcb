"""`headscope anatomy`: what a model is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli.app import app, print_rich
from headscope.cli.look import Format
from headscope.errors import HeadscopeError


@app.command()
def anatomy(
    model: Annotated[
        str | None,
        typer.Argument(
            help="As for classify; also a config.json, a folder without weights, or a published "
            "shape such as gpt-2-s. The published shapes if none."
        ),
    ] = None,
    published: Annotated[
        bool, typer.Option("--published", help="List the published shapes.")
    ] = False,
    context: Annotated[
        int | None,
        typer.Option(
            help="Tokens in the cache; the model's longest input (4,096 for published shapes).",
            show_default=False,
        ),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option(help="Sequences in the cache; 1 (8 for the list).", show_default=False),
    ] = None,
    dtype: Annotated[
        str, typer.Option(help="Of the cache: float16, float32 or bfloat16.")
    ] = "float16",
    format: Annotated[Format, typer.Option(help="How to print.")] = Format.table,
    check: Annotated[
        bool, typer.Option("--check", help="Run the model and check what its layers compute.")
    ] = False,
) -> None:
    """Count a model's parameters, by formula and as they are, and its key/value cache."""
    if model is None or published:
        if model is not None or check:
            given = "--check" if model is None else f"{model} and --published"
            raise HeadscopeError(f"{given}: the list of published shapes takes no model")
        _print_published(context, batch, dtype, format)
        return
    from headscope.architecture.anatomy import anatomy as count
    from headscope.architecture.show import anatomy_lines
    from headscope.architecture.write import write_anatomy

    found = count(
        model, context=context, batch=1 if batch is None else batch, dtype=dtype, check=check
    )
    if format is Format.table:
        print_rich(anatomy_lines(found))
    else:
        print(write_anatomy(found, format.value), end="")
    if not found.holds:
        raise typer.Exit(1)


def _print_published(context: int | None, batch: int | None, dtype: str, format: Format) -> None:
    from headscope.architecture.published import BATCH, CONTEXT, published_table
    from headscope.architecture.show import published_lines
    from headscope.architecture.write import write_published

    table = published_table(
        context=CONTEXT if context is None else context,
        batch=BATCH if batch is None else batch,
        dtype=dtype,
    )
    if format is Format.table:
        print_rich(published_lines(table))
    else:
        print(write_published(table, format.value), end="")
