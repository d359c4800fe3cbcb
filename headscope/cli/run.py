"""`headscope classify`: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli.app import app, print_rich


@app.command()
def classify(
    model: Annotated[
        str, typer.Argument(help="mini, a hub name such as gpt2, a folder, or a .gguf file.")
    ],
    corpus: Annotated[
        list[Path] | None,
        typer.Option(
            help="CoNLL-U or plain text: a file or a folder; repeatable; ours by default."
        ),
    ] = None,
    types: Annotated[
        str | None, typer.Option(help="Head types to score, separated by commas; all by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/MODEL by default.", show_default=False)
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option(help="Replace a run in that folder; drop what another kept beside it."),
    ] = False,
    max_tokens: Annotated[int, typer.Option(help="Tokens of text to read, about.")] = 40_000,
    max_length: Annotated[int, typer.Option(help="Longest window in tokens.")] = 256,
    device: Annotated[str, typer.Option(help="cpu, cuda, …; auto takes a GPU if there is one.")] = (
        "auto"
    ),
    device_map: Annotated[
        str | None,
        typer.Option(help="auto spreads a large model over all devices, with accelerate."),
    ] = None,
    dtype: Annotated[str, typer.Option(help="float32, bfloat16 or float16.")] = "float32",
    engine: Annotated[
        str, typer.Option(help="fused or lens; auto is fused where the model allows it.")
    ] = "auto",
    revision: Annotated[
        str | None, typer.Option(help="Branch, tag or commit on the hub, e.g. step1000.")
    ] = None,
    bos: Annotated[
        str | None,
        typer.Option(help="Token to put before each document, if not the tokenizer's own BOS."),
    ] = None,
    twin: Annotated[
        bool, typer.Option(help="Compare with the model's shuffled twin, which learned nothing.")
    ] = True,
    # torch takes no larger seed
    seed: Annotated[int, typer.Option(help="Seeds every draw.", max=2**63 - 1)] = 0,
    keep_every: Annotated[
        float, typer.Option(help="Seconds between two writings of the sums so far.", min=0)
    ] = 60,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")] = False,
) -> None:
    """Tag every head of a model with what it does, and write a run folder.

    After a kill or Ctrl-C the same command goes on from the sums kept in .NAME.partial beside it.
    """
    from headscope.pipeline import classify as run_classify
    from headscope.progress import progress_bar
    from headscope.summary import summary

    def tell(line: str) -> None:
        if not quiet:
            print(f"headscope: {line}", file=sys.stderr)

    folder = out or Path("runs") / Path(model).name.removesuffix(".gguf")
    with progress_bar(quiet=quiet) as advance:
        run = run_classify(
            model,
            corpus or (),
            types=[name.strip() for name in types.split(",")] if types else None,
            out=folder,
            overwrite=overwrite,
            max_tokens=max_tokens,
            max_length=max_length,
            twin=twin,
            seed=seed,
            revision=revision,
            device=device,
            dtype=dtype,
            bos=bos,
            engine=engine,
            device_map=device_map,
            keep_every=keep_every,
            progress=advance,
            tell=tell,
        )
    print_rich(summary(run))
    print(f"\nwritten to {folder}; open {folder / 'report.html'}")
