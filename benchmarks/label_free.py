"""Do columns that need no label foretell a head's tags?

Of each run: effective ranks of QK and OV (`hs.weights`), participation ratio of the output
and its share on massive dimensions (`hs.writes`), each as a classifier of heads with a
functional tag, and of each primary type. Its score is the area under the ROC curve, compared within
layers only: the share of pairs of a tagged and an untagged head of one layer in which the tagged
one has the larger value, ties half. Its interval is that of 1,000 permutations of the heads of each
layer, so that 0.5 lies in it where a column says nothing.

    python benchmarks/label_free.py RUN… [--out label_free.csv] [--figure label_free.svg]
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

import headscope as hs
from headscope.errors import ModelError

COLUMNS = ("qk_rank", "ov_rank", "participation", "massive_share")
NO_FUNCTION = ("unclassified", "sink", "not identifiable")
DRAWS, FEWEST = 1_000, 5


def main() -> None:
    """Print the table, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", nargs="+")
    parser.add_argument("--out")
    parser.add_argument("--figure")
    options = parser.parse_args()
    table = pd.DataFrame([row for run in options.runs for row in scores(run)])
    print(table.to_string(index=False, float_format=lambda value: f"{value:.2f}"))
    if options.out:
        table.to_csv(options.out, index=False)
    if options.figure:
        draw(table).savefig(options.figure)


def scores(folder: str) -> Iterator[dict[str, Any]]:
    """A row per column and label of a run."""
    run = hs.load(folder)
    heads = run.heads[["layer", "head", "primary"]]
    heads = heads.merge(hs.writes(folder, progress=False).table.drop(columns="primary"))
    try:
        weights = hs.weights(folder, progress=False).table
        heads = heads.merge(weights[["layer", "head", "qk_rank", "ov_rank"]])
    except ModelError as error:
        print(f"{folder}: no ranks: {error}")
    functional = ~heads["primary"].isin(NO_FUNCTION)
    labels = {"any tag": functional} | {
        name: heads["primary"] == name for name in sorted(set(heads.loc[functional, "primary"]))
    }
    for column in COLUMNS:
        if column not in heads or heads[column].isna().all():
            continue
        for label, is_labelled in labels.items():
            if FEWEST <= is_labelled.sum() <= len(heads) - FEWEST:
                area, low, high = within_layers(heads, column, is_labelled.to_numpy())
                yield {
                    "run": run.name,
                    "column": column,
                    "label": label,
                    "heads": int(is_labelled.sum()),
                    "auc": area,
                    "chance_low": low,
                    "chance_high": high,
                    "beyond": not low <= area <= high,
                }


def within_layers(
    heads: pd.DataFrame, column: str, is_labelled: np.ndarray
) -> tuple[float, float, float]:
    """The area under the curve over pairs of one layer, and the central 95 % of permuted ones."""
    value, layer = heads[column].to_numpy(float), heads["layer"].to_numpy()
    rng = np.random.default_rng(0)
    area = _area(value, layer, is_labelled)
    drawn = []
    for _ in range(DRAWS):
        permuted = is_labelled.copy()
        for number in np.unique(layer):
            permuted[layer == number] = rng.permutation(is_labelled[layer == number])
        drawn.append(_area(value, layer, permuted))
    low, high = np.nanquantile(drawn, [0.025, 0.975])
    return area, float(low), float(high)


def _area(value: np.ndarray, layer: np.ndarray, is_labelled: np.ndarray) -> float:
    won = pairs = 0.0
    for number in np.unique(layer):
        inside = (layer == number) & ~np.isnan(value)
        ours, others = value[inside & is_labelled], value[inside & ~is_labelled]
        difference = ours[:, None] - others
        won += (difference > 0).sum() + 0.5 * (difference == 0).sum()
        pairs += difference.size
    return won / pairs if pairs else float("nan")


def draw(table: pd.DataFrame) -> Any:
    """A panel per run: areas as points, what permuted heads give as grey bars."""
    from matplotlib.figure import Figure

    runs = table["run"].unique()
    figure = Figure(figsize=(4 * len(runs), 5), layout="constrained")
    panels = np.atleast_1d(figure.subplots(1, len(runs), squeeze=False)[0])
    for axes, name in zip(panels, runs, strict=True):
        rows = table[table["run"] == name].reset_index(drop=True)
        spread = rows["chance_high"] - rows["chance_low"]
        axes.barh(rows.index, spread, left=rows["chance_low"], color="0.85")
        axes.plot(rows["auc"], rows.index, "o", color="black", clip_on=False)
        axes.axvline(0.5, color="grey", lw=0.6)
        axes.set_yticks(rows.index, rows["column"] + "  " + rows["label"], fontsize=7)
        axes.set_xlim(0, 1)
        axes.set_xlabel("area under the curve, within layers")
        axes.set_title(name, fontsize=9)
    return figure


if __name__ == "__main__":
    main()
