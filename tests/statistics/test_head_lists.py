"""The strongest head of a type is the same one wherever heads are listed.

Five heads are tagged by hand. L0H1 is a syntactic head above all, and still the strongest
coreference head; L0H0 is a weak coreference head and nothing else. L0H3 is a sink alone. Heads with
much attention on a sink, yet less than the threshold, are named beside their tags.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.heads import head_name
from headscope.measure.example import ExampleRequest
from headscope.relations import relations_of
from headscope.relations.types.sink import TYPE
from headscope.runs.listing import list_heads
from headscope.statistics.columns import EVIDENCE_COLUMNS
from headscope.statistics.head_lists import best_heads, partial_sinks, strongest, wanted_examples
from headscope.statistics.head_table import head_table
from headscope.statistics.in_words import partial_sink_in_words
from headscope.statistics.tags import with_thresholds
from headscope.views.figures import relations_figure
from headscope.views.report.data import page_data

LIFTS = {
    "coreference/pronoun": [0.08, 0.20, 0.00, 0.00, 0.01],
    "coreference/same-word": [0.02, 0.28, 0.30, 0.00, 0.00],  # L0H2 fails for another reason
    "syntactic/obj:dep>head": [0.00, 0.60, 0.01, 0.00, 0.00],
    "sink/first-token": [0.00, 0.00, 0.00, 0.95, 0.90],
    "delimiter/newline": [0.00, 0.00, 0.00, 0.00, 0.30],
}
ORDER = {
    "coreference": [("L0H1", "same-word"), ("L0H0", "pronoun")],
    "syntactic": [("L0H1", "obj:dep>head")],
    "delimiter": [("L0H4", "newline")],
    "sink": [("L0H3", "first-token"), ("L0H4", "first-token")],
}
RELATIONS = [relation for relation in relations_of(["all"]) if relation.id in LIFTS]


@pytest.fixture(scope="module")
def run() -> hs.Run:
    rows = []
    for name, lifts in LIFTS.items():
        kind, relation = name.split("/")
        for head, lift in enumerate(lifts):
            tagged = lift > 0.05 and head != 2
            rows.append(
                dict.fromkeys(EVIDENCE_COLUMNS, float("nan"))
                | {"layer": 0, "head": head, "type": kind, "relation": relation, "n": 900}
                | {"mass": lift, "control": 0.0, "lift": lift, "ci_low": lift, "ci_high": lift}
                | {"q_value": 0.001, "chance": 0.0, "tagged": tagged}
                | {"verdict": "tagged" if tagged else "no", "baseline": ""}
            )
    evidence = pd.DataFrame(rows)
    thresholds = {relation.id: relation.thresholds for relation in RELATIONS}
    names = ("first_token_mass", "entropy", "mean_distance", "variability", "sink_share")
    profile = pd.DataFrame({"layer": 0, "head": range(5), **dict.fromkeys(names, 0.5), "shape": ""})
    heads = head_table(with_thresholds(evidence, thresholds), profile, 1)
    info = {"model": {"name": "five heads"}, "provenance": {"versions": {}}, "thresholds": {}}
    return hs.Run(heads, evidence, thresholds, info)


def names(table: pd.DataFrame) -> list[tuple[str, str]]:
    return [(head_name(row.layer, row.head), row.relation) for row in table.itertuples()]


def best_by_relation(evidence: pd.DataFrame) -> dict[str, int]:
    """The number of the best head of each relation."""
    return {f"{row.type}/{row.relation}": row.head for row in best_heads(evidence).itertuples()}


@pytest.mark.parametrize("kind", ORDER)
def test_every_list_of_a_type_has_the_same_heads_in_the_same_order(run, kind):
    found = strongest(run.evidence)
    assert names(found[found["type"] == kind]) == ORDER[kind]
    assert names(list_heads(run, kind)) == ORDER[kind]
    assert names(run.tagged(kind)) == ORDER[kind]
    told = page_data(run)["strongest"][kind]
    assert [(f"L0H{place}", name) for place, name in told] == [
        (head, f"{kind}/{relation}") for head, relation in ORDER[kind]
    ]


def test_the_best_head_of_a_relation_is_the_same_in_the_picture_and_the_report(run):
    expected = {name: int(np.argmax(lifts)) for name, lifts in LIFTS.items()}
    without_tags = run.evidence.assign(tagged=False)
    assert best_by_relation(without_tags) == expected
    # L0H2 has the largest lift and no tag
    expected["coreference/same-word"] = 1
    assert best_by_relation(run.evidence) == expected == page_data(run)["best"]
    lifts = best_heads(run.evidence)["lift"]
    assert lifts.is_monotonic_decreasing
    labels = {text.get_text() for text in relations_figure(run).axes[0].get_yticklabels()}
    assert labels == {f"{name}  L0H{head}" for name, head in expected.items()}


def test_a_head_is_shown_by_its_best_relations_and_sinks_by_need(run):
    number = {relation.id: i for i, relation in enumerate(RELATIONS)}
    assert wanted_examples(run.evidence, RELATIONS) == [
        ExampleRequest(0, 0, number["coreference/pronoun"]),
        ExampleRequest(0, 1, number["syntactic/obj:dep>head"]),
        ExampleRequest(0, 1, number["coreference/same-word"]),
        ExampleRequest(0, 1, number["coreference/pronoun"]),
        ExampleRequest(0, 2, number["syntactic/obj:dep>head"]),  # no tag: what it comes closest to
        ExampleRequest(0, 3, number["sink/first-token"]),
        ExampleRequest(0, 4, number["delimiter/newline"]),
    ]


THRESHOLDS_BY_RELATION = {relation.id: relation.thresholds for relation in TYPE.relations}


@pytest.mark.parametrize(
    ("mass", "tagged", "partial"),
    [(0.29, False, 0), (0.3, False, 1), (0.47, False, 1), (0.5, False, 0), (0.4, True, 0)],
)
def test_a_partial_sink_lies_between_three_tenths_and_the_threshold_without_a_tag(
    mass, tagged, partial
):
    rows = [(0, "first-token", mass, False), (0, "position", 0.3, tagged)]
    table = pd.DataFrame(rows, columns=["head", "relation", "mass", "tagged"])
    table = table.assign(layer=0, type="sink")[: 2 if tagged else 1]
    table = with_thresholds(table, THRESHOLDS_BY_RELATION)
    assert len(partial_sinks(table)) == partial
    for row in partial_sinks(table).to_dict("records"):
        line = partial_sink_in_words(row)
        assert f"in text, {mass:.2f} of its attention on the first token" in line
