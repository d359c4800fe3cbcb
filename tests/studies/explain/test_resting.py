"""Resting columns become tokens that a rule may ask for, and count as sink where layers rest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

from headscope.attention_kind import CAUSAL
from headscope.corpus.window import Window
from headscope.models.engines.engine import Tile
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.explain.catalogue import Catalogue, QueryTable, find_cells
from headscope.studies.explain.feature import TokenFacts, is_word
from headscope.studies.explain.fit import Term, Texts, term_values
from headscope.studies.explain.judge import explain_layer
from headscope.studies.explain.places import resting
from headscope.studies.explain.softmax import log_rule
from headscope.studies.explain.split_windows import resting_tokens
from tests.helpers.prose import prose_windows


@pytest.fixture(scope="module")
def windows() -> list[Window]:
    return [w for w in prose_windows(9_000) if len(w) > 70][:24]


@pytest.fixture(scope="module")
def token(windows) -> int:
    """A frequent word that most windows have in their first half."""
    lexicon = TokenFacts.of(windows)
    return next(each for each in lexicon.common if is_word(lexicon.strings[each]))


class Engine:
    """Two layers: the late queries of the second rest on columns that are given."""

    name, layers, logarithms = "planted", 2, False
    attention_kind = CAUSAL

    def __init__(self, columns: Callable[[int], int]) -> None:
        self.columns = columns

    def layout(self, windows: int, length: int) -> list[Tile]:
        return []

    def matrices(self) -> list[torch.Tensor]:
        return []

    def run(self, tokens, tiles, on_layer, layers=None, *, on=False) -> None:
        for layer in range(self.layers):
            rows = []
            for tile in tiles:
                size = tile.queries.stop - tile.queries.start
                own = torch.full((1, 3, size, tile.keys), 0.5 / tile.keys)
                own[..., self.columns(tile.windows.start) if layer else 0] += 0.5
                rows.append(own)
            on_layer(layer, iter(rows))


def first(window: Window, token: int) -> int:
    """Where a token is first; token 1 where it is not in the first half."""
    found = np.flatnonzero(window.tokens[: len(window) // 2] == token)
    return int(found[0]) if len(found) and found[0] > 1 else 1


def test_the_token_of_resting_columns_is_found_in_its_layer(windows, token):
    read, model = windows[::2], load_model("mini")

    def tokens(columns: Callable[[int], int]) -> dict[int, frozenset[int]]:
        return resting_tokens(replace(model, engine=Engine(columns)), windows)

    assert tokens(lambda i: first(read[i], token)) == {1: frozenset({token})}
    # a place is no token: what stands at token 1 differs from text to text
    assert tokens(lambda i: 1) == {}
    assert tokens(lambda i: 0) == {}


def test_resting_features_hold_at_every_query_after_their_tokens(windows, token):
    lexicon = replace(TokenFacts.of(windows), resting={1: frozenset({token})})
    window = next(w for w in windows if (w.tokens[1:] == token).sum() > 2)
    keys = [k for k in range(1, len(window)) if window.tokens[k] == token]
    found = {each.feature.name: each for each in resting(window, lexicon)}
    for name, own in (
        ("resting token", keys),
        ("first resting token", keys[:1]),
        ("second resting token", keys[1:2]),
    ):
        expected = [(q, k) for q in range(len(window)) for k in own if k < q]
        cells = zip(found[name].query.tolist(), found[name].key.tolist(), strict=True)
        assert sorted(cells) == expected
    assert list(resting(window, TokenFacts.of(windows))) == []


def test_attention_on_resting_tokens_is_sink_where_the_layer_rests_and_lexical_elsewhere(
    windows, token
):
    tokens = frozenset({token})
    catalogue = Catalogue(
        replace(TokenFacts.of(windows[:12]), resting={3: tokens}), relations_of(["all"])
    )
    rows = QueryTable.of(windows, 2)
    counts = np.bincount(rows.window.numpy())
    packed = find_cells(catalogue, rows)
    texts = Texts(rows, packed, int(counts[:12].sum()), int(counts[:18].sum()))
    names = [each.name for each in packed.features]
    values = term_values(texts, [Term(names.index("first resting token"), -1)])
    head = log_rule(3.0 * values[0], rows.seen).exp()[None]
    for layer, resting_here, kind in ((3, tokens, "sink"), (4, frozenset(), "lexical")):
        (rule,) = explain_layer(texts, layer, head, features=3, resting=resting_here)
        assert rule.explained.value > 0.9
        assert rule.kinds[kind] > 0.9
        assert rule.terms[0].kind == kind
