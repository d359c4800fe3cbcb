"""A long run of mini: memory must stay flat, and nothing may be left behind.

    python benchmarks/soak.py [TOKENS]

Reads copies of the synthetic corpora. Memory is sampled four times a second, and the run is cut
into tenths by its tokens: from the second on, none may reach more than 2 % above the second. (The
null model's batches are kept, which fills memory over the first 65,000 tokens: 700,000 are the
least that can pass.) No file may be open afterwards that was not before, and no file left but the
run folder.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import threading
import time
from pathlib import Path

import headscope as hs
from headscope.corpus.shipped import synthetic_corpora

TOKENS = 2_000_000
TOKENS_OF_A_COPY = 40_000
"""The synthetic corpora have more."""
ALLOWED = 0.02
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    tokens = int(sys.argv[1]) if len(sys.argv) > 1 else TOKENS
    with tempfile.TemporaryDirectory() as folder:
        scratch, out = Path(folder) / "scratch", Path(folder) / "runs" / "mini"
        scratch.mkdir()
        tempfile.tempdir = str(scratch)  # where a forgotten temporary file would lie
        corpus = copies(Path(folder) / "corpus", tokens)
        # what is loaded, and cached by torch, once and for all
        hs.classify("mini", corpus, max_tokens=2_000, out=Path(folder) / "first")
        files, cached = open_files(), set(scratch.iterdir())
        memory = Memory()
        started = time.perf_counter()
        with memory:
            hs.classify("mini", corpus, max_tokens=tokens, out=out, progress=memory.at)
        seconds = time.perf_counter() - started
        there = {*scratch.iterdir(), *out.parent.iterdir()} - cached - {out}
        left = sorted(path.name for path in there)
        opened = sorted(open_files() - files)
    tenths = memory.tenths()
    growth = max(tenths[1:]) / tenths[1] - 1
    print(f"{tokens:,} tokens in {seconds:,.0f} s, {len(memory.samples):,} samples")
    print("MB at most in each tenth:", *(f"{mb:.1f}" for mb in tenths))
    print(f"at most {growth:.2%} above the second tenth")
    print(f"at the most, through judging, examples and report: {memory.peak():.1f} MB")
    print(f"files left open: {opened or 'none'}; files left: {left or 'none'}")
    if growth > ALLOWED or opened or left:
        raise SystemExit(f"not flat to {ALLOWED:.0%}, or something is left")


def copies(folder: Path, tokens: int) -> Path:
    """A folder of as many copies of the synthetic corpora as the tokens need."""
    folder.mkdir()
    for number in range(tokens // TOKENS_OF_A_COPY + 1):
        for path in synthetic_corpora():
            shutil.copy(path, folder / f"{number:04}_{path.name}")
    return folder


def open_files() -> set[str]:
    """What this process has open, by what it is."""
    return {str(p.readlink()) for p in Path("/proc/self/fd").iterdir() if os.path.lexists(p)}


class Memory:
    """Samples of this process' resident memory, each with the tokens that are done."""

    def __init__(self) -> None:
        self.samples: list[tuple[int, float]] = []
        self._done, self._total, self._end = 0, 1, threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def at(self, done: int, total: int) -> None:
        """The run's progress."""
        self._done, self._total = done, total

    def tenths(self) -> list[float]:
        """The most memory in each tenth of the run's tokens, the model's and the null model's."""
        most = [0.0] * 10
        for done, mb in self.samples:
            if done < self._total:
                most[10 * done // self._total] = max(most[10 * done // self._total], mb)
        return most

    def peak(self) -> float:
        """The most of all, while nothing more is read too."""
        return max(mb for _, mb in self.samples)

    def _sample(self) -> None:
        statm = Path("/proc/self/statm")
        while not self._end.wait(0.25):
            self.samples.append((self._done, int(statm.read_text().split()[1]) * PAGE_MB))


if __name__ == "__main__":
    main()
