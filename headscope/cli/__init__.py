"""The command line. A command parses, calls one library function, and prints or writes.

Heavy imports happen inside the commands, so that `headscope --help` answers at once.
"""

from __future__ import annotations

import io
import sys

from headscope.cli.app import app
from headscope.errors import HeadscopeError

# each module adds its commands to the application, in the order of `--help`
from headscope.cli import run  # isort: skip
from headscope.cli import look  # isort: skip
from headscope.cli import compare  # isort: skip
from headscope.cli import weigh  # isort: skip
from headscope.cli import known  # isort: skip
from headscope.cli import anatomy  # isort: skip
from headscope.cli import causes  # isort: skip
from headscope.cli import prune  # isort: skip
from headscope.cli import redundancy  # isort: skip
from headscope.cli import sweep  # isort: skip

__all__ = [
    "anatomy", "app", "causes", "compare", "known", "look", "main", "prune", "redundancy",
    "run", "sweep", "weigh",
]  # fmt: skip


def main() -> None:
    """Run the command line; what a user can put right ends with one message and exit code 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # file names that are not UTF-8, and terminals that are not, must not end in a traceback
            stream.reconfigure(errors="backslashreplace")
    try:
        app()
    except HeadscopeError as error:
        print(f"headscope: {error}", file=sys.stderr)
        sys.exit(2)
