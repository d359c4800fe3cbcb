"""Many command lines in one process: `python -P command_lines.py LINES RESULTS`.

It imports nothing of this checkout, so that an environment of its own can run it.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import traceback
from pathlib import Path
from typing import Any


def ended(line: list[str]) -> dict[str, Any]:
    """How a command line ends: its exit code and what it says on stderr."""
    from headscope import cli

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: Any = None
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        sys.argv = ["headscope", *line]
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
        except BaseException:
            code = "traceback"
            traceback.print_exc()
    err.flush()
    said = err.buffer.getvalue().decode("utf-8", "replace")  # type: ignore[attr-defined]
    return {"line": line, "code": code, "said": said}


if __name__ == "__main__":
    lines, results = map(Path, sys.argv[1:])
    done = [ended(line) for line in json.loads(lines.read_text())]
    results.write_text(json.dumps(done))
