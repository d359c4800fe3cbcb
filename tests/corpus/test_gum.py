"""The natural text that ships: whose it is, what was left out of it, and the order it is read in."""

from __future__ import annotations

import importlib.util
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from headscope.corpus.align import TokenizedDocument
from headscope.corpus.read import corpus_files
from headscope.corpus.shipped import data_folder, shipped_corpora
from headscope.stimuli.text import TextWindows

(GUM,) = shipped_corpora()
GENRES = {
    "academic", "bio", "court", "interview", "news", "speech", "textbook", "vlog", "voyage"
}  # fmt: skip


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_gum", GUM / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_document_that_ships_has_an_owner_a_source_and_a_free_licence(make):
    table = pd.read_csv(GUM / "documents.csv", keep_default_na=False)
    assert len(table) == 130
    assert not (table == "").any(axis=None)
    assert set(table["genre"]) == GENRES
    names = {path.name.removesuffix(".conllu.xz") for path in corpus_files([GUM])}
    assert set(table["document"]) == names
    assert not names & {f"GUM_{name}" for name in make.LEFT_OUT}
    allowed = r"CC-BY-(SA-3\.0|[234]\.\d)|CC0-1\.0|public domain"
    assert table["licence"].str.fullmatch(allowed).all()
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    for licence, rows in table.groupby("licence"):
        shown = licence.replace("CC-", "CC ").replace("BY-SA-", "BY-SA ").replace("BY-", "BY ")
        shown = shown.replace("BY SA ", "BY-SA ").replace("CC0-", "CC0 ")
        assert f"| {shown} | {len(rows)} | {rows['words'].sum():,} |" in readme
    assert all(f"| `{name}` | " in readme for name in make.LEFT_OUT)


class _Words:
    """A tokenizer for which every word is a token."""

    bos, bos_string = 0, "<bos>"

    def encode(self, document):
        offsets = np.array([(word.start, word.end) for word in document.words])
        forms = [word.form for word in document.words]
        return TokenizedDocument(document, np.ones(len(forms), int), forms, offsets)

    def spell(self, tokens):
        return ["a"] * len(tokens)


def read_first(corpus, count: int, seed: int) -> list[str]:
    text = TextWindows([corpus], _Words(), max_tokens=10**9, max_length=10**6, seed=seed)
    return [window.name.split("#")[0] for window in islice(text, count)]


def test_a_short_run_reads_a_document_of_every_genre_and_which_depends_on_the_seed():
    one, other = (read_first(GUM, 18, seed) for seed in (0, 1))
    for names in (one, other):
        genres = [name.split("_")[1] for name in names]
        assert set(genres[:9]) == set(genres[9:]) == GENRES
        assert genres[:9] == genres[9:]
    assert len({*one, *other}) > 24
    assert read_first(GUM, 18, seed=0) == one


def test_the_folders_of_a_corpus_take_turns_until_each_is_read(tmp_path):
    for name in ("a/1", "a/2", "a/3", "b/4", "c/d/5", "c/d/6"):
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"This is {name}.")
    for seed in range(5):
        order = read_first(tmp_path, 99, seed)
        kinds = ["abc"[(int(name) > 3) + (int(name) > 4)] for name in order]
        assert sorted(order) == list("123456")
        assert set(kinds[:3]) == set("abc")
        assert set(kinds[3:5]) == set("ac")
    # as ever where there are no folders: the order of a permutation
    flat = tmp_path / "a"
    expected = [str(i + 1) for i in np.random.default_rng(3).permutation(3)]
    assert read_first(flat, 3, seed=3) == expected
