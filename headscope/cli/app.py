"""The application that commands join, each in its group."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperCommand, TyperGroup

from headscope.cli.shell_options import name_types_on_request, name_values
from headscope.cli.terminal import print_text, stop_code, warn
from headscope.errors import HeadscopeError, nearest_name
from headscope.studies.study_table import GROUPS, TOP, Command

WORDS: dict[str, tuple[str, ...]] = {}
"""The words of each command by its name, such as `atlas`, which is called by `draw atlas`."""


PYDANTIC_PREFIX = "Value error, "
"""Words that pydantic puts before the message of a function that checks a value."""
MOST_BEGUN = 3
"""Options that a message lists if all of them begin with what was typed."""


@contextmanager
def _plain_usage_errors(command: Any, ctx: Any) -> Iterator[None]:
    """Put typer's messages on options and their values in plain words.

    A wrong value comes without the words of pydantic, and an unknown option with the nearest one.
    """
    try:
        yield
    except typer.BadParameter as invalid:
        invalid.message = invalid.message.removeprefix(PYDANTIC_PREFIX)
        raise
    except Exception as raised:
        # typer does not export the error of an unknown option, and sorts what is near by letters
        error: Any = raised
        if getattr(error, "possibilities", None) is not None:
            error.message += _option_meant(error.option_name, command.get_params(ctx))
            error.possibilities = None
        raise


def _option_meant(typed: str, parameters: Sequence[Any]) -> str:
    """The options that a mistyped one may mean, to be added to a message."""
    options = [name for parameter in parameters for name in parameter.opts if name[:2] == "--"]
    begun = [name for name in options if name.startswith(typed)]
    if 0 < len(begun) <= MOST_BEGUN:
        return f" (is {' or '.join(begun)} meant?)"
    return nearest_name(typed, options)


class CommandGroup(TyperGroup):
    """Commands whose help is a line each."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help: it fits a terminal of 24 lines and 80 columns."""
        # commands first, then the groups within this one
        members = list(self.commands.values())
        subgroups = [member for member in members if isinstance(member, TyperGroup)]
        commands = [member for member in members if member not in subgroups]
        width = max(len(str(member.name)) for member in members) + 2
        # the epilog in one line: its title, and commands to call one after the other
        title, *steps = [line.strip() for line in (self.epilog or "").split("\n") if line.strip()]
        lines = [
            f"Usage: {ctx.command_path} [OPTIONS] COMMAND [ARGS]...",
            "",
            str(self.help),
            f"{title} {', then '.join(steps)}".strip(),
            "",
            *(f"  {row.name:{width}}{row.short_help}" for row in commands),
        ]
        if subgroups:
            lines.append("")
        lines += [f"  {row.name:{width}}{row.help}" for row in subgroups]
        flags = [min(option.opts, key=len) for option in self.get_params(ctx)]
        lines += ["", f"Options: {', '.join(flags)}. See COMMAND -h."]
        formatter.write("\n".join(lines) + "\n")

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Print the help and end with exit code 2 if no command is given."""
        if not args and not ctx.resilient_parsing:
            print_text(ctx.get_help())
            raise typer.Exit(2)
        with _plain_usage_errors(self, ctx):
            return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command, and read its options from its function."""
        name, command, others = super().resolve_command(ctx, args)
        words = (str(name),) if ctx.parent is None else (str(self.name), str(name))
        return name, built_command(words, command), others


class ShellCommand(TyperCommand):
    """A command whose help writes values as the documentation does."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read options and arguments; what is wrong with them is said in plain words."""
        with _plain_usage_errors(self, ctx):
            return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """Give the words of the usage line: arguments in capitals, in brackets if optional."""
        pieces = ["[OPTIONS]"]
        for parameter in self.params:
            if parameter.param_type_name == "argument":
                name = str(parameter.metavar)
                pieces.append(name if parameter.required else f"[{name}]")
        return pieces

    def get_help_option(self, ctx: Any) -> Any:
        """Give the option `--help`, which takes no value."""
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


class _Commands(CommandGroup):
    """Commands that say what is left when they are interrupted; typer's end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            warn(f"headscope: {str(stop) or 'stopped; nothing was written'}")
            raise typer.Exit(stop_code(stop)) from stop
        except OSError as error:  # of a file that no function foresaw; typer would be silent
            where = f"{error.filename}: " if error.filename else ""
            raise HeadscopeError(f"{where}{error.strerror or error}") from error


app = typer.Typer(
    name="headscope",
    cls=_Commands,
    help="Tag the attention heads of a transformer, and test each tag against baselines.",
    epilog="Start with:\n\nheadscope classify mini\n\nheadscope why runs/mini L5H1",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

_Command = TypeVar("_Command", bound=Callable[..., None])


_FIRST = (
    *("classify", "heads", "why", "show", "report"),
    *("task", "compare", "ablate", "explain", "verify", "serve"),
)


def position(name: str | None) -> int:
    """The place in the help of a command of no group, in the order of a day's work."""
    return _FIRST.index(name) if name in _FIRST else len(_FIRST)


_APPS = {TOP: app}
for _group, _help in GROUPS.items():
    if _group != TOP:
        _APPS[_group] = typer.Typer(cls=CommandGroup, help=_help, epilog="Commands:")
        app.add_typer(_APPS[_group], name=_group)


def command(
    group: str, summary: str, *examples: str, name: str = ""
) -> Callable[[_Command], _Command]:
    """Add a command to its group; its help ends with the examples, which are complete lines.

    Args:
        group: its name in `GROUPS`.
        summary: its effect in the imperative, in less than a line.
        examples: for the end of its help.
        name: within the group, if it differs from the function's.
    """
    epilog = _epilog(examples)

    def decorate(function: _Command) -> _Command:
        function_name = function.__name__
        new_name = name or function_name
        WORDS[function_name] = (new_name,) if group == TOP else (group, new_name)
        return _APPS[group].command(new_name, cls=ShellCommand, short_help=summary, epilog=epilog)(
            function
        )

    return decorate


def add_later(make: Callable[[], Callable[..., None]], name: str, declared: Command) -> None:
    """Add the command of a study, whose function is made when the command is called."""

    def placeholder() -> None:
        """Stand for the command in lists of commands."""

    # the list of commands must not import the studies
    placeholder.__name__ = name
    add = command(declared.group, declared.summary, *declared.examples, name=declared.name)
    add(placeholder)
    words = WORDS[name]

    def build() -> Any:
        # an application of this command alone, for which typer reads the options of the function
        alone = typer.Typer(add_completion=False)
        epilog = _epilog(declared.examples)
        added = alone.command(
            words[-1], cls=ShellCommand, short_help=declared.summary, epilog=epilog
        )
        added(make())
        return typer.main.get_command(alone)

    _LATER[words] = build


_LATER: dict[tuple[str, ...], Callable[[], Any]] = {}
"""Makers of commands that import much, by their words."""


def built_command(words: tuple[str, ...], command: Any) -> Any:
    """The command of these words with its options, in place of its placeholder."""
    built = _LATER[words]() if words in _LATER else command
    name_types_on_request(built)
    name_values(built)
    built.help = joined_lines(built.help or "")
    return built


def joined_lines(text: str) -> str:
    r"""A docstring with a line for each paragraph, so that help is folded to the terminal alone.

    Lines of a list, and indented ones, stay.

    >>> joined_lines("Draw it\nas it is.\n\n- one\n- two")
    'Draw it as it is.\n\n- one\n- two'
    """
    paragraphs = []
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        is_kept = any(line.startswith(("- ", " ")) for line in paragraph.split("\n"))
        paragraphs.append(paragraph if is_kept else paragraph.replace("\n", " "))
    return "\n\n".join(paragraphs)


def all_commands() -> dict[tuple[str, ...], Any]:
    """The commands with their options by their words, in the order of `--help`."""
    top: Any = typer.main.get_command(app)
    groups = {name: row for name, row in top.commands.items() if isinstance(row, TyperGroup)}
    rows = {(name,): row for name, row in top.commands.items() if name not in groups}
    rows |= {
        (name, member): row
        for name, group in groups.items()
        for member, row in group.commands.items()
    }
    return {words: built_command(words, row) for words, row in rows.items()}


def _epilog(examples: Sequence[str]) -> str:
    title = "For example:" if len(examples) == 1 else "Examples:"
    # a blank line between them: what stands in one paragraph is folded into one line
    return "\n\n".join([title, *(f"  {example}" for example in examples)])


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        import headscope

        print_text(f"headscope {headscope.__version__}")
        raise typer.Exit
