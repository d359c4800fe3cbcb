"""Attention, direct effect and causal effect of a tag side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

from headscope.statistics.causes import (
    CAUSAL_EFFECT,
    CAUSE_COLUMNS,
    NO_EFFECT,
    NOT_MEASURED,
    UNTESTED,
    disagreements,
    evidence_counts,
    type_evidence,
)
from tests.helpers.hand_built import run_of


def verdict(head: int, type: str, relation: str, said: str) -> dict[str, object]:
    plain = dict.fromkeys(CAUSE_COLUMNS, np.nan)
    own = {"kind": "tag", "layer": 0, "head": head, "type": type, "relation": relation}
    return plain | own | {"verdict": said}


def test_evidence_by_type_is_what_was_measured():
    # two heads look at the copy's next token, one at the token before, one at the first
    run = run_of("IIPS", name="four heads", types=["positional", "induction", "sink"])
    table = type_evidence(run)
    assert {*table["direct_effect"]} == {*table["causal_effect"]} == {NOT_MEASURED}
    assert "sink" not in set(table["type"])  # a sink is no function
    looks = table[table["type"] == "induction"]
    assert looks["head"].tolist() == [0, 1]
    counted = evidence_counts(table).set_index("type")
    assert counted.loc["induction", "attention"] == 2
    assert pd.isna(counted.loc["induction", "direct effect"])
    assert counted.loc["induction", "attention, tested"] == 0

    effects = pd.DataFrame(
        [(0, 1, "induction", True), (0, 2, "induction", True), (0, 0, "copy", True), (0, 3, "copy", False)],
        columns=["layer", "head", "type", "tagged"],
    )  # fmt: skip
    causes = pd.DataFrame([
        verdict(0, "induction", "natural", f"{UNTESTED}: 3 queries in 2 documents"),
        verdict(1, "induction", "natural", NO_EFFECT),
        verdict(1, "induction", "repeat", CAUSAL_EFFECT),
        verdict(2, "positional", "offset-1", NO_EFFECT),
    ])  # fmt: skip
    whole = replace(run, effects=effects, causes=causes)
    table = type_evidence(whole).set_index(["head", "type"])
    assert table.loc[(0, "induction")].tolist()[1:] == ["yes", "no", UNTESTED]
    assert table.loc[(1, "induction")].tolist()[1:] == ["yes", "yes", CAUSAL_EFFECT]
    assert table.loc[(2, "induction")].tolist()[1:] == ["no", "yes", NOT_MEASURED]
    assert table.loc[(2, "positional")].tolist()[1:] == ["yes", "", NO_EFFECT]
    assert table.loc[(0, "copy")].tolist()[1:] == ["", "yes", NOT_MEASURED]
    counted = evidence_counts(type_evidence(whole)).set_index("type")
    assert counted.loc["induction"].tolist() == [2, 2, 1, 1, 1]
    assert pd.isna(counted.loc["copy", "attention"])
    assert disagreements(type_evidence(whole)) == {
        "attention without direct effect": ["L0H0 (induction)"],
        "direct effect without attention": ["L0H2 (induction)"],
    }
