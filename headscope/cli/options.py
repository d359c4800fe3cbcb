"""What several commands take: one option has one name, one help text and one default everywhere."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from headscope.cli import complete


class Format(StrEnum):
    """How a command prints."""

    table = "table"
    csv = "csv"
    json = "json"


Run = Annotated[Path, typer.Argument(help="A run folder.", autocompletion=complete.runs)]
Model = Annotated[
    str,
    typer.Argument(
        help="mini, a hub name such as gpt2, a folder, or a .gguf file.",
        autocompletion=complete.models,
    ),
]
ModelOrRun = Annotated[
    str,
    typer.Argument(
        help="A model as for classify, or a run folder.", autocompletion=complete.models_or_runs
    ),
]
Head = Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")]
Corpus = Annotated[
    list[Path] | None,
    typer.Option(
        help="CoNLL-U, plain text, Markdown or Python (also .gz, .xz): a file or a folder, or gum, "
        "gold, controlled, aligned or structure, which ship; repeatable.",
        show_default="gum",
    ),
]
Printed = Annotated[Format, typer.Option(help="How to print.")]
Table = Annotated[Path | None, typer.Option(help="Write the table to this .csv file.")]
Picture = Annotated[Path | None, typer.Option(help="Draw it: a .png, .svg or .pdf file.")]
Width = Annotated[
    str | None,
    typer.Option(
        help="Of the picture: column (3.3 inches), double (6.9), or inches; its own if none.",
        show_default=False,
    ),
]
Tokens = Annotated[int, typer.Option(help="Tokens of text to read, about.")]
Seed = Annotated[int, typer.Option(help="Seeds every draw.")]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace files that are there already.")
]
Device = Annotated[str, typer.Option(help="cpu, cuda, …; auto takes a GPU if there is one.")]
Revision = Annotated[
    str | None, typer.Option(help="Branch, tag or commit on the hub, e.g. step1000.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="No progress on stderr.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="Where the run's model is now, if not where it was.",
        autocompletion=complete.models,
        show_default=False,
    ),
]
OtherText = Annotated[
    list[Path] | None,
    typer.Option("--corpus", help="Text, as for classify; repeatable; the run's own by default."),
]
Workers = Annotated[
    int | None,
    typer.Option(
        min=0,
        help="Processes that hold the model, by Ray; 0 for this one alone. By default a core "
        "each, 4 at most.",
        show_default=False,
    ),
]
Address = Annotated[
    str | None, typer.Option(help="A running Ray cluster; a local one is started if none.")
]
