"""The application that commands join, each in its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer
from typer.core import TyperGroup

from headscope.cli.terminal import say, warn
from headscope.cli.termination import stop_code
from headscope.errors import HeadscopeError


class _Commands(TyperGroup):
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
    cls=_Commands,
    help="What does each attention head of a pretrained transformer do, and how sure are we?",
    epilog="Start here:\n\nheadscope classify mini\n\nheadscope why runs/mini L5H1",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
)

_Command = TypeVar("_Command", bound=Callable[..., None])


def command(group: str, *examples: str) -> Callable[[_Command], _Command]:
    """Add a command to its group; its help ends with the examples, which are complete lines."""
    title = "For example:" if len(examples) == 1 else "Examples:"
    # a blank line between them: what stands in one paragraph is folded into one line
    epilog = "\n\n".join([title, *(f"  {example}" for example in examples)])
    return app.command(rich_help_panel=group, epilog=epilog)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version and stop.")] = False,
) -> None:
    if version:
        import headscope

        say(f"headscope {headscope.__version__}")
        raise typer.Exit
