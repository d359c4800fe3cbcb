"""Baselines that need no syntax: "the nearest verb", "three tokens back", "first noun".

A head that follows one of them finds many heads, dependents and antecedents without knowing
anything of them. What a baseline gets right on a text is known from the text alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.word_rows import (
    CLASS_NUMBER,
    CLASSES,
    UPOS,
    UPOS_IN_WORDS,
    WordRows,
    first_equal,
    most_frequent,
    nearest,
    nearest_equal,
    nearest_other,
    upos_numbers,
    word_after,
)

OFFSETS = 64
WORDS_BACK = 8
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

FALLING_BACK = ("second-{}-in-sentence", "next-to-first-{}-in-sentence")
"""The second word of a class from the query, or from the beginning of its sentence. If the sentence
has only one so far, it is picked; in most sentences it is the nearest of the class too."""

PickWords = Callable[[WordRows], _Rows]
"""The row of the earlier word that a baseline picks at each word, −1 for none."""


@dataclass(frozen=True)
class WordBaseline:
    """A baseline that picks words."""

    find: PickWords
    words: str
    """Words for its pick."""
    words_ahead: str = ""
    """Words for its pick in the text read from its end; empty if its name there says it."""
    picks_first: bool = False
    """True if it picks the first token of an earlier word, else the last one."""


def _words_back(rows: WordRows, *, steps: int) -> _Rows:
    return np.where(rows.row >= steps, rows.row - steps, -1)


def _of_class_row(rows: WordRows, *, form: str, number: int) -> _Rows:
    return np.asarray(getattr(rows, form)[number])


def _before_anchor(rows: WordRows, *, number: int, anchor: int) -> _Rows:
    anchor_word = rows.nearest[anchor]
    word_before = rows.nearest[number][anchor_word]
    return np.where(anchor_word >= 0, word_before, -1)


def _edge_of_run(rows: WordRows, *, number: int, step: int) -> _Rows:
    """The nearest word of a class whose neighbour on one side is of another class."""
    of_class = np.pad(rows.of_class[number], 1)
    neighbour = np.roll(of_class, -step)
    is_edge = of_class & ~neighbour
    return nearest(is_edge[1:-1])


@dataclass(frozen=True)
class _Form:
    """Baselines of each class of words."""

    rows: str
    """The attribute of `WordRows` that they read."""
    words: str


_FORMS = {
    "nearest-{}": _Form("nearest", "nearest {}"),
    "nearest-{}-in-sentence": _Form("nearest_in_sentence", "nearest {} of the sentence"),
    "second-{}": _Form("second", "second nearest {}"),
    "first-{}-in-sentence": _Form("first_in_sentence", "first {} of the sentence"),
    "first-{}": _Form("first", "first {} of the text"),
    "second-{}-in-sentence": _Form(
        "second_in_sentence", "second nearest {} of the sentence, where there are two"
    ),
    "next-to-first-{}-in-sentence": _Form(
        "next_to_first_in_sentence", "second {} of the sentence, where there are two"
    ),
}


def spelled_out(name: str) -> str:
    """A name with spaces for hyphens, and with parts of speech written out.

    >>> spelled_out("nearest-VERB-on-either-side")
    'nearest verb on either side'
    """
    return " ".join(UPOS_IN_WORDS.get(part, part) for part in name.split("-"))


def _baselines_of_classes() -> dict[str, WordBaseline]:
    baselines: dict[str, WordBaseline] = {}
    for class_name, number in CLASS_NUMBER.items():
        for form_name, form in _FORMS.items():
            find = partial(_of_class_row, form=form.rows, number=number)
            words = form.words.format(spelled_out(class_name))
            baselines[form_name.format(class_name)] = WordBaseline(find, words)
    return baselines


def _baselines_of_steps() -> dict[str, WordBaseline]:
    baselines: dict[str, WordBaseline] = {}
    for steps in range(1, WORDS_BACK + 1):
        find = partial(_words_back, steps=steps)
        words = "the word before" if steps == 1 else f"{steps} words back"
        baselines[f"{steps}-words-back"] = WordBaseline(find, words)
    return baselines


_NEAR_COPIES = {
    "class": "of the same class",
    "two-classes": "of the same class behind the same class",
    "length": "of the same length",
    "length-and-class": "of the same length and class",
    "ending": "of the same ending",
    "two-letter-ending": "with the same last two letters",
    "first-letter": "with the same first letter",
    "first-two-letters": "with the same first two letters",
    "first-three-letters": "with the same first three letters",
}
"""Features of `WordRows.features` in words: near copies share one with the word at the query."""


def _after_alike(rows: WordRows, *, feature: str) -> _Rows:
    return word_after(nearest_equal(rows.features[feature]))


def _baselines_after_copies() -> dict[str, WordBaseline]:
    """The word after the last near copy, by its first token, which is what an induction head that
    takes one word for another attends to.
    """
    baselines: dict[str, WordBaseline] = {}
    for feature, words in _NEAR_COPIES.items():
        find = partial(_after_alike, feature=feature)
        baselines[f"after-same-{feature}"] = WordBaseline(
            find, f"word after the last one {words}", picks_first=True
        )
    return baselines


_BY_WORD = {
    **_baselines_of_steps(),
    **_baselines_of_classes(),
    "same-class": WordBaseline(
        lambda rows: nearest_equal(rows.words.upos.tolist()),
        "nearest word of the same class",
    ),
    "same-lemma": WordBaseline(
        lambda rows: nearest_equal(rows.words.lemma.tolist()),
        "nearest form of the same word",
    ),
    "first-same-lemma": WordBaseline(
        lambda rows: first_equal(rows.words.lemma),
        "first form of the same word",
    ),
    "other-class": WordBaseline(
        lambda rows: nearest_other(rows.words.upos),
        "nearest word of another class",
    ),
    "last-of-sentence-before": WordBaseline(
        lambda rows: rows.sentence_start - 1,
        "last word of the sentence before",
    ),
    "after-punctuation": WordBaseline(
        lambda rows: word_after(rows.nearest[CLASS_NUMBER["PUNCT"]]),
        "nearest word after a mark",
    ),
    **_baselines_after_copies(),
    "capitalised": WordBaseline(
        lambda rows: nearest(rows.is_capital),
        "nearest capitalised word",
    ),
    "most-frequent-capital": WordBaseline(
        lambda rows: most_frequent(rows.forms, rows.is_capital),
        "most frequent capitalised word",
    ),
    "number-in-digits": WordBaseline(
        lambda rows: nearest(rows.is_number),
        "nearest number in digits",
    ),
    "nearest-mention": WordBaseline(
        lambda rows: nearest(rows.is_mention),
        "nearest mention",
    ),
}


def _phrase_baselines() -> dict[str, WordBaseline]:
    """The last word of a class before the nearest adposition, conjunction or mark, and the nearest
    word at the edge of a run of words of a class.
    """
    baselines: dict[str, WordBaseline] = {}
    for anchor, anchor_class in _ANCHORS.items():
        for name in _PHRASE_CLASSES:
            find = partial(
                _before_anchor, number=CLASS_NUMBER[name], anchor=CLASS_NUMBER[anchor_class]
            )
            phrase = f"{spelled_out(name)} before the nearest {anchor}"
            baselines[f"{name}-before-{anchor}"] = WordBaseline(
                find, f"last {phrase}", words_ahead=f"last later {phrase}"
            )
    # a run is a stretch of neighbours of one class, such as a compound noun
    for name in _RUN_CLASSES:
        for verb, step in (("opens", -1), ("closes", 1)):
            find = partial(_edge_of_run, number=CLASS_NUMBER[name], step=step)
            words = f"nearest {spelled_out(name)} that {verb} a run"
            baselines[f"nearest-{name}-that-{verb}-a-run"] = WordBaseline(find, words)
    return baselines


_PHRASES = _phrase_baselines()
_WORD_BASELINES = _BY_WORD | _PHRASES
OFFSET_BASELINES = tuple(f"offset-{d}" for d in range(1, OFFSETS + 1))
OFFSETS_AHEAD = tuple(f"offset+{d}" for d in range(1, OFFSETS + 1))
BASELINES = ("own", *OFFSET_BASELINES, *_BY_WORD)
"""Baselines by name; `own` is the one that a relation brings itself, if any."""
PHRASE_BASELINES = tuple(_PHRASES)


@dataclass(frozen=True)
class _Union:
    """The nearest word of several classes."""

    of_class: str
    """The baseline of one of the classes."""
    size: int
    """Number of classes, the most frequent first, that a word may be of."""
    words: str


_TARGET_CLASSES = "nearest word of the classes of its targets"
# SCONJ and PART are two classes, of targets of `mark`
_UNION_SIZES = {
    "nearest-of-2-target-classes": 2,
    "nearest-of-3-target-classes": 3,
    "nearest-of-target-classes": len(UPOS),
}


def _union_baselines() -> dict[str, _Union]:
    unions: dict[str, _Union] = {}
    for name, size in _UNION_SIZES.items():
        unions[name] = _Union("nearest-{}", size, _TARGET_CLASSES)
        unions[f"{name}-in-sentence"] = _Union(
            "nearest-{}-in-sentence", size, f"{_TARGET_CLASSES}, in the sentence"
        )
    return unions


_UNIONS = _union_baselines()
UNION_BASELINES = tuple(_UNIONS)
"""The nearest word of any of the parts of speech that a relation's targets have."""
EARLIER = (*BASELINES, *PHRASE_BASELINES, *UNION_BASELINES)
"""Baselines of causal models."""


def _ahead(name: str) -> str:
    """The name of a baseline that reads the table of words from the end of the text."""
    if "-words-back" in name:
        return name.replace("-words-back", "-words-ahead")
    return f"later-{name}"


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
    *map(_ahead, _WORD_BASELINES),
    *_EITHER_SIDE,
    *UNION_BASELINES_AHEAD,
)
"""Baselines of encoders: those of causal models, the same read from the end of the text
(`later-first-VERB` is its last verb), and the nearest word of a class or mention on either side."""
NUMBER_OF = {name: number for number, name in enumerate(ALL_BASELINES)}
"""The row of each baseline in the array of picks."""


def _all_in_words() -> dict[str, str]:
    words = {name: spelled_out(name) for name in ALL_BASELINES}
    for d in range(1, OFFSETS + 1):
        words[f"offset-{d}"] = "the token before" if d == 1 else f"{d} tokens back"
        words[f"offset+{d}"] = "the token after" if d == 1 else f"{d} tokens ahead"
    for name, baseline in _WORD_BASELINES.items():
        words[name] = baseline.words
        if baseline.words_ahead:
            words[_ahead(name)] = baseline.words_ahead
    for name, union in _UNIONS.items():
        words[name] = union.words
    words["own"] = "its own baseline, such as the nearest of its kind"
    return words


_IN_WORDS = _all_in_words()


def baseline_in_words(name: str) -> str:
    """A baseline's name in words.

    >>> [baseline_in_words(name) for name in ("nearest-VERB", "2-words-back", "same-class")]
    ['nearest verb', '2 words back', 'nearest word of the same class']
    """
    return _IN_WORDS.get(name, spelled_out(name))


MENTION_BASELINES = tuple(name for name in ALL_BASELINES if "nearest-mention" in name)
CLASS_COUNT = len(UPOS) + 1
"""Classes of queries: those of words, and one for positions where no word of them ends."""


def picks(window: Window) -> Int[ndarray, "baseline position"]:
    """The key position that each baseline picks at each query, −1 if it picks none.

    A baseline about words picks the last token of an earlier word at the last token of a word, and
    the first token of what followed a near copy. In windows of encoders the baselines are
    `ALL_BASELINES`. Rows of `own` and of `UNION_BASELINES` depend on the relation and are −1. The
    array is large, so that no window keeps it.
    """
    sees_future = window.attention_kind.sees_future
    names = ALL_BASELINES if sees_future else EARLIER
    pick = np.full((len(names), len(window)), -1)
    token = np.arange(len(window))
    # fixed distances back
    for d, name in enumerate(OFFSET_BASELINES, 1):
        count = max(0, len(window) - d)
        pick[NUMBER_OF[name], d:] = token[:count]
    if len(window.words):
        _pick_earlier_words(window, pick)
    if sees_future:
        # the same ahead, up to the closing token
        for d, name in enumerate(OFFSETS_AHEAD, 1):
            end = max(d, window.stop)
            pick[NUMBER_OF[name], : end - d] = token[d:end]
        if len(window.words):
            _pick_later_words(window, pick)
            _pick_nearer_words(pick)
    return pick


def _numbers(names: Iterable[str]) -> Int[ndarray, " baseline"]:
    return np.array([NUMBER_OF[name] for name in names])


def _pick_earlier_words(window: Window, pick: Int[ndarray, "baseline position"]) -> None:
    words = window.words
    rows = WordRows(words, _forms(window), is_mention=_is_mention(window))
    word = _words_of_baselines(rows)
    # a word that shares its token with the query's word is not earlier
    last = words.last[word]
    is_earlier = (word >= 0) & (last < words.last)
    picks_first = np.array([baseline.picks_first for baseline in _WORD_BASELINES.values()])
    picked = np.where(picks_first[:, None], words.first[word], last)
    number = _numbers(_WORD_BASELINES)[:, None]
    pick[number, words.last] = np.where(is_earlier, picked, -1)


def _pick_later_words(window: Window, pick: Int[ndarray, "baseline position"]) -> None:
    """Read the table of words from its end; rows of words are turned back again."""
    words = window.words
    # read from the end, "the nearest earlier verb" is the nearest later one
    mirrored_words = mirror_words(words, len(window) - 1)
    forms = _forms(window)[::-1]
    is_mention = _is_mention(window)[::-1]
    rows = WordRows(mirrored_words, forms, is_mention=is_mention)
    mirrored = _words_of_baselines(rows)[:, ::-1]
    row = len(words) - 1 - mirrored
    word = np.where(mirrored >= 0, row, -1)
    is_later = (word >= 0) & (words.first[word] > words.last)
    picked = np.where(is_later, words.last[word], -1)
    number = _numbers(map(_ahead, _WORD_BASELINES))[:, None]
    pick[number, words.last] = picked


def _words_of_baselines(rows: WordRows) -> Int[ndarray, "baseline word"]:
    """The row of the word that each of `_WORD_BASELINES` picks, −1 for none."""
    return np.stack([baseline.find(rows) for baseline in _WORD_BASELINES.values()])


def _pick_nearer_words(pick: Int[ndarray, "baseline position"]) -> None:
    sides = _EITHER_SIDE.values()
    # both sides are known by now, as baselines of their own
    before = pick[_numbers(sides)]
    after = pick[_numbers(map(_ahead, sides))]
    query = np.arange(pick.shape[1])
    pick[_numbers(_EITHER_SIDE)] = _nearer(before, after, query)


_Picked = Int[ndarray, "*baseline query"]


def _nearer(before: _Picked, after: _Picked, query: Int[ndarray, " query"]) -> _Picked:
    """The nearer of two picks, −1 for none."""
    is_as_near = query - before <= after - query
    is_before = (before >= 0) & ((after < 0) | is_as_near)
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
    for name, union in _UNIONS.items():
        of_classes = [union.of_class.format(upos) for upos in classes[: union.size]]
        picked[name] = pick[_numbers(of_classes)].max(0)
        if sees_future:
            # the first of the later keys, −1 for none
            later = pick[_numbers(map(_ahead, of_classes))]
            is_picked = later >= 0
            first = np.where(is_picked, later, np.iinfo(later.dtype).max).min(0)
            picked[_ahead(name)] = np.where(is_picked.any(0), first, -1)
    if sees_future:
        for name, side in _UNIONS_ON_EITHER_SIDE.items():
            picked[name] = _nearer(picked[side], picked[_ahead(side)], queries)
    return picked


def _forms(window: Window) -> list[str]:
    """The words as their tokens spell them."""
    words = window.words
    forms = []
    for first, last in zip(words.first.tolist(), words.last.tolist(), strict=True):
        tokens = window.strings[first : last + 1]
        forms.append("".join(tokens).strip())
    return forms


def _is_mention(window: Window) -> Bool[ndarray, " word"]:
    return np.isin(window.words.first, window.mentions.first)


def mirror_words(words: WordTable, last: int) -> WordTable:
    """The words from the last to the first, without heads, of a window with this last position."""
    sentence = words.sentence.max(initial=0) - words.sentence
    return WordTable(
        first=(last - words.last)[::-1],
        last=(last - words.first)[::-1],
        sentence=sentence[::-1],
        head=np.full(len(words), -1),
        deprel=words.deprel[::-1],
        upos=words.upos[::-1],
        lemma=words.lemma[::-1],
        tense=words.tense[::-1],
    )


def query_class(window: Window) -> Int[ndarray, " position"]:
    """The class of the word that ends at each position, as a number below `CLASS_COUNT`."""
    class_index = np.full(len(window), CLASS_COUNT - 1)
    class_index[window.words.last] = upos_numbers(window.words)
    return class_index
