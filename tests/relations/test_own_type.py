"""Head types of a user, with a stimulus of their own, from twenty lines to every table."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from importlib.metadata import EntryPoint, EntryPoints

import numpy as np
import pytest

import headscope as hs
from headscope import relations
from headscope.corpus.gold_links import arrow
from headscope.corpus.text import read_text
from headscope.errors import CorpusError, HeadscopeError, ShapeError
from headscope.relations.annotated_links import every_candidate, pointed_to
from headscope.relations.parts import HARD
from headscope.stimuli.repeat import REPEAT
from headscope.stimuli.stimulus import StimulusConfig
from tests.helpers.prose import mini_tokenizer
from tests.relations.looking import candidate, judged, knows

# a type of one's own, as a user writes it ------------------------------------------------


@hs.relation("words", "one-back", threshold=hs.Threshold(0.2, "my guess: a fifth of its attention"))
def one_back(window: hs.Window) -> hs.Pairs:
    """the word before"""
    words = window.words
    return hs.pairs(words.last[1:], words.last[:-1])


WORDS = hs.HeadType(
    name="words",
    letter="W",
    colour="#7f3b08",
    relations=(one_back,),
    looks_at="an earlier word",
    control_keys="same query, other keys",
)

# and one with a stimulus of its own, whose documents say what their words point back to ---

COLOURS, THINGS = ("red", "blue", "green"), ("key", "ring", "cup", "map", "shoe", "bell")


def boxes(config: StimulusConfig) -> Iterator[hs.Document]:
    for number in range(config.documents):
        rng = np.random.default_rng([config.seed, number])
        sentences, arrows = "", []
        for _ in range(4):
            start = len(sentences)
            things, asked = rng.permutation(THINGS)[:3].tolist(), int(rng.integers(3))
            for colour, thing in zip(COLOURS, things, strict=True):
                sentences += f"The {colour} box holds a {thing}. "
            places = [sentences.index(f" {thing}.", start) + 1 for thing in things]
            sentences += f"In the {COLOURS[asked]} one lies the"
            arrows.append(arrow("content", len(sentences) - 3, [places[asked]], places))
            sentences += f" {things[asked]}. "
        yield read_text(f"boxes-{number}", sentences).with_arrows(arrows, stimulus="boxes")


@hs.relation(
    "boxes", "content", control=partial(every_candidate, kind="content"), stimuli=("boxes",)
)
def content(window: hs.Window) -> hs.Pairs:
    """what lies in the box that is asked for"""
    return pointed_to(window, "content")


BOXES = hs.HeadType(
    name="boxes",
    letter="B",
    relations=(content,),
    behaviour="boxes",
    on_request=True,
    stimuli=(hs.Stimulus(name="boxes", build=boxes),),
)
# -----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def registered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(relations, "_registered", {})
        hs.register(WORDS)
        hs.register(BOXES)
        yield


def test_classify_tags_it_and_why_says_so(registered, tmp_path):
    found = hs.classify("mini", types=["words"], max_tokens=6_000, max_length=128, out=tmp_path)
    assert ".type-words { --type: #7f3b08; }" in (tmp_path / "report.html").read_text()
    best = found.tagged("words")
    assert len(best) >= 1
    assert set(found.heads["primary"]) == {"words", "unclassified"}
    assert "words/one-back" in found.why(best.index[0])
    assert "the word before" in found.why(best.index[0])


def test_a_head_is_tagged_on_the_types_own_stimulus_and_a_lazy_one_is_not(registered):
    windows = BOXES.stimuli[0].windows(StimulusConfig(mini_tokenizer(), 4096, 128, 0))
    assert {window.document for window in windows} == set(range(64))
    assert {window.stimulus for window in windows} == {"boxes"}
    heads = {"right": knows("content"), "nearest": candidate("content", -1)}
    evidence = judged(heads, windows, "boxes")
    assert evidence["verdict"].tolist() == ["tagged", "no"]
    assert evidence["mass"].tolist() == pytest.approx([1, 1 / 3], abs=0.1)


def test_a_model_is_measured_on_the_types_own_stimulus(registered, tmp_path):
    found = hs.classify("mini", types=["boxes"], max_tokens=6_000, out=tmp_path / "run", all=True)
    assert set(found.evidence["type"]) == {"boxes"}
    assert found.evidence["n"].tolist() == [4 * 20] * len(found.heads)
    assert "--types boxes" in found.info["command"]
    assert found.info["text_read"]["boxes"]["documents"] == 20
    assert {example.relation for example in found.examples} >= {"boxes/content"}
    assert "what lies in the box" in hs.load(tmp_path / "run").why("L0H0", relation="boxes")
    assert set(hs.classify("mini", types=["sink"], max_tokens=500).evidence["type"]) == {"sink"}


def test_a_package_brings_its_type_by_an_entry_point(monkeypatch):
    monkeypatch.setattr(relations, "_registered", {})
    entry = EntryPoint("boxes", f"{__name__}:BOXES", relations.ENTRY_POINTS)
    monkeypatch.setattr(relations, "entry_points", lambda group: EntryPoints([entry]))
    relations._installed.cache_clear()
    try:
        assert hs.head_types()["boxes"] is sys.modules[__name__].BOXES
        assert [r.id for r in relations.relations_of(["boxes"])] == ["boxes/content"]
        assert relations.all_stimuli()["boxes"] is BOXES.stimuli[0]
    finally:
        relations._installed.cache_clear()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("headscope.relations.types.sink:TYPE", "sink"),
        ("headscope.relations.types.sink:no", "sink:no"),
        ("headscope.errors:LONGEST", "HeadType"),
        ("package_that_exits:TYPE", "package_that_exits.*SystemExit"),
    ],
)
def test_a_package_with_an_unusable_type_is_named(name, message, monkeypatch, tmp_path):
    (tmp_path / "package_that_exits.py").write_text("raise SystemExit(0)")
    monkeypatch.syspath_prepend(tmp_path)
    entry = EntryPoint("own", name, relations.ENTRY_POINTS)
    monkeypatch.setattr(relations, "entry_points", lambda group: EntryPoints([entry]))
    relations._installed.cache_clear()
    try:
        with pytest.raises(HeadscopeError, match=message):
            hs.head_types()
    finally:
        relations._installed.cache_clear()


@hs.relation("words", "swapped")
def swapped(window: hs.Window) -> hs.Pairs:
    """the token before, but with query and key in the wrong places"""
    return hs.pairs(np.arange(1, len(window) - 1), np.arange(2, len(window)))


def test_a_relation_whose_keys_all_come_later_or_whose_type_has_a_semicolon_is_refused():
    found = hs.classify("mini", relations=[one_back, swapped], max_tokens=1_000)
    (note,) = [note for note in found.info["notes"] if "hs.pairs takes queries first" in note]
    assert note.startswith("words/swapped has 0 queries")
    with pytest.raises(CorpusError, match="words/swapped"):
        hs.classify("mini", relations=[swapped], max_tokens=1_000)
    with pytest.raises(HeadscopeError, match="a;b/one-back"):
        hs.classify("mini", relations=[replace(one_back, type="a;b")])


no_baseline = replace(one_back, thresholds=replace(one_back.thresholds, beat_baseline_by=0.1))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": "two words"}, "lower-case"),
        ({"name": "unclassified"}, "lower-case"),
        ({"colour": "red"}, "#0072b2"),
        ({"name": "other"}, "words/one-back"),
        ({"name": "induction", "relations": ()}, "induction"),
        ({"behaviour": "flying"}, "'flying'"),
        ({"relations": (replace(one_back, stimuli=("built",)),)}, "text, repeat, pairs"),
        ({"relations": (one_back, one_back)}, "words/one-back"),
        ({"relations": (no_baseline,)}, "baseline"),
        *(
            ({"relations": (replace(one_back, name=name),)}, "name")
            for name in ("a\rb", "\x1b[1m", f"a/{HARD}")
        ),
        ({"stimuli": (replace(REPEAT, build=boxes),)}, "repeat"),
    ],
)
def test_what_is_no_type_is_refused(change, message, monkeypatch):
    monkeypatch.setattr(relations, "_registered", {})
    with pytest.raises(HeadscopeError, match=message):
        hs.register(
            hs.HeadType(**{"name": "words", "letter": "W", "relations": (one_back,), **change})
        )


@pytest.mark.parametrize("places", [([1, 2], [0]), ([1], [0, 1]), ([1, 2], [0, 0], [1])])
def test_a_pair_has_a_query_a_key_and_an_owner(places):
    with pytest.raises(ShapeError, match="keys"):
        hs.pairs(*places)


WINDOW = hs.Window("text#3", np.arange(12), ("a",) * 12)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (hs.pairs([5], [-1]), "-1;.*'text#3'"),
        (hs.pairs([12], [1]), "12"),
        (hs.pairs([5], [1], [12]), "12"),
        ([(5, 1)], r"list.*hs\.pairs"),
        (None, r"None.*hs\.pairs"),
    ],
)
def test_cells_outside_their_window_are_an_error_with_the_relations_name(cells, message):
    pairs = replace(one_back, pairs=lambda window: cells).pairs
    with pytest.raises(hs.HeadscopeError, match=f"words/one-back.*{message}"):
        pairs(WINDOW)
    sound = hs.pairs([5], [1])
    control = replace(one_back, control=lambda *asked: cells).control
    with pytest.raises(hs.HeadscopeError, match=f"words/one-back.*{message}"):
        control(WINDOW, sound, np.random.default_rng(0))
