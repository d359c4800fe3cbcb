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
from typing import TYPE_CHECKING, Annotated, Any

import typer
from pydantic.fields import FieldInfo

from headscope.cli.app import WORDS, add_later, command
from headscope.cli.files import CSV, PICTURES, check_targets, print_written, write_study
from headscope.cli.shell_options import (
    Overwrite,
    Quiet,
    shell_type,
    union_members,
)
from headscope.cli.terminal import print_rich
from headscope.options import Flag
from headscope.studies.study_table import STUDIES, StudyRow, imported

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

    def check(self) -> None:
        """Check the targets before anything is read."""
        check_targets((self.out, CSV), (self.figure, PICTURES), overwrite=self.overwrite)

    def result(self, **changes: Any) -> Any:
        """The result of the function, with other values for some of its arguments."""
        return imported(self.study.function)(**{**self.arguments, **changes})

    def write(self, result: StudyResult) -> list[Path]:
        """Write the table and the figure, and return their files."""
        return write_study(result, self.out, self.figure, overwrite=self.overwrite)

    def show(self, result: Any, files: list[Path]) -> None:
        """Print the result, and the files that were written."""
        print_rich(result.lines())
        print_written(files)


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
    (study,) = (study for study in STUDIES if study.name == name)
    return command(study.group, study.summary, *study.examples, name=study.command)


def _run(call: StudyCall) -> None:
    call.check()
    result = call.result()
    call.show(result, call.write(result))


def add_studies() -> None:
    """Add the command of each study that has one and is not a command yet.

    Its options come from its function's model when it is called.
    """
    for study in STUDIES:
        if study.group and study.name not in WORDS:
            add_later(partial(study_command, study), study)


def study_command(study: StudyRow) -> Callable[..., None]:
    """The function of which typer makes the command of a study."""
    function, code = imported(study.function), _BODIES.get(study.name, _run)
    parameters = [*inspect.signature(code, eval_str=True).parameters.values()][1:]
    extra = {p.name: _keyword(p.name, p.annotation, p.default) for p in parameters}
    known = inspect.signature(function).parameters
    fields = {n: f for n, f in function.options().model_fields.items() if "" not in f.metadata}
    leading = next(iter(known))
    options = {
        name: _parameter(known[name], field, first=name == leading)
        for name, field in fields.items()
    }
    shell = {n: _keyword(n, *option) for n, option in _shell(study, "on_message" in known).items()}
    ordered = [*(options | shell | extra).values()]

    def run(**values: Any) -> None:
        passed = {name: None if values[name] == [] else values[name] for name in fields}
        call_options = {n: v for n, v in values.items() if n in shell and n not in extra}
        call = StudyCall(study=study, arguments=passed, **call_options)
        code(call=call, **{name: values[name] for name in extra})

    summary = (inspect.getdoc(function) or "").partition("\n\n")[0]
    run.__name__, run.__doc__ = study.name, code.__doc__ or summary
    run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}
    return run


_DEFAULTS: Mapping[str, Any] = {
    field.name: field.default for field in fields(StudyCall) if field.default is not MISSING
}
"""Options that are not arguments of functions, with their defaults."""


def _shell(study: StudyRow, has_messages: bool) -> dict[str, tuple[Any, Any]]:
    """The options of the command alone: where results go, and how they are printed."""
    options = {
        "out": Annotated[Path | None, typer.Option(help=study.out)] if study.out else None,
        "figure": Annotated[Path | None, typer.Option(help=study.figure)] if study.figure else None,
        "overwrite": Overwrite if study.out or study.figure else None,
        "quiet": Quiet if has_messages else None,
    }
    return {name: (kind, _DEFAULTS[name]) for name, kind in options.items() if kind is not None}


def _parameter(parameter: inspect.Parameter, field: FieldInfo, *, first: bool) -> inspect.Parameter:
    """The option or the argument of a command that an argument of its function becomes."""
    name, annotation = parameter.name, field.annotation
    kind = shell_type(annotation)
    flags = [str(flag) for flag in field.metadata if isinstance(flag, Flag)]
    if field.default is False:
        flags = [f"--{name.replace('_', '-')}"]
    is_argument = parameter.kind is not parameter.KEYWORD_ONLY and (field.is_required() or first)
    is_list = "list[" in str(kind)
    help_text = (field.description or "") + (" Repeatable." if is_list else "")
    is_path = Path in union_members(annotation) and not is_argument
    if is_argument:
        option: Any = typer.Argument(help=help_text)
    else:
        option = typer.Option(*flags, help=help_text, metavar="PATH" if is_path else None)
    return _keyword(name, Annotated[kind, option], parameter.default)


def _keyword(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, annotation=annotation, default=default)
