"""Answers on single heads: those of the whole model's run, and verdicts on planted heads."""

from __future__ import annotations

import re

import pandas as pd
import pytest

import headscope as hs
from headscope.cli.terminal import folded
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.errors import (
    ArgumentError,
    CorpusError,
    HeadscopeError,
    ModelError,
    RunError,
)
from headscope.studies.why import NUMBERS, HeadAnswers
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
    for column in ("n", "mass", "control", "lift", "hit_rate", "chance", "contested_n"):
        pd.testing.assert_series_equal(
            both[column], both[f"{column}_whole"], check_names=False, rtol=1e-6
        )


def test_q_values_count_the_heads_that_were_read_and_the_answer_says_so(some, whole):
    keys = ["layer", "head", "type", "relation"]
    both = some.run.evidence.merge(whole.evidence, on=keys, suffixes=("", "_whole"))
    both = both[both["q_value"].notna()]
    assert len(both) > 100
    assert not (both["q_value"] - both["q_value_whole"]).abs().max() < 1e-6
    assert "of L2, L4 alone, whose heads are all that q values count" in str(some)


def test_each_head_is_named_once_in_the_order_of_the_question(some):
    assert some.table.index.tolist() == ["L4H3", "L2H6"]
    assert some.heads == ((4, 3), (2, 6))


def test_examples_are_of_these_heads_alone(some):
    assert {(example.layer, example.head) for example in some.run.examples} == {(4, 3), (2, 6)}
    best = [e for e in some.run.examples if e.kind == "best" and e.layer == 4]
    line = next(line for line in str(some).splitlines() if line.startswith("  best:"))
    assert line.startswith(
        f"  best:  {max(e.mass for e in best if e.relation == some.table['relation'].iloc[0]):.2f} "
    )


def test_a_head_has_five_lines_and_the_end_says_what_was_not_asked(some):
    first, second, end = str(some).split("\n\n")
    assert [len(part.splitlines()) for part in (first, second)] == [5, 5]
    assert first.startswith("L4H3: positional/offset-1")
    for words in (
        "preliminary, not asked: more relations of the type lexical",
        "the twin (null model: the weights shuffled)",
        "tokens of gold.conllu",
        "this text can decide",
    ):
        assert words in end


def test_the_table_has_the_numbers_of_the_evidence(some):
    row = some.table.loc["L4H3"]
    evidence = some.run.evidence
    ids = evidence["type"] + "/" + evidence["relation"]
    (own,) = evidence[
        (evidence["layer"] == 4) & (evidence["head"] == 3) & (ids == row["relation"])
    ].to_dict("records")
    assert row["tags"].split(";")[0] == row["relation"]
    for name in NUMBERS:
        assert own[name] == row[name] or pd.isna(row[name])


def test_every_condition_can_be_asked_of_these_heads_and_of_no_other(some):
    assert "yes mass" in some.why("L4H3")
    assert some.why("4.3", "offset-2").startswith("L4H3: ")
    with pytest.raises(RunError, match="L4H2 was not asked about; these were: L4H3, L2H6"):
        some.why("L4H2")


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


def test_the_name_of_a_model_with_an_atlas_is_read_where_that_is_asked_or_a_setting_given():
    assert not hs.why("mini", "L0H0", progress=False).is_measured
    assert hs.why("mini", "L0H0", GOLD, max_tokens=300, progress=False).is_measured
    assert hs.why(
        "mini", "L0H0", measure=True, types=["positional"], max_tokens=300, progress=False
    ).is_measured


def test_a_model_in_memory_is_read_too(gpt2_folder):
    from transformers import AutoModelForCausalLM, AutoTokenizer

    pair = (
        AutoModelForCausalLM.from_pretrained(gpt2_folder),
        AutoTokenizer.from_pretrained(gpt2_folder),
    )
    answers = hs.why(pair, "L0H1", GOLD, max_tokens=300, progress=False)
    assert set(answers.run.evidence["layer"]) == {0}


@pytest.mark.parametrize(
    ("model", "heads", "options", "error", "words"),
    [
        (MINI, "L9H9", {}, RunError, r"no head L9H9 in .*; they go up to L5H7"),
        (MINI, "nine", {}, HeadscopeError, "'nine' is not a head; write L5H1 or 5.1"),
        (MINI, [], {}, ArgumentError, r"heads is an empty list, expected names of heads"),
        ("atlas:mini", "L9H9", {}, RunError, "no head L9H9 in this run; they go up to L5H7"),
        ("atlas:mini", "L0H0", {"measure": True}, RunError, "measure: a run is read as it is"),
        ("atlas:mini", "L0H0", {"seed": 3}, RunError, "seed: a run is read as it is"),
        (MINI, "L0H0", {"corpus": "nowhere.txt"}, CorpusError, "nowhere.txt: no such corpus file"),
        (MINI, "L0H0", {"colour": 1}, ArgumentError, "no setting named 'colour'"),
        ("./nowhere/at/all", "L0H0", {}, ModelError, "no such folder; nor is it a run folder"),
    ],
)  # fmt: skip
def test_what_cannot_be_answered_is_refused_in_words(model, heads, options, error, words):
    with pytest.raises(error, match=words):
        hs.why(model, heads, progress=False, **options)


def test_the_command_says_of_one_head_of_a_run_everything_and_of_several_five_lines():
    one, several = (
        headscope("why", "atlas:mini", "L5H3"),
        headscope("why", "atlas:mini", "L5H3", "4.3"),
    )
    assert one.stdout == f"{folded(hs.load('atlas:mini').why('L5H3'), 100)}\n"
    assert "yes mass" in one.stdout
    assert "yes mass" not in several.stdout
    assert re.findall(r"^L\dH\d", several.stdout, re.MULTILINE) == ["L5H3", "L4H3"]
    assert max(map(len, several.stdout.splitlines())) <= 100
    conditions = headscope("why", "atlas:mini", "L5H3", "L4H3", "--relation", "induction/repeat")
    assert conditions.stdout.count("induction/repeat: ") >= 2
    assert "no  mass" in conditions.stdout


def test_the_command_measures_a_folder_and_prints_a_table_for_programs():
    done = headscope(
        *("why", MINI, "L4H3", "--corpus", GOLD),
        *("--max-tokens", 1_500, "--format", "csv", "-q"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    header, row = done.stdout.splitlines()
    assert header.startswith("layer,head,tags,relation,verdict,mass")
    assert row.startswith("4,3,positional/offset-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mini"], "no head is named; write one such as L5H1"),
        (["atlas:mini", "L0H0", "--twin"], "twin: a run is read as it is; give the name of its"),
        (["nine", "nine"], "'nine' is not a head"),
    ],
)
def test_the_command_refuses_in_one_line_with_exit_code_2(words, message):
    done = headscope("why", *words)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_the_guide_s_example_is_what_the_command_prints():
    page = (data_folder().parent / "docs" / "guide.md").read_text(encoding="utf-8")
    words, block = re.search(
        r"```text\n\$ headscope why ([^\n]*)\n(.*?)\n```", page, re.DOTALL
    ).groups()
    model, *heads = words.split()
    assert block == folded(str(hs.why(model, heads, progress=False)), 80)
