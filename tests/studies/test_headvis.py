"""HeadVis' folder: its contract, and numbers of loops over transformers' attention."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows
from tests.helpers import encoders
from tests.helpers.models import eager_attention

# a strict reader in place of the page: the rules of the docstrings of HeadVis' `data_pipeline.py`
CONFIG = set(
    (
        "model_name dataset_name n_sequences seq_len dtype attn_implementation heads n_layers "
        "n_heads n_intervals metrics metric_descriptions head_data_pattern has_umap "
        "umap_heads custom_plots custom_tables statistics_display"
    ).split()
)
METRICS = [
    "self_attention_score",
    "prev_token_score",
    "pattern_entropy",
    "qk_distance",
    "qk_distance_variance",
    "induction_score",
]
HEAD = {
    "sequences",
    "qk_distance_histogram",
    "top_query_tokens",
    "top_key_tokens",
    "histogram",
    "statistics",
}
SEQUENCE = set(
    (
        "sequence_id interval tokens attention_indices attention_values seq_len max_activation"
    ).split()
)


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
    for empty in ("server_config.json", "attributions/manifest.json"):
        assert read(folder / empty) == {}
    # nothing that neither Neuronpedia's loaders read nor its own script writes
    names = {path.relative_to(folder).parts[0] for path in folder.rglob("*")}
    assert names == {
        *("config.json", "scatter_data.json", "server_config.json", "heads", "attributions")
    }
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


ODD = "naïve 日本 😀 <b>&amp;</b> \u202ebidi\u202c\ttab 'quoted' \"twice\" {brace} \\n ½ "


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> Path:
    """Twelve documents, each of its own length."""
    folder, rng = tmp_path_factory.mktemp("texts"), np.random.default_rng(0)
    words = "Alice told them that she was in the house and the old keys were very tired".split()
    for number in range(12):
        text = " ".join(rng.choice(words, 20 + 25 * (number % 5))) + "."
        (folder / f"{number:02d}.txt").write_text(ODD * (number == 3) + text, encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def run_folder(gpt2_folder, texts, tmp_path_factory) -> Path:
    """A run of a small model on them."""
    out = tmp_path_factory.mktemp("runs") / "run"
    types = ["positional", "induction", "lexical"]
    hs.classify(gpt2_folder, texts, out=out, max_tokens=3_000, types=types)
    return out


@pytest.fixture(scope="module")
def export(run_folder, tmp_path_factory) -> hs.StudyResult:
    """All heads on up to 60 sequences of up to 64 tokens."""
    out = tmp_path_factory.mktemp("out") / "data"
    return hs.headvis(run_folder, out, sequences=60, max_length=64)


FEW = {"sequences": 30, "max_length": 48}


def test_the_folder_holds_what_headvis_asks_and_nothing_else(export, texts):
    folder = Path(export.values["folder"])
    config = check_data(folder)
    assert config["heads"] == [[layer, head] for layer in range(2) for head in range(4)]
    assert (config["n_layers"], config["n_heads"]) == (2, 4)
    assert config["dataset_name"] == texts.name
    assert config["n_sequences"] == export.values["sequences"]
    assert config["seq_len"] == 64
    assert config["dtype"] == "float32"
    assert config["attn_implementation"] == "headscope fused"


def test_an_encoder_s_heads_look_both_ways(tmp_path):
    folder = tmp_path / "bert"
    encoders.hand_built().save_pretrained(folder)
    encoders.save_tokenizer(encoders.WORDS, folder)
    text = tmp_path / "made.conllu"
    text.write_text(encoders.corpus(12, seed=0), encoding="utf-8")
    run = hs.classify(folder, text, max_tokens=2_000, types=["positional"])
    found = hs.headvis(run, tmp_path / "data")
    check_data(Path(found.values["folder"]))
    rows = found.table.set_index("head")
    assert rows.loc[1, "prev_token_score"] > 0.8
    assert rows.loc[0, "prev_token_score"] < 0.1
    ahead = read(Path(found.values["folder"]) / "heads" / "L0H0.json")
    for each in ahead["sequences"]:
        size = each["seq_len"]
        cells = dict(zip(each["attention_indices"], each["attention_values"], strict=True))
        assert all(cells.get(q * size + q + 1, 0) > 0.8 for q in range(1, size - 2))
        assert each["max_activation"] > 0.8


@pytest.fixture(scope="module")
def windows(gpt2_folder, texts):
    """The text of the export."""
    encoder = load_model(str(gpt2_folder)).tokenizer
    how = {"max_tokens": 60 * 64, "max_length": 64, "seed": 0}
    return [w for w in TextWindows([texts], encoder, **how) if len(w) > 2][:60]


@pytest.fixture(scope="module")
def patterns(gpt2_folder, windows) -> dict[tuple[int, int], list[torch.Tensor]]:
    """Patterns of transformers by head."""
    found: dict[tuple[int, int], list[torch.Tensor]] = {}
    for patterns in eager_attention(gpt2_folder, windows):
        for head in np.ndindex(2, 4):
            found.setdefault(head, []).append(torch.from_numpy(patterns[head]))
    return found


def file_of(export: hs.StudyResult, layer: int, head: int):
    return read(Path(export.values["folder"]) / "heads" / f"L{layer}H{head}.json")


def test_the_metrics_are_those_of_plain_loops(export, patterns, windows):
    texts = [w.tokens.tolist() for w in windows]
    assert export.values["sequences"] == len(windows) > 20
    rows = export.table.set_index(["layer", "head"])
    for head, own in patterns.items():
        for name, value in slow_metrics([p.tolist() for p in own], texts).items():
            assert rows.loc[head, name] == pytest.approx(value, abs=2e-4, rel=1e-4), (head, name)


def test_sequences_are_dealt_by_their_largest_attention_into_tenths(export, patterns, windows):
    for head, own in patterns.items():
        file = file_of(export, *head)
        largest = [
            max(float(p[q, k]) for q in range(1, len(p)) for k in range(1, len(p)) if q != k)
            for p in own
        ]
        order = sorted(range(len(largest)), key=lambda i: largest[i])
        tenth = {number: math.ceil(10 * (i + 1) / len(order)) for i, number in enumerate(order)}
        for each in file["sequences"]:
            number = each["sequence_id"]
            assert each["max_activation"] == pytest.approx(largest[number], abs=1e-4)
            # of those that differ by rounding alone either may come first
            alike = [i for i in tenth if abs(largest[i] - largest[number]) < 1e-5]
            assert each["interval"] in {tenth[i] for i in alike}
            assert each["seq_len"] == len(windows[number])
        assert sorted(each["sequence_id"] for each in file["sequences"]) == list(range(len(order)))
        assert file["statistics"]["mean_max_activation"] == pytest.approx(
            np.mean(largest), abs=1e-4
        )
        counts, _ = np.histogram(largest, 20, (0, 1))
        assert np.abs(np.cumsum(counts - file["histogram"]["bin_values"])).max() <= 1


def test_the_written_cells_are_the_largest_eight_of_a_row(export, patterns):
    for each in file_of(export, 1, 2)["sequences"]:
        pattern, size = patterns[1, 2][each["sequence_id"]], each["seq_len"]
        cells = dict(zip(each["attention_indices"], each["attention_values"], strict=True))
        for query in range(size):
            row = sorted(pattern[query].tolist(), reverse=True)[:8]
            found = [cells[i] for i in range(query * size, query * size + size) if i in cells]
            expected = [value for value in row if value >= 0.005]
            assert sorted(found, reverse=True) == pytest.approx(expected, abs=1e-4)
        for index, value in cells.items():
            assert value == pytest.approx(float(pattern[index // size, index % size]), abs=1e-4)


def test_tables_and_distances_are_counted_from_the_written_cells(export):
    file = file_of(export, 0, 1)
    sums, far = {"query": Counter(), "key": Counter()}, Counter()
    for each in file["sequences"]:
        best = {}
        for index, value in zip(each["attention_indices"], each["attention_values"], strict=True):
            query, key = divmod(index, each["seq_len"])
            if query and key:
                sums["query"][each["tokens"][query]] += value
                sums["key"][each["tokens"][key]] += value
                if value >= 0.1 and value > best.get(query, (0, 0))[0]:
                    best[query] = value, query - key
        far.update(distance for _, distance in best.values())
    for side, counts in sums.items():
        table, total = file[f"top_{side}_tokens"], sum(counts.values())
        assert len(table) == min(50, len(counts))
        for row in table:
            assert row["weight"] == pytest.approx(counts[row["token"]] / total, abs=2e-3)
    histogram = file["qk_distance_histogram"]
    edges = histogram["bin_edges"]
    assert edges == [0, 1, 2, 4, 8, 16, 32, 64]
    expected = [sum(n for d, n in far.items() if low <= d < high) for low, high in pairwise(edges)]
    assert sum(expected) > 50
    # two keys may share a rounded value
    assert np.abs(np.array(expected) - histogram["bin_values"]).sum() <= 4
