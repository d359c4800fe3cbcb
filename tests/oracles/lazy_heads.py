"""Lazy heads: further rules without syntax, reference and meaning that come close to relations.

Places in a clause, words behind or before words of another class, endings, capital letters,
mixtures of two rules, unions of classes, lists of words, chains of two rules, and rules whose
attention falls with the distance. Neither a tree nor an entity is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from headscope.attention_kind import CAUSAL, AttentionKind
from tests.oracles.baseline_heads import (
    STRETCHES,
    BaselineHead,
    classes_of,
    fading,
    halves,
    last_key,
    looking,
    mirrored_head,
)
from tests.oracles.window_features import Rows, Table, WindowFeatures, mixed, spread_rows

_NEAREST, _SECOND, _FIRST = "nearest {}", "second nearest {}", "first {}"
_BEYOND = (
    ("nominal", ("VERB", "AUX", "DET", "PRON", "SCONJ|PART", "relative word", "ADP")),
    ("noun or name", ("AUX", "VERB", "PRON", "comma")),
    ("VERB", ("DET", "PRON", "AUX", "SCONJ|PART", "relative word")),
    ("content word", ("DET", "AUX", "PRON", "relative word")),
)
"""Nearest words of the first kind before the nearest one of the second."""
_SINCE = (
    ("nominal", ("boundary", "VERB", "ADP", "CCONJ", "relative word")),
    ("VERB", ("boundary", "CCONJ", "comma", "relative word")),
    ("content word", ("boundary", "ADP", "DET", "CCONJ")),
    ("word", ("boundary", "VERB", "comma")),
)
"""First words of the first kind behind the nearest one of the second."""
_BEHIND = (
    ("nominal", ("ADP", "DET", "VERB", "ADJ"), " behind "),
    ("nominal", ("ADP", "ADP|DET|ADJ", "noun or name"), " not behind "),
    ("VERB", ("PART", "AUX", "nominal"), " behind "),
    ("VERB", ("AUX|PART", "PART"), " not behind "),
)
"""Nearest words of the first kind with one of the second before them, or without."""
_OF_QUERIES = (
    ("VERB", _FIRST, "nominal since the nearest boundary"),
    ("VERB", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("VERB", _NEAREST, "nominal beyond the nearest AUX"),
    ("VERB", _NEAREST, "nominal of another phrase"),
    ("VERB", _NEAREST, "VERB beyond the nearest CCONJ"),
    ("VERB", _FIRST, "VERB|AUX since the nearest boundary"),
    ("AUX", _FIRST, "nominal since the nearest boundary"),
    ("ADJ", _NEAREST, "nominal beyond the nearest AUX"),
    ("noun or name", _NEAREST, "VERB beyond the nearest ADP"),
    ("noun or name", _NEAREST, "VERB since the nearest boundary"),
    ("noun or name", _NEAREST, "nominal of another phrase"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest ADP"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest CCONJ"),
    ("noun or name", _NEAREST, "VERB not behind PART"),
    ("noun or name", _FIRST, "VERB since the nearest CCONJ"),
    ("ADP", _NEAREST, "VERB not behind AUX|PART"),
    ("ADV", _FIRST, "VERB|AUX since the nearest boundary"),
    ("PRON", _NEAREST, "word with a capital"),
    ("PRON", _NEAREST, "most frequent noun"),
    ("PRON", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("PRON", _NEAREST, "PROPN beyond the nearest boundary"),
    ("PROPN", _FIRST, "word with a capital"),
    ("mention", _NEAREST, "most frequent noun"),
)
"""Heads that look from words of the first kind alone."""
_MIXED = (
    ("nearest VERB", "second nearest VERB"),
    ("nearest nominal", "second nearest nominal"),
    ("nearest nominal", "nearest nominal beyond the nearest VERB"),
    ("nearest noun or name", "nearest ADP"),
    ("first nominal since the nearest boundary", "nearest VERB"),
    ("nearest VERB beyond the nearest DET", "first VERB since the nearest boundary"),
    ("nearest word behind ADP", "nearest word with a capital"),
)
"""Pairs of rules of which each has half of the attention."""

_BLURRED = (
    ("", _FIRST, "nominal since the nearest boundary"),
    ("", _FIRST, "VERB since the nearest boundary"),
    ("", _NEAREST, "nominal beyond the nearest VERB"),
    ("", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("", _NEAREST, "noun or name that closes a run"),
    ("VERB", _FIRST, "nominal since the nearest boundary"),
    ("noun or name", _NEAREST, "VERB not behind PART"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest ADP"),
    ("PRON", _NEAREST, "most frequent noun"),
    ("PRON", _NEAREST, "word with a capital"),
)
"""Heads that follow a rule with `STRENGTH` of their attention, the rest spread as a real head's."""
_UNIONS = (
    *("SCONJ|PART", "ADV|PART", "VERB|ADJ", "VERB|NOUN", "VERB|NOUN|ADJ", "NOUN|PROPN|VERB"),
    *("NOUN|ADJ", "ADJ|NUM", "ADP|SCONJ", "AUX|PART", "CCONJ|SCONJ", "VERB|AUX|ADJ"),
)
"""Classes of which the nearest word is looked at, in the text and in the sentence."""
_UNIONS_OF_QUERIES = (
    ("VERB", "SCONJ|PART"),
    ("VERB", "ADV|PART"),
    ("VERB", "VERB|ADJ"),
    ("VERB|ADJ", "VERB|ADJ"),
    ("ADV", "VERB|ADJ"),
    ("noun or name", "VERB|ADJ"),
    ("noun or name", "VERB|NOUN"),
    ("noun or name", "ADJ|NUM"),
)
_WORD_LISTS = ("clause mark", "common adverb", "verb of speech", "preposition of nouns")
_CHAINS = (
    ("nearest VERB of the sentence", "nearest nominal"),
    ("nearest VERB of the clause", "nearest VERB|ADJ"),
    ("nearest VERB of the clause", "nearest noun or name"),
    ("nearest nominal of the clause", "nearest VERB"),
    ("nearest PART of the sentence", "nearest SCONJ"),
    ("nearest SCONJ of the clause", "nearest PART"),
    ("nearest ADV of the clause", "nearest PART"),
    ("nearest VERB of the last 4 words", "nearest nominal"),
    ("nearest noun or name of the last 4 words", "nearest VERB|ADJ"),
    ("nearest verb of speech of the sentence", "nearest VERB"),
    ("nearest PROPN of the sentence", "nearest nominal"),
    ("first nominal since the nearest boundary", "nearest nominal"),
    ("nearest VERB since the nearest boundary", "nearest nominal"),
    ("nearest ADP of the last 3 words", "nearest ADP|SCONJ"),
)
"""A rule, and the one that is followed where it finds no word."""
_BLURRED_NEARBY = (
    ("", _NEAREST, "VERB", ""),
    ("", _NEAREST, "VERB", " of the sentence"),
    ("", _NEAREST, "VERB|ADJ", ""),
    ("", _NEAREST, "nominal", ""),
    ("", _NEAREST, "SCONJ|PART", ""),
    ("", _SECOND, "VERB", ""),
    ("", _SECOND, "nominal", ""),
    ("", _FIRST, "nominal since the nearest boundary", ""),
    ("VERB", _NEAREST, "VERB|ADJ", ""),
    ("noun or name", _NEAREST, "VERB", ""),
)
"""Heads that follow a rule with `STRENGTH` of their attention, the rest on near words."""
_FAVOURED = ("VERB", "NOUN", "PROPN", "ADP", "ADJ", "nominal", "verb or auxiliary", "SCONJ|PART")
"""Classes that get `FAVOUR` times the attention of other words, all of it falling with distance."""
_OUTWEIGHED = (
    (
        "nearest word",
        ("nearest VERB", "nearest VERB|ADJ", "nearest noun or name", "nearest nominal"),
    ),
    ("2 words back", ("nearest ADP", "nearest VERB", "nearest noun or name", "nearest nominal")),
    ("3 words back", ("nearest ADP", "nearest VERB", "nearest noun or name")),
    ("4 words back", ("nearest VERB", "nearest nominal")),
    (
        "nearest content word that closes a run",
        ("nearest VERB", "second nearest VERB", "nearest verb or auxiliary that opens a run"),
    ),
    ("nearest VERB of the sentence", ("nearest word", "nearest noun or name")),
    ("nearest PRON", ("nearest content word", "second nearest content word")),
    ("nearest ADJ", ("nearest verb or auxiliary that opens a run", "nearest VERB")),
    ("nearest noun or name of the clause", ("nearest VERB", "second nearest VERB")),
)
"""Pairs of rules of which the first has `STRENGTH` of the attention. Where it finds a word that is
no candidate, the second decides which candidate has most."""
_FADING_OF = ("VERB", "nominal", "noun or name", "ADP", "VERB|ADJ", "content word", "PROPN")
"""Classes of which every word is attended to, near ones more."""
_STEEP = 2.0
"""Words over which the attention of a steep head falls e-fold."""
_MORE_LISTS = (
    "the a an this that these those",
    "he she it they we i you",
    "and or but nor",
    "of in on at by for with from to",
    "was were is are be been being",
    "who which that whose whom",
    "not no never n't nothing",
    "has have had having",
    "will would can could may might",
    "one two three first second other",
)
"""Lists of frequent words of which the last is looked at."""
FAVOUR = 8.0
STRENGTH = 0.6


def lazy_heads(attention_kind: AttentionKind = CAUSAL) -> tuple[BaselineHead, ...]:
    """Every lazy head; of encoders also those that read the text from its end."""
    heads = tuple(_causal())
    return (*heads, *map(mirrored_head, heads)) if attention_kind.sees_future else heads


def _causal() -> Iterator[BaselineHead]:
    for kind, marks in _BEYOND:
        yield from (looking(_NEAREST, f"{kind} beyond the nearest {mark}") for mark in marks)
    for kind, marks in _SINCE:
        yield from (looking(_FIRST, f"{kind} since the nearest {mark}") for mark in marks)
    for kind, marks, where in _BEHIND:
        yield from (looking(_NEAREST, kind + where + mark) for mark in marks)
    for ending in ("ed", "ing", "s", "ly"):
        yield looking(_NEAREST, f"word in -{ending}")
    for kind in ("nominal of another phrase", "most frequent noun", "word behind ADP"):
        yield looking(_NEAREST, kind)
    for queries, pick, kind in _OF_QUERIES:
        yield looking(pick, kind, queries=queries)
    for names in _MIXED:
        yield halves(*map(_named, names))

    yield from (_blurred(looking(pick, kind, queries=queries)) for queries, pick, kind in _BLURRED)
    for kind in _UNIONS:
        yield looking(_NEAREST, kind)
    for kind in (*_UNIONS, *_WORD_LISTS):
        yield looking(_NEAREST, kind, " of the sentence")
    for queries, kind in _UNIONS_OF_QUERIES:
        yield looking(_NEAREST, kind, queries=queries)
    for first, second in _CHAINS:
        yield _chain(_named(first), _named(second))
    for queries, pick, kind, stretch in _BLURRED_NEARBY:
        yield _blurred_nearby(looking(pick, kind, stretch, queries))
    yield from map(_favouring, _FAVOURED)
    for kind in ("most frequent capital", "number in digits"):
        yield looking(_NEAREST, kind)
    for first, seconds in _OUTWEIGHED:
        for second in seconds:
            yield _outweighed(_named(first), _named(second))
    for kind in _FADING_OF:
        for stretch in (" of the sentence", " of the clause"):
            yield looking("every {}, near ones more", kind, stretch)
        yield _fading_steeply(kind)
    for members in _MORE_LISTS:
        yield _last_of_list(members)
    for name in _FEATURES_OF_WORDS:
        yield _last_alike(name)
        after_last = _after_last_alike(name)
        yield from (after_last, _blurred(after_last), _after_all_alike(name))


def _blurred(head: BaselineHead) -> BaselineHead:
    def rest(reading: WindowFeatures) -> Rows:
        return spread_rows(reading.window, np.random.default_rng(len(head.name)))

    rule = mixed((STRENGTH, head.attention), (1 - STRENGTH, rest))
    return replace(head, name=f"{head.name}, blurred", attention=rule)


def _chain(first: BaselineHead, second: BaselineHead) -> BaselineHead:
    """The head that follows a rule, and where that finds no word another one."""

    def attention(reading: WindowFeatures) -> Rows:
        rows = first.attention(reading)
        finds_none = rows[:, :1] == 1
        return np.where(finds_none, second.attention(reading), rows)

    may = (*first.may, *second.may)
    return BaselineHead(f"{first.name}, else {second.name}", may=may, attention=attention)


def _outweighed(first: BaselineHead, second: BaselineHead) -> BaselineHead:
    rule = mixed((STRENGTH, first.attention), (1 - STRENGTH, second.attention))
    may = (*first.may, *first.earns, *second.may, *second.earns, "positional/*")
    return BaselineHead(f"{first.name} more than {second.name}", may=may, attention=rule)


def _fading_steeply(kind: str) -> BaselineHead:
    """The head of a class whose attention falls faster than that of other fading heads."""

    def attention(reading: WindowFeatures) -> Rows:
        is_key = reading.earlier & reading.is_of(*classes_of(kind))
        position = reading.position
        return reading.rows(is_key * np.exp((position[None, :] - position[:, None]) / _STEEP))

    may = looking(_NEAREST, kind)
    return BaselineHead(
        f"every {kind}, fading steeply", may=(*may.may, *may.earns), attention=attention
    )


def _last_of_list(members: str) -> BaselineHead:
    words = frozenset(members.split())

    def attention(reading: WindowFeatures) -> Rows:
        is_member = np.array([form.lower() in words for form in reading.forms], bool)
        return reading.rows(last_key(reading.earlier & is_member))

    # a list of the most frequent words of a class is the class, as far as attention goes
    may = ("lexical/nearest-*",)
    return BaselineHead(f"last of “{members}”", may=may, attention=attention)


def _near_words(reading: WindowFeatures) -> Rows:
    """Every earlier word, near ones more."""
    return reading.rows(fading(reading.earlier, reading))


def _blurred_nearby(head: BaselineHead) -> BaselineHead:
    rule = mixed((STRENGTH, head.attention), (1 - STRENGTH, _near_words))
    return BaselineHead(f"{head.name}, and near words", may=head.may, attention=rule)


def _favouring(kind: str) -> BaselineHead:
    """The head that attends to near words, and among them more to those of a class."""

    def attention(reading: WindowFeatures) -> Rows:
        favour = np.where(reading.is_of(*classes_of(kind)), FAVOUR, 1.0)
        return reading.rows(fading(reading.earlier, reading) * favour)

    return BaselineHead(f"near words, {kind} more", attention=attention)


_FEATURES_OF_WORDS: dict[str, Callable[[WindowFeatures], Sequence[object]]] = {
    "class": lambda reading: reading.words.upos.tolist(),
    "class bigram": lambda reading: _bigrams(reading.words.upos.tolist()),
    "first letter": lambda reading: [form[:1] for form in reading.forms],
    "first two letters": lambda reading: [form[:2] for form in reading.forms],
    "first three letters": lambda reading: [form[:3] for form in reading.forms],
    "last two letters": lambda reading: [form[-2:] for form in reading.forms],
    "last three letters": lambda reading: [form[-3:] for form in reading.forms],
    "length": lambda reading: [len(form) for form in reading.forms],
    "length and class": lambda reading: [
        (len(form), upos)
        for form, upos in zip(reading.forms, reading.words.upos.tolist(), strict=True)
    ],
}
"""What the word before the looked-at word has in common with the query."""


def _bigrams(classes: Sequence[str]) -> list[tuple[str, str]]:
    """Each word's class with that of the word before."""
    return list(zip(["", *classes], classes, strict=False))


def _alike(name: str, reading: WindowFeatures) -> Table:
    """Earlier words that share a feature with the query."""
    feature = map(str, _FEATURES_OF_WORDS[name](reading))
    _, value = np.unique(np.array([*feature], "U"), return_inverse=True)
    return np.asarray(reading.earlier & (value[:, None] == value[None, :]))


def _last_alike(name: str) -> BaselineHead:
    """The head that attends to the last word that shares a feature with the query."""

    def attention(reading: WindowFeatures) -> Rows:
        return reading.rows(last_key(_alike(name, reading)))

    may = ("lexical/same-class", "lexical/duplicate*", "duplicate-token/repeat")
    return BaselineHead(f"last word of the same {name}", may=may, attention=attention)


def _followers(name: str, reading: WindowFeatures) -> Table:
    """Earlier words that follow a word which shares a feature with the query."""
    alike = _alike(name, reading)
    follows = np.zeros_like(alike)
    follows[:, 1:] = alike[:, :-1]
    return follows & reading.earlier


def _after_last_alike(name: str) -> BaselineHead:
    """The head that attends to the word after the last one that shares a feature with the query."""

    def attention(reading: WindowFeatures) -> Rows:
        return reading.rows(last_key(_followers(name, reading)))

    return BaselineHead(f"word after the last word of the same {name}", attention=attention)


def _after_all_alike(name: str) -> BaselineHead:
    """The head that attends to the words after those that share a feature, near ones more."""

    def attention(reading: WindowFeatures) -> Rows:
        return reading.rows(fading(_followers(name, reading), reading))

    return BaselineHead(
        f"words after words of the same {name}, near ones more", attention=attention
    )


def _named(name: str) -> BaselineHead:
    """The head by its name, which ends with a stretch of text or not."""
    for stretch in filter(None, STRETCHES):
        if name.endswith(stretch):
            pick, kind = _pick_and_kind(name.removesuffix(stretch))
            return looking(pick, kind, stretch)
    back = re.fullmatch(r"(\d) words back", name)
    if back is not None:
        return looking(f"{back[1]} {{}}s back", "word")
    return looking(*_pick_and_kind(name))


def _pick_and_kind(name: str) -> tuple[str, str]:
    for pick in (_SECOND, _NEAREST, _FIRST):
        start = pick.format("")
        if name.startswith(start):
            return pick, name.removeprefix(start)
    raise ValueError(name)
