"""Answers on single heads: those of the whole model's run, and an example in a line."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.cli.terminal import folded
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.errors import RunError
from headscope.measure.example import Example
from headscope.studies.why import NUMBERS, HeadAnswers, short_example
from tests.helpers.shell import headscope

MINI = str(mini_folder())
GOLD = data_folder() / "corpora" / "gold.conllu"


@pytest.fixture(scope="module")
def some() -> HeadAnswers:
    return hs.why(MINI, ["L4H3", "2.6", "L4H3"], GOLD, max_tokens=1_500, progress=False)


@pytest.fixture(scope="module")
def whole() -> hs.Run:
    return hs.classify(MINI, GOLD, quick=True, max_tokens=1_500, progress=False)


def test_the_numbers_are_those_of_a_quick_run_of_the_whole_model(some, whole):
    keys = ["layer", "head", "type", "relation"]
    both = some.run.evidence.merge(whole.evidence, on=keys, suffixes=("", "_whole"))
    assert len(both) == len(some.run.evidence)
    assert sorted(both["layer"].unique()) == [2, 4]
    for column in ("n", "mass", "control", "lift", "hit_rate", "chance", "hard_n"):
        pd.testing.assert_series_equal(
            both[column], both[f"{column}_whole"], check_names=False, rtol=1e-6
        )


def test_q_values_count_the_heads_that_were_read_and_the_answer_says_so(some, whole):
    keys = ["layer", "head", "type", "relation"]
    both = some.run.evidence.merge(whole.evidence, on=keys, suffixes=("", "_whole"))
    both = both[both["q_value"].notna()]
    assert len(both) > 100
    assert not (both["q_value"] - both["q_value_whole"]).abs().max() < 1e-6
    assert "; L2, L4 only: q values correct for their heads" in str(some)


def test_examples_are_of_these_heads_alone(some):
    assert {(example.layer, example.head) for example in some.run.examples} == {(4, 3), (2, 6)}
    best = [e for e in some.run.examples if e.kind == "best" and e.layer == 4]
    relation = some.table["relation"].iloc[0]
    highest = max(example.mass for example in best if example.relation == relation)
    line = next(line for line in str(some).splitlines() if line.startswith("  best query:"))
    assert f" {highest:.2f} " in line


def test_the_table_has_the_numbers_of_the_evidence(some):
    assert some.table.index.tolist() == ["L4H3", "L2H6"]
    row = some.table.loc["L4H3"]
    evidence = some.run.evidence
    ids = evidence["type"] + "/" + evidence["relation"]
    (own,) = evidence[
        (evidence["layer"] == 4) & (evidence["head"] == 3) & (ids == row["relation"])
    ].to_dict("records")
    assert row["tags"].split(";")[0] == row["relation"]
    for name in NUMBERS:
        assert own[name] == row[name] or pd.isna(row[name])


def test_every_condition_can_be_asked_of_these_heads(some):
    assert "yes mass" in some.why("L4H3")
    assert some.why("4.3", "offset-2").startswith("L4H3: ")


def test_a_run_answers_as_it_is():
    run = hs.load("atlas:mini")
    answers = hs.why(run, "L5H3, L0H0", progress=False)
    assert not answers.is_measured
    assert answers.run is run
    assert answers.table["tags"].str.startswith("induction/repeat").tolist() == [True, False]
    evidence = run.evidence
    own = evidence[
        (evidence["layer"] == 5) & (evidence["head"] == 3) & (evidence["relation"] == "repeat")
    ]
    assert answers.table["mass"].iloc[0] == own["mass"].iloc[0]


def test_a_setting_has_a_model_with_an_atlas_read():
    assert not hs.why("mini", "L0H0", progress=False).is_measured
    assert hs.why("mini", "L0H0", max_tokens=300, types=["positional"], progress=False).is_measured
    with pytest.raises(RunError, match="seed"):
        hs.why("atlas:mini", "L0H0", seed=3)


def test_the_command_prints_a_few_lines_on_each_head_and_every_condition_on_request():
    one, several = (
        headscope("why", "atlas:mini", "L5H3", "--full"),
        headscope("why", "atlas:mini", "L5H3", "4.3"),
    )
    assert one.stdout == f"{folded(hs.load('atlas:mini').why('L5H3'), 100)}\n"
    assert "yes mass" in one.stdout
    assert len(several.stdout.splitlines()) <= 25
    assert "yes mass" not in several.stdout
    assert re.findall(r"^L\dH\d", several.stdout, re.MULTILINE) == ["L5H3", "L4H3"]
    assert max(map(len, several.stdout.splitlines())) <= 100
    conditions = headscope("why", "atlas:mini", "L5H3", "L4H3", "--relation", "induction/repeat")
    assert conditions.stdout.count("induction/repeat: ") >= 2
    assert "no  mass" in conditions.stdout


def example(query: int, targets: tuple[int, ...], **values) -> Example:
    """An example of the words a0 to a19; later targets have more attention."""
    pattern = np.zeros((20, 20), np.float16)
    pattern[query] = np.arange(20) / 200
    tokens = tuple(f" a{i}" for i in range(20))
    plain = {"positions": tuple(range(20)), "left_out": (), "length": 20}
    return Example(0, 0, "x/y", "best", 0.9, "w", tokens, query, targets, pattern, **plain | values)


def test_what_is_near_the_query_and_its_target_is_shown_and_the_rest_left_out():
    line = short_example(example(18, (3,)), width=40)
    assert line == "… a1 a2 «a3» a4 a5 … a16 a17 [[a18]] a19"


def test_a_line_is_no_wider_than_it_may_be_and_as_wide_as_it_can():
    for width in (20, 30, 45, 60, 80):
        line = short_example(example(18, (3,)), width=width)
        assert len(line) <= width
        assert "«a3»" in line
        assert "[[a18]]" in line
    assert len(short_example(example(18, (3,)), width=45)) > 30


def test_words_of_wordpiece_are_apart_and_their_pieces_are_joined():
    pieces = ("[CLS]", "the", "key", "##s", "were", "under", "##ground", *["."] * 13)
    wordpiece = replace(example(6, (2,)), tokens=pieces)
    assert short_example(wordpiece, width=60).startswith("[CLS] the «key»s were under[[ground]] .")


def test_of_many_targets_those_with_the_most_attention_are_shown():
    line = short_example(example(18, (2, 7, 12)), width=60)
    assert "«a12»" in line
    assert "«a2»" not in line


def test_a_token_after_a_gap_of_the_excerpt_is_not_shown_as_its_neighbour():
    positions = (*range(10), *range(30, 40))
    line = short_example(example(10, (9,), positions=positions, length=60), width=60)
    assert "«a9» … [[a10]]" in line
    assert line.endswith("…")


def test_tasks_beside_the_run_whose_circuit_has_the_head_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    head = {"name": "L5H5", "in_circuit": True, "effect": {"mean": -1.5}}
    head["sentences"] = ["L5H5: from the last token to the answer (0.52)"]
    other = head | {"name": "L4H3", "in_circuit": False}
    for folder, model in (("pairs", "mini"), ("foreign", "gpt2")):
        path = tmp_path / "runs" / "tasks" / folder / "circuit.json"
        path.parent.mkdir(parents=True)
        content = {
            "model": {"name": model},
            "task": {"name": folder, "unit": "nats"},
            "circuit": {"heads": ["L5H5"]},
            "heads": [head, other],
        }
        path.write_text(json.dumps(content))
    (tmp_path / "runs" / "tasks" / "pairs" / "broken.json").write_text("{")
    text = str(hs.why("atlas:mini", "L5H5"))
    assert "task pairs (-1.50 nats" in text
    assert "foreign" not in text
    assert "pairs" not in str(hs.why("atlas:mini", "L4H3"))
