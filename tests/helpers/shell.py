"""The command line within this process, as a shell would run it."""

from __future__ import annotations

import io
import math
import os
import subprocess
import sys
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from unittest.mock import patch

from headscope import cli, progress


def headscope(
    *arguments: object,
    cwd: Path | None = None,
    long_seconds: float = math.inf,
    columns: int = 100,
) -> subprocess.CompletedProcess[str]:
    """Run `headscope` with these words; its exit code and all that it printed.

    By default no cost is announced, which depends on the machine.
    """
    words = ["headscope", *map(str, arguments)]
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)
    )
    code: object = None
    with (
        chdir(cwd or Path.cwd()),
        patch.object(sys, "argv", words),
        patch.object(progress, "LONG_SECONDS", long_seconds),
        patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": str(columns)}),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as end:
            code = end.code
    said, errors = (stream.buffer.getvalue().decode("utf-8", "replace") for stream in (out, err))  # type: ignore[attr-defined]
    return subprocess.CompletedProcess(words, int(str(code or 0)), said, errors)
