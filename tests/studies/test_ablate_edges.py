"""Knocking out the edges of a tag: the planted head has a causal effect, its decoy has none."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.causal.token_rerun import Changed, Moves, QueryRerunner
from headscope.measure.batches import assign_blocks
from headscope.measure.study_windows import edge_windows
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.window_pairs import WindowPairs
from headscope.statistics.causes import CAUSAL_EFFECT, IDLE, NO_EFFECT, UNTESTED, judged
from headscope.statistics.in_words import causes_in_words
from headscope.studies.ablate_edges import (
    CONTROLS,
    Tag,
    edge_row,
    knock_out_edges,
    queries_by_block,
    tags_of,
)
from tests.helpers import matching


def one(query: int, layer: int, head: int, keys: list[int], draw: int = 0) -> Moves:
    rows = (np.array([each]) for each in (query, layer, head, draw))
    return Moves(*rows, np.zeros(len(keys), int), np.array(keys))


@pytest.fixture(scope="module")
def planted(tokenizer, tmp_path_factory):
    folder = matching.save_matching(tokenizer, tmp_path_factory.mktemp("planted"), average=3.0)
    model = load_model(str(folder))
    return QueryRerunner(model), edge_windows(model, [], {"repeat"}, seed=0)


def verdicts(planted, heads, *, direct_heads=frozenset(), queries=48) -> pd.DataFrame:
    tags = [Tag(*head, "induction/repeat", ("induction/repeat",)) for head in heads]
    return judged(knock_out_edges(*planted, tags, seed=0, queries=queries), set(direct_heads))


def test_a_head_that_the_logits_need_matters_and_one_that_looks_alike_and_writes_nothing_does_not(
    planted,
):
    heads = (matching.INDUCTION, matching.DECOY, matching.IDLE)
    table = verdicts(planted, heads, direct_heads={matching.IDLE}).set_index("head")
    assert table["verdict"].tolist() == [CAUSAL_EFFECT, NO_EFFECT, IDLE]
    # all three look at the same keys
    assert (table["moved"] > 0.99).all()
    assert table.loc[0, "ablated"] < table.loc[0, "clean"] - 10
    assert table.loc[1, "effect"] < 1e-6
    # what follows is what the head looked at, and the other heads' attention says nothing of it
    assert table.loc[0, "loss"] == pytest.approx(table.loc[0, "clean"] - table.loc[0, "ablated"])
    assert table.loc[0, "loss_low"] > 1
    assert table.loc[1, "loss"] == pytest.approx(0, abs=1e-4)
    (line,) = causes_in_words(table.reset_index(), *matching.INDUCTION)
    assert line.startswith("induction/repeat: knocking out the edges to its targets (1.00 of the")
    assert line.endswith(CAUSAL_EFFECT)


def test_one_control_beside_another_has_no_effect(planted):
    runner, windows = planted
    (relation,) = (r for r in relations_of(["induction"]) if r.name == "repeat")
    blocks = assign_blocks(windows).blocks
    parts = []
    for query in queries_by_block([relation], windows, blocks, queries=48, seed=3):
        first, second = (
            runner.run(
                windows[query.window].tokens,
                one(query.query, *matching.INDUCTION, list(query.targets), draw),
            ).divergence[0]
            for draw in (1, 2)
        )
        divergence = np.array([first, first] + [second] * CONTROLS)
        same = np.ones(2 + CONTROLS)
        parts.append((int(blocks[query.window]), Changed(divergence, same, same, same)))
    row = edge_row(Tag(*matching.INDUCTION, relation.id, (relation.id,)), parts, seed=0)
    assert min(row["effect"], row["control"]) > 0.005
    assert judged(pd.DataFrame([row]), set())["verdict"].tolist() == [NO_EFFECT]


def test_what_has_few_queries_or_no_known_relation_is_not_tested(planted):
    table = verdicts(planted, (matching.INDUCTION,), queries=12)
    assert table["verdict"].tolist() == [f"{UNTESTED}: 12 queries in 12 documents"]
    tag = Tag(*matching.INDUCTION, "mine/own", ("mine/own",))
    row = judged(knock_out_edges(*planted, [tag], seed=0), set()).iloc[0]
    assert row["verdict"] == f"{UNTESTED}: 0 queries in 0 documents"
    assert np.isnan(row["effect"])


def test_a_layer_whose_other_heads_rest_has_no_control(tokenizer, tmp_path):
    model = load_model(str(matching.save_matching(tokenizer, tmp_path, sink=True)))
    windows = edge_windows(model, [], {"repeat"}, seed=0)
    table = verdicts((QueryRerunner(model), windows), [matching.INDUCTION])
    assert table["verdict"].tolist() == [
        f"{UNTESTED}: the layer's other attention is enough to compare with at 0 of 48 queries"
    ]
    assert table["effect"].iloc[0] > 1  # what the ablation does is said all the same
    assert np.isnan(table["control"].iloc[0])


def test_queries_are_of_as_many_documents_as_there_are(planted):
    _, windows = planted
    relation = next(r for r in relations_of(["induction"]) if r.name == "repeat")
    blocks = assign_blocks(windows).blocks
    asked = queries_by_block([relation], windows, blocks, queries=48, seed=0)
    count = np.bincount([blocks[each.window] for each in asked])
    assert len(asked) == 48
    assert count[count > 0].tolist() == [2] * 24


def test_tags_with_one_general_label_are_one_tag_of_all_their_relations():
    general = "phrase-head:dep>head (det, case)"
    rows = [
        (0, 1, "det:dep>head", True, general),
        (0, 1, "obj:dep>head", True, ""),
        (0, 1, "case:dep>head", True, general),
        (0, 1, "amod:dep>head", False, ""),
        (0, 2, "det:dep>head", True, ""),
    ]
    columns = ["layer", "head", "relation", "tagged", "general"]
    evidence = pd.DataFrame(rows, columns=columns).assign(type="syntactic")
    tags = tags_of(evidence, [(0, 1), (0, 2)])
    assert [(tag.head, tag.name, tag.relations) for tag in tags] == [
        (
            1,
            "syntactic/phrase-head:dep>head",
            ("syntactic/det:dep>head", "syntactic/case:dep>head"),
        ),
        (1, "syntactic/obj:dep>head", ("syntactic/obj:dep>head",)),
        (2, "syntactic/det:dep>head", ("syntactic/det:dep>head",)),
    ]


def test_of_several_relations_all_queries_are_tested_and_one_of_both_has_both_targets(tokenizer):
    windows = hs.windows(None, tokenizer, max_tokens=1_500)
    relations = [
        r for r in relations_of(["syntactic"]) if r.name in ("det:head>dep", "case:head>dep")
    ]
    blocks = assign_blocks(windows).blocks
    asked = queries_by_block(relations, windows, blocks, queries=10_000, seed=0)
    expected: dict[tuple[int, int], set[int]] = {}
    for number, window in enumerate(windows):
        for relation in relations:
            if (pairs := WindowPairs(window).cells(relation, [0])) is not None:
                cells = zip(pairs.targets.query.tolist(), pairs.targets.key.tolist(), strict=True)
                for query, key in cells:
                    expected.setdefault((number, query), set()).add(key)
    found = {(each.window, each.query): set(each.targets.tolist()) for each in asked}
    assert len(found) == len(asked)
    assert found == expected
    # "of the house" has both
    assert any(
        all(query in relation.pairs(windows[number]).query for relation in relations)
        for number, query in found
    )
