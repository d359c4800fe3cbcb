"""`headscope anatomy`: what a model is made of."""

from __future__ import annotations

from typing import Annotated

import typer

from headscope.cli import complete
from headscope.cli.app import MEASURE, command
from headscope.cli.options import Device, Format, Printed, Revision
from headscope.cli.terminal import print_rich, put
from headscope.errors import HeadscopeError

Shape = Annotated[
    str | None,
    typer.Argument(
        help="As for classify; also a config.json, a folder without weights, or a published "
        "shape such as gpt-2-s. The published shapes if none.",
        autocompletion=complete.models,
    ),
]
Context = Annotated[
    int | None,
    typer.Option(
        help="Tokens in the cache; the model's longest input (4,096 for published shapes).",
        show_default=False,
    ),
]
Batch = Annotated[
    int | None,
    typer.Option(help="Sequences in the cache; 1 (8 for the list).", show_default=False),
]
Dtype = Annotated[str, typer.Option(help="Of the cache: float16, float32 or bfloat16.")]
Published = Annotated[bool, typer.Option("--published", help="List the published shapes.")]
Check = Annotated[
    bool, typer.Option("--check", help="Run the model and check what its layers compute.")
]


@command(
    MEASURE,
    "headscope anatomy mini --check",
    "headscope anatomy",
    "headscope anatomy gpt2 --context 4096 --format csv",
)
def anatomy(
    model: Shape = None,
    published: Published = False,
    context: Context = None,
    batch: Batch = None,
    dtype: Dtype = "float16",
    format: Printed = Format.table,
    check: Check = False,
    revision: Revision = None,
    device: Device = "auto",
) -> None:
    """Count a model's parameters, by formula and as they are, and its key/value cache."""
    if model is None or published:
        asked = {"--check": check, "--revision": revision, "--device": device != "auto"}
        _refuse(model, [name for name, value in asked.items() if value])
        _print_published(context, batch, dtype, format)
        return
    from headscope.studies.anatomy.run import anatomy as count
    from headscope.studies.anatomy.view import anatomy_lines
    from headscope.studies.anatomy.write import write_anatomy

    found = count(
        model,
        context=context,
        batch=1 if batch is None else batch,
        dtype=dtype,
        check=check,
        revision=revision,
        device=device,
    )
    if format is Format.table:
        print_rich(anatomy_lines(found))
    else:
        put(write_anatomy(found, format.value))
    if not found.holds:
        raise typer.Exit(1)


def _refuse(model: str | None, asked: list[str]) -> None:
    """The list of published shapes has nothing to do with a model."""
    given = [f"{model} and --published"] if model is not None else asked
    if given:
        raise HeadscopeError(f"{given[0]}: the list of published shapes takes no model")


def _print_published(context: int | None, batch: int | None, dtype: str, format: Format) -> None:
    from headscope.studies.anatomy.published import BATCH, CONTEXT, published_shapes
    from headscope.studies.anatomy.view import published_lines
    from headscope.studies.anatomy.write import write_published

    table = published_shapes(
        context=CONTEXT if context is None else context,
        batch=BATCH if batch is None else batch,
        dtype=dtype,
    )
    if format is Format.table:
        print_rich(published_lines(table))
    else:
        put(write_published(table, format.value))
