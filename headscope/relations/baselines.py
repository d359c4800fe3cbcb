"""Baselines that need no syntax: "the nearest verb", "three tokens back", "first noun".

A head that follows one of them finds many heads, dependents and antecedents without knowing
anything of them. What a baseline gets right on a text is known from the text alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable

UPOS = (
    "ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN",
    "PUNCT", "SCONJ", "SYM", "VERB", "X",
)  # fmt: skip
"""Universal parts of speech, which are the classes of words here."""
CLASSES = {name: frozenset({name}) for name in UPOS} | {
    "name-or-noun": frozenset({"NOUN", "PROPN"}),
    "nominal": frozenset({"NOUN", "PROPN", "PRON"}),
    "verbal": frozenset({"VERB", "AUX"}),
    "content-word": frozenset({"NOUN", "PROPN", "VERB", "ADJ", "ADV"}),
    "function-word": frozenset({"ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ"}),
    "word": frozenset(UPOS) - {"PUNCT", "SYM"},
}
"""Parts of speech by class of words; `word` is all but punctuation and symbols."""
OFFSETS = 64
WORDS_BACK = 8

_BY_CLASS = (
    "nearest-{}", "nearest-{}-in-sentence", "second-{}", "first-{}-in-sentence", "first-{}",
)  # fmt: skip
FALLING_BACK = ("second-{}-in-sentence", "next-to-first-{}-in-sentence")
"""The second word of a class from the query, or from the beginning of its sentence. If the sentence
has only one so far, it is picked; in most sentences it is the nearest of the class too."""
BASELINES = (
    "own",
    *(f"offset-{d}" for d in range(1, OFFSETS + 1)),
    *(f"{d}-words-back" for d in range(1, WORDS_BACK + 1)),
    *(form.format(name) for name in CLASSES for form in (*_BY_CLASS, *FALLING_BACK)),
    "same-class",
    "same-lemma",
    "first-same-lemma",
    "other-class",
    "last-of-sentence-before",
    "after-punctuation",
    "capitalised",
    "nearest-mention",
)
"""Baselines by name; `own` is the one that a relation brings itself, if any."""
_ANCHORS = {"adposition": "ADP", "conjunction": "CCONJ", "mark": "PUNCT"}
_PHRASE_CLASSES = (
    "NOUN", "VERB", "name-or-noun", "nominal", "verbal", "content-word", "function-word",
)  # fmt: skip
PHRASE_BASELINES = tuple(
    f"{name}-before-{anchor}" for anchor in _ANCHORS for name in _PHRASE_CLASSES
)
"""The last word of a class before the nearest adposition, conjunction or mark."""
EARLIER = (*BASELINES, *PHRASE_BASELINES)
"""Baselines of causal models."""
_AHEAD = (
    *(f"offset+{d}" for d in range(1, OFFSETS + 1)),
    *(f"{d}-words-ahead" for d in range(1, WORDS_BACK + 1)),
    *(f"later-{name}" for name in EARLIER[OFFSETS + WORDS_BACK + 1 :]),
)
ALL_BASELINES = (
    *EARLIER,
    *_AHEAD,
    *(f"nearest-{name}-on-either-side" for name in CLASSES),
    "same-class-on-either-side",
    "nearest-mention-on-either-side",
)
"""Baselines of encoders: those of causal models, the same read from the end of the text
(`later-first-VERB` is its last verb), and the nearest word of a class or mention on either side."""
MENTION_BASELINES = tuple(name for name in ALL_BASELINES if "nearest-mention" in name)
CLASS_COUNT = len(UPOS) + 1
"""Classes of queries: those of words, and one for positions where no word of them ends."""


@lru_cache(maxsize=4)
def picks(window: Window) -> Int[ndarray, "baseline position"]:
    """The key position that each baseline picks at each query, −1 if it picks none.

    A baseline about words picks the last token of an earlier word at the last token of a word. In
    windows of encoders the baselines are `ALL_BASELINES`.
    """
    length, words = len(window), window.words
    pick = np.full((len(EARLIER), length), -1)
    token = np.arange(length)
    for d in range(1, OFFSETS + 1):
        pick[d, d:] = token[: max(0, length - d)]
    if len(words):
        by_word = np.stack(list(_by_word(window, words)))
        earlier = (by_word >= 0) & (words.last[by_word] < words.last[None, :])
        rows = np.arange(OFFSETS + 1, len(EARLIER))
        pick[rows[:, None], words.last[None, :]] = np.where(earlier, words.last[by_word], -1)
    if window.attention_kind.sees_future:
        return np.concatenate([pick, _ahead(window, pick)])
    return pick


def _ahead(
    window: Window, earlier: Int[ndarray, "baseline position"]
) -> Int[ndarray, "more position"]:
    """Picks of the baselines of `ALL_BASELINES` after those of `EARLIER`."""
    length, words, stop = len(window), window.words, window.stop
    pick = np.full((len(ALL_BASELINES) - len(EARLIER), length), -1)
    token = np.arange(length)
    for d in range(1, OFFSETS + 1):
        pick[d - 1, : max(0, stop - d)] = token[d : max(d, stop)]
    if not len(words):
        return pick
    mirrored = np.stack(list(_by_word(window, mirror_words(words, length - 1), step=-1)))
    by_word = np.where(mirrored >= 0, len(words) - 1 - mirrored, -1)[:, ::-1]
    apart = (by_word >= 0) & (words.first[by_word] > words.last[None, :])
    pick[OFFSETS : len(_AHEAD), words.last] = np.where(apart, words.last[by_word], -1)
    names = [*(f"nearest-{name}" for name in CLASSES), "same-class", "nearest-mention"]
    before = earlier[[BASELINES.index(name) for name in names]]
    after = pick[[_AHEAD.index(f"later-{name}") for name in names]]
    nearer = (before >= 0) & ((after < 0) | (token - before <= after - token))
    pick[len(_AHEAD) :] = np.where(nearer, before, after)
    return pick


def mirror_words(words: WordTable, last: int) -> WordTable:
    """The words from the last to the first, without heads, of a window with this last position."""
    return WordTable(
        first=(last - words.last)[::-1],
        last=(last - words.first)[::-1],
        sentence=(words.sentence.max(initial=0) - words.sentence)[::-1],
        head=np.full(len(words), -1),
        deprel=words.deprel[::-1],
        upos=words.upos[::-1],
        lemma=words.lemma[::-1],
        tense=words.tense[::-1],
    )


@lru_cache(maxsize=32)
def query_class(window: Window) -> Int[ndarray, " position"]:
    """The class of the word that ends at each position, as a number below `CLASS_COUNT`."""
    class_index = np.full(len(window), CLASS_COUNT - 1)
    class_index[window.words.last] = _codes(window.words)
    return class_index


@lru_cache(maxsize=64)
def of_class(words: WordTable, name: str) -> Bool[ndarray, " word"]:
    """Mask of the words of one of `CLASSES`."""
    return np.array([upos in CLASSES[name] for upos in words.upos.tolist()], bool)


def _by_word(window: Window, words: WordTable, step: int = 1) -> Iterator[Int[ndarray, " word"]]:
    """Picks of each baseline about words at each word, in the order of `EARLIER`."""
    count = np.arange(len(words))
    for d in range(1, WORDS_BACK + 1):
        yield np.where(count >= d, count - d, -1)
    starts = np.searchsorted(words.sentence, words.sentence)
    masks = _masks(words)
    near = nearest(masks)
    second = np.where(near >= 0, np.take_along_axis(near, near, 1), -1)
    next_word = np.where(masks, count, len(count))
    next_word = np.minimum.accumulate(next_word[:, ::-1], axis=1)[:, ::-1]
    inside, ever = next_word[:, starts], next_word[:, [0] * len(count)]
    next_word = np.concatenate([next_word, np.full((len(next_word), 2), len(count))], axis=1)
    following = np.take_along_axis(next_word, inside + 1, 1)
    forms = (
        near,
        np.where(near >= starts, near, -1),
        second,
        np.where(inside < count, inside, -1),
        np.where(ever < count, ever, -1),
        np.where(second >= starts, second, np.where(near >= starts, near, -1)),
        np.where(following < count, following, np.where(inside < count, inside, -1)),
    )
    for number in range(len(CLASSES)):
        yield from (form[number] for form in forms)
    yield nearest_equal(words.upos)
    yield nearest_equal(words.lemma)
    yield _first_equal(words.lemma)
    yield _nearest_other(words.upos)
    yield starts - 1
    yield _after(of_class(words, "PUNCT"))
    capitals = [window.strings[p].strip()[:1].isupper() for p in window.words.first[::step]]
    yield nearest(np.array(capitals, bool))
    yield nearest(np.isin(window.words.first, window.mentions.first)[::step])
    near_class = dict(zip(CLASSES, near, strict=True))
    for anchor in _ANCHORS.values():
        anchor_word = near_class[anchor]
        for name in _PHRASE_CLASSES:
            yield np.where(anchor_word >= 0, near_class[name][anchor_word], -1)


def _masks(words: WordTable) -> Bool[ndarray, "class word"]:
    table = np.array([[upos in members for upos in UPOS] + [False] for members in CLASSES.values()])
    return np.asarray(table[:, _codes(words)])


def _codes(words: WordTable) -> Int[ndarray, " word"]:
    """Each word's part of speech as its place in `UPOS`, and one more for any other."""
    return np.array([_NUMBER.get(u, len(UPOS)) for u in words.upos.tolist()], np.int64)


_NUMBER = {name: number for number, name in enumerate(UPOS)}


def nearest(mask: Bool[ndarray, "*class word"]) -> Int[ndarray, "*class word"]:
    """For each word the nearest earlier one of those in a mask, −1 if absent."""
    latest = np.full(mask.shape, -1)
    last = np.maximum.accumulate(np.where(mask, np.arange(mask.shape[-1]), -1), axis=-1)
    latest[..., 1:] = last[..., :-1]
    return latest


def nearest_equal(values: ndarray) -> Int[ndarray, " word"]:
    """For each word the nearest earlier one with the same value, −1 if absent."""
    _, code = np.unique(values, return_inverse=True)
    order = np.argsort(code, kind="stable")
    previous = np.full(len(values), -1)
    again = code[order][1:] == code[order][:-1]
    previous[order[1:][again]] = order[:-1][again]
    return previous


def next_equal(values: ndarray) -> Int[ndarray, " word"]:
    """For each word the next later one with the same value, −1 if absent."""
    earlier = nearest_equal(values)
    later = np.full(len(values), -1)
    later[earlier[earlier >= 0]] = np.flatnonzero(earlier >= 0)
    return later


def _first_equal(values: ndarray) -> Int[ndarray, " word"]:
    _, first, code = np.unique(values, return_index=True, return_inverse=True)
    first_word = first[code]
    return np.where(first_word < np.arange(len(values)), first_word, -1)


def _nearest_other(values: ndarray) -> Int[ndarray, " word"]:
    before = np.arange(len(values)) - 1
    changed = np.ones(len(values), bool)
    changed[1:] = values[1:] != values[:-1]
    run_start = np.maximum.accumulate(np.where(changed, np.arange(len(values)), 0))
    same = np.concatenate([[False], values[1:] == values[:-1]])
    return np.where(same, run_start - 1, before)


def _after(mask: Bool[ndarray, " word"]) -> Int[ndarray, " word"]:
    near = nearest(mask)
    following = near + 1
    return np.where((near >= 0) & (following < np.arange(len(mask))), following, -1)
