"""Changes between runs, against runs whose heads are known and slow loops."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import ChoiceError, RunError
from headscope.studies.compare import changed, compare, condition_outcomes, relation_changes
from headscope.views.study_result import StudyResult
from tests.helpers.hand_built import run_of
from tests.helpers.shell import headscope


@pytest.fixture(scope="session")
def make(tmp_path_factory) -> Callable[..., Path]:
    def make_run(name: str, *layers: str) -> Path:
        folder = tmp_path_factory.mktemp("compared") / name
        return run_of(*layers, name=name, types=["positional", "induction"]).save(folder)

    return make_run


@pytest.fixture(scope="session")
def before(make) -> Path:
    return make("before", "PSS", "SSI")


@pytest.fixture(scope="session")
def after(make) -> Path:
    """L0H0 stays, L0H1 learned to look back, L1H2 forgot its induction."""
    return make("after", "PPS", "SSS")


@pytest.fixture(scope="session")
def deep(make) -> Path:
    return make("deep", "SS", "SS", "SS", "II")


def test_a_comparison_without_changes_prints_no_header_of_a_table(before, after):
    printed = {}
    for other in (before, after):
        printed[other] = headscope("compare", before, other).stdout
    assert "primary" in printed[after]
    assert "primary" not in printed[before]


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
    assert found.notes == ["after and before differ in: model name"]
    every, sure = condition_outcomes(found, ["changes > 0", "sure lost > 0"])
    assert (every.heads, sure.heads) == (["L0H1", "L1H2"], ["L1H2"])
    (named,) = condition_outcomes(compare(before, after, before), ["lost induction > 0"])
    assert named.heads == ["after L1H2"]


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
    every, sure = condition_outcomes(found, ["changes > 0", "sure changes > 0"])
    assert (len(every.heads), len(sure.heads)) == (1, 0)


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


def test_one_run_or_runs_of_different_shapes_are_refused(before, deep):
    with pytest.raises(RunError, match="two"):
        hs.compare(before)
    with pytest.raises(RunError, match="before and deep"):
        hs.compare(before, deep)


def without(run: hs.Run, relation: str) -> hs.Run:
    """The run as if it had not measured a relation that gave its only tag of that type."""
    kind, name = relation.split("/")
    is_other = (run.evidence["type"] != kind) | (run.evidence["relation"] != name)
    thresholds = {key: limits for key, limits in run.thresholds.items() if key != relation}
    is_primary = run.heads["primary"] == kind
    heads = run.heads.assign(
        tags=run.heads["tags"].where(~is_primary, ""),
        primary=run.heads["primary"].where(~is_primary, "unclassified"),
    )
    return replace(run, evidence=run.evidence[is_other], thresholds=thresholds, heads=heads)


def test_only_common_relations_are_compared_and_the_others_are_named(before, after):
    first = hs.load(before)
    narrow = run_of("PPS", "SSS", name="narrow", types=["positional"])
    for runs in ((first, narrow), (narrow, first), (first, narrow, first)):
        found = hs.compare(*runs)
        # L1H2 has induction in one run alone, because the other did not measure it
        heads = changes(found)[["layer", "head"]].to_numpy()
        assert {tuple(head) for head in heads.tolist()} == {(0, 1)}
        assert any("induction (" in note for note in found.notes)
        with pytest.raises(ChoiceError, match="induction"):
            condition_outcomes(found, ["lost induction > 0"])
    # of a type that both have, one relation is missing, and it gave the tag
    found = hs.compare(first, without(first, "induction/repeat"))
    assert changes(found).empty
    assert any("induction/repeat" in note for note in found.notes)


def test_runs_without_a_common_relation_are_refused():
    narrow = run_of("PSS", "SSI", name="narrow", types=["induction"])
    with pytest.raises(RunError, match="--types"):
        hs.compare(narrow, run_of("PSS", "SSI", name="other", types=["positional"]))


def test_a_lost_type_fails_with_exit_code_1_and_names_the_head(before, after):
    done = headscope("compare", before, after, "--fail-on", "lost induction > 0")
    assert done.returncode == 1
    assert "FAILED: lost induction > 0: 1 heads: L1H2" in " ".join(done.stdout.split())


def test_what_is_within_bounds_passes(before, after):
    done = headscope(
        "compare", before, after, "--fail-on", "lost induction > 1", "--fail-on", "sure lost >= 9"
    )
    assert done.returncode == 0
    assert "passed: lost induction > 1: 1 heads: L1H2" in " ".join(done.stdout.split())
    assert headscope("compare", before, before, "--fail-on", "changes > 0").returncode == 0


@pytest.mark.parametrize(
    "text", ["lost", "lost > x", "more than 3", "changes induction > 0", "lost >= 0", "lost > -1"]
)
def test_what_is_no_condition_is_refused(before, after, text):
    with pytest.raises(RunError, match="condition"):
        condition_outcomes(compare(before, after), [text])


def test_a_type_that_the_runs_do_not_know_is_refused(before, after):
    found = compare(before, after)
    with pytest.raises(ChoiceError, match="'indction'"):
        condition_outcomes(found, ["lost indction > 0"])
    assert condition_outcomes(found, ["sure  gained positional >= 2"])[0].limit == 1
