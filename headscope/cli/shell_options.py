"""Options of several commands: each has one name, one help text and one default everywhere.

The settings of a run are options of a command, too: derived, so that they are written down once.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, wraps
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from headscope.cli.terminal import print_text
from headscope.options import A_MODEL_OR_RUN, A_RUN, CHAT, PLAIN
from headscope.settings import ON_REQUEST, Settings, panel

Format = Literal["table", "csv", "json"]
"""The format in which a command prints."""


def _show_all(ctx: Any, is_given: bool) -> bool:
    """Print the help with the options that `--help` omits."""
    if is_given:
        for parameter in ctx.command.params:
            parameter.hidden = False
        print_text(ctx.get_help())
        raise typer.Exit
    return is_given


Run = Annotated[
    Path,
    typer.Argument(help=f"{A_RUN}."),
]
Model = Annotated[
    str,
    typer.Argument(
        help="mini, smollm2 or minilm; a hub name such as gpt2, a folder, or a .gguf file.",
    ),
]
ModelOrRun = Annotated[
    str,
    typer.Argument(help=f"{A_MODEL_OR_RUN}."),
]
Head = Annotated[str, typer.Argument(help="L5H1 or 5.1 for layer 5, head 1.")]
Corpus = Annotated[
    list[str] | None,
    typer.Option(
        metavar="PATH",
        help="File or folder of CoNLL-U, plain text, Markdown or Python (also .gz, .xz), or "
        "gum, gold or controlled, which ship; repeatable.",
        show_default="gum",
    ),
]
Printed = Annotated[Format, typer.Option(help="Output format.")]
Plain = Annotated[bool, typer.Option("--plain", help=PLAIN)]
Chat = Annotated[bool, typer.Option("--chat", help=CHAT)]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing files.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress.")]
HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", callback=_show_all, is_eager=True, help="Show this message with all options."
    ),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--model",
        help="The run's model, or its path if it has moved.",
        show_default=False,
    ),
]


def takes_settings(
    *names: str,
    basic: Collection[str] = (),
    help_texts: Mapping[str, str] = MappingProxyType({}),
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for each setting, in place of its parameter `settings`.

    Args:
        names: settings that are options of this command, which is called with a dict of those that
            were given; without names all are, and it is called with `Settings`.
        basic: those that `--help` lists; by default all.
        help_texts: other help for some settings, if the command has another default.
    """
    options = {
        name: _setting(name, help_texts.get(name), bool(names), bool(basic) and name not in basic)
        for name in names or Settings.model_fields
    }

    # typer reads the signature, in which each setting becomes an option of its own
    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        @wraps(command)
        def run(**arguments: Any) -> None:
            values = {name: arguments.pop(name) for name in options}
            explicit = {name: value for name, value in values.items() if value is not None}
            command(**arguments, settings=explicit if names else Settings(**explicit))

        parameters: list[inspect.Parameter] = []
        for parameter in inspect.signature(command, eval_str=True).parameters.values():
            if parameter.name == "settings":
                parameters += options.values()
            else:
                parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
        run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        # typer would read the options of the wrapped function
        del run.__wrapped__
        return run

    return decorate


def _setting(
    name: str, help_text: str | None, explicit_only: bool, hidden: bool
) -> inspect.Parameter:
    """The option of one setting; None stands for its default."""
    field = Settings.model_fields[name]
    # names with commas between them are one option, which the setting takes apart
    kind = str if name in ("types", "haystack") else shell_type(field.annotation)
    default = None if explicit_only or field.default_factory else field.default
    # a default that depends on other settings stands in the help text
    option = typer.Option(
        help=help_text or field.description,
        rich_help_panel=None if explicit_only else panel(name),
        show_default=default is not None,
        hidden=hidden,
        autocompletion=complete_types if name == "types" else None,
    )
    return inspect.Parameter(
        name,
        inspect.Parameter.KEYWORD_ONLY,
        default=default,
        annotation=Annotated[kind if default is not None else kind | None, option],
    )


def complete_types(incomplete: str) -> list[str]:
    """Lists of head types that start with what is typed: its last name is completed."""
    from headscope.relations import head_types
    from headscope.relations.head_type import ALL

    before, comma, _ = incomplete.rpartition(",")
    lists = [f"{before}{comma}{name}" for name in (*head_types(), ALL)]
    return [names for names in lists if names.startswith(incomplete)]


def name_types_on_request(command: Any) -> None:
    """Replace `ON_REQUEST` in the help of a command's options by the names of the types."""
    for option in command.params:
        if option.help and ON_REQUEST in option.help:
            from headscope.relations import types_on_request

            option.help = option.help.replace(ON_REQUEST, ", ".join(types_on_request()))


def name_values(command: Any) -> None:
    """Give help one notation: arguments and the kinds of values in capitals, choices as they are.

    A flag takes no value.
    """
    for parameter in command.params:
        kind = value_kind(parameter.type_descriptor.annotation)
        if parameter.param_type_name == "argument":
            parameter.metavar = parameter.name.upper() + ("..." if parameter.nargs == -1 else "")
            parameter.display_type_rich = partial(_shown_kind, kind)
        elif parameter.is_flag:
            parameter.metavar = ""
        elif parameter.metavar is None:
            parameter.metavar = kind


def _shown_kind(kind: str, ctx: Any) -> str:
    """The kind of an argument's value; typer asks for it with its context."""
    return kind


def value_kind(annotation: Any) -> str:
    """The values that an option or an argument takes: `TEXT`, `NUMBER`, `PATH`, or its choices.

    >>> value_kind(list[str] | None), value_kind(int), value_kind(Literal["mean", "zero"])
    ('TEXT', 'NUMBER', 'mean|zero')
    """
    member = next(part for part in union_members(annotation) if part is not NoneType)
    if get_origin(member) is Literal:
        return "|".join(map(str, get_args(member)))
    if get_origin(member) is list:
        return value_kind(get_args(member)[0])
    kinds = {bool: "", int: "NUMBER", float: "NUMBER", Path: "PATH"}
    return kinds.get(member, "TEXT")


def shell_type(annotation: Any) -> Any:
    """The type that typer reads for an argument; a path is text, so that `""` is not a folder.

    >>> shell_type(int | None), shell_type(str | Path | Sequence[str | Path])
    (int | None, list[str])
    """
    parts = union_members(annotation)
    kind: Any = next((kind for kind in (bool, int, float) if kind in parts), str)
    if get_origin(parts[0]) is Literal:
        kind = parts[0]
    if any(get_origin(part) is Sequence for part in parts):
        kind = list[kind]
    return kind | None if NoneType in parts else kind


def union_members(annotation: Any) -> list[Any]:
    """The types of a union, without their `Annotated`."""
    if get_origin(annotation) is Annotated:
        return union_members(get_args(annotation)[0])
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return [part for each in get_args(annotation) for part in union_members(each)]
    return [annotation]
