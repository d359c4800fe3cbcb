"""Long windows: whole rows where hits are asked, single cells elsewhere, and the same sums."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.window import Window
from headscope.measure.reading import sum_cells
from headscope.measure.tally import Tally
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.pairs import Pairs, pairs
from headscope.relations.query_sampling import ROWS, row_queries
from tests.helpers.models import eager_attention, save_model

LENGTHS = (700, 130, 1000)


@hs.relation("made", "rare")
def rare(window: Window) -> Pairs:
    """every 25th query, the eight tokens before: few enough to be asked everywhere"""
    query = np.arange(25, len(window), 25)
    return pairs(np.repeat(query, 8), np.repeat(query, 8) - np.tile(np.arange(1, 9), len(query)))


RELATIONS = [*relations_of(["sink", "positional", "delimiter", "induction"]), rare]


def made_up(length: int) -> Window:
    tokens = np.random.default_rng(length).integers(1, 250, length)
    return Window(f"w{length}", tokens, tuple("a.b"[t % 3] for t in tokens.tolist()))


WINDOWS = [made_up(length) for length in LENGTHS]


@pytest.fixture(scope="module", params=["gpt2", "llama"])
def folder(request, tokenizer, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    return save_model(request.param, tokenizer, place, context=1024)


@pytest.fixture(scope="module")
def attentions(folder) -> list[np.ndarray]:
    return eager_attention(folder, WINDOWS)


def tally_of(folder, engine: str, batch_tokens: int) -> Tally:
    model = load_model(str(folder), engine=engine, device="cpu")
    assert model.engine.name == engine
    return sum_cells(model, WINDOWS, [], RELATIONS, seed=0, batch_tokens=batch_tokens)


@pytest.mark.parametrize(
    ("engine", "batch_tokens"), [("lens", 1), ("fused", 1), ("fused", 4 * max(LENGTHS))]
)
def test_masses_of_long_windows_equal_a_slow_loop_over_eager_attention(
    engine, batch_tokens, folder, attentions
):
    tally = tally_of(folder, engine, batch_tokens)
    at = [relation.id for relation in RELATIONS].index
    every = 0.0
    for window, pattern in zip(WINDOWS, attentions, strict=True):
        for q in range(25, len(window), 25):
            every = every + pattern[:, :, q, q - 8 : q].sum(-1)
    assert np.allclose(tally.target[:, at(rare.id)].sum(0), every, atol=1e-4)
    assert tally.queries[:, at(rare.id)].sum() == sum((n - 1) // 25 for n in LENGTHS)
    first, count = 0.0, 0
    for window, pattern in zip(WINDOWS, attentions, strict=True):
        rows = [q for q in row_queries(window).tolist() if q > 1]  # 1 has no other key
        first = first + pattern[:, :, rows, 0].sum(-1)
        count += len(rows)
    assert count == 2 * ROWS + 128
    assert tally.queries[:, at("sink/first-token")].sum() == count
    assert np.allclose(tally.target[:, at("sink/first-token")].sum(0), first, atol=1e-4)


def test_hits_of_long_windows_are_those_of_the_rows_that_are_read(folder, attentions):
    tally = tally_of(folder, "fused", 1)
    at = [relation.id for relation in RELATIONS].index("made/rare")
    expected = 0.0
    for window, pattern in zip(WINDOWS, attentions, strict=True):
        queries = np.arange(25, len(window), 25)
        asked = [q for q in queries.tolist() if q in set(row_queries(window).tolist())]
        assert asked
        own = pattern[:, :, asked].copy()
        own[..., 0] = -1
        back = np.array(asked) - own.argmax(-1)
        best = (back >= 1) & (back <= 8)
        expected = expected + best.sum(-1) * len(queries) / len(asked)
    # no layer of random weights rests on a column
    assert tally.target[:, 1].sum() == 0
    assert np.allclose(tally.hits[:, at].sum(0), expected, atol=1e-4)
    assert expected.sum() > 0
