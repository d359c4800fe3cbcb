"""An example in a line: the query, what it looks at most, and as much around them as fits."""

from __future__ import annotations

import numpy as np

from headscope.measure.example import Example
from headscope.studies.why import short_example


def example(query: int, targets: tuple[int, ...], **values) -> Example:
    """Of the words a0 to a19; later targets have more attention."""
    pattern = np.zeros((20, 20), np.float16)
    pattern[query] = np.arange(20) / 200
    tokens = tuple(f" a{i}" for i in range(20))
    plain = {"positions": tuple(range(20)), "left_out": (), "length": 20}
    return Example(0, 0, "x/y", "best", 0.9, "w", tokens, query, targets, pattern, **plain | values)


def test_what_is_near_the_query_and_its_target_is_shown_and_the_rest_left_out():
    line = short_example(example(18, (3,)), width=40)
    assert line == "… a1 a2 «a3» a4 a5 … a16 a17 [[a18]] a19"


def test_a_line_is_no_wider_than_it_may_be_and_as_wide_as_it_can():
    for width in (20, 30, 45, 60, 80):
        line = short_example(example(18, (3,)), width=width)
        assert len(line) <= width
        assert "«a3»" in line
        assert "[[a18]]" in line
    assert len(short_example(example(18, (3,)), width=45)) > 30


def test_of_many_targets_those_with_the_most_attention_are_shown():
    line = short_example(example(18, (2, 7, 12)), width=60)
    assert "«a12»" in line
    assert "«a2»" not in line


def test_a_token_after_a_gap_of_the_excerpt_is_not_shown_as_its_neighbour():
    positions = (*range(10), *range(30, 40))
    line = short_example(example(10, (9,), positions=positions, length=60), width=60)
    assert "«a9» … [[a10]]" in line
    assert line.endswith("…")


def test_control_characters_are_made_visible():
    shown = example(2, (1,), positions=(0, 1, 2), length=3)
    object.__setattr__(shown, "tokens", ("a", "\x1b[31m", "b"))
    assert "\x1b" not in short_example(shown)
