"""Commands of studies: made of the rows of the table, and of the functions that those name.

A study whose command does no more than call its function, write and print has no code here; others
have a body, which is given a `StudyCall` and takes only the options that are the command's own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_origin

import typer
from pydantic.fields import FieldInfo

from headscope.cli.app import WORDS, add_later, command
from headscope.cli.files import CSV, PICTURES, check_targets, print_study, write_study
from headscope.cli.shell_options import (
    Format,
    Overwrite,
    Printed,
    Quiet,
    shell_type,
    union_members,
)
from headscope.options import IN_PYTHON, Flag
from headscope.studies.study_table import STUDIES, Command, StudyRow, imported

if TYPE_CHECKING:
    from headscope.views.study_result import StudyResult

_Body = Callable[..., None]
_BODIES: dict[str, _Body] = {}


@dataclass(frozen=True, kw_only=True)
class StudyCall:
    """A command line of a study: what its function is called with, and what becomes of it."""

    study: StudyRow
    arguments: Mapping[str, Any]
    """Arguments of the study's function."""
    out: Path | None = None
    figure: Path | None = None
    overwrite: bool = False
    quiet: bool = False
    format: Format = "table"

    def check(self) -> None:
        """Check the targets before anything is read."""
        check_targets(out=(self.out, CSV), figure=(self.figure, PICTURES), overwrite=self.overwrite)

    def result(self, **changes: Any) -> Any:
        """The result of the function, with other values for some of its arguments."""
        return imported(self.study.function)(**{**self.arguments, **changes})

    def write(self, result: StudyResult) -> list[Path]:
        """Write the table and the figure, and return their files."""
        return write_study(result, self.out, self.figure, overwrite=self.overwrite)

    def show(self, result: Any, files: list[Path]) -> None:
        """Print the result, and the files that were written."""
        print_study(result, files, self.format)


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
    """Make a function the whole command of a study; its options come from no signature."""
    commands = {study.name: study.command for study in STUDIES if study.command}
    declared = commands[name]
    return command(declared.group, declared.summary, *declared.examples, name=declared.name)


def _run(call: StudyCall) -> None:
    call.check()
    result = call.result()
    call.show(result, call.write(result))


def add_studies() -> None:
    """Add the command of each study that has one and is not a command yet.

    Its options come from its function's model when it is called.
    """
    for study in STUDIES:
        if study.command and study.name not in WORDS:
            add_later(partial(study_command, study), study.name, study.command)


def study_command(study: StudyRow) -> Callable[..., None]:
    """The function of which typer makes the command of a study.

    Its options are those of the study's function, those of every command that writes or prints,
    and those of the command alone; of two with one name the later counts.
    """
    # study and body; the body is the usual one unless the command does more
    function = imported(study.function)
    code = _BODIES.get(study.name, _run)
    # an empty `Flag` hides an argument from commands
    options = function.options().model_fields
    fields = {name: field for name, field in options.items() if "" not in field.metadata}
    # options that only this command has: the parameters of its body after the call
    _, *of_body = inspect.signature(code, eval_str=True).parameters.values()
    added = {
        option.name: _keyword(option.name, option.annotation, option.default) for option in of_body
    }
    shell = _shell_options(study.command, has_messages="on_message" in _parameters(function))
    # an option or a positional argument for each argument of the study's function
    parameters = _parameters(function)
    leading = next(iter(parameters))
    argument_options = {}
    for argument_name, argument in fields.items():
        parameter = parameters[argument_name]
        is_positional = parameter.kind is not parameter.KEYWORD_ONLY
        is_argument = is_positional and (argument.is_required() or argument_name == leading)
        kind = shell_type(argument.annotation)
        form = (
            typer.Argument(help=_help(argument, kind))
            if is_argument
            else _option(argument_name, argument, kind)
        )
        argument_options[argument_name] = _keyword(
            argument_name, Annotated[kind, form], parameter.default
        )
    options = argument_options | shell | added

    def run(**values: Any) -> None:
        arguments = {name: None if values[name] == [] else values[name] for name in fields}
        of_call = {name: values[name] for name in shell if name not in added}
        call = StudyCall(study=study, arguments=arguments, **of_call)
        code(call=call, **{name: values[name] for name in added})

    # typer takes name, help and options from the function
    summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
    run.__name__ = study.name
    run.__doc__ = code.__doc__ or summary
    run.__signature__ = inspect.Signature([*options.values()])  # type: ignore[attr-defined]
    run.__annotations__ = {name: option.annotation for name, option in options.items()}
    return run


def _parameters(function: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(function).parameters


def _option(name: str, field: FieldInfo, kind: Any) -> Any:
    flags = [str(flag) for flag in field.metadata if isinstance(flag, Flag)]
    if field.default is False:  # without it typer would add --no-…
        flags = [f"--{name.replace('_', '-')}"]
    is_path = Path in union_members(field.annotation)
    return typer.Option(*flags, help=_help(field, kind), metavar="PATH" if is_path else None)


def _help(field: FieldInfo, kind: Any) -> str:
    description = shell_help(field.description or "")
    is_list = any(get_origin(member) is list for member in union_members(kind))
    return f"{description} Repeatable." if is_list else description


def shell_help(description: str) -> str:
    """The description of an argument without what it takes in Python alone.

    >>> shell_help("A run folder; in Python also a run.")
    'A run folder.'
    """
    common, mark, _ = description.partition(IN_PYTHON)
    return f"{common}." if mark else common


def _shell_options(declared: Command | None, *, has_messages: bool) -> dict[str, inspect.Parameter]:
    """The options that say where results go and how they are printed."""
    # a study declares what it can write, and gets no option for anything else
    kinds: dict[str, Any] = {}
    out, figure = (declared.out, declared.figure) if declared else ("", "")
    if out:
        kinds["out"] = Annotated[Path | None, typer.Option(help=out)]
    if figure:
        kinds["figure"] = Annotated[Path | None, typer.Option(help=figure)]
    if out or figure:
        kinds["overwrite"] = Overwrite
    if has_messages:
        kinds["quiet"] = Quiet
    kinds["format"] = Printed
    return {name: _keyword(name, kind, _DEFAULTS[name]) for name, kind in kinds.items()}


_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in fields(StudyCall) if field.default is not MISSING
}
"""Options that are not arguments of functions, with their defaults."""


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)
