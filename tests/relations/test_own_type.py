"""A seventh head type, from twenty-five lines to every table and picture that knows the six."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint, EntryPoints

import pytest

import headscope as hs
from headscope import relations
from headscope.errors import ChoiceError, HeadscopeError
from headscope.views.summary import summary

# a type of one's own, as a user writes it ------------------------------------------------


@hs.relation("words", "one-back", floor=hs.Floor(0.2, "my guess: a fifth of its attention"))
def one_back(window: hs.Window) -> hs.Pairs:
    """the word before"""
    words = window.words
    return hs.pairs(words.last[1:], words.last[:-1])


@hs.relation("words", "two-back", floor=hs.Floor(0.2, "my guess: a fifth of its attention"))
def two_back(window: hs.Window) -> hs.Pairs:
    """the word before last"""
    words = window.words
    return hs.pairs(words.last[2:], words.last[:-2])


WORDS = hs.HeadType(
    name="words", letter="W", colour="#7f3b08", marker="*", relations=(one_back, two_back),
    looks_at="an earlier word", rivals="same query, other keys",
)  # fmt: skip
# -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registered():
    before = dict(relations._registered)
    hs.register(WORDS)
    yield
    relations._registered.clear()
    relations._registered.update(before)


@pytest.fixture(scope="module")
def run(registered, tmp_path_factory):
    folder = tmp_path_factory.mktemp("own") / "mini"
    return hs.classify(
        "mini", types=["words"], max_tokens=6_000, max_length=128, out=folder, examples=True
    ), folder  # fmt: skip


def test_classify_tags_it_and_why_says_so(run):
    found, _ = run
    best = found.tagged("words")
    assert len(best) >= 1
    assert set(found.heads["primary"]) == {"words", "unclassified"}
    assert "words/one-back" in found.why(best.index[0])
    assert "the word before" in found.why(best.index[0])


def test_the_report_and_the_atlas_draw_it_in_its_colour(run):
    found, folder = run
    page = (folder / "report.html").read_text()
    assert ".type-words { --type: #7f3b08; }" in page
    assert '{"name":"words","letter":"W","rests":false' in page
    texts = [text.get_text() for axes in found.figure().axes for text in axes.texts]
    assert texts.count("W") == len(found.tagged("words"))
    from rich.console import Console

    console = Console(record=True, width=100)
    console.print(summary(found))
    assert "W words" in console.export_text()


def test_a_package_brings_its_type_by_an_entry_point(monkeypatch):
    monkeypatch.setattr(relations, "_registered", {})
    entry = EntryPoint("words", f"{__name__}:WORDS", relations.ENTRY_POINTS)
    monkeypatch.setattr(relations, "entry_points", lambda group: EntryPoints([entry]))
    relations._installed.cache_clear()
    try:
        assert hs.head_types()["words"] is sys.modules[__name__].WORDS
        assert [r.id for r in relations.relations_of(["words"])] == [
            "words/one-back", "words/two-back",
        ]  # fmt: skip
    finally:
        relations._installed.cache_clear()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"name": "two words"}, HeadscopeError, "a name is a lower-case word"),
        ({"name": "unclassified"}, HeadscopeError, "a name is a lower-case word"),
        ({"colour": "red"}, HeadscopeError, "expected one like #0072b2"),
        ({"behaviour": "flying"}, ChoiceError, "no behaviour of words named 'flying'"),
        ({"name": "other"}, HeadscopeError, "words/one-back is no relation of the type other"),
    ],
)
def test_what_is_no_type_is_refused(change, error, message):
    with pytest.raises(error, match=message):
        hs.HeadType(**{"name": "words", "letter": "W", "relations": (one_back,), **change})


def test_a_name_that_is_taken_is_refused(registered):
    with pytest.raises(HeadscopeError, match="a head type called induction is there already"):
        hs.register(hs.HeadType(name="induction", letter="I", relations=()))
    assert hs.register(WORDS) is WORDS
