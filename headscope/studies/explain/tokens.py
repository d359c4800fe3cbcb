"""Features of tokens and words by themselves: classes, spelling, marks, repeats, the nearest X."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.delimiter import kinds_of
from headscope.relations.heuristics import (
    ALL_RULES,
    CLASSES,
    EARLIER,
    FALLING_BACK,
    OFFSETS,
    RULES,
    UPOS,
    of_class,
    picks,
)
from headscope.relations.pairs import span_pairs
from headscope.relations.phrase_heuristics import PHRASE_RULES, nearest
from headscope.studies.explain.feature import (
    Feature,
    FeatureCells,
    TokenFacts,
    all_seen,
    cells,
    is_word,
    seen_cells,
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
_OF_TWO = {form.format(name) for name in CLASSES for form in FALLING_BACK}
"""No features: each is what two of the others pick."""
_FEATURES = {
    name
    for name in (*RULES[1 + OFFSETS :], *ALL_RULES[len(EARLIER) + OFFSETS :])
    if name.removeprefix("later-") not in (*_OF_TWO, *PHRASE_RULES)
}
"""Simple rules that are features, those of `RULES` for every head, the rest for an encoder's."""
_RULES = {
    "same-class": "the nearest word of its own class",
    "same-lemma": "the nearest same word",
    "first-same-lemma": "the text's first same word",
    "other-class": "the nearest word of another class",
    "last-of-sentence-before": "the last word of the sentence before",
    "after-punctuation": "the word after the nearest mark",
    "capitalised": "the nearest capitalised word",
}


def _kind(name: str) -> str:
    """The kind of attention on a class of words, or by a rule of that class."""
    return "delimiter" if "PUNCT" in name else "lexical"


def key_words(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The class of the key's word, wherever it is, and the first one of the window."""
    for upos in UPOS:
        of_upos = window.words.upos == upos
        first, last = window.words.first[of_upos], window.words.last[of_upos]
        if len(first):
            name, kind = CLASS_WORDS[upos], _kind(upos)
            pieces = np.unique(span_pairs(last, first, last).key)
            yield all_seen(Feature(f"key {upos}", f"any {name}", kind), window, pieces)
            first_feature = Feature(f"first {upos}", f"the text's first {name}", kind)
            yield all_seen(first_feature, window, np.arange(first[0], last[0] + 1), itself=False)


def spelling(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Pieces of words, capitals, digits, how rare the key is, and single common tokens."""
    words, tokens = window.words, window.tokens
    inner = words.last > words.first
    begins = [text.strip()[:1] for text in window.strings]
    for name, meaning, keys in (
        ("key first piece", "the first piece of a longer word", words.first[inner]),
        ("key last piece", "the last piece of a longer word", words.last[inner]),
        ("key capitalised", "any capitalised token", np.flatnonzero([x.isupper() for x in begins])),
        ("key digit", "any number", np.flatnonzero([x.isdigit() for x in begins])),
        (
            "key new",
            "any token that was not there before",
            np.sort(np.unique(tokens, return_index=True)[1]),
        ),
    ):
        keys = keys[(keys > 0) & (keys < window.stop)]
        yield all_seen(Feature(name, meaning, "lexical"), window, keys)
    for token in lexicon.common:
        keys = np.flatnonzero(tokens == token)
        keys = keys[keys > 0]
        if len(keys):
            text = lexicon.text_of(token)
            kind = "lexical" if is_word(lexicon.strings[token]) else "delimiter"
            name, asks_for = f"token {token} {text}", frozenset({token})
            yield all_seen(Feature(name, f"“{text}”", kind, asks_for), window, keys)
            first = Feature(f"first {name}", f"the text's first “{text}”", kind, asks_for)
            yield all_seen(first, window, keys[:1], itself=False)


def rarity(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The rarity of the key's token in the text that was fitted, as a logarithm."""
    total = 1 + sum(lexicon.counts.values())
    counts = np.array([lexicon.counts.get(int(token), 0) for token in window.tokens])
    rare = np.log(total / (1 + counts)) / 4
    query, key = seen_cells(window)
    yield cells(Feature("key rare", "rarer tokens", "lexical"), query, key, rare[key])


def marks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Marks of each kind: any, the nearest, the first, and the token after the nearest."""
    kinds_of_token = kinds_of(window)
    for kind, name in _MARKS.items():
        mask = np.array([kind in kinds for kinds in kinds_of_token])
        mask[0] = False
        keys = np.flatnonzero(mask)
        if len(keys):
            query, near = _nearest_to_all(mask)
            yield all_seen(Feature(f"mark {kind}", f"any {name}", "delimiter"), window, keys)
            first = Feature(f"first mark {kind}", f"the text's first {name}", "delimiter")
            yield all_seen(first, window, keys[:1], itself=False)
            near_mark = Feature(f"nearest mark {kind}", f"the nearest {name}", "delimiter")
            yield cells(near_mark, query, near)
            follow = f"the token after the nearest {name}"
            yield cells(Feature(f"after mark {kind}", follow, "delimiter"), query, near + 1)
            if window.attention_kind.sees_future:
                query, near = _next_to_all(mask)
                next_mark = Feature(f"next mark {kind}", f"the next {name}", "delimiter")
                yield cells(next_mark, query, near)
                before = Feature(
                    f"before mark {kind}", f"the token before the next {name}", "delimiter"
                )
                yield cells(before, query, near - 1)


def repeat_features(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The same token before, what followed it (one and two tokens on), and what came before it; of
    an encoder the same of tokens ahead too.
    """
    tokens, length = window.tokens, len(window)
    equal = tokens[:, None] == tokens[None, :]
    if window.attention_kind.sees_future:
        yield from _repeats_ahead(np.triu(equal, k=1))
    same = np.tril(equal, k=-1)
    same[:, 0] = False
    yield cells(Feature("same token", "the same token", "lexical"), *np.nonzero(same))
    two = np.zeros_like(same)
    two[1:, 1:] = same[1:, 1:] & same[:-1, :-1]
    for name, words, mask, step in (
        ("follower", "what followed the same token", same, 1),
        ("follower-2", "what followed the same token two on", same, 2),
        ("before same", "what came before the same token", same, -1),
        ("follower of two", "what followed the same two tokens", two, 1),
    ):
        query, key = np.nonzero(mask)
        key = key + step
        apart = (key < query) & (key > 0)
        yield cells(Feature(name, words, "induction"), query[apart], key[apart])
    last = np.where(same.any(1), length - 1 - same[:, ::-1].argmax(1), -1)
    query = np.flatnonzero(last > 0)
    token = Feature("nearest same token", "the nearest same token", "lexical")
    yield cells(token, query, last[query])
    query = query[last[query] + 1 < query]
    follower = Feature("nearest follower", "what followed the nearest same token", "induction")
    yield cells(follower, query, last[query] + 1)


def _repeats_ahead(same: Bool[ndarray, "query key"]) -> Iterator[FeatureCells]:
    """Tokens ahead that are the query's own, and their neighbours."""
    for name, words, kind, step in (
        ("same token ahead", "the same token ahead", "lexical", 0),
        ("follower ahead", "what follows the same token ahead", "induction", 1),
        ("before same ahead", "what comes before the same token ahead", "induction", -1),
    ):
        query, key = np.nonzero(same)
        apart = (key + step > query) & (key + step < len(same) - 1)
        yield cells(Feature(name, words, kind), query[apart], key[apart] + step)
    query = np.flatnonzero(same.any(1))
    words = "the next same token"
    yield cells(Feature("next same token", words, "lexical"), query, same[query].argmax(1))


def simple_rules(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """One key a query: the nearest verb, the second noun back, the sentence's first word."""
    if not len(window.words):
        return
    sees_future = window.attention_kind.sees_future
    names = ALL_RULES if sees_future else RULES
    for name, keys in zip(names, picks(window), strict=False):
        if name in _FEATURES:
            query = np.flatnonzero(keys >= 0)
            yield cells(Feature(name, rule_words(name), _kind(name)), query, keys[query])
    for name in CLASSES:
        mask = np.zeros(len(window), bool)
        mask[window.words.last[of_class(window.words, name)]] = True
        words = f"the nearest {CLASS_WORDS.get(name, name)}"
        yield cells(Feature(f"nearest {name} to any", words, _kind(name)), *_nearest_to_all(mask))
        if sees_future:
            words = words.replace("nearest", "next")
            next_of_class = Feature(f"next {name} to any", words, _kind(name))
            yield cells(next_of_class, *_next_to_all(mask))


def rule_words(name: str) -> str:
    """A simple rule in words.

    >>> rule_words("nearest-VERB-in-sentence"), rule_words("3-words-back")
    ('the nearest verb of the sentence', 'the word 3 words back')
    >>> rule_words("later-nearest-VERB"), rule_words("later-first-NOUN-in-sentence")
    ('the next verb', "the sentence's last noun")
    """
    if name.startswith("later-"):
        return _mirrored_words(rule_words(name.removeprefix("later-")))
    if name.endswith("-on-either-side"):
        return f"{rule_words(name.removesuffix('-on-either-side'))} on either side"
    if name.endswith("-words-ahead"):
        return "the word after" if name[0] == "1" else f"the word {name.split('-')[0]} words ahead"
    if name in _RULES:
        return _RULES[name]
    if name.endswith("-words-back"):
        return f"the word {name.split('-')[0]} words back" if name[0] != "1" else "the word before"
    inside = " of the sentence" if name.endswith("-in-sentence") else ""
    form, _, cls = name.removesuffix("-in-sentence").removeprefix("next-to-").partition("-")
    class_words = CLASS_WORDS.get(cls, cls)
    if name in _OF_TWO:
        ordinal = "second" if form == "first" else "second nearest"
        return f"the sentence's {ordinal} {class_words}, or its only one"
    if form == "first":
        return (
            f"the sentence's first {class_words}" if inside else f"the text's first {class_words}"
        )
    return f"the {'second nearest' if form == 'second' else form} {class_words}{inside}"


_MIRROR = {
    "nearest": "next",
    "first": "last",
    "after": "before",
    "last": "first",
    "before": "after",
    "back": "ahead",
}


def _mirrored_words(words: str) -> str:
    """The words of a rule that is read from the end of the text."""
    return " ".join(_MIRROR.get(word, word) for word in words.split())


def _nearest_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the nearest earlier key of a mask."""
    key = nearest(mask)
    query = np.flatnonzero(key >= 0)
    return query, key[query]


def _next_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the next later key of a mask."""
    query, back = _nearest_to_all(mask[::-1])
    return len(mask) - 1 - query[::-1], len(mask) - 1 - back[::-1]
