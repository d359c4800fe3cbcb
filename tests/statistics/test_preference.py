"""Rates at hard queries from sums that are set by hand."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.statistics.estimates import preference, top_rate
from headscope.statistics.relation_sums import RelationSums

BLOCKS = 10


def sums() -> RelationSums:
    """Ten blocks of six hard queries, two of them in the challenge set."""
    every = np.ones((BLOCKS, 1))
    return RelationSums(
        target=2 * every,
        control=2 * every,
        hits=3 * every,
        chance=np.full(BLOCKS, 2.0),
        divisor=6 * every,
        seed=0,
    )


def test_the_text_alone_has_neither_the_queries_nor_the_hits_of_the_challenge_set():
    alone = sums().of_text_alone()
    assert alone.divisor.sum() == 40
    corners = [[1.0, 0.0]]
    assert preference(sums(), None, corners).rate == pytest.approx(3 / 6)
    assert preference(alone, None, corners).rate == pytest.approx(1 / 4)


def test_the_rate_among_all_tokens_has_an_interval():
    top = top_rate(sums())
    assert top.rate == pytest.approx(2 / 6)
    assert top.low < top.rate < top.high
