"""The files of HeadVis' `data` folder as plain values, and as the bytes of JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.visible import visible
from headscope.corpus.window import Window
from headscope.runs.folder import encoded
from headscope.runs.listing import Head
from headscope.studies.headvis.cells import Cells, distance_histogram, edges, token_table
from headscope.studies.headvis.deciles import INTERVALS
from headscope.studies.headvis.pca import Rotation, principal_axes
from headscope.studies.headvis.scan import Points
from headscope.studies.headvis.vectors import Vectors

BINS = 20
"""Of the histogram of a head's maxima."""
FEWEST_POINTS = 4
"""Points of a cloud: through three there is always a plane."""
TABLES = {
    "top_query_tokens": "Tokens that look (share of its attention beyond the first token)",
    "top_key_tokens": "Tokens that are looked at (share of its attention beyond the first token)",
}
STATISTICS = {
    "mean_max_activation": "Mean max activation",
    "n_samples": "Sequences read",
    "n_tokens": "Tokens read",
}


class Drawn(NamedTuple):
    """Sequences of one head that were drawn: their numbers with their stretch, and their cells."""

    sequences: Sequence[tuple[int, int]]
    cells: Mapping[int, Cells]


class Cloud(NamedTuple):
    """A head's cloud of points as its file, and what brings other vectors onto its axes."""

    points: dict[str, Any]
    rotation: dict[str, Any]


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


def shown(window: Window) -> list[str]:
    """A window's tokens as they are shown: with their spaces, line ends and odd marks visible."""
    return [visible(string) for string in window.strings]


def head_file(
    windows: Sequence[Window], largest: Float[ndarray, " window"], drawn: Drawn
) -> dict[str, Any]:
    """`heads/L{layer}H{head}.json`.

    Args:
        windows: all that were read.
        largest: the head's largest attention in each.
        drawn: those of them that are shown.
    """
    named = {number: shown(windows[number]) for number, _ in drawn.sequences}
    own = [(drawn.cells[number], named[number]) for number in named]
    sequences = [
        {
            "sequence_id": number,
            "interval": stretch,
            "tokens": named[number],
            "attention_indices": drawn.cells[number].index.tolist(),
            "attention_values": rounded(drawn.cells[number].value),
            "seq_len": len(windows[number]),
            "max_activation": rounded(largest[number]),
        }
        for number, stretch in drawn.sequences
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
            [(cells, len(tokens)) for cells, tokens in own], distances
        ),
        "top_query_tokens": token_table(own, keys=False),
        "top_key_tokens": token_table(own, keys=True),
        "histogram": {"bin_edges": rounded(bins), "bin_values": counts.tolist()},
        "statistics": statistics,
    }


def cloud_file(points: Points, vectors: Vectors) -> Cloud:
    """`umap/L{layer}H{head}.json`, principal components only, and `umap/pca/L{layer}H{head}.json`.

    Args:
        points: `FEWEST_POINTS` or more.
        vectors: at these.
    """
    rotations = {letter: principal_axes(vectors[letter]) for letter in "QKOV"}
    placed = {letter: rotation.of(vectors[letter]) for letter, rotation in rotations.items()}
    return Cloud(
        {
            "seq_idx": points.window.tolist(),
            "top_q": points.query.tolist(),
            "top_k": points.key.tolist(),
            "norms": rounded(torch.linalg.vector_norm(vectors["Q"].double(), dim=1)),
            "pca": {
                letter: {f"d{axis}": rounded(column) for axis, column in enumerate(own.T)}
                for letter, own in placed.items()
            },
            "clusters": [],
        },
        {letter: _rotation(each) for letter, each in rotations.items()},
    )


def config_file(
    *,
    name: str,
    heads: Sequence[Head],
    shape: tuple[int, int],
    told: Mapping[str, str],
    clouds: Sequence[Head],
) -> dict[str, Any]:
    """`config.json`, which HeadVis reads first.

    Args:
        name: what the model is called.
        heads: those that are written.
        shape: the model's layers, and heads of each.
        told: each metric with the words of its tooltip.
        clouds: the heads with a cloud.
    """
    return {
        "model_name": name,
        "heads": [list(head) for head in heads],
        "n_layers": shape[0],
        "n_heads": shape[1],
        "n_intervals": INTERVALS,
        "metrics": list(told),
        "metric_descriptions": dict(told),
        "head_data_pattern": "L{layer}H{head}.json",
        "has_umap": bool(clouds),
        "umap_heads": [list(head) for head in clouds],
        "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"}],
        "custom_tables": [{"key": key, "label": label} for key, label in TABLES.items()],
        "statistics_display": {
            key: {"label": label, "format": "default"} for key, label in STATISTICS.items()
        },
    }


def _rotation(rotation: Rotation) -> dict[str, Any]:
    """With more decimals than places have: errors of axes add up over their width."""
    return {
        "mean": np.round(rotation.mean.numpy(), 6).tolist(),
        "components": np.round(rotation.axes.numpy(), 6).tolist(),
    }
