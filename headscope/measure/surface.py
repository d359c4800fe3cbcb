"""Surface of a text: what a cell of a pattern shows without trees, entities and meaning.

A row of `VIEWS` sorts the cells (query word, key word) into classes by one side of the surface: by
distance, by the rank of the key among words of its part of speech, by its form, by its neighbours,
by what stands between the two words, by earlier copies of words.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.word_rows import UPOS

OTHER, FIRST = len(UPOS), len(UPOS) + 1
"""Classes beyond parts of speech: tokens of no word, and the first token."""
CLASS_COUNT = len(UPOS) + 2
FORMS = 1024
"""Numbers of the forms of closed classes; two forms rarely share one."""
_OPEN = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM")
"""Parts of speech whose words count by their class, not by their form."""
_COARSE = (("NOUN", "PROPN", "PRON"), ("VERB", "AUX"), ("ADJ", "ADV", "NUM"), ("PUNCT", "SYM"))
_RELATIVE = frozenset(("that", "which", "who", "whom", "whose", "to"))
_Cells = Int[ndarray, "query key"]
_MAX_EXACT = 8
_FARTHER = (12, 20, 40)
"""Distances in words from which on a class of distances begins; shorter ones are their own."""
_DISTANCES = 2 * (_MAX_EXACT + len(_FARTHER) + 1) + 1


def _is_of(*classes: str) -> Bool[ndarray, " class"]:
    return np.array([*(upos in classes for upos in UPOS), False, False], bool)


_ANCHORS = {
    "boundary": _is_of("PUNCT", "SCONJ", "CCONJ"),
    "determiner": _is_of("DET"),
    "preposition": _is_of("ADP"),
    "verbal": _is_of("VERB", "AUX"),
    "nominal": _is_of("NOUN", "PROPN", "PRON"),
    "conjunction": _is_of("CCONJ"),
}
"""Words that part a text: a key is the first or the last of its kind between two of them."""
_COARSE_CLASS = np.full(CLASS_COUNT, len(_COARSE))
for _number, _members in enumerate(_COARSE):
    _COARSE_CLASS[_is_of(*_members)] = _number


@dataclass(frozen=True, eq=False)
class Surface:
    """Items of a window: its words, and each token of no word, with some queries among them."""

    window: Window
    queries: Int[ndarray, " query"]
    """Items, in order."""

    def with_queries(self, classes: Iterable[int]) -> Surface:
        """The surface with all words of some classes as its queries."""
        is_query = (self.word >= 0) & np.isin(self.upos, list(classes))
        return Surface(self.window, np.flatnonzero(is_query))

    @cached_property
    def _word_of_token(self) -> Int[ndarray, " token"]:
        words = self.window.words
        word = np.full(len(self.window), -1)
        for row, first in enumerate(words.first.tolist()):
            last = int(words.last[row])
            word[first : last + 1] = row
        return word

    @cached_property
    def item_of_token(self) -> Int[ndarray, " token"]:
        """The item that each token is of."""
        word = self._word_of_token
        begins = np.ones(len(word), bool)
        is_other_word = word[1:] != word[:-1]
        is_no_word = word[1:] < 0
        begins[1:] = is_other_word | is_no_word
        return np.asarray(np.cumsum(begins) - 1)

    @cached_property
    def last(self) -> Int[ndarray, " item"]:
        """The last token of each item."""
        return np.flatnonzero(np.diff(self.item_of_token, append=-1))

    @cached_property
    def word(self) -> Int[ndarray, " item"]:
        """The row of each item among the window's words, −1 for tokens of none."""
        return np.asarray(self._word_of_token[self.last])

    @cached_property
    def upos(self) -> Int[ndarray, " item"]:
        """Part of speech of each item as its place in `UPOS`, or one of `OTHER` and `FIRST`."""
        numbers = {name: number for number, name in enumerate(UPOS)}
        number_of_word = [numbers.get(upos, OTHER) for upos in self.window.words.upos.tolist()]
        number_of_word.append(OTHER)  # of tokens of no word, whose row is −1
        by_word = np.array(number_of_word, np.int64)
        upos = by_word[self.word]
        upos[0] = FIRST
        return np.asarray(upos)

    @cached_property
    def form(self) -> Int[ndarray, " item"]:
        """Forms of closed classes as numbers; words of open classes by their class."""
        is_open = _is_of(*_OPEN)[self.upos]
        form_number = CLASS_COUNT + self.spelled % FORMS
        return np.where(is_open, self.upos, form_number)

    @cached_property
    def spelled(self) -> Int[ndarray, " item"]:
        """A number for each item's lemma."""
        lemmas = self.window.words.lemma.tolist()
        number_of_word = [zlib.crc32(lemma.encode()) for lemma in lemmas]
        number_of_word.append(0)  # of tokens of no word, whose row is −1
        by_word = np.array(number_of_word, np.int64)
        tokens = self.window.tokens[self.last].astype(np.int64)
        is_no_word = self.word < 0
        numbers = np.where(is_no_word, -tokens - 1, by_word[self.word])
        return np.asarray(numbers)

    @cached_property
    def sentence(self) -> Int[ndarray, " item"]:
        """The sentence of each item."""
        return np.asarray(self.window.sentence_of_token[self.last])

    @cached_property
    def steps(self) -> _Cells:
        """Items from the query to the key; below 0 for keys before it."""
        items = np.arange(len(self.last))
        return np.asarray(items[None, :] - self.queries[:, None])

    @cached_property
    def same_sentence(self) -> _Cells:
        """1 if query and key stand in one sentence."""
        of_query = self.sentence[self.queries]
        is_same = self.sentence[None, :] == of_query[:, None]
        return np.asarray(is_same, np.int64)

    @cached_property
    def is_seen(self) -> Bool[ndarray, "query key"]:
        """Mask of the keys that each query sees."""
        kind = self.window.attention_kind
        query_tokens = self.last[self.queries]
        return np.asarray(kind.sees(query_tokens[:, None], self.last[None, :]))

    def rank(self, value: Int[ndarray, " item"], limit: int) -> _Cells:
        """Rank of each key among items of its value, counted from the query: 1 is the nearest.

        Keys on either side are counted by themselves; ranks end at `limit`, and the query is 0.
        Ranks of keys after the query are larger by `limit + 1`.
        """
        _, code = np.unique(value, return_inverse=True)
        codes = np.arange(code.max(initial=0) + 1)
        one_hot = code[:, None] == codes
        # items of each value up to each item, with and without it
        until = np.cumsum(one_hot, 0)
        before = until - one_hot
        # counted from the query backward and forward, and the query itself apart
        items = np.arange(len(code))
        occurrence = before[items, code]
        before_query = before[self.queries][:, code]
        until_query = until[self.queries][:, code]
        earlier = before_query - occurrence
        later = occurrence - until_query + 1
        ranks = np.where(self.steps < 0, earlier, later)
        ranks = ranks.clip(0, limit)
        ranks = np.where(self.steps == 0, 0, ranks)
        ranks = np.where(self.steps > 0, ranks + limit + 1, ranks)
        return np.asarray(ranks)

    def classes(self) -> list[_Cells]:
        """For each of `VIEWS` the class of every cell, a number from 0."""
        return [view(self).astype(np.int16) for view in VIEWS]


def _distance(surface: Surface) -> _Cells:
    size = np.abs(surface.steps)
    far_class = np.searchsorted(_FARTHER, size, side="right")
    far = _MAX_EXACT + 1 + far_class
    bucket = np.where(size <= _MAX_EXACT, size, far)
    bucket_after = bucket + _DISTANCES // 2
    bucket = np.where(surface.steps > 0, bucket_after, bucket)
    return _mixed(
        surface,
        (bucket, _DISTANCES + 1),
        (surface.same_sentence, 2),
    )


def _recency(surface: Surface) -> _Cells:
    ranks = surface.rank(surface.upos, 4)
    return _mixed(
        surface,
        (ranks, 10),
        (surface.same_sentence, 2),
    )


def _sentence_place(surface: Surface) -> _Cells:
    """Places among the words of a class, from the beginning of the sentence and from its end."""
    is_start = np.diff(surface.sentence, prepend=-1)
    # sentences are numbered, and words counted from both ends of each
    number = np.cumsum(is_start)
    first = _ordinal(surface.upos, number)
    last = _ordinal(surface.upos[::-1], number[::-1])[::-1]
    side = np.sign(surface.steps) + 1
    return _mixed(
        surface,
        (first, 3),
        (last, 3),
        (side, 3),
        (surface.same_sentence, 2),
    )


def _by_form(surface: Surface) -> _Cells:
    ranks = surface.rank(surface.form, 3)
    form = np.broadcast_to(surface.form, ranks.shape)
    form_and_rank = form * 8 + ranks
    return np.asarray(form_and_rank * 2 + surface.same_sentence)


def _by_neighbour(step: int) -> Callable[[Surface], _Cells]:
    """The key by the class of the adjacent word, and its rank among words with such a one."""

    def view(surface: Surface) -> _Cells:
        neighbour = np.full(len(surface.upos), OTHER)
        if step < 0:
            neighbour[1:] = surface.upos[:-1]
        else:
            neighbour[:-1] = surface.upos[1:]
        ranks = surface.rank(neighbour, 3)
        rank_and_neighbour = ranks * CLASS_COUNT + neighbour
        coarse = _COARSE_CLASS[surface.upos]
        return np.asarray(rank_and_neighbour * 8 + coarse)

    return view


def _by_anchor(name: str) -> Callable[[Surface], _Cells]:
    """Anchors between query and key, and whether the key is the first or last of its kind there."""
    anchor_classes = _ANCHORS[name]

    def view(surface: Surface) -> _Cells:
        anchors = anchor_classes[surface.upos]
        if name == "boundary":
            # a relative word opens a clause as a mark does
            lemmas = surface.window.words.lemma.tolist()
            is_relative = [lemma in _RELATIVE for lemma in lemmas]
            # the last is for tokens of no word, whose row is −1
            by_word = np.array([*is_relative, False], bool)
            anchors = anchors | np.asarray(by_word[surface.word])
        number = np.cumsum(anchors)
        coarse = _COARSE_CLASS[surface.upos]
        first = _ordinal(coarse, number)
        # from the end: an anchor closes what stands before it
        closes = (number - anchors)[::-1]
        number_from_end = closes.max(initial=0) - closes
        last = _ordinal(coarse[::-1], number_from_end)[::-1]
        # anchors between query and key, up to two on either side
        number_of_query = number[surface.queries]
        between = number[None, :] - number_of_query[:, None]
        side = (surface.steps > 0).astype(np.int64)
        return _mixed(
            surface,
            (between.clip(-2, 2) + 2, 5),
            (first, 3),
            (last, 3),
            (side, 2),
        )

    return view


def _copies(surface: Surface) -> _Cells:
    """Keys near the nearest earlier copy of the query's word, or of the word before it."""
    spelled = surface.spelled
    previous = np.maximum(surface.queries - 1, 0)
    at_query = _steps_from_copies(surface, spelled[surface.queries])
    at_previous = _steps_from_copies(surface, spelled[previous])
    side = (surface.steps > 0).astype(np.int64)
    number = at_query * 8 + at_previous
    number = number * 2 + side
    return np.asarray(number * CLASS_COUNT + surface.upos)


def _steps_from_copies(surface: Surface, spelling: Int[ndarray, " query"]) -> _Cells:
    """Items from the nearest earlier copy of a word to the key: 1 to 7 for −2 to 4, else 0."""
    is_same = surface.spelled[None, :] == spelling[:, None]
    is_copy = is_same & (surface.steps < 0)
    items = is_copy.shape[1]
    steps_after = np.zeros(is_copy.shape, np.int64)
    # a later step of this order replaces an earlier one
    for step in (-2, 4, -1, 3, 2, 1, 0):
        moved = np.zeros_like(is_copy)
        if step >= 0:
            moved[:, step:] = is_copy[:, : items - step]
        else:
            moved[:, :step] = is_copy[:, -step:]
        steps_after[moved] = step + 3
    return steps_after


VIEWS: tuple[Callable[[Surface], _Cells], ...] = (
    _distance,
    _recency,
    _sentence_place,
    _by_form,
    _by_neighbour(-1),
    _by_neighbour(1),
    *(_by_anchor(name) for name in _ANCHORS),
    _copies,
)
"""Ways to sort the cells of a window into classes."""


def _mixed(surface: Surface, *parts: tuple[ndarray, int]) -> _Cells:
    """One number for the key's part of speech and some further values, each below its size."""
    cells: ndarray = np.broadcast_to(surface.upos, surface.steps.shape)
    for values, size in parts:
        cells = cells * size + values
    return np.asarray(cells)


def _ordinal(value: Int[ndarray, " item"], part: Int[ndarray, " item"]) -> Int[ndarray, " item"]:
    """Place of each item among those of its value in its part: 0, 1, and 2 from then on."""
    values = value.max(initial=0) + 1
    key = part * values + value
    order = np.argsort(key, kind="stable")
    ordered = key[order]
    start = np.searchsorted(ordered, ordered, side="left")
    ordinal = np.empty(len(key), np.int64)
    ordinal[order] = np.arange(len(key)) - start
    return ordinal.clip(0, 2)
