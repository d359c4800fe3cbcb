"""Habits by the dozen: ways to pick a word × what words are picked from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headscope.studies.validation.zoo.habit import CLASSES, Habit, habit, lexical
from headscope.studies.validation.zoo.keys import (
    Keys,
    any_word,
    asked_by,
    cases,
    every,
    fading,
    first,
    nearest,
    of,
    second_or_only,
    within,
)
from headscope.studies.validation.zoo.reading import Look
from headscope.studies.validation.zoo.tokens import offset

_VERB, _NOUN, _NOMINAL = (CLASSES[name] for name in ("VERB", "noun or name", "nominal"))


def families() -> Iterator[Habit]:
    """One habit after the other; their names differ."""
    yield from _by_class()
    yield from _by_query()
    yield from _by_place()


def _second(keys: Keys) -> Look:
    return nearest(keys, rank=2)


def _second_back_or_only(keys: Keys) -> Look:
    return second_or_only(keys, from_the_end=True)


def _second_or_only(keys: Keys) -> Look:
    return second_or_only(keys, from_the_end=False)


_FEW = ("verb or auxiliary", "noun or name", "nominal")
_TWICE = ("VERB", "NOUN", "AUX", "DET", "ADP", "CCONJ", *_FEW)
_PICKS: tuple[tuple[str, Callable[[Keys], Look], bool, tuple[str, ...]], ...] = (
    ("second nearest {}", _second, False, ("VERB", "NOUN", "AUX", "DET", "ADP", *_FEW[1:])),
    ("nearest {} of the sentence", nearest, True, ("VERB", "DET", "ADP", *_FEW)),
    ("first {} of the sentence", first, True, ("VERB", "DET", "SCONJ", *_FEW)),
    ("second nearest {} of the sentence, or its only one", _second_back_or_only, True, _TWICE),
    ("second {} of the sentence, or its only one", _second_or_only, True, _TWICE),
    ("first {} of the text", first, False, ("VERB", "NOUN", "PROPN", "nominal")),
    ("every {}", every, False, (*list(CLASSES)[:5], "ADP", "DET", "PUNCT", "content word")),
    ("every {} of the sentence", every, True, (*_FEW, "content word", "function word")),
    ("every {}, near ones more", fading, False, (*_FEW, "content word")),
)
"""A name, the pick, whether it stays in the sentence, and the classes that it is tried on."""


def _by_class() -> Iterator[Habit]:
    for name, classes in CLASSES.items():
        own = tuple(f"lexical/nearest-{upos}" for upos in classes if len(classes) == 1)
        own = ("delimiter/punctuation",) if name == "PUNCT" else own
        yield habit(f"nearest {name}", nearest(of(*classes)), own, lexical(classes))
    for title, pick, inside, names in _PICKS:
        for name in names:
            keys = of(*CLASSES[name])
            look = pick(within(keys) if inside else keys)
            yield habit(title.format(name), look, may=lexical(CLASSES[name]))


_QUERIES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (_NOUN, _VERB), (_NOUN, ("VERB", "AUX")), (_NOUN, ("ADJ",)), (_NOUN, ("DET",)),
    (_NOUN, ("ADP",)), (_NOUN, ("NUM",)), (_NOUN, _NOUN), (_NOUN, ("PRON",)), (_NOUN, ("CCONJ",)),
    (_NOMINAL, _VERB), (_VERB, _NOUN), (_VERB, _NOMINAL), (_VERB, ("PRON",)), (_VERB, ("AUX",)),
    (_VERB, ("PART",)), (_VERB, ("SCONJ",)), (_VERB, ("ADV",)), (_VERB, _VERB),
    (("AUX",), _NOMINAL), (("AUX",), ("AUX",)), (("VERB", "AUX"), _NOMINAL), (("ADJ",), _NOUN),
    (("ADJ",), ("ADV",)), (("ADJ",), ("AUX",)), (("ADJ",), ("ADJ",)), (("ADP",), _NOUN),
    (("ADP",), _VERB), (("ADV",), _VERB), (("ADV",), ("AUX",)), (("SCONJ",), _VERB),
    (("CCONJ",), _NOUN), (("PRON",), _NOUN), (("PRON",), ("PROPN",)), (("PRON",), _VERB),
    (("PRON",), ("PRON",)), (("PROPN",), ("PROPN",)), (("PROPN",), ("NOUN",)), (("NUM",), _NOUN),
    (("PUNCT",), _VERB), (("DET",), _VERB), (("PART",), _VERB),
)  # fmt: skip
"""Queries of which classes look at the nearest word of which; all others rest."""


def _by_query() -> Iterator[Habit]:
    for queries, keys in _QUERIES:
        name = f"{'|'.join(queries)} → nearest {'|'.join(keys)}"
        may = lexical(keys)
        if set(queries) == set(keys):
            may = (*may, "lexical/same-class")
        yield habit(name, nearest(asked_by(queries, of(*keys))), may=may)
    by = asked_by
    firsts: dict[str, Look] = {
        "verb → first nominal of the sentence": first(within(by(_VERB, of(*_NOMINAL)))),
        "noun → first verb of the sentence": first(within(by(_NOUN, of(*_VERB)))),
        "noun → nearest verb of the sentence": nearest(within(by(_NOUN, of(*_VERB)))),
        "verb → nearest nominal of the sentence": nearest(within(by(_VERB, of(*_NOMINAL)))),
        "verb → second nearest nominal": nearest(by(_VERB, of(*_NOMINAL)), rank=2),
        "noun → second nearest verb": nearest(by(_NOUN, of(*_VERB)), rank=2),
        "verb → first verb of the sentence": first(within(by(_VERB, of(*_VERB)))),
        "verb → second nearest nominal of the sentence, or its only one": _second_back_or_only(
            within(by(_VERB, of(*_NOMINAL)))
        ),
        "verb → second nominal of the sentence, or its only one": _second_or_only(
            within(by(_VERB, of(*_NOMINAL)))
        ),
        "noun → second nearest verb of the sentence, or its only one": _second_back_or_only(
            within(by(_NOUN, of(*_VERB)))
        ),
        "noun → previous word": nearest(by(_NOUN, any_word)),
        "verb → previous word": nearest(by(_VERB, any_word)),
        "determiner → previous word": nearest(by(("DET",), any_word)),
        "noun → verb, verb → nominal": cases(by(_NOUN, of(*_VERB)), by(_VERB, of(*_NOMINAL))),
        "noun → determiner, verb → nominal, others → previous word": cases(
            by(_NOUN, of("DET")),
            by(_VERB, of(*_NOMINAL)),
            by(("ADJ", "ADV", "ADP", "AUX", "PRON", "PUNCT", "DET", "PART"), any_word),
        ),
    }
    classes = ("VERB", "DET", *_NOMINAL)
    for name, look in firsts.items():
        yield habit(name, look, may=(*lexical(classes), "positional/offset-*"))


def _by_place() -> Iterator[Habit]:
    for distance in range(1, 9):
        own = (f"positional/offset-{distance}", f"positional/offset-{distance}-random")
        title = "previous token" if distance == 1 else f"{distance} tokens back"
        yield habit(title, offset(distance), own)
    for distance in range(1, 9):
        look = nearest(any_word, rank=distance)
        title = "previous word" if distance == 1 else f"{distance} words back"
        yield habit(title, look, may=("positional/offset-*",))
    yield habit("first word of the sentence", first(within(any_word)))
    yield habit("second word of the sentence", first(within(any_word), rank=2))
    yield habit("every word of the sentence", every(within(any_word)))
    yield habit("every word, near ones more", fading(any_word), may=("positional/offset-*",))
