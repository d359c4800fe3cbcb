"""Heads that rest a good deal, yet less than a sink's tag asks for, are named beside their tags."""

from __future__ import annotations

import pandas as pd
import pytest

from headscope.relations.sink import TYPE
from headscope.statistics.head_lists import partial_sink_line, partial_sinks

RULES = {relation.id: relation.rule for relation in TYPE.relations}


def evidence(*rows: tuple[int, str, float, bool]) -> pd.DataFrame:
    columns = ["head", "relation", "mass", "tagged"]
    return pd.DataFrame(rows, columns=columns).assign(layer=0, type="sink")


@pytest.mark.parametrize(
    ("mass", "is_partial"), [(0.29, False), (0.3, True), (0.47, True), (0.5, False)]
)
def test_a_partial_sink_lies_between_three_tenths_and_the_floor(mass, is_partial):
    table = evidence((0, "first-token", mass, False))
    assert len(partial_sinks(table, RULES)) == is_partial


def test_a_head_with_a_tag_of_a_sink_is_no_partial_one():
    table = evidence((0, "first-token", 0.4, False), (0, "resting-column", 0.3, True))
    assert partial_sinks(table, RULES).empty
    assert partial_sink_line(table, RULES, 0, 0) == ""


def test_a_partial_sink_is_said_with_its_mass_and_the_floor():
    table = evidence((0, "first-token", 0.381, False), (1, "first-token", 0.1, False))
    said = "Partial sink: 0.38 of its attention on the first token; the tag asks for 0.5."
    assert partial_sink_line(table, RULES, 0, 0) == said
    assert partial_sink_line(table, RULES, 0, 1) == ""
