"""Smaller rules, the curve of what they explain, clusters of heads, and the twin's rules."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

from headscope.statistics.columns import RULE_COLUMNS
from headscope.studies.explain.clusters import clusters_of
from headscope.studies.explain.softmax import Target, kl_divergences, log_rule, nested, newton


@pytest.fixture(scope="module")
def planted() -> tuple[Target, torch.Tensor]:
    """400 queries of 30 keys, five features of random cells, and a head that is their rule."""
    rng = torch.Generator().manual_seed(0)
    values = (torch.rand(5, 400, 30, generator=rng) < 0.15).float()
    weights = torch.tensor([0.3, 3.0, -0.6, 1.8, 1.0])
    seen = torch.ones(400, 30, dtype=torch.bool)
    own = log_rule(torch.tensordot(weights, values, 1), seen).exp()
    return Target.of(own, seen), values


def test_smaller_rules_lose_the_least_first_and_are_fitted_again(planted):
    target, values = planted
    fitted = newton(target, values, torch.zeros(5))
    found = list(nested(target, values, fitted, (1, 2, 4, 8)))
    assert [kept for kept, _ in found] == [[1, 2, 3, 4], [1, 3], [1]]
    before = 0.0
    for kept, own in found:
        logs = log_rule(torch.tensordot(own, values[kept], 1), target.seen)
        rest = float(kl_divergences(target.attention, logs).mean())
        best = newton(target, values[kept], torch.zeros(len(kept)))
        assert own.tolist() == pytest.approx(best.weights.tolist(), abs=0.02)
        assert rest > before
        before = rest
    assert list(nested(target, values, fitted, (8, 12))) == []
    assert list(nested(target, values, fitted, ())) == []


def rules(*rows: tuple[int, str, str, float, float]) -> pd.DataFrame:
    """Head, queries, feature, weight and unique bits."""
    plain = dict.fromkeys(RULE_COLUMNS, 0.0) | {"layer": 0, "kind": ""}
    own = [
        {**plain, "head": h, "queries": q, "feature": f, "weight": w, "unique": u}
        for h, q, f, w, u in rows
    ]
    return pd.DataFrame(own)[RULE_COLUMNS]


def test_heads_of_one_rule_are_a_cluster_that_its_features_name():
    table = rules(
        (0, "", "offset-1", 4.0, 0.50),
        (0, "", "key NOUN", 1.0, 0.002),
        (1, "", "offset-1", 2.0, 0.30),
        (1, "", "token 0", 2.0, 0.001),
        (2, "", "offset-1", -2.0, 0.30),
        (3, "noun", "offset-1", 2.0, 0.30),
        (4, "", "offset-1", 2.0, -0.01),
    )
    heads = pd.DataFrame(
        [(0, h, kind, 1.0 + h, 0.5) for h, kind in enumerate(["a", "a", "b", "b", "b", "b"])],
        columns=["layer", "head", "primary", "bits", "explained"],
    )
    found = clusters_of(table, heads)
    assert found[["name", "count", "heads", "bits", "types"]].to_numpy().tolist() == [
        ["offset-1", 2, "L0H0;L0H1", 1.5, "a 2"],
        ["on a noun: offset-1", 1, "L0H3", 4.0, "b 1"],
        ["not offset-1", 1, "L0H2", 3.0, "b 1"],
    ]
    alone = clusters_of(table[:1], heads.assign(primary=""))
    assert alone[["name", "heads", "types"]].to_numpy().tolist() == [["offset-1", "L0H0", ""]]
    assert clusters_of(table[:0], heads).empty


def test_what_nearly_all_heads_do_makes_no_cluster():
    own = ["key NOUN", "offset-1", "follower"]
    table = rules(
        *[(head, "", "token 0", 4.0, 0.6) for head in range(6)],
        *[(head, "", own[head // 2], 2.0, 0.1) for head in range(6)],
    )
    heads = pd.DataFrame(
        [(0, h, "", 1.0, 0.5) for h in range(6)],
        columns=["layer", "head", "primary", "bits", "explained"],
    )
    found = clusters_of(table, heads)
    assert sorted(found["heads"]) == ["L0H0;L0H1", "L0H2;L0H3", "L0H4;L0H5"]
    assert sorted(name.split(", ")[0] for name in found["name"]) == sorted(own)
