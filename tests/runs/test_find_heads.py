"""Agreement of heads with a template on one text, against transformers' patterns and slow loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import HeadscopeError

TEXT = "the old keys were in the house and she told them that the old keys were in the house"
SCORES = ["mass", "shifted_mass", "correlation", "shifted_correlation"]


@pytest.fixture(scope="module")
def eager(gpt2_folder):
    """The ids of the text, and transformers' patterns `[layer head query key]`."""
    ids = hs.patterns(gpt2_folder, TEXT).window.tokens.tolist()
    network = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    with torch.no_grad():
        layers = network(torch.tensor([ids]), output_attentions=True).attentions
    return ids, torch.cat(layers).double().numpy()


def targets(name, ids):
    """Cells of a named template, by a slow loop."""
    cells = {}
    for query in range(len(ids)):
        for key in range(1, query):
            hit = {
                "previous": key == query - 1,
                "duplicate": ids[key] == ids[query],
                "induction": ids[key - 1] == ids[query],
            }
            if hit[name]:
                cells[query, key] = 1.0
    return cells


def slow_mass(pattern, cells):
    queries = {query for query, _ in cells}
    return sum(weight * pattern[cell] for cell, weight in cells.items()) / len(queries)


def slow_correlation(pattern, cells):
    seen = [(query, key) for query in range(1, len(pattern)) for key in range(1, query + 1)]
    weights = [cells.get(cell, 0.0) for cell in seen]
    return np.corrcoef([pattern[cell] for cell in seen], weights)[0, 1]


def expected(pattern, cells):
    shifted = []
    for shift in (-4, -3, -2, -1, 1, 2, 3, 4):
        moved = {
            (query, key + shift): weight
            for (query, key), weight in cells.items()
            if 1 <= key + shift <= query
        }
        if moved:
            shifted.append((slow_mass(pattern, moved), slow_correlation(pattern, moved)))
    masses, correlations = zip(*shifted, strict=True)
    own = slow_mass(pattern, cells), slow_correlation(pattern, cells)
    return [own[0], max(masses), own[1], max(correlations)]


@pytest.mark.parametrize("name", ["previous", "duplicate", "induction", "weighted"])
def test_scores_are_those_of_a_slow_loop(name, eager, gpt2_folder):
    ids, patterns = eager
    size = len(ids)
    if name == "weighted":
        weights = np.random.default_rng(0).random((size, size)) * np.tri(size)
        weights[:, 0] = weights[::2] = 0
        cells = {(q, k): weights[q, k] for q, k in np.argwhere(weights).tolist()}
        forms = [weights, torch.tensor(weights, requires_grad=True), lambda tokens: weights]
    else:
        cells, forms = targets(name, ids), [name]
    for form in forms:
        table = hs.find_heads(gpt2_folder, TEXT, form).table
        assert len(table) == 8
        assert table["mass"].is_monotonic_decreasing
        for row in table.itertuples():
            slow = expected(patterns[row.layer, row.head], cells)
            assert np.allclose([getattr(row, score) for score in SCORES], slow, atol=2e-3)


def test_minis_tagged_heads_beat_the_shifted_templates():
    """L4H3 attends to the previous token and L5H3 to the token after the earlier copy."""
    text = "castle river seven old. castle river seven old. castle river seven old."
    for name, head in (("previous", "L4H3"), ("induction", "L5H3")):
        table = hs.find_heads("mini", text, name).table
        assert table.loc[head, "mass"] > 2 * table.loc[head, "shifted_mass"]
        assert table.loc[head, "correlation"] > table.loc[head, "shifted_correlation"] + 0.2


@pytest.mark.parametrize(
    ("template", "word"),
    [
        ("backward", "backward"),
        (np.eye(3), r"\(3, 3\)"),
        (lambda tokens: 2 * np.eye(len(tokens)), "weight"),
        (lambda tokens: np.eye(len(tokens), k=1), "weight"),
        (lambda tokens: None, "shape"),
    ],
)
def test_a_template_that_does_not_fit_is_refused(template, word, gpt2_folder):
    with pytest.raises(HeadscopeError, match=word):
        hs.find_heads(gpt2_folder, TEXT, template)


def test_the_command_prints_the_table_of_the_function(gpt2_folder, command):
    code, out, said = command(
        *("study", "find", gpt2_folder, TEXT, "previous", "--format", "json", "--plain")
    )
    assert code == 0, said
    expected = hs.find_heads(gpt2_folder, TEXT, "previous", plain=True)
    assert out == expected.json()
