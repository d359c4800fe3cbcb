"""classify beside the loop that one would write, by output_attentions and pandas.

    python benchmarks/plain_loop.py CORPUS …

The loop is given the same pairs, ready found, and means them by relation, layer and head. It has no
controls' weights by query, no hits, no profile and no intervals.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import torch
from forward import RELATIONS, classify
from side_by_side import alternate, bare, corpora, gpt2_shape, ratio, save, scratch, text_windows

from headscope.corpus.window import Window
from headscope.measure.selection import find_all
from headscope.models.load import load_model


def main() -> None:
    with scratch() as folder:
        name = gpt2_shape(folder)
        model, eager = load_model(name, device="cpu"), bare(name, "eager")
        windows = text_windows(model, corpora(), tokens=4_096, length=256)
        found = [list(find_all(window, RELATIONS, 0)) for window in windows]
        seconds = alternate(
            2, headscope=lambda: classify(model, windows), loop=lambda: loop(eager, windows, found)
        )
    save("plain_loop", {"plain loop ÷ headscope": ratio(seconds, "loop", "headscope")})


@torch.inference_mode()
def loop(network: Any, windows: list[Window], found: list[list[Any]]) -> pd.DataFrame:
    tables = []
    for window, relations in zip(windows, found, strict=True):
        out = network(torch.from_numpy(np.array(window.tokens))[None], output_attentions=True)
        for layer, attention in enumerate(out.attentions):
            for index, result in relations:
                for side in (result.targets, result.controls):
                    values = attention[0][:, side.query, side.key].numpy() * side.weight
                    tables.append(
                        pd.DataFrame(
                            {"relation": RELATIONS[index].id, "layer": layer,
                             "head": np.repeat(np.arange(len(values)), values.shape[1]),
                             "side": side is result.targets, "mass": values.ravel()}
                        )
                    )  # fmt: skip
    table = pd.concat(tables)
    return table.groupby(["relation", "layer", "head", "side"])["mass"].sum()


if __name__ == "__main__":
    main()
