"""Options of several commands: each has one name, one help text and one default everywhere.

The settings of a run are options of a command, too: derived, so that they are written down once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, Field, fields
from enum import StrEnum
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any

import typer

from headscope.errors import ArgumentError
from headscope.settings import OPTIONS, Settings


class Format(StrEnum):
    """The format in which a command prints."""

    table = "table"
    csv = "csv"
    json = "json"


def corpus_path(text: str) -> Path:
    """The path that an option names; an empty one would be the folder that the shell is in.

    Raises:
        ArgumentError: it is empty, as an empty variable of a shell is.
    """
    if not text:
        raise ArgumentError("--corpus is empty; name a file, a folder or a corpus that ships")
    return Path(text)


def local_model(name: str | None) -> str | None:
    """A model's name, after its files were checked without importing torch."""
    if name is not None:
        from headscope.models.checkpoint import check_local_model

        check_local_model(name)
    return name


def local_model_or_run(name: str | None) -> str | None:
    """The same for what may also be a run folder."""
    if name is not None and (Path(name) / "config.json").is_file():
        local_model(name)
    return name


Run = Annotated[
    Path,
    typer.Argument(
        help="A run folder; or smollm2, minilm or mini, whose results ship (atlas:NAME).",
    ),
]
Model = Annotated[
    str,
    typer.Argument(
        callback=local_model,
        help="mini, smollm2 or minilm; a hub name such as gpt2, a folder, or a .gguf file.",
    ),
]
ModelOrRun = Annotated[
    str,
    typer.Argument(
        callback=local_model_or_run,
        help="A model as for classify, a run folder, or atlas:smollm2, minilm or mini.",
    ),
]
ModelOrConfig = Annotated[
    str,
    typer.Argument(
        help="A model as for classify; also a config.json, or a folder without weights.",
    ),
]
Sweep = Annotated[Path, typer.Argument(help="A sweep's folder.")]
Head = Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")]
Corpus = Annotated[
    list[Path] | None,
    typer.Option(
        parser=corpus_path,
        metavar="PATH",
        help="CoNLL-U, plain text, Markdown or Python (also .gz, .xz): a file or a folder, or gum, "
        "gold or controlled, which ship; repeatable.",
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
        show_default=False,
    ),
]
OtherText = Annotated[
    list[Path] | None,
    typer.Option(
        "--corpus",
        parser=corpus_path,
        metavar="PATH",
        help="Text, as for classify; repeatable; the run's own by default.",
    ),
]
Workers = Annotated[
    int, typer.Option(min=1, help="Runs at the same time, each in a process that holds its model.")
]
Address = Annotated[
    str | None,
    typer.Option(help="Address of a running Ray cluster whose machines run the processes."),
]
Windows = Annotated[int, typer.Option(help="Windows of text to read.")]
RunOfModel = Annotated[
    Path | None,
    typer.Option(
        help="A run folder of this model: heads are pruned by type too.",
    ),
]
Published = Annotated[str | None, typer.Option("--as", help="The published name, e.g. gpt2.")]

SHARED: Mapping[str, Any] = {
    "run": Run,
    "model": ModelOrRun,
    "named_model": Model,
    "model_or_config": ModelOrConfig,
    "sweep": Sweep,
    "text_of_run": OtherText,
    "run_of_model": RunOfModel,
    "published": Published,
    "windows": Windows,
    "corpus": Corpus,
    "max_tokens": Tokens,
    "out": Table,
    "figure": Picture,
    "width": Width,
    "overwrite": Overwrite,
    "format": Printed,
    "seed": Seed,
    "revision": Revision,
    "device": Device,
    "source": Source,
    "quiet": Quiet,
}
"""Options that are one everywhere, in the order of `--help`; others are as their function says."""


def names_in(texts: list[str] | None, option: str) -> list[str] | None:
    """The names that an option gives, separated by commas; None where it was not given.

    Raises:
        ArgumentError: it was given and names nothing, as an empty variable of a shell does.

    >>> names_in(["step1, step2", "main"], "--revisions"), names_in(None, "--revisions")
    (['step1', 'step2', 'main'], None)
    """
    names = [name.strip() for text in texts or () for name in text.split(",") if name.strip()]
    if texts and not names:
        raise ArgumentError(f"{option} names nothing; separate names by commas, or leave it out")
    return names or None


_KINDS: dict[str, Any] = {"int": int, "bool": bool, "float": float}
"""What the command line reads; what else a setting must be is checked by `Settings`."""


def takes_settings(
    *,
    without: tuple[str, ...] = (),
    explicit_only: bool = False,
    help_texts: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting, in place of its parameter `settings`.

    Args:
        without: settings that are no options of this command.
        explicit_only: hand on a dict of what was said, instead of `Settings` with all defaults.
        help_texts: other help for some settings, where the command has another default.
    """
    settings_fields = [setting for setting in fields(Settings) if setting.name not in without]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {setting.name: arguments.pop(setting.name) for setting in settings_fields}
            explicit = {name: value for name, value in values.items() if value is not None}
            command(**arguments, settings=explicit if explicit_only else Settings(**explicit))

        parameters = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "settings":
                parameters += [
                    _parameter(setting, explicit_only=explicit_only, help_texts=help_texts)
                    for setting in settings_fields
                ]
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        del run.__wrapped__
        return run

    return decorate


def _parameter(
    setting: Field[Any], *, explicit_only: bool, help_texts: Mapping[str, str]
) -> inspect.Parameter:
    """The option of one setting; without a default of its own where only what is said counts."""
    option, default = OPTIONS[setting.name], None if setting.default is MISSING else setting.default
    kind = _KINDS.get(str(setting.type).partition(" ")[0], str)
    empty = explicit_only or default is None
    return inspect.Parameter(
        setting.name,
        inspect.Parameter.KEYWORD_ONLY,
        default=None if explicit_only else default,
        annotation=Annotated[
            kind | None if empty else kind,
            typer.Option(
                help=help_texts.get(setting.name, option.help),
                rich_help_panel=option.panel,
                show_default=not empty,
            ),
        ],
    )
