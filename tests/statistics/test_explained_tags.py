"""Features that explain the tags of a head, and sentences on its rule."""

from __future__ import annotations

import pandas as pd

from headscope.statistics.columns import RULE_COLUMNS
from headscope.statistics.reasons import account_lines, explained_by


def terms(*rows: tuple[str, float, float]) -> pd.DataFrame:
    """Features of one head's rule with weight and unique bits."""
    plain = dict.fromkeys(RULE_COLUMNS, 0.0) | {"layer": 0, "head": 1, "kind": "", "queries": ""}
    own = [{**plain, "feature": f, "weight": w, "unique": u} for f, w, u in rows]
    return pd.DataFrame(own)[RULE_COLUMNS]


def test_a_tag_without_unique_bits_is_explained_by_the_strongest_feature():
    table = terms(
        ("offset-2", 4.0, 0.4),
        ("syntactic/det:head>dep", 2.0, 0.1),
        ("key NOUN", -1.0, 0.3),
        ("syntactic/amod:head>dep", 0.1, 0.001),
    )
    tags = ["syntactic/det:head>dep", "syntactic/amod:head>dep", "positional/offset-2"]
    assert explained_by(table, 0, 1, tags) == [("syntactic/amod:head>dep", "offset-2")]
    assert explained_by(table, 0, 2, tags) == []


def test_the_account_of_a_head_has_its_rule_and_its_features():
    heads = pd.DataFrame([{"layer": 0, "head": 1, "explained": 0.66, "rule": "nearer is better"}])
    lines = account_lines(terms(("offset-2", 4.0, 0.4)), heads, 0, 1)
    assert lines[0] == "nearer is better"
    assert "66%" in lines[1]
    assert "offset-2" in lines[2]
