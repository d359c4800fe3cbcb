"""Ablating every head one by one, in units of as many untouched runs over the same rows, in turns.

    python benchmarks/ablation.py [MODEL]

The untouched run predicts the same tokens. An ablation reuses the residual stream below its head's
layer, so that about half of the layers run again.
"""

from __future__ import annotations

import sys
import time

import numpy as np
from side_by_side import save

from headscope.models.intervention import ablated
from headscope.models.load import load_model
from headscope.models.rerun import Rerunner
from headscope.stimuli.repeat import repeat_windows
from headscope.studies.ablate_texts import repeats

ROWS, LENGTH = 2, 128


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "mini"
    model = load_model(name, device="cpu")
    rerunner, heads = Rerunner(model), model.layers * model.heads
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = repeat_windows(vocabulary, model.tokenizer, max_length=LENGTH, seed=0)[:ROWS]
    rows = repeats(windows, ["induction"]).rows

    seconds = {"untouched": 0.0, "one by one": 0.0}
    clean = rerunner.clean(rows)
    for layer, head in np.ndindex(model.layers, model.heads):
        start = time.perf_counter()
        rerunner.clean(rows)
        between = time.perf_counter()
        rerunner.scores(clean, ablated("mean", clean, {layer: [int(head)]}))
        seconds["untouched"] += between - start
        seconds["one by one"] += time.perf_counter() - between
    found = {
        f"{heads} heads one by one ÷ {heads} untouched runs": round(
            seconds["one by one"] / seconds["untouched"], 3
        ),
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "model": name.rsplit("/", 1)[-1],
    }
    save("ablation", found)


if __name__ == "__main__":
    main()
