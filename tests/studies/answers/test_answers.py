"""Answers on single heads: those of the whole model's run, and verdicts on planted heads."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import headscope as hs
from headscope.cli.terminal import folded
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.errors import (
    ArgumentError,
    ChoiceError,
    CorpusError,
    HeadscopeError,
    ModelError,
    RunError,
)
from headscope.statistics.tags import UNIDENTIFIABLE
from headscope.studies.answers.answers_result import NUMBERS, HeadAnswers
from headscope.studies.answers.claim import ANOTHER, HOLDS, NO_ACCOUNT
from headscope.studies.answers.heads_file import heads_of_file
from tests.helpers.shell import headscope
from tests.oracles.calibrate import DOCUMENTS, SEED, planted_vocabulary
from tests.oracles.planted import HEADS, by_place, save_planted

MINI = str(mini_folder())
GOLD = data_folder() / "corpora" / "gold.conllu"
PLACES = {head.name: f"L{layer}H{number}" for (layer, number), head in by_place(HEADS).items()}


@pytest.fixture(scope="module")
def planted(tmp_path_factory) -> tuple[Path, Path]:
    """A model whose heads are built by hand, and text of its words."""
    home = tmp_path_factory.mktemp("planted")
    text = controlled_corpus(DOCUMENTS, seed=SEED)
    corpus = home / "controlled.conllu"
    corpus.write_text(text, encoding="utf-8")
    return save_planted("gpt2", planted_vocabulary(text), home / "model"), corpus


def claimed(planted: tuple[Path, Path], claim: str, *names: str) -> dict[str, str]:
    """The verdict on each planted head."""
    model, corpus = planted
    places = [PLACES[name] for name in names]
    answers = hs.why(model, places, corpus, claim=claim, progress=False)
    verdicts = answers.table["claim_verdict"]
    return {name: verdicts[place] for name, place in zip(names, places, strict=True)}


def test_a_published_name_holds_of_the_head_that_was_built_so_and_of_no_other(planted):
    names = ("induction", "previous token", "uniform", "nearest verb")
    assert claimed(planted, "induction", *names) == {
        "induction": HOLDS,
        "previous token": ANOTHER,
        "uniform": NO_ACCOUNT,
        "nearest verb": ANOTHER,
    }


def test_a_relation_is_told_from_another_of_its_type(planted):
    names = ("previous token", "two back", "random")
    assert claimed(planted, "positional/offset-2", *names) == {
        "previous token": ANOTHER,
        "two back": HOLDS,
        "random": NO_ACCOUNT,
    }


def test_a_general_label_holds_of_a_head_with_one_of_its_relations():
    answers = hs.why(
        "atlas:smollm2", ["L10H1", "L16H0"], claim="syntactic/argument:dep>head", progress=False
    )
    assert answers.table["claim_verdict"].tolist() == [HOLDS, ANOTHER]
    assert answers.table["relation"].iloc[0] == "syntactic/obj:dep>head"


@pytest.mark.slow
def test_a_type_that_a_quick_run_leaves_out_is_asked_where_it_is_claimed(planted):
    verdicts = claimed(planted, "lexical", "nearest verb", "uniform")
    assert verdicts == {"nearest verb": HOLDS, "uniform": NO_ACCOUNT}


def test_what_a_text_has_no_query_of_is_not_identifiable(planted):
    model, corpus = planted
    answers = hs.why(
        model, PLACES["induction"], corpus, claim="code", max_tokens=1_500, progress=False
    )
    assert answers.table["claim_verdict"].tolist() == [UNIDENTIFIABLE]
    assert "the text holds no queries of code" in str(answers)
    assert f"{UNIDENTIFIABLE}: code; tagged induction/repeat" in str(answers)


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
        "preliminary, not asked: the types",
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


def test_it_shows_itself_in_a_notebook_and_in_one_line(some):
    page = some._repr_html_()
    assert page.count("<tr>") == 2
    assert "preliminary, not asked" in page
    assert repr(some).startswith("<headscope answers on")
    assert "L4H3 positional/offset-1" in repr(some)


def test_every_condition_can_be_asked_of_these_heads_and_of_no_other(some):
    assert "yes mass" in some.why("L4H3")
    assert some.why("4.3", "offset-2").startswith("L4H3: ")
    with pytest.raises(RunError, match="L4H2 was not asked about; these were: L4H3, L2H6"):
        some.why("L4H2")


def test_a_run_answers_as_it_is():
    run = hs.load("atlas:mini")
    answers = hs.why(run, "L5H3, L0H0", claim="induction/repeat", progress=False)
    assert not answers.is_measured
    assert answers.run is run
    assert answers.table["claim_verdict"].tolist() == [HOLDS, NO_ACCOUNT]
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
        (MINI, "L0H0", {"claim": "inductoin"}, ChoiceError, r"inductoin' \(is induction meant\?\); choose from: sink, "),
        ("mini", "L0H0", {"claim": "positional/ofset-1"}, ChoiceError, r"\(is positional/offset-1 meant\?\); choose"),
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


def test_a_file_names_a_head_on_each_line(tmp_path):
    path = tmp_path / "heads.txt"
    path.write_text("# of the paper\nL5H3\n\n  4.3  # the previous token\n", encoding="utf-8")
    assert heads_of_file(path) == ["L5H3", "4.3"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"L5H3\n\nL4x3\n", r"heads\.txt:3: 'L4x3' is not a head; write L5H1"),
        (b"# none\n", r"heads\.txt: it names no head; give a text file with a head"),
        (b"\xff\xfe\x00L", r"heads\.txt: no UTF-8 text; give a text file"),
    ],
)
def test_a_file_with_a_bad_line_is_refused_by_its_number(tmp_path, content, words):
    (tmp_path / "heads.txt").write_bytes(content)
    with pytest.raises(HeadscopeError, match=words):
        heads_of_file(tmp_path / "heads.txt")


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


def test_the_command_measures_a_folder_and_prints_a_table_for_programs(tmp_path):
    heads = tmp_path / "heads.txt"
    heads.write_text("L4H3\n", encoding="utf-8")
    done = headscope(
        *("why", MINI, "--heads", heads, "--as", "positional", "--corpus", GOLD),
        *("--max-tokens", 1_500, "--format", "csv", "-q"),
    )
    assert (done.returncode, done.stderr) == (0, "")
    header, row = done.stdout.splitlines()
    assert header.startswith("layer,head,claim,claim_verdict,tags,relation,verdict,mass")
    assert row.startswith("4,3,positional,holds,positional/offset-1")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["mini"], "no head is named; write one such as L5H1, or --heads FILE"),
        (["mini", "L0H0", "--as", "poetic"], "no head type named 'poetic'"),
        (["mini", "L0H0", "--heads", "nowhere"], "nowhere: cannot be read"),
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
    model, *heads, option, claim = words.split()
    assert option == "--as"
    answers = hs.why(model, heads, claim=claim, progress=False)
    assert block == folded(str(answers), 80)
