"""Every relation passes the same list, on patterns written by hand."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.relations import head_types, relations_of
from tests.relations.examples import EXAMPLES, KEYS, KEYS_TEXT, Example

every_example = pytest.mark.parametrize("example", EXAMPLES, ids=lambda e: e.relation)


def pattern(example: Example, *, kind: str) -> np.ndarray:
    """One head: `perfect` looks at the targets, `never` at others, `uniform` everywhere."""
    n = len(example.tokens)
    a = np.zeros((n, n))
    for q in range(n):
        if kind == "uniform":
            a[q, : q + 1] = 1 / (q + 1)
        elif kind == "perfect" and q in example.targets:
            a[q, example.targets[q]] = 1 / len(example.targets[q])
        else:
            # anything that is no target: the first token, or the query itself
            a[q, q if example.targets.get(q) == [0] else 0] = 1
    return a[None, None]


KINDS = ("perfect", "never", "uniform")


def heads(example: Example) -> np.ndarray:
    """A head of each kind."""
    return np.concatenate([pattern(example, kind=kind) for kind in KINDS], axis=1)


def rows(run: hs.Run, example: Example) -> dict[str, pd.Series]:
    """Evidence on the example's relation, for the head of each kind."""
    found = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == example.relation]
    assert found["head"].tolist() == [0, 1, 2]
    return dict(zip(KINDS, (row for _, row in found.iterrows()), strict=True))


@cache
def _scored(place: int) -> dict[str, pd.Series]:
    example = EXAMPLES[place]
    a, types = heads(example), on_request(example)
    return rows(hs.score_patterns(a, example.document, example.tokens, types=types), example)


def on_request(example: Example) -> list[str] | None:
    """The example's type where it is asked by name alone; else None, for all types."""
    name = example.relation.split("/")[0]
    return [name] if head_types()[name].on_request else None


def row(example: Example, kind: str) -> pd.Series:
    return _scored(EXAMPLES.index(example))[kind]


@every_example
def test_a_perfect_head_scores_1_one_that_never_looks_0_and_a_uniform_one_the_closed_form(example):
    perfect, never, uniform = (row(example, kind) for kind in KINDS)
    assert perfect["n"] == len(example.targets)
    assert perfect["mass"] == pytest.approx(1)
    assert never["mass"] == 0
    assert never["lift"] <= 0
    assert not never["hit_rate"] > 0
    share = np.mean([len(keys) / (q + 1) for q, keys in example.targets.items()])
    assert uniform[["mass", "chance"]].tolist() == pytest.approx([share, share])
    if example.relation == "sink/first-token":
        assert np.isnan(perfect["hit_rate"])  # the first token is left out of the arg-max
    else:
        assert perfect["hit_rate"] == pytest.approx(1)
        # of a row of q equal keys, the first token left out, each has a q-th of its hit
        hits = np.mean([len(keys) / q for q, keys in example.targets.items()])
        assert uniform["hit_rate"] == pytest.approx(hits, abs=1e-6)


@every_example
def test_its_type_alone_and_beside_a_document_too_short_finds_the_same(example):
    """Short documents and other types contribute nothing; inputs are left as they were."""
    a, short = heads(example), np.array([[[[1.0, 0], [0.5, 0.5]]]]).repeat(len(KINDS), axis=1)
    before, tokens = a.copy(), list(example.tokens)
    run = hs.score_patterns(
        [a, short],
        [example.document, None],
        [example.tokens, ["<bos>", "zz"]],
        types=[example.relation.split("/")[0]],
    )
    assert np.array_equal(a, before)
    assert example.tokens == tokens
    columns = ["n", "mass", "control", "chance", "hit_rate"]
    for kind, alone in rows(run, example).items():
        together = row(example, kind)[columns].astype(float)
        assert alone[columns].astype(float).to_numpy() == pytest.approx(together, nan_ok=True)


def test_the_examples_cover_every_type_and_all_relations_but_sister_rows():
    covered = {e.relation for e in EXAMPLES}
    assert {e.split("/")[0] for e in covered} == {n for n, t in head_types().items() if t.relations}
    rest = {
        r.id for r in relations_of(["all"]) if r.type not in ("syntactic", "positional", "far")
    } - covered
    # the nearest word of each class is one row, and a sink position needs longer windows
    assert {name for name in rest if "/nearest-" not in name} == {"sink/position"}


def previous_token(n: int) -> np.ndarray:
    return np.eye(n, k=-1)[None, None] + np.eye(1, n * n).reshape(1, 1, n, n)


def test_a_previous_token_head_gains_nothing_in_a_relation_of_that_distance():
    """Sums of one query's targets come before the mean, and the control has the same distance."""
    a = previous_token(len(KEYS))
    run = hs.score_patterns(a, KEYS_TEXT, KEYS, types=["syntactic"])
    rows = run.evidence.set_index("relation")
    assert rows.loc["iobj:dep>head", "mass"] == 1
    assert rows.loc["iobj:dep>head", "matched_control"] == 1
