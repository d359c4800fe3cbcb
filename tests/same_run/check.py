"""`python -m tests.same_run.check [CASE …]` compares commands with the numbers that are kept.

With `--keep` it keeps what they give now: only when a number is meant to change, and the commit
says why. Processors round differently: on another one than the kept numbers are of, keep those of
an earlier revision in a folder (`--keep --kept FOLDER` in a checkout of it), and compare with that
(`--kept FOLDER`). The cases run one after another in `--work`, on one thread, so that the order of
sums is the same each time; later cases read the run folder `mini` that the first one writes.
"""

from __future__ import annotations

import argparse
import json
import lzma
import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from headscope.models.packaged import PACKAGED
from tests.same_run.cases import CASES, HERE, Case, words_of
from tests.same_run.numbers import Columns, columns_of, differences, unequal_bytes

KEPT = HERE / "kept"
ROOT = HERE.parent.parent


def run_case(case: Case, work: Path) -> Columns:
    """The numbers that a case's commands write.

    Raises:
        RuntimeError: a command fails.
    """
    inputs = work / "inputs"
    inputs.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "NO_COLOR": "1"}
    for command in case.commands:
        words = words_of(command, inputs)
        done = subprocess.run(
            words, cwd=work, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"{command} ended with {done.returncode}: {done.stderr[-2000:]}")
        (work / f"{case.name}.out").write_text(done.stdout, encoding="utf-8")
    return columns_of(work, case.files)


def kept(case: Case, folder: Path = KEPT) -> Columns:
    """The numbers that are kept of a case in a folder."""
    columns = json.loads(lzma.decompress((folder / f"{case.name}.json.xz").read_bytes()))
    return {name: np.array(values) for name, values in columns.items()}


def keep(case: Case, columns: Columns, folder: Path = KEPT) -> None:
    """Write a case's numbers."""
    folder.mkdir(parents=True, exist_ok=True)
    lists = {name: values.tolist() for name, values in columns.items()}
    packed = lzma.compress(json.dumps(lists).encode("utf-8"), preset=9)
    (folder / f"{case.name}.json.xz").write_bytes(packed)


def main(words: Sequence[str] | None = None) -> int:
    """0 if every number is the same."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", choices=[[], *(case.name for case in CASES)])
    parser.add_argument("--keep", action="store_true", help="keep what comes now instead")
    parser.add_argument("--kept", type=Path, default=KEPT, help="the folder of what is kept")
    parser.add_argument("--work", type=Path, help="a folder for what is written")
    options = parser.parse_args(words)
    with tempfile.TemporaryDirectory() as folder:
        wrong = [
            check(case, options.work or Path(folder), options.kept, keeping=options.keep)
            for case in CASES
            if not options.cases or case.name in options.cases
        ]
    return int(any(wrong))


def check(case: Case, work: Path, numbers: Path, *, keeping: bool) -> list[str]:
    """Differences of one case, which are printed too."""
    if case.needs is not None and not PACKAGED[case.needs].path.exists():
        print(f"{case.name}: left out, needs {case.needs} in the cache", flush=True)
        return []
    try:
        columns = run_case(case, work)
    except (RuntimeError, FileNotFoundError) as error:
        print(f"{case.name}: {error}", flush=True)
        return [str(error)]
    if keeping:
        keep(case, columns, numbers)
        print(f"{case.name}: {len(columns)} columns kept", flush=True)
        return []
    expected = kept(case, numbers)
    lines, other = differences(expected, columns), unequal_bytes(expected, columns)
    state = f"{len(lines)} differ" if lines else "the same"
    print(f"{case.name}: {state}" + (f"; other bytes in {len(other)}" if other else ""), flush=True)
    print("".join(f"  {line}\n" for line in lines[:12]), end="", flush=True)
    return lines


if __name__ == "__main__":
    raise SystemExit(main())
