"""How the cost grows: with tokens, with layers × heads, with the number of relations.

    python benchmarks/scaling.py CORPUS …

Sizes are measured in turns; the exponent is the slope of log seconds on log size.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from forward import RELATIONS, classify
from side_by_side import alternate, corpora, gpt2_shape, save, scratch, text_windows

from headscope.measure.batch_reader import measure
from headscope.models.load import load_model
from headscope.models.stream import BATCH_TOKENS


def main() -> None:
    mini = load_model("mini", device="cpu")
    windows = text_windows(mini, corpora(), tokens=32_000, length=256)
    rows = {"exponent of tokens": exponent(
        {count: partial(classify, mini, windows[:count])
         for count in (len(windows) // 8, len(windows) // 4, len(windows) // 2, len(windows))}
    )}  # fmt: skip
    some = windows[: len(windows) // 4]
    parts = {len(RELATIONS) // k: RELATIONS[::k] for k in (8, 4, 2, 1)}
    rows["exponent of relations"] = exponent(
        {count: partial(measure, mini, some, [], part, seed=0, batch_tokens=BATCH_TOKENS)
         for count, part in parts.items()}
    )  # fmt: skip
    with scratch() as folder:
        models = {
            layers * 6: load_model(
                gpt2_shape(f"{folder}/{layers}", layers=layers, heads=6, width=384), device="cpu"
            )
            for layers in (3, 6, 12, 24)
        }
        rows["exponent of layers × heads"] = exponent(
            {size: partial(classify, model, some) for size, model in models.items()}
        )
    save("scaling", rows)


def exponent(work: dict[int, Callable[[], object]]) -> float:
    seconds = alternate(3, **{str(size): run for size, run in work.items()})
    return slope(list(work), [statistics.median(seconds[str(size)]) for size in work])


def slope(sizes: Sequence[int], seconds: Sequence[float]) -> float:
    return round(float(np.polyfit(np.log(sizes), np.log(seconds), 1)[0]), 3)


if __name__ == "__main__":
    main()
