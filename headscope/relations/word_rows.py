"""Words of a window as rows of a table, and lookups in it: the nearest word of a class, and others.

A row is the number of a word in `Window.words`, −1 for no word.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable

UPOS_IN_WORDS = {
    "ADJ": "adjective",
    "ADP": "adposition",
    "ADV": "adverb",
    "AUX": "auxiliary",
    "CCONJ": "conjunction",
    "DET": "determiner",
    "INTJ": "interjection",
    "NOUN": "noun",
    "NUM": "number",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "name",
    "PUNCT": "punctuation",
    "SCONJ": "subordinator",
    "SYM": "symbol",
    "VERB": "verb",
    "X": "other word",
}
UPOS = tuple(UPOS_IN_WORDS)
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
CLASS_NUMBER = {name: number for number, name in enumerate(CLASSES)}
"""The row of each class in arrays `[class word]`."""
_NUMBER = {name: number for number, name in enumerate(UPOS)}
_Mask = Bool[ndarray, " word"]


class WordRows:
    """A table of words with what baselines look up in it: rows of words, −1 for no word.

    Arrays `[class word]` have a row for each of `CLASSES`.
    """

    def __init__(self, words: WordTable, forms: Sequence[str], *, is_mention: _Mask) -> None:
        self.words = words
        self.forms = forms
        self.is_mention = is_mention
        self.is_capital = np.array([form[:1].isupper() for form in forms], bool)
        self.row = np.arange(len(words))
        self.sentence_start = np.searchsorted(words.sentence, words.sentence)
        """The first word of each word's sentence."""

    @cached_property
    def is_number(self) -> _Mask:
        """Mask of the words in digits."""
        return np.array([form.isdigit() for form in self.forms], bool)

    @cached_property
    def features(self) -> dict[str, list[Hashable]]:
        """Properties that words may share without being the same: a value for each word."""
        # what a head may take for the same word by its surface, from the coarsest to the finest
        forms, upos = self.forms, self.words.upos.tolist()
        lengths = [len(form) for form in forms]
        return {
            "class": [*upos],
            "two-classes": [*zip(["", *upos], upos, strict=False)],
            "length": [*lengths],
            "length-and-class": [*zip(lengths, upos, strict=True)],
            "ending": [form[-3:] for form in forms],
            "two-letter-ending": [form[-2:] for form in forms],
            "first-letter": [form[:1] for form in forms],
            "first-two-letters": [form[:2] for form in forms],
            "first-three-letters": [form[:3] for form in forms],
        }

    @cached_property
    def of_class(self) -> Bool[ndarray, "class word"]:
        """Mask of the words of each class."""
        return _masks(self.words)

    @cached_property
    def nearest(self) -> Int[ndarray, "class word"]:
        """The nearest earlier word of a class."""
        return nearest(self.of_class)

    @cached_property
    def nearest_in_sentence(self) -> Int[ndarray, "class word"]:
        """The nearest earlier word of a class in the word's own sentence."""
        return np.where(self.nearest >= self.sentence_start, self.nearest, -1)

    @cached_property
    def second(self) -> Int[ndarray, "class word"]:
        """The second nearest earlier word of a class."""
        before_nearest = np.take_along_axis(self.nearest, self.nearest, 1)
        return np.where(self.nearest >= 0, before_nearest, -1)

    @cached_property
    def second_in_sentence(self) -> Int[ndarray, "class word"]:
        """The second nearest in the sentence, or else the nearest there."""
        is_inside = self.second >= self.sentence_start
        return np.where(is_inside, self.second, self.nearest_in_sentence)

    @cached_property
    def _from(self) -> Int[ndarray, "class row"]:
        """The first word of a class from each row on, and the number of words if none follows."""
        count = len(self.words)
        row_of_class = np.where(self.of_class, self.row, count)
        from_the_end = np.minimum.accumulate(row_of_class[:, ::-1], axis=1)
        first_from = from_the_end[:, ::-1]
        # a row after the last word of the text has none either
        after_last = np.full((len(first_from), 2), count)
        return np.concatenate([first_from, after_last], axis=1)

    @cached_property
    def first(self) -> Int[ndarray, "class word"]:
        """The first word of a class in the text, if it is an earlier word."""
        return self._if_earlier(self._from[:, np.zeros_like(self.row)])

    @cached_property
    def first_in_sentence(self) -> Int[ndarray, "class word"]:
        """The first word of a class from the beginning of the sentence on, if it is earlier."""
        return self._if_earlier(self._from[:, self.sentence_start])

    @cached_property
    def next_to_first_in_sentence(self) -> Int[ndarray, "class word"]:
        """The second word of a class from the beginning of the sentence, or else the first."""
        first = self._from[:, self.sentence_start]
        second = np.take_along_axis(self._from, first + 1, 1)
        earlier = self._if_earlier(second)
        return np.where(earlier >= 0, earlier, self.first_in_sentence)

    def _if_earlier(self, rows: Int[ndarray, "class word"]) -> Int[ndarray, "class word"]:
        return np.where(rows < self.row, rows, -1)


def of_class(window: Window, name: str) -> Bool[ndarray, " word"]:
    """Mask of the words of one of `CLASSES`."""
    masks = window.once(_class_masks)
    return np.asarray(masks[CLASS_NUMBER[name]])


def _class_masks(window: Window) -> Bool[ndarray, "class word"]:
    return _masks(window.words)


def _masks(words: WordTable) -> Bool[ndarray, "class word"]:
    return np.asarray(_HAS_MEMBER[:, upos_numbers(words)])


def upos_numbers(words: WordTable) -> Int[ndarray, " word"]:
    """Each word's part of speech as its place in `UPOS`, and one more for any other."""
    return np.array([_NUMBER.get(upos, len(UPOS)) for upos in words.upos.tolist()], np.int64)


def _members() -> Bool[ndarray, "class upos"]:
    """The parts of speech of each class; the last column stands for words without one."""
    has_member = np.zeros((len(CLASSES), len(UPOS) + 1), bool)
    for number, members in enumerate(CLASSES.values()):
        columns = [_NUMBER[upos] for upos in members]
        has_member[number, columns] = True
    return has_member


_HAS_MEMBER = _members()


def nearest(mask: Bool[ndarray, "*class word"]) -> Int[ndarray, "*class word"]:
    """For each word the nearest earlier one of those in a mask, −1 if absent."""
    row = np.arange(mask.shape[-1])
    row_in_mask = np.where(mask, row, -1)
    last = np.maximum.accumulate(row_in_mask, axis=-1)
    earlier = np.full(mask.shape, -1)
    # a word is not earlier than itself
    earlier[..., 1:] = last[..., :-1]
    return earlier


def nearest_equal(values: Iterable[Hashable]) -> Int[ndarray, " word"]:
    """For each word the nearest earlier one with the same value, −1 if absent."""
    last: dict[Hashable, int] = {}
    previous = []
    for row, value in enumerate(values):
        previous.append(last.get(value, -1))
        last[value] = row
    return np.array(previous, np.int64)


def next_equal(values: Sequence[Hashable]) -> Int[ndarray, " word"]:
    """For each word the next later one with the same value, −1 if absent."""
    earlier = nearest_equal(values)
    again = np.flatnonzero(earlier >= 0)
    later = np.full(len(values), -1)
    later[earlier[again]] = again
    return later


def first_equal(values: ndarray) -> Int[ndarray, " word"]:
    """For each word the first one with the same value, −1 if that is the word itself."""
    _, first, code = np.unique(values, return_index=True, return_inverse=True)
    row = np.arange(len(values))
    first_row = first[code]
    return np.where(first_row < row, first_row, -1)


def nearest_other(values: ndarray) -> Int[ndarray, " word"]:
    """For each word the nearest earlier one with another value, −1 if absent."""
    row = np.arange(len(values))
    is_same_as_before = np.zeros(len(values), bool)
    is_same_as_before[1:] = values[1:] == values[:-1]
    start = np.where(is_same_as_before, 0, row)
    run_start = np.maximum.accumulate(start)
    return np.where(is_same_as_before, run_start, row) - 1


def word_after(earlier: Int[ndarray, " word"]) -> Int[ndarray, " word"]:
    """The word after an earlier one, if it is an earlier word too; −1 if not, or if none is."""
    row = np.arange(len(earlier))
    following = earlier + 1
    is_earlier = (earlier >= 0) & (following < row)
    return np.where(is_earlier, following, -1)


def most_frequent(forms: Sequence[str], mask: _Mask) -> Int[ndarray, " word"]:
    """For each word the nearest of the earlier ones in a mask whose form was read most often."""
    picked = np.full(len(forms), -1)
    counts = Counter[str]()
    best = -1
    for row, form in enumerate(forms):
        picked[row] = best
        if mask[row]:
            counts[form] += 1
            if best < 0 or counts[form] >= counts[forms[best]]:
                best = row
    return picked
