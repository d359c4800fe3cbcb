"""Heads of a run by a type, a relation or their names."""

from __future__ import annotations

import headscope as hs
from headscope.runs.listing import selected_heads


def test_heads_are_named_by_type_relation_and_name():
    run = hs.load("atlas:mini")
    assert selected_heads(run, "induction") == [(1, 0), (5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "induction/repeat") == [(5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "L5H1,4.3") == [(5, 1), (4, 3)]
    assert len(selected_heads(run, "all")) == 48
    assert set(selected_heads(run, "induction")) < set(selected_heads(run, "tagged"))
