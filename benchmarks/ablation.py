"""Silencing every head one by one, in units of as many untouched runs over the same rows.

    python benchmarks/ablation.py [MODEL]

The untouched run predicts the same tokens. An ablation reuses the residual stream below its head's
layer, so that about half of the layers run again.
"""

from __future__ import annotations

import sys

import numpy as np
import torch
from side_by_side import alternate, ratio, save

from headscope.corpus.plan import plan_repeats
from headscope.interventions.rerun import Rerunner, Rows, silence
from headscope.interventions.stimulus import repeats
from headscope.models import load_model

ROWS, LENGTH = 8, 128


def main() -> None:
    name = sys.argv[1] if len(sys.argv) > 1 else "mini"
    model = load_model(name, device="cpu")
    rerunner, heads = Rerunner(model), model.layers * model.heads
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    windows = plan_repeats(vocabulary, model.tokenizer, max_length=LENGTH, seed=0)[:ROWS]
    read = repeats(windows)
    rows = Rows(*map(torch.from_numpy, (read.tokens, read.lengths, read.row, read.position)))

    def untouched() -> None:
        for _ in range(heads):
            rerunner.clean(rows)

    def one_by_one() -> None:
        clean = rerunner.clean(rows)
        for layer, head in np.ndindex(model.layers, model.heads):
            rerunner.edited(clean, {layer: silence("mean", clean, layer, [int(head)], 1)})

    seconds = alternate(1, untouched=untouched, one_by_one=one_by_one)
    rows_found = {
        f"{heads} heads one by one ÷ {heads} untouched runs": ratio(
            seconds, "one_by_one", "untouched"
        ),
        "seconds": {each: round(times[0], 1) for each, times in seconds.items()},
        "model": name,
    }
    save("ablation", rows_found)


if __name__ == "__main__":
    main()
