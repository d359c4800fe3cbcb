"""The three legs of a tag side by side."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd

import headscope as hs
from headscope.statistics.causes import (
    BREAKS,
    CAUSE_COLUMNS,
    NO_CAUSE,
    NOT_ASKED,
    UNTESTED,
    disagreements,
    legs,
    legs_counted,
)


def some_run() -> hs.Run:
    """Four heads: two look at the copy's next token, one at the token before, one at the first."""
    tokens = ["<s>", *"abcdefgh", *"abcdefgh"]
    size = len(tokens)
    induction = np.zeros((size, size))
    induction[:, 0] = 1
    for query in range(9, 16):
        induction[query] = np.eye(size)[query - 7]
    before = np.eye(size, k=-1)
    before[0, 0] = 1
    rest = np.tile(np.eye(size)[0], (size, 1))
    patterns = np.stack([induction, induction, before, rest])[None]
    return hs.score_patterns(
        [patterns] * 40, None, [tokens] * 40, types=["positional", "induction", "sink"]
    )


def verdict(head: int, type: str, relation: str, said: str) -> dict[str, object]:
    plain = dict.fromkeys(CAUSE_COLUMNS, np.nan)
    own = {"kind": "tag", "layer": 0, "head": head, "type": type, "relation": relation}
    return plain | own | {"verdict": said}


def test_each_leg_says_what_was_measured_and_no_more():
    run = some_run()
    table = legs(run)
    assert {*table["writes"]} == {*table["matters"]} == {NOT_ASKED}
    assert "sink" not in set(table["type"])  # to rest is no deed
    looks = table[table["type"] == "induction"]
    assert looks["head"].tolist() == [0, 1]
    counted = legs_counted(table).set_index("type")
    assert counted.loc["induction", "look"] == 2
    assert pd.isna(counted.loc["induction", "write"])
    assert counted.loc["induction", "look, tested"] == 0

    effects = pd.DataFrame(
        [(0, 1, "induction", True), (0, 2, "induction", True), (0, 0, "copy", True), (0, 3, "copy", False)],
        columns=["layer", "head", "type", "tagged"],
    )  # fmt: skip
    causes = pd.DataFrame([
        verdict(0, "induction", "natural", f"{UNTESTED}: 3 queries in 2 documents"),
        verdict(1, "induction", "natural", NO_CAUSE),
        verdict(1, "induction", "repeat", BREAKS),
        verdict(2, "positional", "offset-1", NO_CAUSE),
    ])  # fmt: skip
    whole = replace(run, effects=effects, causes=causes)
    table = legs(whole).set_index(["head", "type"])
    assert table.loc[(0, "induction")].tolist()[1:] == ["yes", "no", UNTESTED]
    assert table.loc[(1, "induction")].tolist()[1:] == ["yes", "yes", BREAKS]
    assert table.loc[(2, "induction")].tolist()[1:] == ["no", "yes", NOT_ASKED]
    assert table.loc[(2, "positional")].tolist()[1:] == ["yes", "", NO_CAUSE]
    assert table.loc[(0, "copy")].tolist()[1:] == ["", "yes", NOT_ASKED]
    counted = legs_counted(legs(whole)).set_index("type")
    assert counted.loc["induction"].tolist() == [2, 2, 1, 1, 1]
    assert pd.isna(counted.loc["copy", "look"])
    assert disagreements(legs(whole), whole) == {
        "looks and does not write": ["L0H0 (induction)"],
        "writes and does not look": ["L0H2 (induction)"],
    }
