"""Split-half reliability on tallies whose answer is known."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.evidence.reliability import split_half
from headscope.measure.tally import Tally


def tally(lifts_even: list[float], lifts_odd: list[float], queries: float = 10) -> Tally:
    made = Tally.zeros(("type/relation",), 1, len(lifts_even))
    made.queries[:] = queries
    made.target[0::2, 0, 0] = np.array(lifts_even) * queries
    made.target[1::2, 0, 0] = np.array(lifts_odd) * queries
    return made


def test_equal_halves_agree_and_reversed_halves_do_not():
    assert split_half(tally([0.1, 0.5, 0.9], [0.2, 0.3, 0.4])) == {"type/relation": 1}
    assert split_half(tally([0.1, 0.5, 0.9], [0.4, 0.3, 0.2])) == {"type/relation": -1}
    # ranks 1 2 3 4 against 1 2 4 3: 1 − 6·2 / (4·15)
    half = split_half(tally([0.1, 0.2, 0.3, 0.4], [0.1, 0.2, 0.4, 0.3]))
    assert half["type/relation"] == pytest.approx(0.8)


def test_halves_are_of_the_blocks_that_hold_queries():
    made = tally([0.1, 0.5, 0.9], [0.1, 0.5, 0.9])
    made.queries[1::2] = made.target[1::2] = 0  # 32 documents land in every second block
    assert split_half(made) == {"type/relation": 1}


def test_few_queries_and_equal_heads_are_left_out():
    assert split_half(tally([0.1, 0.5], [0.1, 0.5], queries=0.5)) == {}
    assert split_half(tally([0.3, 0.3], [0.1, 0.5])) == {}
