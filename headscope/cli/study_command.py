"""Commands of studies: made of the rows of the table, and of the functions that those name.

A study whose command does no more than call its function, write and print has no code here; others
have a body, which is given a `StudyCall` and takes only the options that are the command's own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import typer
from typer.models import OptionInfo

from headscope.arguments import Default
from headscope.cli.app import WORDS, add_later, command
from headscope.cli.files import CSV, PICTURES, check_targets, say_written, write_study
from headscope.cli.options import SHARED, Format
from headscope.cli.terminal import print_rich, put
from headscope.studies.study_table import STUDIES, StudyRow, imported

if TYPE_CHECKING:
    from headscope.views.study import StudyResult

_NEVER = ("progress", "tell")
"""Arguments that a command fills in by itself."""
_TYPES = (Path, int, float, bool)
"""Types that typer reads as they are; all others are text."""
_CHOICES: Any = StrEnum
"""As a function; type checkers take it for a statement."""
_COMMON = [*SHARED][[*SHARED].index("corpus") :]
_Body = Callable[..., None]
_BODIES: dict[str, _Body] = {}


@dataclass(frozen=True, kw_only=True)
class StudyCall:
    """A command line of a study: what its function is called with, and what becomes of it."""

    study: StudyRow
    arguments: Mapping[str, Any]
    """Of the study's function."""
    out: Path | None = None
    figure: Path | None = None
    overwrite: bool = False
    format: Format = Format.table
    quiet: bool = False

    def check(self) -> None:
        """Refuse what cannot or must not be written, before anything is read."""
        check_targets((self.out, CSV), (self.figure, PICTURES), overwrite=self.overwrite)

    def result(self, **changes: Any) -> Any:
        """The result of the function, with other values for some of its arguments."""
        function, arguments = imported(self.study.function), {**self.arguments, **changes}
        if "progress" in inspect.signature(function).parameters:
            arguments["progress"] = not self.quiet
        return function(**arguments)

    def write(self, result: StudyResult) -> list[Path]:
        """Write the table and the figure, and return their files."""
        return write_study(result, self.out, self.figure, overwrite=self.overwrite)

    def show(self, result: Any, files: list[Path]) -> None:
        """Print the result, and the files that were written where it is for a person."""
        if self.format is Format.table:
            print_rich(result.lines())
            say_written(files)
        else:
            put(result.csv() if self.format is Format.csv else result.json())


def body(name: str) -> Callable[[_Body], _Body]:
    """Give the command of a study its own code, and the options that only the command has.

    It is called with a `StudyCall`, with its own options, and with those of the function that its
    parameters name; a parameter with a default replaces the option of the function.
    """

    def decorate(function: _Body) -> _Body:
        _BODIES[name] = function
        return function

    return decorate


def command_of(name: str) -> Callable[[_Body], _Body]:
    """Make a function the whole command of a study, where its options are no signature's."""
    (study,) = (study for study in STUDIES if study.name == name)
    return command(study.group, study.question, *study.examples, name=study.command)


def _run(call: StudyCall) -> None:
    call.check()
    result = call.result()
    call.show(result, call.write(result))


def add_studies() -> None:
    """Add the command of each study that has one and is no command yet.

    Its options are read from its function when it is called.
    """
    for study in STUDIES:
        if study.group and study.name not in WORDS:
            add_later(partial(study_command, study), study)


@dataclass(frozen=True)
class Argument:
    """An argument of a study's function."""

    name: str
    annotation: Any
    default: Any
    help: str


def arguments_of(path: str) -> Iterator[Argument]:
    """The arguments of a study's function; options of its TypedDict come last.

    >>> [argument.name for argument in arguments_of("emergence:emergence")]
    ['sweep']
    """
    function = inspect.unwrap(imported(path))
    hints, texts = get_type_hints(function), _described(inspect.getdoc(function) or "")
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not parameter.VAR_KEYWORD:
            yield Argument(name, hints[name], parameter.default, texts.get(name, ""))
        elif get_args(hints[name]) and is_typeddict(options := get_args(hints[name])[0]):
            for option, hint in get_type_hints(options, include_extras=True).items():
                notes = getattr(hint, "__metadata__", ())
                default = next((n for n in notes if isinstance(n, Default)), Default(None))
                kind = get_args(hint)[0] if notes else hint
                yield Argument(option, kind, default.value, default.help)


def _described(docstring: str) -> dict[str, str]:
    """The first sentence of each argument that a docstring's `Args:` describes."""
    section = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", docstring, flags=re.MULTILINE | re.DOTALL)
    entries = re.findall(
        r"^    (\w+): (.*?)(?=^    \w|\Z)", section[1] if section else "", re.MULTILINE | re.DOTALL
    )
    return {name: first_sentence(text) for name, text in entries}


def first_sentence(text: str) -> str:
    r"""The first sentence of a description, without Markdown.

    >>> first_sentence("most `features` of\n  a rule. See below.")
    'Most features of a rule.'
    """
    sentence = re.split(r"(?<=[.])\s+(?=[A-Z])", " ".join(text.split()))[0]
    return (sentence[:1].upper() + sentence[1:]).replace("`", "")


def study_command(study: StudyRow) -> Callable[..., None]:
    """The function of which typer makes the command of a study."""
    code = _BODIES.get(study.name, _run)
    _, *parameters = inspect.signature(code, eval_str=True).parameters.values()
    extra = {p.name: _keyword(p.name, p.annotation, p.default) for p in parameters}
    every = list(arguments_of(study.function))
    arguments = {
        _option_name(study, argument): argument for argument in every if argument.name not in _NEVER
    }
    options = {name: _parameter(study, name, arguments[name]) for name in arguments}
    has_progress = any(argument.name == "progress" for argument in every)
    shell = {name: _keyword(name, *option) for name, option in _shell(study, has_progress).items()}
    ordered = sorted((shell | options | extra).values(), key=_position)

    def run(**values: Any) -> None:
        passed = {argument.name: _plain(values[name]) for name, argument in arguments.items()}
        call_options = {name: values[name] for name in _DEFAULTS if name in values}
        call = StudyCall(study=study, arguments=passed, **call_options)
        code(call, **{name: values[name] for name in extra})

    summary = (inspect.getdoc(imported(study.function)) or "").partition("\n\n")[0]
    run.__name__, run.__doc__ = study.name, code.__doc__ or summary
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run


_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in fields(StudyCall) if field.default is not MISSING
}
"""Options that are no arguments of functions, with their defaults."""


def _shell(study: StudyRow, has_progress: bool) -> dict[str, tuple[Any, Any]]:
    """The options of the command alone, where results go and how they are printed."""
    options = {
        "out": Annotated[Path | None, typer.Option(help=study.out)] if study.out else None,
        "figure": Annotated[Path | None, typer.Option(help=study.figure)] if study.figure else None,
        "overwrite": SHARED["overwrite"] if study.out or study.figure else None,
        "format": SHARED["format"] if study.has_format else None,
        "quiet": SHARED["quiet"] if has_progress else None,
    }
    return {name: (kind, _DEFAULTS[name]) for name, kind in options.items() if kind is not None}


def _option_name(study: StudyRow, argument: Argument) -> str:
    """The name of an argument in the shell."""
    return "published" if study.shared.get(argument.name) == "published" else argument.name


def _parameter(study: StudyRow, name: str, argument: Argument) -> inspect.Parameter:
    """The option, or the argument, of a command that an argument of its function is."""
    shared = SHARED.get(study.shared.get(argument.name, argument.name))
    flags = [f"--{name.replace('_', '-')}"] if argument.default is False else []
    kind = _type(name, argument.annotation)
    several = any(get_origin(part) is Sequence for part in _alternatives(argument.annotation))
    help_text = argument.help.removesuffix(".") + "; repeatable." if several else argument.help
    annotation = shared or Annotated[kind, typer.Option(*flags, help=help_text)]
    return _keyword(name, annotation, argument.default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)


def _position(parameter: inspect.Parameter) -> tuple[bool, int]:
    """Arguments come first, then the options of the study itself, then those of most commands."""
    is_option = isinstance(get_args(parameter.annotation)[1], OptionInfo)
    return is_option, _COMMON.index(parameter.name) if parameter.name in _COMMON else -1


def _type(name: str, annotation: Any) -> Any:
    """The type that typer reads, of the type of an argument."""
    parts = _alternatives(annotation)
    kind: Any = next((kind for kind in _TYPES if kind in parts), str)
    if get_origin(parts[0]) is Literal:
        kind = _CHOICES(name.title(), {choice: choice for choice in get_args(parts[0])})
    if any(get_origin(part) is Sequence for part in parts):
        kind = list[kind]
    return kind | None if type(None) in parts else kind


def _alternatives(annotation: Any) -> tuple[Any, ...]:
    is_union = isinstance(annotation, UnionType) or get_origin(annotation) is Union
    return get_args(annotation) if is_union else (annotation,)


def _plain(value: Any) -> Any:
    """A value as functions take it: a choice as its text, and None for a list of nothing."""
    if isinstance(value, StrEnum):
        return value.value
    return None if value == [] else value
