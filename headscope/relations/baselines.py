"""Baselines that need no syntax: "the nearest verb", "three tokens back", "first noun".

A head that follows one of them finds many heads, dependents and antecedents without knowing
anything of them. What a baseline gets right on a text is known from the text alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cached_property, partial

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
_STEPS_BACK = range(1, WORDS_BACK + 1)
_ANCHORS = {"adposition": "ADP", "conjunction": "CCONJ", "mark": "PUNCT"}
_PHRASE_CLASSES = (
    "NOUN",
    "VERB",
    "name-or-noun",
    "nominal",
    "verbal",
    "content-word",
    "function-word",
)
_RUN_CLASSES = ("name-or-noun", "nominal", "content-word", "verbal")
_Rows = Int[ndarray, " word"]
_Mask = Bool[ndarray, " word"]

FALLING_BACK = ("second-{}-in-sentence", "next-to-first-{}-in-sentence")
"""The second word of a class from the query, or from the beginning of its sentence. If the sentence
has only one so far, it is picked; in most sentences it is the nearest of the class too."""


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
        rows = np.where(self.of_class, self.row, count)
        rows = np.minimum.accumulate(rows[:, ::-1], axis=1)[:, ::-1]
        # a row after the last word of the text has none either
        return np.concatenate([rows, np.full((len(rows), 2), count)], axis=1)

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
        following = np.take_along_axis(self._from, self._from[:, self.sentence_start] + 1, 1)
        following = self._if_earlier(following)
        return np.where(following >= 0, following, self.first_in_sentence)

    def _if_earlier(self, rows: Int[ndarray, "class word"]) -> Int[ndarray, "class word"]:
        return np.where(rows < self.row, rows, -1)


PickWords = Callable[[WordRows], _Rows]
"""A baseline about words: the row of the earlier word that it picks at each word, −1 for none."""


def _words_back(rows: WordRows, *, steps: int) -> _Rows:
    return np.where(rows.row >= steps, rows.row - steps, -1)


def _of_class_row(rows: WordRows, *, form: str, number: int) -> _Rows:
    return np.asarray(getattr(rows, form)[number])


def _before_anchor(rows: WordRows, *, number: int, anchor: int) -> _Rows:
    anchor_word = rows.nearest[anchor]
    return np.where(anchor_word >= 0, rows.nearest[number][anchor_word], -1)


def _edge_of_run(rows: WordRows, *, number: int, step: int) -> _Rows:
    """The nearest word of a class whose neighbour on one side is of another class."""
    of_class = np.pad(rows.of_class[number], 1)
    neighbour = np.roll(of_class, -step)
    return nearest((of_class & ~neighbour)[1:-1])


_FORMS = {
    "nearest-{}": "nearest",
    "nearest-{}-in-sentence": "nearest_in_sentence",
    "second-{}": "second",
    "first-{}-in-sentence": "first_in_sentence",
    "first-{}": "first",
    "second-{}-in-sentence": "second_in_sentence",
    "next-to-first-{}-in-sentence": "next_to_first_in_sentence",
}
"""Baselines of each class of words, and the attribute of `WordRows` that they read."""
_CLASS_NUMBER = {name: number for number, name in enumerate(CLASSES)}
_BY_WORD: dict[str, PickWords] = {
    **{f"{steps}-words-back": partial(_words_back, steps=steps) for steps in _STEPS_BACK},
    **{
        form.format(name): partial(_of_class_row, form=attribute, number=number)
        for name, number in _CLASS_NUMBER.items()
        for form, attribute in _FORMS.items()
    },
    "same-class": lambda rows: nearest_equal(rows.words.upos),
    "same-lemma": lambda rows: nearest_equal(rows.words.lemma),
    "first-same-lemma": lambda rows: _first_equal(rows.words.lemma),
    "other-class": lambda rows: _nearest_other(rows.words.upos),
    "last-of-sentence-before": lambda rows: rows.sentence_start - 1,
    "after-punctuation": lambda rows: _after(rows.of_class[_CLASS_NUMBER["PUNCT"]]),
    "after-same-class": lambda rows: _after_equal(rows.words.upos),
    "after-same-ending": lambda rows: _after_equal(np.array([f[-3:] for f in rows.forms], "U")),
    "after-same-length": lambda rows: _after_equal(np.array([len(f) for f in rows.forms])),
    "capitalised": lambda rows: nearest(rows.is_capital),
    "most-frequent-capital": lambda rows: _most_frequent(rows.forms, rows.is_capital),
    "number-in-digits": lambda rows: nearest(np.array([f.isdigit() for f in rows.forms], bool)),
    "nearest-mention": lambda rows: nearest(rows.is_mention),
}
_PHRASES: dict[str, PickWords] = {
    f"{name}-before-{title}": partial(
        _before_anchor, number=_CLASS_NUMBER[name], anchor=_CLASS_NUMBER[anchor]
    )
    for title, anchor in _ANCHORS.items()
    for name in _PHRASE_CLASSES
} | {
    f"nearest-{name}-that-{verb}-a-run": partial(
        _edge_of_run, number=_CLASS_NUMBER[name], step=step
    )
    for name in _RUN_CLASSES
    for verb, step in (("opens", -1), ("closes", 1))
}
"""The last word of a class before the nearest adposition, conjunction or mark, and the nearest word
at the edge of a run of words of a class."""
_WORD_BASELINES = _BY_WORD | _PHRASES
OFFSET_BASELINES = tuple(f"offset-{d}" for d in range(1, OFFSETS + 1))
OFFSETS_AHEAD = tuple(f"offset+{d}" for d in range(1, OFFSETS + 1))
BASELINES = ("own", *OFFSET_BASELINES, *_BY_WORD)
"""Baselines by name; `own` is the one that a relation brings itself, if any."""
PHRASE_BASELINES = tuple(_PHRASES)
_UNION_SIZES = {
    "nearest-of-2-target-classes": 2,
    "nearest-of-3-target-classes": 3,
    "nearest-of-target-classes": len(UPOS),
}
"""Number of classes, the most frequent first, that a word may be of: SCONJ and PART for `mark`."""
_UNIONS = {
    form.format(name): (form.format("nearest-{}"), size)
    for name, size in _UNION_SIZES.items()
    for form in ("{}", "{}-in-sentence")
}
"""The baseline of one class, and the number of classes, for each union of classes."""
UNION_BASELINES = tuple(_UNIONS)
"""The nearest word of any of the parts of speech that a relation's targets have."""
EARLIER = (*BASELINES, *PHRASE_BASELINES, *UNION_BASELINES)
"""Baselines of causal models."""


def _ahead(name: str) -> str:
    """The name of a baseline that reads the table of words from the end of the text."""
    if "-words-back" in name:
        return name.replace("-words-back", "-words-ahead")
    return f"later-{name}"


_WORD_BASELINES_AHEAD: dict[str, PickWords] = {
    _ahead(name): pick for name, pick in _WORD_BASELINES.items()
}
_EITHER_SIDE = {
    f"{name}-on-either-side": name
    for name in (*(f"nearest-{name}" for name in CLASSES), "same-class", "nearest-mention")
}
"""Baselines that pick the nearer of two words, and the name of the baseline of each side."""
_UNIONS_ON_EITHER_SIDE = {f"{name}-on-either-side": name for name in _UNION_SIZES}
UNION_BASELINES_AHEAD = (*map(_ahead, UNION_BASELINES), *_UNIONS_ON_EITHER_SIDE)
ALL_BASELINES = (
    *EARLIER,
    *OFFSETS_AHEAD,
    *_WORD_BASELINES_AHEAD,
    *_EITHER_SIDE,
    *UNION_BASELINES_AHEAD,
)
"""Baselines of encoders: those of causal models, the same read from the end of the text
(`later-first-VERB` is its last verb), and the nearest word of a class or mention on either side."""
NUMBER_OF = {name: number for number, name in enumerate(ALL_BASELINES)}
"""The row of each baseline in the array of picks."""
MENTION_BASELINES = tuple(name for name in ALL_BASELINES if "nearest-mention" in name)
CLASS_COUNT = len(UPOS) + 1
"""Classes of queries: those of words, and one for positions where no word of them ends."""


def picks(window: Window) -> Int[ndarray, "baseline position"]:
    """The key position that each baseline picks at each query, −1 if it picks none.

    A baseline about words picks the last token of an earlier word at the last token of a word. In
    windows of encoders the baselines are `ALL_BASELINES`. Rows of `own` and of `UNION_BASELINES`
    depend on the relation and are −1. The array is large, so that no window keeps it.
    """
    sees_future = window.attention_kind.sees_future
    pick = np.full((len(ALL_BASELINES) if sees_future else len(EARLIER), len(window)), -1)
    token = np.arange(len(window))
    for d, name in enumerate(OFFSET_BASELINES, 1):
        pick[NUMBER_OF[name], d:] = token[: max(0, len(window) - d)]
    if len(window.words):
        _pick_earlier_words(window, pick)
    if sees_future:
        for d, name in enumerate(OFFSETS_AHEAD, 1):
            end = max(d, window.stop)
            pick[NUMBER_OF[name], : max(0, window.stop - d)] = token[d:end]
        if len(window.words):
            _pick_later_words(window, pick)
            _pick_nearer_words(pick)
    return pick


def _pick_earlier_words(window: Window, pick: Int[ndarray, "baseline position"]) -> None:
    words = window.words
    rows = WordRows(words, _forms(window), is_mention=_is_mention(window))
    word = np.stack([find(rows) for find in _WORD_BASELINES.values()])
    last = words.last[word]
    is_earlier = (word >= 0) & (last < words.last)
    numbers = np.array([NUMBER_OF[name] for name in _WORD_BASELINES])
    pick[numbers[:, None], words.last] = np.where(is_earlier, last, -1)


def _pick_later_words(window: Window, pick: Int[ndarray, "baseline position"]) -> None:
    """Read the table of words from its end; rows of words are turned back again."""
    words = window.words
    rows = WordRows(
        mirror_words(words, len(window) - 1),
        _forms(window)[::-1],
        is_mention=_is_mention(window)[::-1],
    )
    mirrored = np.stack([find(rows) for find in _WORD_BASELINES_AHEAD.values()])
    word = np.where(mirrored >= 0, len(words) - 1 - mirrored, -1)[:, ::-1]
    is_later = (word >= 0) & (words.first[word] > words.last)
    numbers = np.array([NUMBER_OF[name] for name in _WORD_BASELINES_AHEAD])
    pick[numbers[:, None], words.last] = np.where(is_later, words.last[word], -1)


def _pick_nearer_words(pick: Int[ndarray, "baseline position"]) -> None:
    token = np.arange(pick.shape[1])
    before = pick[[NUMBER_OF[name] for name in _EITHER_SIDE.values()]]
    after = pick[[NUMBER_OF[_ahead(name)] for name in _EITHER_SIDE.values()]]
    pick[[NUMBER_OF[name] for name in _EITHER_SIDE]] = _nearer(before, after, token)


_Picked = Int[ndarray, "*baseline query"]


def _nearer(before: _Picked, after: _Picked, query: Int[ndarray, " query"]) -> _Picked:
    """The nearer of two picks, −1 for none."""
    is_before = (before >= 0) & ((after < 0) | (query - before <= after - query))
    return np.where(is_before, before, after)


def union_picks(
    pick: Int[ndarray, "baseline query"],
    queries: Int[ndarray, " query"],
    classes: Sequence[str],
) -> dict[str, Int[ndarray, " query"]]:
    """Picks of the unions of classes at some queries.

    Args:
        pick: picks of all baselines at the queries.
        queries: positions of the queries.
        classes: parts of speech of a relation's targets, the most frequent first.
    """
    picked: dict[str, Int[ndarray, " query"]] = {}
    if not classes:
        return picked
    sees_future = len(pick) > len(EARLIER)
    for name, (form, size) in _UNIONS.items():
        names = [form.format(upos) for upos in classes[:size]]
        picked[name] = pick[[NUMBER_OF[rule] for rule in names]].max(0)
        if sees_future:
            later = pick[[NUMBER_OF[_ahead(rule)] for rule in names]]
            first = np.where(later >= 0, later, np.iinfo(later.dtype).max).min(0)
            picked[_ahead(name)] = np.where((later >= 0).any(0), first, -1)
    if sees_future:
        for name, side in _UNIONS_ON_EITHER_SIDE.items():
            picked[name] = _nearer(picked[side], picked[_ahead(side)], queries)
    return picked


def _forms(window: Window) -> list[str]:
    """The words as their tokens spell them."""
    spans = zip(window.words.first.tolist(), window.words.last.tolist(), strict=True)
    return ["".join(window.strings[first : last + 1]).strip() for first, last in spans]


def _is_mention(window: Window) -> _Mask:
    return np.isin(window.words.first, window.mentions.first)


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


def query_class(window: Window) -> Int[ndarray, " position"]:
    """The class of the word that ends at each position, as a number below `CLASS_COUNT`."""
    class_index = np.full(len(window), CLASS_COUNT - 1)
    class_index[window.words.last] = _codes(window.words)
    return class_index


def of_class(window: Window, name: str) -> Bool[ndarray, " word"]:
    """Mask of the words of one of `CLASSES`."""
    return np.asarray(window.once(_class_masks)[_CLASS_NUMBER[name]])


def _class_masks(window: Window) -> Bool[ndarray, "class word"]:
    return _masks(window.words)


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
    """For each word the nearest earlier one with another value, −1 if absent."""
    row = np.arange(len(values))
    is_same_as_before = np.zeros(len(values), bool)
    is_same_as_before[1:] = values[1:] == values[:-1]
    run_start = np.maximum.accumulate(np.where(is_same_as_before, 0, row))
    return np.where(is_same_as_before, run_start - 1, row - 1)


def _after_equal(values: ndarray) -> Int[ndarray, " word"]:
    """For each word the one after the nearest earlier word with the same value."""
    earlier = nearest_equal(values)
    following = earlier + 1
    return np.where((earlier >= 0) & (following < np.arange(len(values))), following, -1)


def _most_frequent(forms: Sequence[str], mask: _Mask) -> Int[ndarray, " word"]:
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


def _after(mask: Bool[ndarray, " word"]) -> Int[ndarray, " word"]:
    near = nearest(mask)
    following = near + 1
    return np.where((near >= 0) & (following < np.arange(len(mask))), following, -1)
