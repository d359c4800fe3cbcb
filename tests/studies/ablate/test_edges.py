"""Silencing the edges of a tag: exactly these, and told from edges that do not matter."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.errors import ChoiceError
from headscope.evidence.causes import BREAKS, IDLE, NO_CAUSE, UNTESTED, cause_lines, judged
from headscope.measure.deal import deal
from headscope.measure.of_each_document import edge_windows
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.studies.ablate.at_queries import AtQueries, Moves
from headscope.studies.ablate.edges import Measured, Tag, choose_queries, nothing, silence_edges
from headscope.studies.explain.running import running
from tests.helpers import matching


def one(query: int, layer: int, head: int, amount: list[int], source: list[int]) -> Moves:
    rows = (np.array([each]) for each in (query, layer, head))
    return Moves(*rows, np.zeros(len(amount), int), np.array(amount), np.array(source))


@pytest.mark.parametrize("layer", [0, 1])
def test_a_query_run_alone_predicts_what_the_whole_model_does_with_that_pattern(
    model_folder, layer
):
    model = load_model(str(model_folder))
    tokens = np.random.default_rng(1).integers(1, 90, 24)
    query, head = 17, 2
    plain = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager")
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        clean = plain(ids, output_attentions=True)
    pattern = clean.attentions[layer].clone()
    cells = (pattern[0, head, query, 1:].topk(2).indices + 1).tolist()
    found = AtQueries(model).run(tokens, one(query, layer, head, cells, cells))
    moved = pattern[0, head, query, cells].sum()
    pattern[0, head, query, 0] += moved
    pattern[0, head, query, cells] = 0
    network = model.engine.network
    with torch.no_grad(), running(network, {layer: [head]}, lambda layer, given: pattern):
        silenced = network(ids).logits
    before, after = (each[0, query].log_softmax(-1) for each in (clean.logits, silenced))
    expected = float((before.exp() * (before - after)).sum())
    assert expected > 1e-6
    assert found.divergence[0] == pytest.approx(expected, rel=0.02, abs=1e-6)
    assert found.moved[0] == pytest.approx(float(moved), abs=1e-5)
    following = tokens[query + 1]
    assert found.clean[0] == pytest.approx(float(before[following]), abs=1e-3)
    assert found.silenced[0] == pytest.approx(float(after[following]), abs=1e-3)


def test_the_last_token_is_followed_by_none_and_queries_do_not_touch_each_other(gpt2_folder):
    runner = AtQueries(load_model(str(gpt2_folder)))
    tokens = np.random.default_rng(2).integers(1, 90, 20)
    alone = runner.run(tokens, one(19, 0, 1, [3], [3]))
    assert np.isnan(alone.clean[0])
    query = np.array([8, 19, 12])
    rows = (query, np.array([0, 0, 1]), np.array([1, 1, 3]))
    beside = runner.run(
        tokens, Moves(*rows, np.arange(3), np.array([3, 3, 5]), np.array([3, 3, 5]))
    )
    assert beside.divergence[1] == pytest.approx(alone.divergence[0], rel=1e-2)


@pytest.fixture(scope="module")
def planted(tokenizer, tmp_path_factory):
    folder = matching.save_matching(tokenizer, tmp_path_factory.mktemp("planted"))
    model = load_model(str(folder))
    return AtQueries(model), edge_windows(model, [], {"repeat"}, seed=0)


def verdicts(planted, heads, *, writes=frozenset(), queries=48) -> pd.DataFrame:
    tags = [Tag(*head, "induction/repeat") for head in heads]
    found = silence_edges(*planted, tags, seed=0, queries=queries)
    return judged(pd.DataFrame([each.row(0) for each in found]), set(writes))


def test_a_head_that_the_logits_need_matters_and_one_that_looks_alike_and_writes_nothing_does_not(
    planted,
):
    heads = (matching.INDUCTION, matching.DECOY, matching.IDLE)
    table = verdicts(planted, heads, writes={matching.IDLE}).set_index("head")
    assert table["verdict"].tolist() == [BREAKS, NO_CAUSE, IDLE]
    assert table["agrees"].tolist() == [True, False, False]
    # all three look at the same keys
    assert (table["moved"] > 0.99).all()
    assert table.loc[0, "ablated"] < table.loc[0, "clean"] - 10
    assert table.loc[1, "effect"] < 1e-6
    (line,) = cause_lines(table.reset_index(), *matching.INDUCTION)
    assert line.startswith("induction/repeat: silencing the edges to its targets (1.00 of the")
    assert line.endswith(BREAKS)


def test_one_control_beside_another_is_no_cause(planted):
    runner, windows = planted
    (relation,) = (r for r in relations_of(["induction"]) if r.name == "repeat")
    blocks, _ = deal(windows)
    own, other, block = [], [], []
    for asked in choose_queries(relation, windows, blocks, queries=48, seed=3):
        for found, source in zip((own, other), asked.controls, strict=True):
            moves = one(asked.query, *matching.INDUCTION, list(asked.targets), list(source))
            found.append(runner.run(windows[asked.window].tokens, moves).divergence[0])
        block.append(int(blocks[asked.window]))
    values = [np.array(each) for each in (own, other)]
    assert min(each.mean() for each in values) > 0.005
    tag = Tag(*matching.INDUCTION, relation.id)
    measured = Measured(tag, np.array(block), values[0], *values, values[0], values[0])
    assert judged(pd.DataFrame([measured.row(0)]), set())["verdict"].tolist() == [NO_CAUSE]


def test_what_has_few_queries_or_no_known_relation_is_not_tested(planted):
    table = verdicts(planted, (matching.INDUCTION,), queries=12)
    assert table["verdict"].tolist() == [f"{UNTESTED}: 12 queries in 12 documents"]
    tag = Tag(*matching.INDUCTION, "mine/own")
    (found,) = silence_edges(*planted, [tag], seed=0)
    row = judged(pd.DataFrame([found.row(0)]), set()).iloc[0]
    assert row["verdict"] == f"{UNTESTED}: 0 queries in 0 documents"
    assert np.isnan(row["effect"])
    said = cause_lines(judged(pd.DataFrame([nothing(tag, "why not")]), set()), *matching.INDUCTION)
    assert said == [f"mine/own, edges to its targets: {UNTESTED}: why not"]


def test_q_values_are_over_all_tests(planted):
    heads = (matching.INDUCTION, matching.DECOY, matching.IDLE, (1, 3))
    few, many = (verdicts(planted, own) for own in (heads[:1], heads))
    assert many["q_value"].iloc[0] == pytest.approx(4 * few["q_value"].iloc[0], rel=1e-6)


def test_queries_are_of_as_many_documents_as_there_are(planted):
    _, windows = planted
    relation = next(r for r in relations_of(["induction"]) if r.name == "repeat")
    blocks, _ = deal(windows)
    asked = choose_queries(relation, windows, blocks, queries=48, seed=0)
    count = np.bincount([blocks[each.window] for each in asked])
    assert len(asked) == 48
    assert count[count > 0].tolist() == [2] * 24
    for each in asked:
        assert not {*each.controls.ravel().tolist()} & {*each.targets.tolist()}


def test_no_such_thing_to_silence_is_said(tmp_path, planted):
    run = hs.score_patterns(np.eye(9, k=-1)[None, None] + np.eye(9)[0] * np.eye(9)[:, :1], None,
                            ["<s>", *"abcdefgh"])  # fmt: skip
    with pytest.raises(ChoiceError, match="choose from: both, heads, edges"):
        hs.ablate(run, only="tags")
