"""A strict reader of HeadVis' data folder, in place of its page, and its numbers by slow loops.

The rules are those of the docstrings of HeadVis' `data_pipeline.py`: whatever a file holds must be
one of theirs, of the right kind, as long as it must be, and sorted.
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
    "induction_score", "logit_std", "top_logit_margin", "logit_z_score", "query_token_entropy", "key_token_entropy",
]  # fmt: skip
HEAD = {
    "sequences",
    "qk_distance_histogram",
    "top_query_tokens",
    "top_key_tokens",
    "histogram",
    "statistics",
}
SEQUENCE = {
    "sequence_id", "interval", "tokens", "attention_indices", "attention_values", "seq_len", "max_activation",
}  # fmt: skip


def read(path: Path) -> Any:
    """JSON without NaN or infinity."""

    def refuse(name: str) -> None:
        raise AssertionError(f"{path.name} holds {name}")

    return json.loads(path.read_text(encoding="utf-8"), parse_constant=refuse)


def check_data(folder: Path) -> dict[str, Any]:
    """Everything in a data folder, or an AssertionError that says what is wrong; its config."""
    config = read(folder / "config.json")
    heads = _config(config)
    names = {f"L{layer}H{head}.json" for layer, head in heads}
    assert {p.name for p in (folder / "heads").iterdir()} == names
    assert [p.name for p in (folder / "umap").iterdir()] == ["sequences.json"]
    assert read(folder / "umap" / "sequences.json") == {}
    for empty in ("attributions/qk", "attributions/ov", "custom_sequences"):
        assert (folder / empty).is_dir()
    assert read(folder / "server_config.json") == {}
    assert read(folder / "attributions" / "manifest.json") == {}
    rows = read(folder / "scatter_data.json")
    assert [(row["layer"], row["head"]) for row in rows] == heads
    for row in rows:
        assert set(row) <= {"layer", "head", *config["metrics"]}
        assert all(_short(value) for value in row.values())
    for name in config["metrics"]:
        assert any(name in row for row in rows), name
    for name in names:
        parse_head(read(folder / "heads" / name))
    return config


def _config(config: dict[str, Any]) -> list[tuple[int, int]]:
    assert set(config) == CONFIG
    heads = [tuple(head) for head in config["heads"]]
    assert heads == sorted(set(heads))
    assert heads
    assert all(0 <= layer < config["n_layers"] for layer, _ in heads)
    assert all(0 <= head < config["n_heads"] for _, head in heads)
    assert isinstance(config["model_name"], str)
    assert "/" not in config["model_name"][:1]
    assert config["n_intervals"] == 10
    assert config["head_data_pattern"] == "L{layer}H{head}.json"
    assert config["has_umap"] is bool(config["umap_heads"])
    assert {tuple(head) for head in config["umap_heads"]} <= set(heads)
    own = [metric for metric in config["metrics"] if metric in METRICS]
    assert own == [metric for metric in METRICS if metric in own]
    assert {"prev_token_score", "induction_score", "pattern_entropy"} <= set(own)
    assert list(config["metric_descriptions"]) == config["metrics"]
    assert all(config["metric_descriptions"].values())
    assert {plot["key"] for plot in config["custom_plots"]} <= HEAD
    assert {table["key"] for table in config["custom_tables"]} <= HEAD
    for shown in config["statistics_display"].values():
        assert set(shown) == {"label", "format"}
    return heads


def parse_head(head: dict[str, Any]) -> None:
    """One file of `heads/`."""
    assert set(head) == HEAD
    ids = [each["sequence_id"] for each in head["sequences"]]
    assert len(set(ids)) == len(ids)
    order = [(-each["interval"], -each["max_activation"]) for each in head["sequences"]]
    assert order == sorted(order)
    assert max(Counter(each["interval"] for each in head["sequences"]).values()) <= 20
    for each in head["sequences"]:
        check_sequence(each)
    for name in ("qk_distance_histogram", "histogram"):
        edges, counts = head[name]["bin_edges"], head[name]["bin_values"]
        assert set(head[name]) == {"bin_edges", "bin_values"}
        assert len(counts) == len(edges) - 1
        assert edges == sorted(set(edges))
        assert all(type(count) is int and count >= 0 for count in counts)
    assert sum(head["histogram"]["bin_values"]) == head["statistics"]["n_samples"]
    for name in ("top_query_tokens", "top_key_tokens"):
        weights = [row["weight"] for row in head[name]]
        assert all(set(row) == {"token", "weight"} for row in head[name])
        assert weights == sorted(weights, reverse=True)
        assert all(_short(weight) and 0 <= weight <= 1 for weight in weights)
        assert len({row["token"] for row in head[name]}) == len(weights)
    assert all(_short(value) for value in head["statistics"].values())


def check_sequence(each: dict[str, Any]) -> None:
    """One sequence of a head's file."""
    assert set(each) == SEQUENCE
    size, indices, values = each["seq_len"], each["attention_indices"], each["attention_values"]
    assert type(each["sequence_id"]) is int
    assert each["interval"] in range(1, 11)
    assert len(each["tokens"]) == size
    assert all(isinstance(token, str) and token and token.isprintable() for token in each["tokens"])
    assert len(indices) == len(values)
    assert all(type(index) is int and 0 <= index < size * size for index in indices)
    assert indices == sorted(set(indices))
    assert all(_short(value) and 0.005 <= value <= 1.0001 for value in values)
    rows = Counter(index // size for index in indices)
    assert max(rows.values()) <= 8
    inner = [
        value
        for index, value in zip(indices, values, strict=True)
        if index // size and index % size and index // size != index % size
    ]
    # what the page takes as the largest: without row 0, column 0 and the diagonal
    if each["max_activation"] >= 0.006:
        assert each["max_activation"] == max(inner)
    assert _short(each["max_activation"])


def _short(value: Any) -> bool:
    """A finite number of at most four decimals."""
    return type(value) in (int, float) and math.isfinite(value) and round(value, 4) == value


def slow_metrics(
    patterns: Sequence[Sequence[Sequence[float]]],
    scores: Sequence[Sequence[Sequence[float]]],
    texts: Sequence[Sequence[int]],
) -> dict[str, float]:
    """The eleven metrics of one head in plain Python.

    Args:
        patterns: of each sequence, a row per query.
        scores: before the softmax, of the keys that each query sees.
        texts: the numbers of each sequence's tokens.
    """
    own, before, entropy, follow, spread, margin, z = ([] for _ in range(7))
    weights, far, queries, keys = [], [], [], []
    for rows, products, tokens in zip(patterns, scores, texts, strict=True):
        for q, row in enumerate(rows):
            own.append(row[q])
            if q:
                before.append(row[q - 1])
            entropy.append(-sum(p * math.log(p) for p in row if p > 0))
            places = [j for j in range(q) if tokens[j] == tokens[q]]
            if places:
                follow.append(sum(row[j + 1] for j in places if row[j + 1] >= 0.01))
            weights += [*row]
            far += [abs(q - k) for k in range(len(row))]
            if len(products[q]) > 1:
                seen = sorted(products[q], reverse=True)
                mean = sum(seen) / len(seen)
                deviation = math.sqrt(sum((s - mean) ** 2 for s in seen) / len(seen))
                spread.append(deviation)
                margin.append(seen[0] - seen[1])
                if deviation > 1e-4:
                    z.append((seen[0] - mean) / deviation)
            beyond = [(row[k], -k) for k in range(1, len(row))]
            if q and max(beyond)[0] >= 0.1:
                queries.append(tokens[q])
                keys.append(tokens[-max(beyond)[1]])
    mass = sum(weights)
    distance = sum(w * d for w, d in zip(weights, far, strict=True)) / mass
    square = sum(w * (d - distance) ** 2 for w, d in zip(weights, far, strict=True)) / mass
    found = [_mean(own), _mean(before), _mean(entropy), distance, square, _mean(follow)]
    found += [_mean(spread), _mean(margin), _mean(z), _tokens(queries), _tokens(keys)]
    named = dict(zip(METRICS, found, strict=True))
    return {name: value for name, value in named.items() if value is not None}


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _tokens(tokens: Sequence[int]) -> float | None:
    if len(tokens) < 50:
        return None
    counts = Counter(tokens).values()
    return -sum(n / len(tokens) * math.log(n / len(tokens)) for n in counts)
