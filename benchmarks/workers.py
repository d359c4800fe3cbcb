"""What a second Ray worker gains: the same run by one worker and by two, in turns.

    python benchmarks/workers.py CORPUS …

Each worker has one thread of torch. Only the measuring is timed: starting Ray and loading the
model are left out, and so are the twin and the examples. The sums are the same bit by bit.
"""

from __future__ import annotations

import statistics

import numpy as np
from side_by_side import corpora, gpt2_shape, save, scratch

from headscope.classification import classify
from headscope.run import Run
from headscope.studies.sweep.shards import Shards

TOKENS, ROUNDS = 4_000, 2


def main() -> None:
    seconds: dict[int, list[float]] = {1: [], 2: []}
    with scratch() as folder:
        name = gpt2_shape(folder)
        for _ in range(ROUNDS):
            runs = {workers: by(workers, name) for workers in seconds}
            for workers, run in runs.items():
                seconds[workers].append(run.info["provenance"]["seconds"]["measure"])
            one, two = (run.tally.arrays() for run in runs.values() if run.tally)
            if not all(np.array_equal(one[array], two[array]) for array in one):
                raise SystemExit("the sums differ")
    gains = [one / two for one, two in zip(*seconds.values(), strict=True)]
    save(
        "workers",
        {"2 workers, times faster": round(statistics.median(gains), 2), "seconds": seconds},
    )


def by(workers: int, name: str) -> Run:
    with Shards(workers) as backend:
        return classify(
            name, corpora(), max_tokens=TOKENS, twin=False, examples=False, device="cpu",
            backend=backend,
        )  # fmt: skip


if __name__ == "__main__":
    main()
