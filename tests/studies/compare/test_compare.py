"""What changed between runs, against runs whose heads are known and slow loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.studies.compare import changed, relation_changes
from headscope.views.study import StudyResult


def changes(result: StudyResult) -> pd.DataFrame:
    return result.table[changed(result.table)]


def test_gained_and_lost_tags_are_those_of_the_heads_that_changed(before, after):
    found = hs.compare(before, after)
    assert found.values["runs"] == ("before", "after")
    heads = changes(found).set_index(["layer", "head"])
    assert list(heads.index) == [(0, 1), (1, 2)]
    learned, forgot = heads.loc[(0, 1)], heads.loc[(1, 2)]
    assert (learned["gained"], learned["lost"]) == ("positional", "")
    assert (forgot["gained"], forgot["lost"]) == ("", "induction")
    assert (learned["sure"], forgot["sure"]) == ("positional", "induction")
    assert (forgot["primary_first"], forgot["primary"]) == ("induction", "unclassified")
    assert forgot["relation"] == "induction/repeat"
    assert forgot["lift_difference"] == pytest.approx(-0.8, abs=0.02)
    assert len(found.table) == 6


def test_a_run_compared_with_itself_has_no_change(before):
    found = hs.compare(before, before)
    assert found.values["runs"] == ("before (1)", "before (2)")
    assert changes(found).empty
    assert (found.table["apart"] == 0).all()
    run = hs.load(before)
    assert (relation_changes(run, run)["lift_difference"] == 0).all()


def test_a_tag_that_passed_a_threshold_by_noise_is_not_sure(before):
    """The tag goes and the lift stays: the intervals of the two runs overlap."""
    run = hs.load(before)
    tags = run.heads.assign(
        tags=run.heads["tags"].where(run.heads["primary"] != "induction", ""),
        primary=run.heads["primary"].replace("induction", "unclassified"),
    )
    found = hs.compare(run, replace(run, heads=tags))
    (row,) = changes(found).itertuples()
    assert (row.layer, row.head, row.lost, row.sure, row.apart) == (1, 2, "induction", "", 0)


def with_lifts(run: hs.Run, seed: int, *, n: int = 100) -> hs.Run:
    rng = np.random.default_rng(seed)
    lift = rng.normal(size=len(run.evidence))
    width = rng.uniform(0, 1, len(lift))
    evidence = run.evidence.assign(lift=lift, ci_low=lift - width, ci_high=lift + width, n=n)
    evidence.loc[evidence.index % 7 == 0, ["ci_low", "ci_high"]] = np.nan
    return replace(run, evidence=evidence)


def test_intervals_are_apart_where_a_slow_loop_says_so(before):
    run = hs.load(before)
    one, two = with_lifts(run, 1), with_lifts(run, 2)
    table = relation_changes(one, two)
    slow = []
    for a, b in zip(one.evidence.itertuples(), two.evidence.itertuples(), strict=True):
        touching = max(a.ci_low, b.ci_low) <= min(a.ci_high, b.ci_high)
        slow.append(not np.isnan(a.ci_low) and not touching)
    assert table["apart"].tolist() == slow
    assert 0 < sum(slow) < len(slow)
    # 49 queries of either run are too few to say anything
    assert not relation_changes(one, with_lifts(run, 2, n=49))["apart"].any()


def test_changed_heads_are_framed_in_the_figure(before, after):
    first, other = hs.compare(before, after).figure().axes[:2]
    frames = [patch for patch in other.patches if not patch.get_fill()]
    corners = [corner for frame in frames for corner in frame.get_xy()]
    assert corners == pytest.approx([0.54, -0.46, 1.54, 0.54])
    assert not [patch for patch in first.patches if not patch.get_fill()]


def test_one_run_or_runs_of_different_shapes_are_refused(before, deep):
    with pytest.raises(RunError, match="compare takes two runs or more, and 1 came"):
        hs.compare(before)
    with pytest.raises(RunError, match="before and deep differ in layers or heads"):
        hs.compare(before, deep)


def test_what_differs_between_the_runs_is_said(before, after):
    assert hs.compare(before, after).notes[0] == "after and before differ in: model"


def test_runs_of_different_relations_are_refused(before, make):
    other = make("other", 2, 3, types=["positional"], previous=[(0, 0)])
    with pytest.raises(RunError, match="before has 'induction/duplicate' and other has not"):
        hs.compare(before, other)
