"""The command, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def headscope(*arguments: object, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run `headscope` with these words; its exit code and all that it printed."""
    command = [sys.executable, "-c", "from headscope.cli import main; main()"]
    environment = os.environ | {"NO_COLOR": "1", "COLUMNS": "100"}
    return subprocess.run(
        [*command, *map(str, arguments)],
        capture_output=True, text=True, timeout=300, cwd=cwd, env=environment, check=False,
    )  # fmt: skip
