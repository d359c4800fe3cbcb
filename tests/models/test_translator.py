"""A model in Marian's layout built by hand: its heads across are found, and its habits refused."""

from __future__ import annotations

import json

import pytest

import headscope as hs
from headscope.errors import CorpusError
from headscope.models.layout.table import LAYOUTS
from headscope.studies.validation.translator import ACROSS, ALIGNED, save_translator
from tests.helpers.shell import headscope
from tests.helpers.stacks import save_stacks


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return save_translator(tmp_path_factory.mktemp("translator"))


@pytest.fixture(scope="module")
def run(folder, tmp_path_factory):
    out = tmp_path_factory.mktemp("run") / "run"
    types = ["alignment", "positional", "sink"]
    how = {"max_tokens": 6000, "max_length": 120, "types": types}
    return hs.classify(str(folder), ALIGNED, out=out, **how), out


def tags(run) -> dict[str, set[str]]:
    found = run.evidence[run.evidence["tagged"].astype(bool)]
    return {
        name: set(own["type"] + "/" + own["relation"])
        for name, own in found.groupby(found["layer"].map(run.head_names.row))
    }


def test_the_head_that_translates_is_found_and_no_habit_is(run):
    found = run[0].evidence[run[0].evidence["tagged"].astype(bool)]
    tagged = {
        (f"{row.type}/{row.relation}", row.head) for row in found.itertuples() if row.layer == 2
    }
    assert ("alignment/this-word", ACROSS["translation"]) in tagged
    assert {head for relation, head in tagged if relation.startswith("alignment")} == {0}
    assert ("sink/source-end", ACROSS["end of the source"]) in tagged
    (row,) = (row for row in LAYOUTS if row.model_type == "marian")
    assert row.planted == "alignment/this-word, sink/source-end"


def test_a_head_that_finds_the_class_of_a_word_fails_where_that_is_not_enough(run):
    """It has twice the floor and many times its control; only the contested queries tell."""
    evidence = run[0].evidence.set_index(["layer", "head", "relation"])
    row = evidence.loc[(2, ACROSS["word class"], "this-word")]
    assert row["mass"] > 0.6 > 10 * row["control"]
    assert row["contested_n"] > 200
    assert row["contested_lift"] < 0.02
    assert "of-its-class" in row["baseline"]
    assert row["verdict"] == "no"


def test_the_heads_of_each_stack_look_where_they_were_built_to_look(run):
    found = tags(run[0])
    near = {"positional/offset-1", "positional/offset-1-random", "positional/local"}
    ahead = {"positional/offset+1", "positional/offset+1-random"}
    assert found["E0"] == near | ahead
    assert found["D0"] == {f"{name}@D" for name in near}
    assert run[0].heads.index.tolist()[::8] == ["E0H0", "D0H0", "X0H0"]


def test_a_run_is_reloaded_with_its_names(run, folder):
    again = hs.load(run[1])
    assert again.heads.index.tolist() == run[0].heads.index.tolist()
    assert json.loads((run[1] / "run.json").read_text())["model"]["stacks"] == {
        "E": 1,
        "D": 1,
        "X": 1,
    }
    assert again.why("X0H0").startswith("X0H0: alignment/this-word")
    told = headscope("heads", str(run[1]), "--type", "alignment").stdout
    assert "X0H0" in told
    view = again.show("X0H0", "the king saw the ring .", target="den Ring sah der König .")
    rows = dict(zip(view.tokens[view.source :], view.pattern[view.source :], strict=True))
    assert rows["Ring"][view.tokens.index("ring")] > 0.99
    assert rows["König"][view.tokens.index("king")] > 0.99
    example = next(e for e in again.examples if e.relation == "alignment/this-word")
    assert example.pattern[example.query, example.targets].sum() > 0.9


def test_the_report_and_the_atlas_have_every_head_by_its_name(run):
    page = (run[1] / "report.html").read_text()
    assert '"stacks":{"E":1,"D":1,"X":1}' in page
    labels = [each.get_text() for each in run[0].atlas().axes[0].get_yticklabels()]
    assert labels == ["E0", "D0", "X0"]
    assert "X0H0: alignment" in run[0]._repr_html_()


def test_random_weights_translate_nothing(tokenizer, tmp_path):
    save_stacks("marian", tokenizer, tmp_path)
    how = {"max_tokens": 4000, "max_length": 60, "types": ["alignment"]}
    found = hs.classify(str(tmp_path), ALIGNED, **how)
    assert not found.evidence["tagged"].any()
    assert found.heads.loc["E0H0", "reason"] == "nothing was asked of the encoder"
    assert found.evidence["n"].min() > 400


def test_text_that_is_not_aligned_says_nothing_of_translation(folder, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("the king saw the ring . the dog lost the key .\n" * 40)
    found = hs.classify(str(folder), text, types=["alignment"], twin=False, examples=False)
    assert not found.evidence["tagged"].any()
    assert any("no aligned text was given" in note for note in found.info["notes"])


@pytest.mark.parametrize(
    ("links", "said"),
    [
        ("0-0 1-1\n", "fewer lines than sentences"),
        ("0-0\n1-1\n0-0\n", "more lines than sentences"),
        ("0-0 1:1\n-\n", "no pair of words"),
        ("0-0 1-7\n-\n", "names a word that is not there"),
    ],
)
def test_what_is_no_alignment_is_refused_with_its_line(folder, tmp_path, links, said):
    (tmp_path / "a.src.txt").write_text("the king\nthe dog\n")
    (tmp_path / "a.tgt.txt").write_text("der König\nder Hund\n")
    (tmp_path / "a.align").write_text(links)
    with pytest.raises(CorpusError, match=said):
        hs.classify(str(folder), tmp_path, types=["alignment"], twin=False)
