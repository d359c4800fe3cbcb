"""Numbers of an export: those of loops over transformers' own attention."""

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
from headscope.models.load import load_model
from headscope.stimuli.text import TextWindows
from headscope.studies.headvis import row_numbers
from headscope.studies.headvis_file import sample_sequences
from tests.helpers import headvis as slow


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


def test_twenty_of_each_tenth_are_drawn_each_as_likely():
    largest = np.linspace(0, 1, 400)
    picks = [sample_sequences(largest, np.random.default_rng(seed), 20) for seed in range(300)]
    assert all(Counter(s for _, s in pick) == dict.fromkeys(range(1, 11), 20) for pick in picks)
    counts = Counter(number for pick in picks for number, _ in pick)
    assert set(counts) == set(range(400))  # half of forty, 300 times
    assert 110 < min(counts.values()) < max(counts.values()) < 190
