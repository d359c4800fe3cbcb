"""Features of tokens and words by themselves: classes, spelling, marks, repeats, the nearest X."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.delimiter import kinds_of
from headscope.relations.simple_rules import (
    CLASSES,
    FALLING_BACK,
    OFFSETS,
    RULES,
    UPOS,
    of_class,
    picks,
)
from headscope.studies.explain.feature import (
    Cells,
    Feature,
    Lexicon,
    after,
    cells,
    is_word,
    lower,
)

CLASS_WORDS = {
    "ADJ": "adjective",
    "ADP": "preposition",
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
    "PUNCT": "mark",
    "SCONJ": "subordinator",
    "SYM": "symbol",
    "VERB": "verb",
    "X": "foreign word",
    "name-or-noun": "name or noun",
    "verbal": "verb or auxiliary",
    "content-word": "content word",
    "function-word": "function word",
}
_MARKS = {
    "punctuation": "mark",
    "sentence-end": "end of a sentence",
    "newline": "line break",
    "quote-bracket": "quote or bracket",
}
_KINDS = {"PUNCT": "delimiter"}
_OF_TWO = {form.format(name) for name in CLASSES for form in FALLING_BACK}
"""No features: each is what two of the others pick."""
_RULES = {
    "same-class": "the nearest word of its own class",
    "same-lemma": "the nearest same word",
    "first-same-lemma": "the text's first same word",
    "other-class": "the nearest word of another class",
    "last-of-sentence-before": "the last word of the sentence before",
    "after-punctuation": "the word after the nearest mark",
    "capitalised": "the nearest capitalised word",
}


def key_words(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """The class of the key's word, wherever it is, and the first one of the window."""
    length, words = len(window), window.words
    for upos in UPOS:
        rows = np.flatnonzero(words.upos == upos)
        if len(rows):
            name, kind = CLASS_WORDS[upos], _KINDS.get(upos, "lexical")
            keys = _positions(words.first[rows], words.last[rows])
            yield cells(Feature(f"key {upos}", f"any {name}", kind), *after(length, keys))
            first = np.arange(words.first[rows[0]], words.last[rows[0]] + 1)
            own = Feature(f"first {upos}", f"the text's first {name}", kind)
            yield cells(own, *after(length, first, itself=False))


def spelling(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Pieces of words, capitals, digits, how rare the key is, and single common tokens."""
    length, words, tokens = len(window), window.words, window.tokens
    inner = words.last > words.first
    starts, ends = words.first[inner], words.last[inner]
    capital = np.array([text.strip()[:1].isupper() for text in window.strings])
    digit = np.array([text.strip()[:1].isdigit() for text in window.strings])
    new = np.zeros(length, bool)
    new[np.unique(tokens, return_index=True)[1]] = True
    for name, meaning, keys in (
        ("key first piece", "the first piece of a longer word", starts),
        ("key last piece", "the last piece of a longer word", ends),
        ("key capitalised", "any capitalised token", np.flatnonzero(capital)),
        ("key digit", "any number", np.flatnonzero(digit)),
        ("key new", "any token that was not there before", np.flatnonzero(new)),
    ):
        own = keys[keys > 0]
        yield cells(Feature(name, meaning, "lexical"), *after(length, own))
    for token in lexicon.common:
        keys = np.flatnonzero(tokens == token)
        keys = keys[keys > 0]
        if len(keys):
            shown = lexicon.shown(token)
            kind = "lexical" if is_word(lexicon.strings[token]) else "delimiter"
            own_token = frozenset({token})
            feature = Feature(f"token {token} {shown}", f"“{shown}”", kind, own_token)
            yield cells(feature, *after(length, keys))
            first = Feature(
                f"first token {token} {shown}", f"the text's first “{shown}”", kind, own_token
            )
            yield cells(first, *after(length, keys[:1], itself=False))


def rarity(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """How rare the key's token is in the text that was fitted, as a logarithm."""
    total = 1 + sum(lexicon.counts.values())
    counts = np.array([lexicon.counts.get(int(token), 0) for token in window.tokens])
    rare = np.log(total / (1 + counts)) / 4
    query, key = lower(len(window))
    seen = key > 0
    yield cells(RARE, query[seen], key[seen], rare[key[seen]])


RARE = Feature("key rare", "rarer tokens", "lexical")


def marks(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Marks of each kind: any, the nearest, the first, and the token after the nearest."""
    length, found = len(window), kinds_of(window)
    for kind, name in _MARKS.items():
        mask = np.array([kind in own for own in found])
        mask[0] = False
        keys = np.flatnonzero(mask)
        if not len(keys):
            continue
        any_of, near, first, follow = (
            Feature(f"{form} {kind}", words.format(name), "delimiter")
            for form, words in (
                ("mark", "any {}"),
                ("nearest mark", "the nearest {}"),
                ("first mark", "the text's first {}"),
                ("after mark", "the token after the nearest {}"),
            )
        )
        yield cells(any_of, *after(length, keys))
        yield cells(first, *after(length, keys[:1], itself=False))
        query, key = _nearest_to_all(mask)
        yield cells(near, query, key)
        yield cells(follow, query, key + 1)


def repeats(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """The same token before, what followed it (one and two tokens on), and what came before it."""
    tokens, length = window.tokens, len(window)
    same = np.tril(tokens[:, None] == tokens[None, :], k=-1)
    same[:, 0] = False
    query, key = np.nonzero(same)
    yield cells(Feature("same token", "the same token", "lexical"), query, key)
    two = np.zeros_like(same)
    two[1:, 1:] = same[1:, 1:] & same[:-1, :-1]
    for name, words, place, step in (
        ("follower", "what followed the same token", same, 1),
        ("follower-2", "what followed the same token two on", same, 2),
        ("before same", "what came before the same token", same, -1),
        ("follower of two", "what followed the same two tokens", two, 1),
    ):
        query, key = np.nonzero(place)
        key = key + step
        apart = (key < query) & (key > 0)
        yield cells(Feature(name, words, "induction"), query[apart], key[apart])
    last = np.where(same.any(1), length - 1 - same[:, ::-1].argmax(1), -1)
    query = np.flatnonzero(last > 0)
    yield cells(
        Feature("nearest same token", "the nearest same token", "lexical"), query, last[query]
    )
    query = query[last[query] + 1 < query]
    nearest = Feature("nearest follower", "what followed the nearest same token", "induction")
    yield cells(nearest, query, last[query] + 1)


def simple_rules(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """One key a query: the nearest verb, the second noun back, the sentence's first word."""
    if not len(window.words):
        return
    found = picks(window)
    for row, name in enumerate(RULES):
        if row >= 1 + OFFSETS and name not in _OF_TWO:
            query = np.flatnonzero(found[row] >= 0)
            kind = "delimiter" if "PUNCT" in name else "lexical"
            yield cells(Feature(name, rule_words(name), kind), query, found[row][query])
    for name in CLASSES:
        mask = np.zeros(len(window), bool)
        mask[window.words.last[of_class(window.words, name)]] = True
        kind = "delimiter" if name == "PUNCT" else "lexical"
        feature = Feature(
            f"nearest {name} to any", f"the nearest {CLASS_WORDS.get(name, name)}", kind
        )
        yield cells(feature, *_nearest_to_all(mask))


def rule_words(name: str) -> str:
    """A simple rule in words.

    >>> rule_words("nearest-VERB-in-sentence"), rule_words("3-words-back")
    ('the nearest verb of the sentence', 'the word 3 words back')
    """
    if name in _RULES:
        return _RULES[name]
    if name.endswith("-words-back"):
        return f"the word {name.split('-')[0]} words back" if name[0] != "1" else "the word before"
    inside = " of the sentence" if name.endswith("-in-sentence") else ""
    form, _, cls = name.removesuffix("-in-sentence").removeprefix("next-to-").partition("-")
    shown = CLASS_WORDS.get(cls, cls)
    if name in _OF_TWO:
        place = "second" if form == "first" else "second nearest"
        return f"the sentence's {place} {shown}, or its only one"
    if form == "first":
        return f"the sentence's first {shown}" if inside else f"the text's first {shown}"
    return f"the {'second nearest' if form == 'second' else form} {shown}{inside}"


def _nearest_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the nearest earlier key of a mask."""
    place = np.arange(len(mask))
    last = np.maximum.accumulate(np.where(mask, place, -1))
    found = np.concatenate([[-1], last[:-1]])
    query = np.flatnonzero(found >= 0)
    return query, found[query]


def _positions(first: ndarray, last: ndarray) -> ndarray:
    """All positions of spans, each once, in order."""
    spans = [np.arange(a, b + 1) for a, b in zip(first, last, strict=True)]
    return np.unique(np.concatenate(spans)) if spans else np.empty(0, np.int64)


TOKENS = (key_words, spelling, rarity, marks, repeats, simple_rules)
