"""The natural text that ships: its sources, what was left out of it, and its order."""

from __future__ import annotations

import runpy

import numpy as np
import pandas as pd

from headscope.corpus.read import corpus_files
from headscope.corpus.shipped import data_folder, shipped_corpora
from headscope.stimuli.natural_text import TextWindows
from tests.helpers.prose import mini_tokenizer

(GUM,) = shipped_corpora()
GENRES = {"academic", "bio", "court", "interview", "news", "speech", "textbook", "vlog", "voyage"}


def test_every_document_that_ships_has_an_owner_a_source_and_a_free_licence():
    left_out = runpy.run_path(str(GUM / "make.py"))["LEFT_OUT"]
    table = pd.read_csv(GUM / "documents.csv", keep_default_na=False)
    assert len(table) == 130
    assert not (table == "").any(axis=None)
    assert set(table["genre"]) == GENRES
    names = {path.name.removesuffix(".conllu.xz") for path in corpus_files([GUM])}
    assert set(table["document"]) == names
    assert not names & {f"GUM_{name}" for name in left_out}
    allowed = r"CC-BY-(SA-3\.0|[234]\.\d)|CC0-1\.0|public domain"
    assert table["licence"].str.fullmatch(allowed).all()
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    assert all(f"| `{name}` | " in readme for name in left_out)


def read_all(corpus, seed: int) -> list[str]:
    text = TextWindows([corpus], mini_tokenizer(), max_tokens=10**9, max_length=10**6, seed=seed)
    return [window.name.split("#")[0] for window in text]


def test_the_folders_of_a_corpus_take_turns_until_each_is_read(tmp_path):
    for name in ("a/1", "a/2", "a/3", "b/4", "c/d/5", "c/d/6"):
        path = tmp_path / f"{name}.txt"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"This is {name}.")
    for seed in range(5):
        order = read_all(tmp_path, seed)
        kinds = ["abc"[(int(name) > 3) + (int(name) > 4)] for name in order]
        assert sorted(order) == list("123456")
        assert set(kinds[:3]) == set("abc")
        assert set(kinds[3:5]) == set("ac")
    # as ever where there are no folders: the order of a permutation
    flat = tmp_path / "a"
    expected = [str(i + 1) for i in np.random.default_rng(3).permutation(3)]
    assert read_all(flat, seed=3) == expected
