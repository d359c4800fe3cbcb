"""`make kill`: runs of `mini` killed at random points end with the bytes of one that is not.

The command writes its checkpoint after every batch, so that most kills leave one behind.
"""

from __future__ import annotations

import argparse
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.helpers.run_folders import content

CODE = (
    "from headscope.runs import checkpoint; checkpoint.EVERY = 0; "
    "from headscope.cli import main; main()"
)
OPTIONS = ("--max-tokens", "6000", "--quiet", "--keep-sums")
KILLS_AT_MOST = 3
"""Kills of one run, before it may end."""


def command(out: Path) -> list[str]:
    """The command of one run, the same each time."""
    return [sys.executable, "-c", CODE, "classify", "mini", *OPTIONS, "--out", str(out)]


def run_until(out: Path, seconds: float | None) -> bool:
    """Run the command, and kill it after so many seconds. True if it was killed."""
    process = subprocess.Popen(
        command(out), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    try:
        _, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return True
    if process.returncode:
        raise SystemExit(f"the command ended with {process.returncode}: {errors[-2000:]}")
    return False


def main() -> None:
    """Kill some runs, and compare each with the whole run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("times", nargs="?", type=int, default=10, help="runs that are killed")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    draw = random.Random(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder) / "whole"
        start = time.monotonic()
        run_until(whole, None)
        duration = time.monotonic() - start
        for number in range(options.times):
            out = Path(folder) / f"killed-{number}"
            kills = []
            for _ in range(KILLS_AT_MOST):
                seconds = draw.uniform(0, duration)
                if not run_until(out, seconds):
                    break
                kills.append(f"{seconds:.1f} s")
            else:
                run_until(out, None)
            if content(out) != content(whole):
                raise SystemExit(f"run {number}, killed after {', '.join(kills)}: other bytes")
            print(f"run {number}: killed after {', '.join(kills) or 'nothing'}; the same bytes")


if __name__ == "__main__":
    main()
