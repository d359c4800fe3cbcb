"""The files of HeadVis' `data` folder as plain values, and as the bytes of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.printing import visible
from headscope.runs.folder import encoded
from headscope.runs.listing import Head
from headscope.studies.headvis.cells import SparseCells, distance_histogram, edges, token_table

INTERVALS, PER_INTERVAL = 10, 20
"""Stretches of sequences by how strongly a head attends, and how many of each are shown at most."""
BINS = 20
"""Of the histogram of a head's maxima."""
TABLES = {
    "top_query_tokens": "Tokens that look (share of its attention beyond the first token)",
    "top_key_tokens": "Tokens that are looked at (share of its attention beyond the first token)",
}
STATISTICS = {
    "mean_max_activation": "Mean max activation",
    "n_samples": "Sequences read",
    "n_tokens": "Tokens read",
}


def json_bytes(value: Any) -> bytes:
    """JSON without spaces, as UTF-8; a number that is none is an error of the program."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return encoded(text + "\n")


def rounded(values: Any) -> Any:
    """Four decimals, from double precision: those of single precision have more when written.

    >>> rounded(np.float32(0.1235)), rounded([-0.00001, 2])
    (0.1235, [0.0, 2.0])
    """
    exact = np.round(np.asarray(values, np.float64), 4)
    return (exact + 0.0).tolist()  # −0 becomes 0


def visible_tokens(window: Window) -> list[str]:
    """A window's tokens as they are shown: with their spaces, line ends and odd marks visible."""
    return [visible(string) for string in window.strings]


def intervals(largest: Float[ndarray, " sequence"]) -> Int[ndarray, " sequence"]:
    """The stretch of each sequence: 1 for the weakest tenth, 10 for the strongest.

    Sequences of one strength are in the order in which they were read.

    >>> intervals(np.array([0.3, 0.9, 0.1, 0.5, 0.7])).tolist()
    [4, 10, 2, 6, 8]
    """
    count = len(largest)
    rank = np.empty(count, np.int64)
    rank[np.argsort(largest, kind="stable")] = np.arange(count)
    interval: Int[ndarray, " sequence"] = -(-(rank + 1) * INTERVALS // count)
    return interval


def sample_sequences(
    largest: Float[ndarray, " sequence"], rng: np.random.Generator, per_interval: int
) -> list[tuple[int, int]]:
    """Sequences with their stretch, at most so many of each, the strongest first.

    Which of a stretch are taken is drawn without replacement, each as likely as any other, as a
    reservoir does.
    """
    stretch = intervals(largest)
    sequences: list[int] = []
    for number in range(INTERVALS, 0, -1):
        members = np.flatnonzero(stretch == number)
        sample = (
            rng.choice(members, min(per_interval, len(members)), replace=False)
            if len(members)
            else members
        )
        sequences += sorted(sample.tolist(), key=lambda i: (-largest[i], i))
    return [(i, int(stretch[i])) for i in sequences]


def head_file(
    windows: Sequence[Window],
    largest: Float[ndarray, " window"],
    sample: Sequence[tuple[int, int]],
    cells_of: Mapping[int, SparseCells],
) -> dict[str, Any]:
    """`heads/L{layer}H{head}.json`.

    Args:
        windows: all that were read.
        largest: the head's largest attention in each.
        sample: the numbers of those that are shown, with their stretch.
        cells_of: the head's cells in each of these.
    """
    tokens_of = {number: visible_tokens(windows[number]) for number, _ in sample}
    cells = [(cells_of[number], tokens_of[number]) for number in tokens_of]
    sequences = [
        {
            "sequence_id": number,
            "interval": stretch,
            "tokens": tokens_of[number],
            "attention_indices": cells_of[number].index.tolist(),
            "attention_values": rounded(cells_of[number].value),
            "seq_len": len(windows[number]),
            "max_activation": rounded(largest[number]),
        }
        for number, stretch in sample
    ]
    counts, bins = np.histogram(np.clip(largest, 0, 1), BINS, (0, 1))
    statistics = {
        "mean_max_activation": rounded(largest.mean()),
        "n_samples": len(windows),
        "n_tokens": sum(map(len, windows)),
    }
    distances = edges(max(map(len, windows)))
    return {
        "sequences": sequences,
        "qk_distance_histogram": distance_histogram(
            [(cells, len(tokens)) for cells, tokens in cells], distances
        ),
        "top_query_tokens": token_table(cells, keys=False),
        "top_key_tokens": token_table(cells, keys=True),
        "histogram": {"bin_edges": rounded(bins), "bin_values": counts.tolist()},
        "statistics": statistics,
    }


def config_file(
    *,
    name: str,
    heads: Sequence[Head],
    shape: tuple[int, int],
    tooltips: Mapping[str, str],
    source: Mapping[str, Any],
) -> dict[str, Any]:
    """`config.json`, which HeadVis reads first.

    Args:
        name: what the model is called.
        heads: those that are written.
        shape: the model's layers, and heads of each.
        tooltips: each metric with the words of its tooltip.
        source: what was read and how, by which Neuronpedia's loaders tell exports apart.
    """
    return {
        "model_name": name,
        **source,
        "heads": [list(head) for head in heads],
        "n_layers": shape[0],
        "n_heads": shape[1],
        "n_intervals": INTERVALS,
        "metrics": list(tooltips),
        "metric_descriptions": dict(tooltips),
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": False,
        "umap_heads": [],
        "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"}],
        "custom_tables": [{"key": key, "label": label} for key, label in TABLES.items()],
        "statistics_display": {
            key: {"label": label, "format": "default"} for key, label in STATISTICS.items()
        },
    }
