"""Proposed relation files run as they are, and say what the feature says."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.clusters import frequent, proposals, relation_file
from headscope.studies.explain.feature import TokenFacts
from tests.helpers.prose import prose_windows


def rows(*each: tuple[str, str, float, float]) -> pd.DataFrame:
    return pd.DataFrame(each, columns=["feature", "kind", "weight", "unique"])


@pytest.fixture(scope="module")
def windows():
    return [w for w in prose_windows(3_000) if len(w) > 40][:4]


def test_only_what_many_heads_look_at_and_no_relation_names_is_proposed():
    table = rows(
        *[("key VERB", "lexical", 1.0, 0.1)] * 3,
        *[("key NOUN", "lexical", -1.0, 0.1)] * 9,
        *[("syntactic/obj:dep>head", "syntactic", 2.0, 0.2)] * 9,
        *[("offset-1", "position", 2.0, 0.2)] * 9,
        *[("key ADJ", "lexical", 1.0, 0.001)] * 9,
        *[("key rare", "lexical", 1.0, 0.1)] * 4,
    )
    assert frequent(table)[["feature", "heads"]].to_numpy().tolist() == [
        ["key rare", 4],
        ["key VERB", 3],
    ]
    text = proposals(table)
    assert "# key rare: 4 heads, 10.0% of their bits on average (no plain relation)" in text
    assert '@hs.relation("proposed", "key-VERB"' in text
    assert proposals(table[:0]) == "# every frequent feature has its relation\n"


def test_a_proposed_file_finds_the_cells_of_its_feature(windows):
    lexicon = TokenFacts.of(windows)
    token = lexicon.common[0]
    names = ["nearest-VERB", "second-NOUN", f"token {token} ", f"first token {token} ", "key VERB"]
    for wanted in names:
        found = 0
        for window in windows:
            for each in Catalogue(lexicon, []).cells(window):
                if not each.feature.name.startswith(wanted):
                    continue
                space: dict[str, object] = {}
                exec(relation_file(each.feature.name), space)
                own = next(v for v in space.values() if isinstance(v, hs.Relation))
                pairs = own.pairs(window)
                cells = {
                    (q, k)
                    for q, k in zip(each.query.tolist(), each.key.tolist(), strict=True)
                    # a relation's key is a word's last token, and no query looks at itself
                    if q > k and (not wanted.startswith("key") or k in window.words.last)
                }
                assert set(zip(pairs.query.tolist(), pairs.key.tolist(), strict=True)) == cells
                found += len(cells)
                if wanted in ("nearest-VERB", "second-NOUN"):
                    break
        assert found, wanted


def test_smooth_features_have_no_relation():
    assert relation_file("log distance") is None
    assert relation_file("key rare") is None
    assert np.all([relation_file(f"first {upos}") for upos in ("NOUN", "DET")])
