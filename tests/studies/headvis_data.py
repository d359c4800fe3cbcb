"""A strict reader of HeadVis' data folder, in place of its page, and metrics by slow loops.

The rules are those of the docstrings of HeadVis' `data_pipeline.py`.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

CONFIG = {
    "model_name", "dataset_name", "n_sequences", "seq_len", "dtype", "attn_implementation", "heads", "n_layers", "n_heads", "n_intervals", "metrics", "metric_descriptions",
    "head_data_pattern", "has_umap", "umap_heads", "custom_plots", "custom_tables", "statistics_display",
}  # fmt: skip
METRICS = [
    "self_attention_score", "prev_token_score", "pattern_entropy", "qk_distance", "qk_distance_variance",
    "induction_score",
]  # fmt: skip
HEAD = {
    "sequences", "qk_distance_histogram", "top_query_tokens", "top_key_tokens", "histogram", "statistics",
}  # fmt: skip
SEQUENCE = {
    "sequence_id", "interval", "tokens", "attention_indices", "attention_values", "seq_len", "max_activation",
}  # fmt: skip


def read(path: Path) -> Any:
    """JSON without NaN or infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{path.name} holds {name}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def check_data(folder: Path) -> dict[str, Any]:
    """Check a whole data folder; its config."""
    config = read(folder / "config.json")
    assert set(config) == CONFIG
    heads = [tuple(head) for head in config["heads"]]
    assert heads == sorted(set(heads)) != []
    assert all(0 <= layer < config["n_layers"] for layer, _ in heads)
    assert all(0 <= head < config["n_heads"] for _, head in heads)
    assert config["n_intervals"] == 10
    assert config["head_data_pattern"] == "L{layer}H{head}.json"
    assert config["has_umap"] is False
    assert config["metrics"] == [name for name in METRICS if name in config["metrics"]]
    assert list(config["metric_descriptions"]) == config["metrics"]
    assert {each["key"] for each in config["custom_plots"] + config["custom_tables"]} <= HEAD
    assert {p.name for p in (folder / "heads").iterdir()} == {f"L{i}H{j}.json" for i, j in heads}
    for empty in ("umap/sequences.json", "server_config.json", "attributions/manifest.json"):
        assert read(folder / empty) == {}
    for empty in ("attributions/qk", "attributions/ov", "custom_sequences"):
        assert (folder / empty).is_dir()
    rows = read(folder / "scatter_data.json")
    assert [(row["layer"], row["head"]) for row in rows] == heads
    for row in rows:
        assert set(row) == {"layer", "head", *config["metrics"]}
        assert all(_short(value) for value in row.values())
    for path in (folder / "heads").iterdir():
        parse_head(read(path))
    return config


def parse_head(head: dict[str, Any]) -> None:
    """One file of `heads/`."""
    assert set(head) == HEAD
    sequences = head["sequences"]
    assert len({each["sequence_id"] for each in sequences}) == len(sequences)
    order = [(-each["interval"], -each["max_activation"]) for each in sequences]
    assert order == sorted(order)
    assert max(Counter(each["interval"] for each in sequences).values()) <= 20
    for each in sequences:
        check_sequence(each)
    for name in ("qk_distance_histogram", "histogram"):
        edges, counts = head[name]["bin_edges"], head[name]["bin_values"]
        assert len(counts) == len(edges) - 1
        assert edges == sorted(set(edges))
        assert all(type(count) is int and count >= 0 for count in counts)
    assert sum(head["histogram"]["bin_values"]) == head["statistics"]["n_samples"]
    for name in ("top_query_tokens", "top_key_tokens"):
        weights = [row["weight"] for row in head[name]]
        assert weights == sorted(weights, reverse=True)
        assert all(_short(weight) and 0 <= weight <= 1 for weight in weights)
        assert len({row["token"] for row in head[name]}) == len(weights)


def check_sequence(each: dict[str, Any]) -> None:
    """One sequence of a head's file."""
    assert set(each) == SEQUENCE
    size, indices, values = each["seq_len"], each["attention_indices"], each["attention_values"]
    assert each["interval"] in range(1, 11)
    assert len(each["tokens"]) == size
    assert all(isinstance(token, str) and token and token.isprintable() for token in each["tokens"])
    assert len(indices) == len(values)
    assert all(type(index) is int and 0 <= index < size * size for index in indices)
    assert indices == sorted(set(indices))
    assert all(_short(value) and 0.005 <= value <= 1.0001 for value in values)
    assert max(Counter(index // size for index in indices).values()) <= 8
    # what the page takes as the largest: without row 0, column 0 and the diagonal
    inner = [
        value
        for index, value in zip(indices, values, strict=True)
        if index // size and index % size and index // size != index % size
    ]
    if each["max_activation"] >= 0.006:
        assert each["max_activation"] == max(inner)
    assert _short(each["max_activation"])


def _short(value: Any) -> bool:
    """A finite number of at most four decimals."""
    return type(value) in (int, float) and math.isfinite(value) and round(value, 4) == value


def slow_metrics(
    patterns: Sequence[Sequence[Sequence[float]]], texts: Sequence[Sequence[int]]
) -> dict[str, float]:
    """The metrics of one head in plain Python, of a pattern and token ids for each sequence."""
    diagonal, before, entropy, follow, weights, far = ([] for _ in range(6))
    for rows, tokens in zip(patterns, texts, strict=True):
        for q, row in enumerate(rows):
            diagonal.append(row[q])
            if q:
                before.append(row[q - 1])
            entropy.append(-sum(p * math.log(p) for p in row if p > 0))
            places = [j for j in range(q) if tokens[j] == tokens[q]]
            if places:
                follow.append(sum(row[j + 1] for j in places if row[j + 1] >= 0.01))
            weights += [*row]
            far += [abs(q - k) for k in range(len(row))]
    mass = sum(weights)
    distance = sum(w * d for w, d in zip(weights, far, strict=True)) / mass
    square = sum(w * (d - distance) ** 2 for w, d in zip(weights, far, strict=True)) / mass
    means = [sum(values) / len(values) for values in (diagonal, before, entropy, follow)]
    return dict(zip(METRICS, [*means[:3], distance, square, means[3]], strict=True))
