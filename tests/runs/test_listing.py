"""Heads of a run by a type, a relation or their names."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.errors import ArgumentError, RunError, WriteError
from headscope.runs.listing import selected_heads


def test_heads_are_named_by_type_relation_and_name():
    run = hs.load("atlas:mini")
    assert selected_heads(run, "induction") == [(5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "induction/repeat") == [(5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "L5H1,4.3") == [(5, 1), (4, 3)]
    assert len(selected_heads(run, "all")) == 48
    assert set(selected_heads(run, "induction")) < set(selected_heads(run, "tagged"))


def test_a_head_is_named_by_text_or_by_its_layer_and_number(mini_run):
    run = hs.load(mini_run)
    named = run.why("L5H1")
    assert run.why((5, 1)) == run.why((np.int64(5), np.int64(1))) == run.why("5.1") == named
    tables = [hs.why(run, heads).table.index for heads in ("L5H1,L4H3", [(5, 1), "L4H3"])]
    assert list(tables[0]) == list(tables[1]) == ["L5H1", "L4H3"]
    assert list(hs.why(run, (5, 1)).table.index) == ["L5H1"]
    views = [run.show(head, "one two").pattern for head in ("L5H1", (5, 1))]
    assert np.array_equal(*views)
    for wrong in ((5,), (5, 1, 2), (5, -1), (5, "1"), 5, True):
        with pytest.raises(ArgumentError):
            run.why(wrong)


def test_a_report_is_written_to_a_path_or_returned(mini_run, tmp_path):
    run, path = hs.load(mini_run), tmp_path / "x.html"
    assert run.report(path, light=True) == path
    page = run.report(light=True)
    assert path.read_text(encoding="utf-8") == page
    with pytest.raises(WriteError):
        run.report(path)
    with pytest.raises(WriteError):
        run.report(tmp_path / "x.pdf")
    with pytest.raises(RunError):
        run.report(mini_run / "report.html", overwrite=True)
