"""What changed between runs, against runs whose heads are known and slow loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.errors import RunError
from headscope.relations.relation import TagThresholds
from headscope.runs.tables import table_to_csv
from headscope.studies.compare.changes import correlations, relation_changes
from headscope.studies.compare.side_by_side import depth_shares


def test_gained_and_lost_tags_are_those_of_the_heads_that_changed(before, after):
    found = hs.compare(before, after)
    assert found.names == ("before", "after")
    changed = found.changed.set_index(["layer", "head"])
    assert list(changed.index) == [(0, 1), (1, 2)]
    learned, forgot = changed.loc[(0, 1)], changed.loc[(1, 2)]
    assert (learned["gained"], learned["lost"]) == ("positional", "")
    assert (forgot["gained"], forgot["lost"]) == ("", "induction")
    assert (learned["sure"], forgot["sure"]) == ("positional", "induction")
    assert (forgot["primary_first"], forgot["primary"]) == ("induction", "unclassified")
    assert forgot["relation"] == "induction/repeat"
    assert forgot["lift_difference"] == pytest.approx(-0.8, abs=0.02)
    assert len(found.heads) == 6


def test_a_run_compared_with_itself_has_no_change(before):
    found = hs.compare(before, before)
    assert found.names == ("before (1)", "before (2)")
    assert found.changed.empty
    assert not found.relations["apart"].any()
    assert (found.relations["lift_difference"] == 0).all()
    ranks = found.correlation["rank_correlation"].dropna()
    assert len(ranks) > 3
    assert ranks.tolist() == pytest.approx([1] * len(ranks))


def test_a_tag_that_passed_a_threshold_by_noise_is_not_sure(before):
    """The tag goes and the lift stays: the intervals of the two runs overlap."""
    run = hs.load(before)
    tags = run.heads.assign(
        tags=run.heads["tags"].where(run.heads["primary"] != "induction", ""),
        primary=run.heads["primary"].replace("induction", "unclassified"),
    )
    found = hs.compare(run, replace(run, heads=tags))
    (row,) = found.changed.itertuples()
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
    table = relation_changes(one, two, "two")
    slow = []
    for a, b in zip(one.evidence.itertuples(), two.evidence.itertuples(), strict=True):
        touching = max(a.ci_low, b.ci_low) <= min(a.ci_high, b.ci_high)
        slow.append(not np.isnan(a.ci_low) and not touching)
    assert table["apart"].tolist() == slow
    assert 0 < sum(slow) < len(slow)
    # 49 queries of either run are too few to say anything
    assert not relation_changes(one, with_lifts(run, 2, n=49), "two")["apart"].any()


def test_rank_correlation_is_that_of_the_ranks(before):
    run = hs.load(before)
    one, two = with_lifts(run, 1), with_lifts(run, 2)
    table = correlations(relation_changes(one, two, "two"))
    for row in table.itertuples():
        ranks = []
        for each in (one, two):
            own = each.evidence[each.evidence["relation"] == row.relation]
            ranks.append([sum(x > y for y in own["lift"]) for x in own["lift"]])
        assert row.rank_correlation == pytest.approx(np.corrcoef(ranks)[0, 1])
    assert len(table) == run.evidence["relation"].nunique()


def heads_run(layers: int, primary: list[str]) -> hs.Run:
    each = len(primary) // layers
    rows = {"layer": np.repeat(range(layers), each), "head": [*range(each)] * layers}
    types = sorted(set(primary) | {"a", "b", *(f"t{i}" for i in range(6))})
    evidence = pd.DataFrame(
        {"layer": 0, "head": 0, "type": types, "relation": "x", "n": 50, "mass": 0.1, "ci_low": 0.0}
    )
    rules = {f"{name}/x": TagThresholds(0.1, "made up", "x") for name in types}
    return hs.Run(pd.DataFrame(rows | {"primary": primary}), evidence, rules)


def test_shares_by_depth_put_each_layer_where_its_fraction_lies():
    six = heads_run(6, [f"t{layer}" for layer in range(6)])
    table = depth_shares([six], ["six"], [f"t{i}" for i in range(6)], bins=5)
    where = table[table["count"] > 0].set_index("type")["depth_low"]
    # 3 / 5 × 5 is 3 in fractions, and must be in floats; 1 belongs to the last
    assert where.tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 0.8])
    assert table.groupby("depth_low")["share"].sum().tolist() == pytest.approx([1] * 5)
    assert table.drop_duplicates("depth_low")["heads"].tolist() == [1, 1, 1, 1, 2]


def test_the_shallowest_model_sets_the_stretches_so_that_none_is_empty():
    runs = [heads_run(2, ["a", "b"] * 2), heads_run(12, ["a"] * 12)]
    table = depth_shares(runs, ["two", "twelve"], ["a", "b"])
    assert sorted(set(table["depth_low"])) == [0, 0.5]
    assert table[table["run"] == "two"]["share"].tolist() == [0.5] * 4
    one = depth_shares([heads_run(1, ["a", "b"])], ["one"], ["a", "b"])
    assert one["share"].tolist() == [0.5, 0.5]


def test_a_type_that_a_run_could_not_measure_has_no_share_in_it(before, tmp_path):
    """One run has text for induction and the other has not, as with a corpus without repeats."""
    run = hs.load(before)
    other = run.evidence["type"] != "induction"
    heads = run.heads.assign(
        tags=run.heads["tags"].where(run.heads["primary"] != "induction", ""),
        primary=run.heads["primary"].replace("induction", "unclassified"),
    )
    found = hs.compare(run, replace(run, heads=heads, evidence=run.evidence[other]))
    kinds = found.depth.set_index(["run", "type"])
    blank = kinds.loc[(found.names[1], "induction"), ["count", "share"]]
    assert blank.isna().all().all()
    assert kinds.loc[(found.names[1], "positional"), "share"].notna().all()
    assert kinds.loc[(found.names[0], "induction"), "share"].sum() > 0
    pages = table_to_csv(found.choose("depth")).splitlines()
    assert any(line.endswith(",induction,,3,") for line in pages), pages
    bars = found.figure().axes[-1]
    assert len(bars.patches) == 2 * 2  # stretches of depth × positional and unclassified
    assert all(np.isfinite(bar.get_height()) for bar in bars.patches)
    assert "nan" not in found.html().lower().split("<main>")[1]


def test_too_few_queries_leave_the_number_of_intervals_apart_blank(before):
    run = hs.load(before)
    few = correlations(relation_changes(with_lifts(run, 1), with_lifts(run, 2, n=49), "two"))
    assert few["apart"].isna().all()
    enough = correlations(relation_changes(with_lifts(run, 1), with_lifts(run, 2), "two"))
    assert enough["apart"].notna().all()


def test_runs_of_different_shapes_are_compared_by_depth_only(before, deep):
    found = hs.compare(before, deep)
    assert found.heads is None
    assert found.changed.empty
    deepest = found.depth[(found.depth["run"] == "deep") & (found.depth["type"] == "induction")]
    assert deepest["share"].tolist() == [0, 0.5]  # one of the last two layers


def test_what_differs_between_the_runs_is_said(before, after):
    assert hs.compare(before, after).notes[0] == "after and before differ in: model"


def test_runs_of_different_relations_are_refused(before, make):
    other = make("other", 2, 3, types=["positional"], previous=[(0, 0)])
    with pytest.raises(RunError, match="before has 'induction/duplicate' and other has not"):
        hs.compare(before, other)
