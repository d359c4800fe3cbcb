"""Kinds of attention say what slow loops say."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL

LENGTH = 12


@pytest.mark.parametrize("kind", [CAUSAL, BIDIRECTIONAL], ids=lambda kind: kind.name)
def test_masks_counts_and_spans_agree_with_the_rows(kind):
    position = np.arange(LENGTH)
    row_end = kind.row_end(position, LENGTH)
    mask = kind.sees(position[:, None], position[None, :])
    pool = np.array([2, 4, 5, 11])
    for query in range(LENGTH):
        expected = [key for key in range(LENGTH) if key < row_end[query]]
        assert np.flatnonzero(mask[query]).tolist() == expected
        assert kind.count_seen(pool, position)[query] == len(set(pool) & set(expected))
        for first in range(LENGTH):
            for last in range(first, LENGTH):
                span = set(range(first, last + 1))
                apart = span <= set(expected) and query not in span
                one = np.array([query])
                found = kind.sees_apart((one, one), (np.array([first]), np.array([last])))
                assert bool(found[0]) == apart
