"""The natural text that ships: whose it is, what was left out of it, and the order it is read in."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from itertools import islice

import numpy as np
import pandas as pd
import pytest

from headscope.corpus.align import TokenizedDocument
from headscope.corpus.read import corpus_files, read_corpus
from headscope.corpus.shipped import data_folder, shipped_corpora
from headscope.stimuli.text import TextWindows

(GUM,) = shipped_corpora()
GENRES = {
    "academic", "bio", "court", "interview", "news", "speech", "textbook", "vlog", "voyage"
}  # fmt: skip
DOCUMENT = """# newdoc id = GUM_{genre}_{name}
# global.Entity = GRP-etype-infstat
# meta::author = Ann
# meta::dateCollected = 2020-01-01
# meta::genre = {genre}
# meta::salientEntities = 1 (5*)
# meta::sourceURL = https://example.org/{name}
# meta::summary1 = (human) A cat.
# meta::title = The “Cat”, part 2
# newpar
# newpar_block = p (1 s)
# sent_id = GUM_{genre}_{name}-1
# s_type = decl
# text = The\u2028cat doesn't.
1\tThe\u2028cat\tcat\tNOUN\tNN\tNumber=Sing\t0\troot\t0:root\tDiscourse=ROOT:1|Entity=(1-animal-new)|MSeg=c-at
2-3\tdoesn't\t_\t_\t_\t_\t_\t_\t_\tSpaceAfter=No|XML=<hi>
2\tdoes\tdo\tAUX\tVBZ\t_\t1\taux\t1:aux\tXML=<hi>
3\tn't\tnot\tPART\tRB\t_\t1\tadvmod\t1:advmod\t_
4\t.\t.\tPUNCT\t.\t_\t1\tpunct\t1:punct\t_

"""


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_gum", GUM / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def source(tmp_path):
    folder = tmp_path / "dep"
    folder.mkdir()
    for genre, name in [("bio", "cat"), ("court", "equality"), ("fiction", "cat"), ("speech", "x")]:
        text = DOCUMENT.format(genre=genre, name=name)
        (folder / f"GUM_{genre}_{name}.conllu").write_text(text, encoding="utf-8")
    (folder / "LICENSE.txt").write_text("Biographies: CC BY-SA")
    return folder


def test_only_what_may_be_passed_on_is_packed_and_the_same_bytes_each_time(make, source, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        make.make(source, tmp_path / name)
    packed = [path.relative_to(tmp_path / "one").as_posix()
              for path in sorted((tmp_path / "one").rglob("*.*"))]  # fmt: skip
    assert packed == ["LICENSE.txt", "bio/GUM_bio_cat.conllu.xz", "documents.csv"]
    for name in packed:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    (row,) = pd.read_csv(tmp_path / "one" / "documents.csv").to_dict("records")
    assert (row["title"], row["author"], row["licence"]) == (
        "The “Cat”, part 2", "Ann", "CC-BY-SA-3.0"
    )  # fmt: skip
    assert (row["sentences"], row["words"]) == (1, 4)


def test_packing_leaves_every_word_tree_and_mention_as_it_was(make, source, tmp_path):
    make.make(source, tmp_path)
    (packed,) = read_corpus(tmp_path / "bio")
    (plain,) = read_corpus(source / "GUM_bio_cat.conllu")
    assert packed == replace(plain, source=packed.source)
    assert len(packed.mentions) == 1
    text = make.reduce(DOCUMENT.format(genre="bio", name="cat"))
    assert not any(word in text for word in ("Discourse", "MSeg", "XML", "0:root", "summary"))
    assert "SpaceAfter=No" in text
    assert "# meta::sourceURL = https://example.org/cat" in text


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
