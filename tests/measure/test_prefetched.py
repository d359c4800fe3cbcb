"""Windows and batches that are made ahead of their use."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.window import Window
from headscope.measure.batches import AT_ONCE, chunks
from headscope.measure.in_process import prefetched


def test_no_more_windows_than_a_chunk_are_asked_for():
    asked = []

    def stream():
        for i in range(1000):
            asked.append(i)
            yield Window(str(i), np.arange(9), ("a",) * 9)

    next(next(chunks([(stream(), [])])))
    assert len(asked) == AT_ONCE


def test_prefetched_work_keeps_order_and_raises_in_its_place():
    def items():
        yield from range(5)
        raise KeyError("six")

    made = []
    with pytest.raises(KeyError, match="six"):  # noqa: PT012, items come before the error
        for item in prefetched(items()):
            made.append(item)
    assert made == [0, 1, 2, 3, 4]
    assert list(prefetched(iter([]))) == []
