"""Habits that are no pick × class: sameness, form, frequency, names, mixtures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
from numpy import ndarray

from headscope.studies.validation.zoo import keys as k
from headscope.studies.validation.zoo import tokens as t
from headscope.studies.validation.zoo.habit import CLASSES, Habit, habit, lexical
from headscope.studies.validation.zoo.keys import asked_by, every, first, most, nearest, of, within
from headscope.studies.validation.zoo.reading import Look, Reading, at_rest, evenly, mixed

_VERB, _NOUN, _NOMINAL = (CLASSES[name] for name in ("VERB", "noun or name", "nominal"))
_COPY = ("lexical/duplicate*", "lexical/same-class", "induction/duplicate", "induction/natural")
_OFFSETS = ("positional/offset-*",)
NOISE = 0.2
"""Of the attention of a noisy habit, even over all earlier tokens."""


def odd(frequency: Mapping[str, int]) -> Iterator[Habit]:
    """One habit after the other.

    Args:
        frequency: how often each lemma stands in the text that is read.
    """
    yield from _of_tokens()
    yield from _of_sameness()
    yield from _of_form(frequency)
    yield from _of_sentences()
    yield from _of_names()
    yield from _of_mixtures()


def _of_tokens() -> Iterator[Habit]:
    first_token = ("delimiter/first-token", "sink/first-token")
    yield habit("first token", at_rest, first_token)
    yield habit("second token", t.second)
    yield habit("all tokens alike", evenly)
    yield habit("all tokens, near ones more", t.recent, may=_OFFSETS)
    yield habit("all tokens of the sentence", t.sentence_so_far, may=_OFFSETS)
    itself = ("positional/offset-0", "positional/offset-0-random")
    yield habit("the token itself", t.current, itself)
    yield habit("the same token before", t.same_token, ("induction/duplicate",), _COPY)
    yield habit("all the same tokens before", t.every_same_token, ("induction/duplicate",), _COPY)
    repeat = ("induction/repeat",)
    yield habit("what followed the same token", t.follower, repeat, ("induction/natural",))
    yield habit("line breaks", t.line_breaks, may=("delimiter/*",))


def _of_sameness() -> Iterator[Habit]:
    same = ("lexical/same-class", "lexical/nearest*")
    yield habit("nearest of the same class", nearest(k.same_class), same[:1], same)
    yield habit("second nearest of the same class", nearest(k.same_class, rank=2), may=same)
    in_sentence = nearest(within(k.same_class))
    yield habit("nearest of the same class in the sentence", in_sentence, may=same)
    yield habit("all of the same class", every(k.same_class), may=same)
    yield habit("all of the same class in the sentence", every(within(k.same_class)), may=same)
    yield habit("nearest of the same lemma", nearest(k.same_lemma), ("lexical/duplicate",), _COPY)
    yield habit("first of the same lemma", first(k.same_lemma), may=_COPY)
    yield habit("all of the same lemma", every(k.same_lemma), may=_COPY)
    yield habit("nearest with the same first letter", nearest(k.alike(lambda f: f[:1].lower())))
    yield habit("nearest with the same last letters", nearest(k.alike(lambda f: f[-2:].lower())))
    yield habit("nearest of the same length", nearest(k.alike(lambda f: str(len(f)))))


def _of_form(frequency: Mapping[str, int]) -> Iterator[Habit]:
    def rarity(reading: Reading) -> ndarray:
        return -np.array([frequency.get(lemma, 0) for lemma in reading.words.lemma.tolist()], float)

    def length(reading: Reading) -> ndarray:
        return np.array([len(form) for form in reading.forms], float)

    yield habit("rarest word so far", most(k.any_word, rarity))
    yield habit("rarest word of the sentence so far", most(within(k.any_word), rarity))
    yield habit("longest word so far", most(k.any_word, length))
    yield habit("longest word of the sentence so far", most(within(k.any_word), length))
    yield habit("commonest word so far", most(k.any_word, k.times_so_far))
    yield habit("commonest noun so far", most(of(*_NOUN), k.times_so_far), may=lexical(_NOUN))
    yield habit("some word or other", most(k.any_word, k.drawn))
    capital = k.formed(lambda form: form[:1].isupper())
    yield habit("nearest word with a capital", nearest(capital), may=lexical(("PROPN",)))
    digit = k.formed(lambda form: form[:1].isdigit())
    yield habit("nearest figure", nearest(digit), may=lexical(("NUM",)))
    for ending in ("ing", "ed", "s", "ly"):
        yield habit(f"nearest word in -{ending}", nearest(k.ending(ending)))
    that = k.formed(lambda form: form.lower() in _OPENERS)
    yield habit("nearest clause opener", nearest(that), may=lexical(("SCONJ", "PRON")))
    yield habit("word after the last clause opener", nearest(k.beside(that, 1)))


_OPENERS = frozenset(("that", "which", "who", "if", "because", "when", "while", "as", "whether"))


def _of_sentences() -> Iterator[Habit]:
    comma, mark = k.formed(lambda form: form == ","), of("PUNCT")
    yield habit("word after the last comma", nearest(k.beside(comma, 1)))
    yield habit("word before the last comma", nearest(k.beside(comma, -1)))
    yield habit("word after the last punctuation", nearest(k.beside(mark, 1)))
    yield habit("word before the last punctuation", nearest(k.beside(mark, -1)))
    yield habit("word after the nearest determiner", nearest(k.beside(of("DET"), 1)))
    yield habit("word after the nearest preposition", nearest(k.beside(of("ADP"), 1)))
    yield habit("word before the nearest verb", nearest(k.beside(of("VERB"), -1)))
    yield habit("word after the nearest verb", nearest(k.beside(of("VERB"), 1)))
    worded = of(*(upos for upos in CLASSES if upos.isupper() and upos != "PUNCT"))
    before = k.sentences_back
    yield habit("last word of the previous sentence", nearest(before(worded, 1)))
    yield habit("first word of the previous sentence", first(before(worded, 1)))
    yield habit("end of the previous sentence", nearest(before(mark, 1)), may=("delimiter/*",))
    yield habit("first nominal of the previous sentence", first(before(of(*_NOMINAL), 1)))
    yield habit("every word of the previous sentence", every(before(worded, 1)))


def _of_names() -> Iterator[Habit]:
    def pronouns(keys: k.Keys) -> k.Keys:
        return asked_by(("PRON",), keys)

    name, frequent = of("PROPN"), k.times_so_far
    looks: dict[str, Look] = {
        "pronoun → first name of the text": first(pronouns(name)),
        "pronoun → commonest name so far": most(pronouns(name), frequent),
        "pronoun → commonest noun or name so far": most(pronouns(of(*_NOUN)), frequent),
        "pronoun → first nominal of the sentence": first(within(pronouns(of(*_NOMINAL)))),
        "pronoun → first nominal of the previous sentence": first(
            k.sentences_back(pronouns(of(*_NOMINAL)), 1)
        ),
        "pronoun → nearest mention": nearest(pronouns(k.mentions)),
        "pronoun → every mention": every(pronouns(k.mentions)),
        "pronoun → the same pronoun": nearest(pronouns(k.same_lemma)),
        "commonest name so far": most(name, frequent),
        "mention → nearest mention": nearest(k.asked_by_mentions(k.mentions)),
        "mention → first mention of the text": first(k.asked_by_mentions(k.mentions)),
        "mention → every mention": every(k.asked_by_mentions(k.mentions)),
        "noun → first noun of the text": first(asked_by(_NOUN, of(*_NOUN))),
        "name → first name of the text": first(asked_by(("PROPN",), name)),
    }
    may = (*lexical(_NOMINAL), "lexical/same-class", "lexical/duplicate")
    for title, look in looks.items():
        yield habit(title, look, may=may)


def _of_mixtures() -> Iterator[Habit]:
    bases: dict[str, tuple[Look, tuple[str, ...]]] = {
        "nearest verb": (nearest(of(*_VERB)), lexical(_VERB)),
        "nearest nominal": (nearest(of(*_NOMINAL)), lexical(_NOMINAL)),
        "nearest determiner": (nearest(of("DET")), lexical(("DET",))),
        "nearest of the same class": (nearest(k.same_class), ("lexical/*",)),
        "noun → nearest verb": (nearest(asked_by(_NOUN, of(*_VERB))), lexical(_VERB)),
        "verb → nearest nominal": (nearest(asked_by(_VERB, of(*_NOMINAL))), lexical(_NOMINAL)),
        "pronoun → nearest name": (nearest(asked_by(("PRON",), of("PROPN"))), lexical(("PROPN",))),
    }
    previous = t.offset(1)
    for name, (look, may) in bases.items():
        yield habit(f"half sink, half {name}", mixed((0.5, at_rest), (0.5, look)), may=may)
        half = mixed((0.5, previous), (0.5, look))
        yield habit(f"half previous token, half {name}", half, may=(*may, "positional/offset-1*"))
        noisy = mixed((1 - NOISE, look), (NOISE, evenly))
        yield habit(f"{name}, with noise", noisy, may=may)
    verb, noun = bases["nearest verb"][0], bases["nearest nominal"][0]
    both = mixed((0.5, verb), (0.5, noun))
    yield habit("half nearest verb, half nearest nominal", both, may=lexical((*_VERB, *_NOMINAL)))
    thirds = mixed((0.4, previous), (0.3, t.offset(2)), (0.3, at_rest))
    yield habit("one and two tokens back", thirds, may=_OFFSETS)
