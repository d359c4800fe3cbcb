"""Runs of the command line that are killed with SIGKILL at random moments and started again.

python -m tests.kill.kill [KILLS]
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from headscope.runs.folder import CHECKPOINT
from tests.helpers.report import data_of

CODE = "from headscope.runs import checkpoint; checkpoint.EVERY = 0; from headscope.cli import main; main()"
COMMAND = (sys.executable, "-c", CODE)
"""The command line, which writes a run's state after every batch."""


def arguments(corpus: Path, out: Path, *, tokens: int) -> list[str]:
    """A short run of mini."""
    return [
        "classify", "mini", "--corpus", str(corpus), "--types", "positional,induction,delimiter",
        "--max-tokens", str(tokens), "--out", str(out),
    ]  # fmt: skip


def start(words: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"NO_COLOR": "1", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def finish(words: list[str]) -> str:
    """Run to the end; what it said."""
    process = start(words)
    _, said = process.communicate()
    if process.returncode:
        raise RuntimeError(said)
    return said


def content(run: Path) -> dict[str, bytes]:
    """Every file of a run folder, without times and the way from this folder to its model."""
    files = {
        str(path.relative_to(run)): path.read_bytes()
        for path in sorted(run.rglob("*"))
        if path.is_file()
    }
    # the page's data are compressed, and hold times too
    page, data = files["report.html"], data_of(run / "report.html").encode()
    files["report.html"] = re.sub(rb'(?<=id="data">)[^<]+', lambda match: data, page)
    info = json.loads(files["run.json"])
    times = info["provenance"]
    places = json.dumps(info.get("places"), indent=1).replace("\n", "\n ")
    files["run.json"] = files["run.json"].replace(places.encode(), b"where")
    for name in ("run.json", "report.html"):
        for value in (times["time"], times.get("seconds", {}), times.get("sha256")):
            # as run.json spells it, one fact a line, and as the page does
            for indent, separators in ((1, None), (None, (",", ":"))):
                text = json.dumps(value, indent=indent, separators=separators)
                text = text.replace("\n", "\n  ") if indent else text
                files[name] = files[name].replace(text.encode(), b"when")
    return files


def main() -> None:
    kills = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    rng = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder) / "text.txt"
        corpus.write_text("Alice was very tired. She looked at the old keys again. " * 2000)
        runs = Path(folder) / "runs"
        words = arguments(corpus, runs / "whole", tokens=12_000)
        began = time.perf_counter()
        finish(words)
        seconds = time.perf_counter() - began
        whole = content(runs / "whole")
        print(f"undisturbed: {seconds:.1f} s")
        done, runs_done = 0, 0
        while done < kills:
            out = runs / f"killed{runs_done}"
            done += killed_until_done(arguments(corpus, out, tokens=12_000), rng, seconds)
            runs_done += 1
            compare(whole, content(out))
            left = sorted(p.name for p in runs.iterdir() if p.name.startswith("."))
            if left:
                raise SystemExit(f"left behind: {left}")
        print(f"{done} kills in {runs_done} runs; every file as of the undisturbed run")


def killed_until_done(words: list[str], rng: random.Random, seconds: float) -> int:
    """Kill a run at random moments until it is complete; how often it was killed."""
    out, kills = Path(words[words.index("--out") + 1]), 0
    while True:
        process = start(words)
        moment = rng.uniform(0, seconds)
        try:
            _, said = process.communicate(timeout=moment)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            kills += 1
            print(f"killed after {moment:5.1f} s; {kept(out)}", flush=True)
            if complete(out):
                return kills
            continue
        if process.returncode:
            raise SystemExit(f"exit code {process.returncode}: {said}")
        print(f"ended within {moment:.1f} s", flush=True)
        return kills


def state_of(out: Path) -> Path:
    return out.parent / f".{out.name}.partial" / CHECKPOINT


def complete(out: Path) -> bool:
    """True if a run was finished: its process was only killed as it ended."""
    return out.exists() and not state_of(out).exists()


def kept(out: Path) -> str:
    """Progress of a run in words, by the state next to its folder."""
    path = state_of(out)
    if not path.is_file():
        return "the run is complete" if complete(out) else "nothing is kept yet"
    with np.load(path) as arrays:
        passes = json.loads(arrays["facts"].tobytes())["passes"]
    return ", ".join(f"{p['batches']} batches of the {name}" for name, p in passes.items())


def compare(one: dict[str, bytes], other: dict[str, bytes]) -> None:
    """Stop at the first file that is not the same."""
    if one.keys() != other.keys():
        raise SystemExit(f"other files: {sorted(one.keys() ^ other.keys())}")
    for name in one:
        if one[name] != other[name]:
            raise SystemExit(f"{name} is not as in the undisturbed run")


if __name__ == "__main__":
    main()
