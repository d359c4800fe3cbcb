"""The eleven metrics, the maxima and the cells, beside slow loops over another library's attention."""

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
from headscope.studies.headvis.cells import distance_histogram, strongest_cells, top_pairs
from headscope.studies.headvis.row_metrics import METRICS, MetricSums, row_numbers
from headscope.studies.headvis.written import intervals, sample_sequences
from tests.helpers import headvis as slow
from tests.oracles.planted import D_HEAD, HEADS, PER_LAYER, save_planted
from tests.oracles.words import BOS, UNKNOWN

WORDS = 90


@pytest.fixture(scope="module")
def windows(gpt2_folder, texts):
    """What the export reads."""
    encoder = load_model(str(gpt2_folder)).tokenizer
    how = {"max_tokens": 60 * 64, "max_length": 64, "seed": 0}
    return [w for w in TextWindows([texts], encoder, **how) if len(w) > 2][:60]


@pytest.fixture(scope="module")
def own(gpt2_folder, windows):
    """By head: patterns, scores of the keys that are seen, and Q, K, V, as transformers has them."""
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    seen: dict[int, torch.Tensor] = {}
    for layer, block in enumerate(network.transformer.h):
        block.attn.c_attn.register_forward_hook(
            lambda _, __, out, layer=layer: seen.update({layer: out[0]})
        )
    patterns, parts = {}, {}
    with torch.inference_mode():
        for window in windows:
            found = network(torch.from_numpy(window.tokens)[None], output_attentions=True)
            for layer, attention in enumerate(found.attentions):
                q, k, v = (x.view(len(window), 4, 8).double() for x in seen[layer].chunk(3, -1))
                for head in range(4):
                    patterns.setdefault((layer, head), []).append(attention[0, head].double())
                    each = q[:, head], k[:, head], v[:, head]
                    parts.setdefault((layer, head), []).append(each)
    return patterns, parts


def scores(q, k):
    products = (q @ k.T / 8**0.5).tolist()
    return [row[: i + 1] for i, row in enumerate(products)]


def rows_of(export):
    return {
        (row["layer"], row["head"]): row
        for row in slow.read(Path(export.values["folder"]) / "scatter_data.json")
    }


def test_the_metrics_are_those_of_plain_loops(export, own, windows):
    patterns, parts = own
    rows, texts = rows_of(export), [w.tokens.tolist() for w in windows]
    assert export.values["sequences"] == len(windows) > 20
    assert len(rows) == 8
    for head, found in rows.items():
        products = [scores(q, k) for q, k, _ in parts[head]]
        expected = slow.slow_metrics([p.tolist() for p in patterns[head]], products, texts)
        assert set(expected) == set(METRICS) & set(found)
        for name, value in expected.items():
            assert found[name] == pytest.approx(value, abs=2e-4, rel=1e-4), (head, name)
    assert set(METRICS) <= set.union(*map(set, rows.values()))


def test_sequences_are_dealt_by_their_largest_attention_into_tenths(export, own, windows):
    for head, patterns in own[0].items():
        file = slow.read(Path(export.values["folder"]) / "heads" / f"L{head[0]}H{head[1]}.json")
        largest = [
            max(float(p[q, k]) for q in range(1, len(p)) for k in range(1, len(p)) if q != k)
            for p in patterns
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
        sizes = Counter(each["interval"] for each in file["sequences"])
        assert sizes == Counter(tenth.values())
        assert file["statistics"]["mean_max_activation"] == pytest.approx(
            np.mean(largest), abs=1e-4
        )
        counts, _ = np.histogram(largest, 20, (0, 1))
        assert np.abs(np.cumsum(counts - file["histogram"]["bin_values"])).max() <= 1


def test_the_kept_cells_are_the_largest_eight_of_a_row(export, own):
    head = (1, 2)
    file = slow.read(Path(export.values["folder"]) / "heads" / "L1H2.json")
    for each in file["sequences"]:
        pattern, size = own[0][head][each["sequence_id"]], each["seq_len"]
        kept = dict(zip(each["attention_indices"], each["attention_values"], strict=True))
        for query in range(size):
            row = sorted(pattern[query].tolist(), reverse=True)[:8]
            found = [kept[i] for i in range(query * size, query * size + size) if i in kept]
            expected = [value for value in row if value >= 0.005]
            assert sorted(found, reverse=True) == pytest.approx(expected, abs=1e-4)
        for index, value in kept.items():
            assert value == pytest.approx(float(pattern[index // size, index % size]), abs=1e-4)


def test_tables_and_distances_are_counted_from_the_kept_cells(export):
    file = slow.read(Path(export.values["folder"]) / "heads" / "L0H1.json")
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


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    """A model built by hand, each of whose heads is known, on words that come twice or thrice."""
    home, rng = tmp_path_factory.mktemp("planted"), np.random.default_rng(0)
    words = [f"w{i}" for i in range(WORDS)]
    save_planted("gpt2", [BOS, UNKNOWN, *words], home / "model")
    network = AutoModelForCausalLM.from_pretrained(home / "model")
    for layer in network.transformer.h:  # sharper scores differ between kernels by rounding
        for part in (layer.attn.c_attn.weight, layer.attn.c_attn.bias):
            part.data[..., : PER_LAYER * D_HEAD] *= 0.5
    network.save_pretrained(home / "model")
    (home / "text").mkdir()
    for number in range(12):
        order = rng.permutation(words).tolist()
        (home / "text" / f"{number}.txt").write_text(" ".join((order * 3)[: 140 + number]))
    how = {"max_tokens": 2_000, "types": ["positional"], "twin": False}
    run = hs.classify(home / "model", home / "text", **how)
    found = hs.headvis(run, home / "data")
    slow.check_data(home / "data")
    places: Counter[int] = Counter()
    named = {}
    for head in HEADS:
        named[head.name] = (head.layer, places[head.layer])
        places[head.layer] += 1
    rows = found.table.set_index(["layer", "head"])
    return found, {name: rows.loc[place] for name, place in named.items()}, named


def test_heads_that_are_known_have_the_metrics_that_they_must_have(planted):
    found, row, named = planted
    assert row["previous token"]["prev_token_score"] > 0.95
    assert row["current token"]["self_attention_score"] > 0.95
    assert row["two back"]["prev_token_score"] < 0.05
    best = found.table.set_index(["layer", "head"])["induction_score"]
    assert best.idxmax() == named["induction"]
    # of words that came before alone: each attends to what followed them there
    assert best.max() > 0.9
    assert row["two back"]["qk_distance"] == pytest.approx(2, abs=0.1)
    assert row["two back"]["qk_distance_variance"] < 1


def test_even_attention_has_the_closed_forms_and_no_z(planted):
    found, row, named = planted
    uniform = row["uniform"]
    layer, head = named["uniform"]
    lengths = [141 + number for number in range(12)]
    queries = [q for length in lengths for q in range(length)]
    assert found.values["tokens"] == len(queries)
    assert uniform["pattern_entropy"] == pytest.approx(np.mean(np.log1p(queries)), abs=1e-3)
    own = np.mean([1 / (q + 1) for q in queries])
    assert uniform["self_attention_score"] == pytest.approx(own, abs=1e-4)
    assert uniform["logit_std"] < 1e-3
    assert math.isnan(uniform["logit_z_score"])
    (written,) = [
        each
        for each in slow.read(Path(found.values["folder"]) / "scatter_data.json")
        if (each["layer"], each["head"]) == (layer, head)
    ]
    assert "logit_z_score" not in written


def test_neither_the_diagonal_nor_the_first_token_counts_as_the_largest_attention(planted):
    found, _, named = planted
    for name, most in (("current token", 0.05), ("first token", 0.05)):
        layer, head = named[name]
        file = slow.read(Path(found.values["folder"]) / "heads" / f"L{layer}H{head}.json")
        assert max(each["max_activation"] for each in file["sequences"]) < most
        values = [value for each in file["sequences"] for value in each["attention_values"]]
        assert max(values) > 0.95
    layer, head = named["previous token"]
    file = slow.read(Path(found.values["folder"]) / "heads" / f"L{layer}H{head}.json")
    assert min(each["max_activation"] for each in file["sequences"]) > 0.95
    assert file["qk_distance_histogram"]["bin_values"][1] > 0.95 * sum(
        file["qk_distance_histogram"]["bin_values"]
    )


def test_a_head_that_looks_at_the_first_token_alone_has_no_strong_pairs(planted):
    found, _, named = planted
    layer, head = named["first token"]
    histogram = slow.read(Path(found.values["folder"]) / "heads" / f"L{layer}H{head}.json")
    assert sum(histogram["qk_distance_histogram"]["bin_values"]) < 4


def test_rows_in_tiles_show_what_whole_patterns_show():
    generator = torch.Generator().manual_seed(0)
    scores = torch.randn(2, 9, 9, generator=generator) * 3
    scores = scores.masked_fill(torch.ones(9, 9).triu(1).bool(), -torch.inf).log_softmax(-1)
    tokens = torch.tensor([0, 1, 2, 1, 2, 3, 1, 1, 2])
    whole = row_numbers(scores, tokens, 0)
    parts = [row_numbers(scores[:, a:b, :b], tokens, a) for a, b in ((0, 1), (1, 4), (4, 9))]
    for name, expected in whole._asdict().items():
        joined = torch.cat([getattr(part, name) for part in parts], 1).double()
        torch.testing.assert_close(joined, expected.double(), equal_nan=True)
    assert torch.isnan(whole.previous[:, 0]).all()
    assert torch.isnan(whole.margin[:, 0]).all()
    assert (whole.largest[:, :2] <= 0).all()  # a query has a key between only from the third on
    assert (whole.largest[:, 2:] > 0).all()


@pytest.mark.parametrize(("strong", "known"), [(49, False), (50, True)])
def test_an_entropy_over_tokens_asks_for_fifty_queries(strong, known):
    attention = torch.full((1, 61, 61), 1e-3)
    attention[0, 1 : 1 + strong, 1] = 0.5
    sums, kinds = MetricSums(1, 10), np.arange(61) % 10
    sums.add(slice(0, 1), row_numbers(attention.log(), torch.from_numpy(kinds), 0), kinds, 0)
    found = sums.metrics(0)
    assert ("query_token_entropy" in found) == ("key_token_entropy" in found) == known
    if known:
        assert found["query_token_entropy"] == pytest.approx(math.log(10))
        assert found["key_token_entropy"] == 0


def test_a_key_that_is_not_seen_is_in_no_mean_of_the_scores():
    """A window of two keys: each query has its own key and the one before."""
    scores = torch.full((1, 3, 3), -torch.inf)
    scores[0, 0, 0] = 0.0
    scores[0, 1, :2] = torch.tensor([0.8, 0.2]).log()
    scores[0, 2, 1:] = torch.tensor([0.9, 0.1]).log()
    found = row_numbers(scores, torch.tensor([5, 6, 6]), 0)
    gap = math.log(9)
    assert float(found.margin[0, 2]) == pytest.approx(gap, rel=1e-5)
    assert float(found.spread[0, 2]) == pytest.approx(gap / 2, rel=1e-5)
    assert float(found.z[0, 2]) == pytest.approx(1, rel=1e-5)
    # the token before the last is the same, so that what follows it is the query itself
    assert float(found.induction[0, 2]) == pytest.approx(0.1, rel=1e-5)


@pytest.mark.parametrize("count", [1, 7, 10, 33, 500])
def test_tenths_are_equal_but_for_one_and_rise_with_the_attention(count):
    largest = np.random.default_rng(count).random(count).round(2)
    found = intervals(largest)
    sizes = np.bincount(found, minlength=11)[1:]
    assert sizes.max() - sizes.min() <= 1
    assert found[largest == largest.max()].max() == 10
    for low, high in ((1, 2), (5, 6), (9, 10)):
        if sizes[low - 1] and sizes[high - 1]:
            assert largest[found == low].max() <= largest[found == high].min()


def test_twenty_of_each_tenth_are_drawn_each_as_likely():
    largest = np.linspace(0, 1, 400)
    picks = [sample_sequences(largest, np.random.default_rng(seed), 20) for seed in range(300)]
    assert all(Counter(s for _, s in pick) == dict.fromkeys(range(1, 11), 20) for pick in picks)
    counts = Counter(number for pick in picks for number, _ in pick)
    assert set(counts) == set(range(400))  # half of forty, 300 times
    assert 110 < min(counts.values()) < max(counts.values()) < 190
    assert sample_sequences(largest, np.random.default_rng(1), 20) == picks[1] != picks[2]


def test_of_equally_strong_keys_the_first_is_the_pair_s():
    attention = torch.zeros(4, 4)
    attention[1, 1], attention[2, [0, 1, 2]] = 1.0, torch.tensor([0.4, 0.3, 0.3])
    attention[3, 0], attention[3, 3] = 0.91, 0.09
    cells = strongest_cells(attention, 0, 4)
    assert top_pairs(cells, 4).tolist() == [[1, 1], [2, 1]]
    assert distance_histogram([(cells, 4)], [0, 1, 2, 4])["bin_values"] == [1, 1, 0]
    found = row_numbers(attention.log()[None], torch.arange(4), 0)
    strong = found.best[0] >= 0.1
    assert [(q, int(found.key[0, q])) for q in range(4) if strong[q]] == [(1, 1), (2, 1)]
