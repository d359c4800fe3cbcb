"""`headscope sweep languages` as its users see it: folders, tables, exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest

import headscope as hs
from headscope.errors import CorpusError, HeadscopeError, RunError
from headscope.models.tokenizer import Tokenizer
from headscope.settings import Settings
from headscope.studies.sweep.languages.classify_languages import shared_documents
from tests.helpers.treebanks import save_treebanks

SMALL = {"max_tokens": 1_500, "twin": False, "examples": False}
FLAGS = ["--max-tokens", "1500", "--no-twin", "--no-examples", "-q"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_treebanks(tmp_path_factory.mktemp("pud"), ["en", "ja", "zh"], documents=12)


@pytest.fixture(scope="module")
def made(folder, gpt2_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("languages") / "out"
    hs.languages(str(gpt2_folder), folder, out=out, **SMALL)
    return out


def runs(out: Path) -> dict[str, hs.Run]:
    cells = json.loads((out / "sweep.json").read_text())["cells"]
    return {cell["corpus"][0][:2]: hs.load(out / cell["folder"]) for cell in cells}


def test_each_language_is_a_run_and_two_tables_lie_beside_them(made):
    own = runs(made)
    assert list(own) == ["en", "ja", "zh"]
    table = pd.read_csv(made / "languages.csv", keep_default_na=False)
    relations = pd.read_csv(made / "relations.csv", keep_default_na=False)
    assert set(relations["language"]) == set(own)
    ja = relations[(relations["language"] == "ja") & (relations["relation"] == "obj:head>dep")]
    evidence = own["ja"].evidence.set_index(["relation", "layer", "head"]).loc["obj:head>dep"]
    assert ja["n"].item() == evidence["n"].iloc[0]
    assert ja["lift"].item() == pytest.approx(evidence["lift"].max())
    best = evidence["lift"].idxmax()
    assert ja["best"].item() == f"L{best[0]}H{best[1]}"
    assert len(table) % (2 * 4) == 0  # every head of a relation that some language decides
    assert (table["decidable"] >= 1).all()


def test_all_languages_read_the_same_documents(made):
    own = runs(made)
    documents = {run.info["settings"]["documents"] for run in own.values()}
    assert len(documents) == 1
    count = documents.pop()
    assert 0 < count < 12
    # what takes the most tokens decides: these characters are three bytes each
    read = {language: run.info["text_read"]["tokens"] for language, run in own.items()}
    assert max(read.values()) <= SMALL["max_tokens"] < max(read.values()) * (count + 1) / count
    assert all(not run.info["settings"]["built"] for run in own.values())


def test_texts_that_are_not_parallel_are_read_each_to_its_own_end(folder, tokenizer, tmp_path):
    encoder, how = Tokenizer(tokenizer, name="t"), Settings(max_tokens=100_000)
    text = {name: [folder / f"{name}_pud-ud-test.conllu"] for name in ("en", "ja")}
    assert shared_documents(text, encoder, how, 1024) == 12
    assert shared_documents(text, encoder, Settings(documents=5), 1024) == 5
    other = tmp_path / "zh_x-ud-test.conllu"
    own = (folder / "zh_pud-ud-test.conllu").read_text(encoding="utf-8")
    other.write_text(own.replace("# newdoc id = n", "# newdoc id = w"), encoding="utf-8")
    assert shared_documents({**text, "zh": [other]}, encoder, how, 1024) is None
    # no document of one of them fits
    few = Settings(max_tokens=20)
    assert shared_documents(text, encoder, few, 1024) is None


def test_documents_of_other_texts_are_as_many_as_were_asked_for(folder, gpt2_folder, tmp_path):
    path = tmp_path / "pud" / "zh_x-ud-test.conllu"
    path.parent.mkdir()
    own = (folder / "zh_pud-ud-test.conllu").read_text(encoding="utf-8")
    path.write_text(own.replace("# newdoc id = n", "# newdoc id = w"), encoding="utf-8")
    corpus = [folder / "en_pud-ud-test.conllu", path]
    found = hs.languages(
        str(gpt2_folder), corpus, out=tmp_path / "out", documents=3, types=None, **SMALL
    )
    assert found.parallel is None
    assert {run.info["settings"]["documents"] for run in runs(tmp_path / "out").values()} == {3}
    assert set(found.evidence["type"]) == {"syntactic"}


def test_the_same_call_goes_on_after_a_stop(folder, gpt2_folder, tmp_path):
    told: list[str] = []
    how = {"out": tmp_path / "out", "languages": ["en", "ja"], **SMALL}
    first = hs.languages(str(gpt2_folder), folder, **how)
    again = hs.languages(str(gpt2_folder), folder, tell=told.append, **how)
    assert [line.rpartition(", ")[2] for line in told] == ["as it was", "as it was"]
    pd.testing.assert_frame_equal(first.table, again.table)
    with pytest.raises(RunError, match=r"another documents \(.*; another max_tokens \(1500, and 9"):
        hs.languages(str(gpt2_folder), folder, **{**how, "max_tokens": 900})


def test_the_terminal_and_a_picture(folder, gpt2_folder, tmp_path, command):
    out, picture = tmp_path / "out", tmp_path / "new" / "languages.svg"
    folder = save_treebanks(tmp_path / "pud", ["en", "zh"])
    told = (
        "sweep",
        "languages",
        gpt2_folder,
        "--corpus",
        folder,
        "--out",
        out,
        "--figure",
        picture,
    )
    code, said, _ = command(*told, "--no-twin", "--no-examples", "-q")
    assert code == 0
    assert "in 2 languages: en, zh" in said
    assert "documents in every language" in said
    assert picture.read_text(encoding="utf-8").startswith("<?xml")
    for name in (out / "languages.csv", out / "relations.csv", picture):
        assert f"written to {name}" in said.replace("\n", "")


def test_texts_too_short_to_decide_anything_say_so_where_a_picture_is_asked_for(
    folder, gpt2_folder, tmp_path, command
):
    out, picture = tmp_path / "out", tmp_path / "languages.svg"
    told = (
        "sweep",
        "languages",
        gpt2_folder,
        "--corpus",
        folder,
        "--out",
        out,
        "--figure",
        picture,
    )
    code, said, wrong = command(*told, *FLAGS)
    assert code == 2
    assert "there is nothing to draw; read more" in wrong.replace("\n", " ")
    assert "no head holds a relation in any of them" in said
    assert (out / "languages.csv").is_file()
    assert not picture.exists()


def test_a_language_that_fails_is_named_and_the_others_are_read(
    folder, gpt2_folder, tmp_path, command
):
    broken = tmp_path / "de_pud-ud-test.conllu"
    broken.write_text("1\tHaus\n\n", encoding="utf-8")
    given = ["--corpus", folder, "--corpus", broken, "--languages", "en,ja,de"]
    out = tmp_path / "out"
    code, _, told = command("sweep", "languages", gpt2_folder, *given, "--out", out, *FLAGS)
    assert code == 2
    assert "de_pud-ud-test.conllu:1: 2 columns" in told
    assert not out.exists()


def test_what_cannot_be_compared_is_refused_before_anything_is_read(folder, gpt2_folder, tmp_path):
    model, out = str(gpt2_folder), tmp_path / "out"
    with pytest.raises(HeadscopeError, match=r"one language alone \(ja\)"):
        hs.languages(model, folder, languages=["ja"], out=out)
    with pytest.raises(HeadscopeError, match="semantic is asked in English sentences too"):
        hs.languages(model, folder, types=["syntactic", "semantic"], out=out)
    with pytest.raises(HeadscopeError, match="poetic"):
        hs.languages(model, folder, types=["poetic"], out=out)
    with pytest.raises(CorpusError, match="no such corpus"):
        hs.languages(model, tmp_path / "none", out=out)
    (tmp_path / "held").mkdir()
    (tmp_path / "held" / "thesis.txt").write_text("precious")
    with pytest.raises(RunError, match="holds other things"):
        hs.languages(model, folder, out=tmp_path / "held", **SMALL)
    assert not out.exists()
    assert [path.name for path in (tmp_path / "held").iterdir()] == ["thesis.txt"]


def test_no_treebanks_are_asked_for_in_one_line(gpt2_folder, command):
    code, _, said = command("sweep", "languages", gpt2_folder)
    assert code == 2
    assert "no treebanks: name them or their folder with --corpus" in said.replace("\n", " ")
