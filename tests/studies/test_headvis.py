"""HeadVis' folder: its contract, and numbers of loops over transformers' attention."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.headvis import row_numbers
from tests.helpers import encoders
from tests.studies import headvis_data as slow
from tests.studies.headvis_data import check_data, read

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


def test_short_text_is_refused_or_noted(run_folder, tmp_path, texts):
    out = tmp_path / "data"
    (tmp_path / "short.txt").write_text("a")
    with pytest.raises(HeadscopeError, match=r"short\.txt: no sequence of 3 tokens"):
        hs.headvis(run_folder, out, corpus=tmp_path / "short.txt")
    assert not out.exists()
    assert len(hs.headvis(run_folder, out, corpus=texts / "00.txt", **FEW).notes) == 1


@pytest.fixture(scope="module")
def windows(gpt2_folder, texts):
    """The text of the export."""
    encoder = load_model(str(gpt2_folder)).tokenizer
    how = {"max_tokens": 60 * 64, "max_length": 64, "seed": 0}
    return [w for w in TextWindows([texts], encoder, **how) if len(w) > 2][:60]


@pytest.fixture(scope="module")
def patterns(gpt2_folder, windows) -> dict[tuple[int, int], list[torch.Tensor]]:
    """Patterns of transformers by head."""
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    found: dict[tuple[int, int], list[torch.Tensor]] = {}
    with torch.inference_mode():
        for window in windows:
            output = network(torch.from_numpy(window.tokens)[None], output_attentions=True)
            for layer, attention in enumerate(output.attentions):
                for head in range(4):
                    found.setdefault((layer, head), []).append(attention[0, head].double())
    return found


def file_of(export: hs.StudyResult, layer: int, head: int):
    return slow.read(Path(export.values["folder"]) / "heads" / f"L{layer}H{head}.json")


def test_the_metrics_are_those_of_plain_loops(export, patterns, windows):
    texts = [w.tokens.tolist() for w in windows]
    assert export.values["sequences"] == len(windows) > 20
    rows = export.table.set_index(["layer", "head"])
    for head, own in patterns.items():
        for name, value in slow.slow_metrics([p.tolist() for p in own], texts).items():
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


def test_rows_in_tiles_have_the_numbers_of_whole_patterns():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 9, 9, generator=generator) * 3
    scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).log_softmax(-1)
    tokens = torch.tensor([0, 1, 2, 1, 2, 3, 1, 1, 2])
    whole = row_numbers(scores, tokens, 0)
    parts = [row_numbers(scores[:, a:b, :b], tokens, a) for a, b in ((0, 1), (1, 4), (4, 9))]
    for name, expected in whole.items():
        joined = torch.cat([part[name] for part in parts], 1)
        torch.testing.assert_close(joined, expected, equal_nan=True)
    assert torch.isnan(whole["prev_token_score"][:, 0]).all()
