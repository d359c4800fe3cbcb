"""Words for baselines such as `nearest-VERB`, and for the control that decides a tag."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import isnan
from operator import itemgetter
from typing import Any

from headscope.relations import head_types

TIMES_CONTROL = 1.5
"""Least mass in units of the strictest control. A lift can be certain and still be small: a head
that puts 0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a
head for prepositions."""

_FORMS = (
    (r"offset-1", "the token before"),
    (r"offset-(\d+)", r"\1 tokens back"),
    (r"offset\+1", "the token after"),
    (r"offset\+(\d+)", r"\1 tokens ahead"),
    (r"1-words-back", "the word before"),
    (r"(\d+)-words-back", r"\1 words back"),
    (
        r"nearest-of-(?:\d-)?target-classes-in-sentence",
        "nearest word of the classes of its targets, in the sentence",
    ),
    (r"nearest-of-(?:\d-)?target-classes", "nearest word of the classes of its targets"),
    (r"(nearest|first)-(.+)-in-sentence", r"\1 \2 of the sentence"),
    (r"second-(.+)-in-sentence", r"second nearest \1 of the sentence, where there are two"),
    (r"next-to-first-(.+)-in-sentence", r"second \1 of the sentence, where there are two"),
    (r"first-same-lemma", "first form of the same word"),
    (r"(.+)-before-(.+)", r"last \1 before the nearest \2"),
    (r"first-(.+)", r"first \1 of the text"),
    (r"second-(.+)", r"second nearest \1"),
    (r"same-class", "nearest word of the same class"),
    (r"other-class", "nearest word of another class"),
    (r"same-lemma", "nearest form of the same word"),
    (r"last-of-sentence-before", "last word of the sentence before"),
    (r"after-punctuation", "nearest word after a mark"),
    (r"after-same-class", "word after the last one of the same class"),
    (r"after-same-ending", "word after the last one of the same ending"),
    (r"after-same-length", "word after the last one of the same length"),
    (r"capitalised", "nearest capitalised word"),
    (r"most-frequent-capital", "most frequent capitalised word"),
    (r"number-in-digits", "nearest number in digits"),
    (r"own", "its own baseline, such as the nearest of its kind"),
)
_WORDS = {
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


def baseline_in_words(name: str) -> str:
    """A baseline's name in words.

    >>> [baseline_in_words(name) for name in ("nearest-VERB", "2-words-back", "same-class")]
    ['nearest verb', '2 words back', 'nearest word of the same class']
    """
    for form, words in _FORMS:
        if re.fullmatch(form, name):
            name = re.sub(form, words, name)
            break
    return " ".join(_WORDS.get(word, word) for word in re.split("[ -]", name))


def matched_control_keys(type: str) -> str:
    """Keys of the matched control of a head type's relations, in words.

    >>> matched_control_keys("syntactic")
    'keys of the same word class and distance at other queries'
    """
    head_type = head_types().get(type)
    return "other keys" if head_type is None else head_type.matched_control_keys


def strictest_control(row: Mapping[str, Any]) -> tuple[float, str]:
    """The largest of a row's control masses, and its keys in words.

    A multiple of evenly spread attention is a control of relations that state `times_chance`.

    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": 0.34})
    (0.34, 'keys of the same word class and distance at other queries (matched control)')
    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": float("nan")})
    (0.01, 'control keys')
    >>> strictest_control({"type": "syntactic", "control": float("nan")})  # no finite attention
    (nan, 'control keys')
    """
    controls = [
        (row["control"], "control keys"),
        (row.get("matched_control"), f"{matched_control_keys(row['type'])} (matched control)"),
    ]
    times_chance = row.get("times_chance", float("nan"))
    if not isnan(times_chance):
        multiple = times_chance / TIMES_CONTROL
        keys = f"the same keys by evenly spread attention, × {multiple:g}"
        mass = row["chance"] * times_chance / TIMES_CONTROL
        controls.append((mass, keys))
    known = []
    for mass, keys in controls:
        if mass is not None and not isnan(mass):
            known.append((mass, keys))
    return max(known, key=itemgetter(0), default=controls[0])
