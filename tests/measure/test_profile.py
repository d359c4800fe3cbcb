"""The columns that describe a head's pattern, beside the same from a model's own attention."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.corpus.text import read_text
from headscope.measure.profile import describe
from headscope.measure.reading import sum_cells
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.models import eager_attention

WINDOWS = 4


@pytest.fixture(scope="module", params=["fused", "lens"])
def both(request, gpt2_folder):
    """The table, and of each window every layer's attention by transformers' eager code."""
    model = load_model(str(gpt2_folder), engine=request.param)
    corpus = data_folder() / "corpora" / "gold.conllu"
    text = TextWindows([corpus], model.tokenizer, max_tokens=2_000, max_length=96, seed=0)
    windows = list(text)[:WINDOWS]
    tally = sum_cells(model, windows, [], relations_of(["sink"]), seed=0, batch_tokens=200)
    table = describe(tally.profile, range(model.layers))
    return table, eager_attention(gpt2_folder, windows)


def mean(patterns, of_row) -> np.ndarray:
    """Mean of each head over all queries but the first token's."""
    rows = [of_row(own[..., i, : i + 1]) for own in patterns for i in range(1, own.shape[-1])]
    return np.mean(rows, axis=0).ravel()


def test_entropy_distance_and_first_token_are_means_over_queries(both):
    table, patterns = both
    expected = {
        "entropy": mean(patterns, lambda row: -(row * np.log(row)).sum(-1)),
        "mean_distance": mean(patterns, lambda row: (row * np.arange(row.shape[-1])[::-1]).sum(-1)),
        "first_token_mass": mean(patterns, lambda row: row[..., 0]),
    }
    for name, values in expected.items():
        np.testing.assert_allclose(table[name], values, rtol=1e-4, err_msg=name)


def test_variability_is_how_far_windows_are_from_their_mean(both):
    table, patterns = both
    corners = np.stack([own[..., :10, 1:10] for own in patterns])
    apart = np.abs(corners - corners.mean(0)).sum((0, -2, -1))
    expected = apart / (2 * corners.sum((0, -2, -1)))
    assert (expected > 0).all()
    np.testing.assert_allclose(table["variability"], expected.ravel(), rtol=1e-4)


def even_over(q: int, first: int) -> np.ndarray:
    """A row of attention that is even over the keys from `first` to the query."""
    row = np.zeros(LONG)
    row[first : q + 1] = 1 / (q + 1 - first)
    return row


def one_key(key: int) -> np.ndarray:
    return np.eye(LONG)[key]


def rarely_spread(q: int) -> np.ndarray:
    """Attention on the first token alone, of two queries nearly alone."""
    elsewhere = 4e-5 if q in (70, 80) else 0
    return elsewhere * even_over(q, 1) + (1 - elsewhere) * one_key(0)


LONG, SENTENCE = 97, 48
ROW_OF_SHAPE = {
    "diagonal": lambda q: one_key(max(q - 3, 0)),
    "vertical": lambda q: one_key(5 if q > 5 else 0),
    "block": lambda q: even_over(q, 1 + (q - 1) // SENTENCE * SENTENCE),
    "horizontal": lambda q: even_over(q, 1),
    "mixed": lambda q: (one_key((q + 2) // 3) + one_key((q + 1) // 2)) / 2,
}
"""Rows of hand-made heads."""


def test_hand_made_heads_have_the_shape_that_they_were_made_with():
    rows = [*ROW_OF_SHAPE.values(), rarely_spread]
    patterns = np.stack([[one_key(0), *map(row, range(1, LONG))] for row in rows])
    text = " ".join(["a"] * (SENTENCE - 1) + ["."])
    document = read_text("t", f"{text} {text}")
    tokens = ["<bos>", *document.text.split()]
    run = hs.score_patterns(patterns[None], document, tokens, types=["positional"])
    assert run.heads["shape"].tolist() == [*ROW_OF_SHAPE, "horizontal"]
