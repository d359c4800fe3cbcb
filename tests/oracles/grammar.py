"""Heuristics by their names: a name says which queries look, which pick, of which words, and where.

"verb → second nearest nominal of the sentence" is read as it stands; what is "mirrored" reads the
text from its end. No tree and no entity is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy import ndarray

from tests.oracles.window_features import (
    AttentionRule,
    Rows,
    Table,
    WindowFeatures,
    at_rest,
    mirrored,
    mixed,
    on_either_side,
)

Keys = Callable[[WindowFeatures], Table]
"""Which words a head may look at, a row for each query word."""
Score = Callable[[WindowFeatures], ndarray]
"""A number for each word, or for each query word and key word."""
WORD_FADE, TOKEN_FADE = 3.0, 4.0
"""Words and tokens over which attention that fades falls to 1/e."""
NOISE = 0.2
"""Of the attention of a noisy heuristic, even over all earlier tokens."""

CLASSES: dict[str, tuple[str, ...]] = {
    **{
        upos: (upos,)
        for upos in (
            "VERB", "NOUN", "PROPN", "PRON", "ADJ", "ADV", "AUX", "ADP", "DET", "SCONJ", "CCONJ",
            "NUM", "PART", "PUNCT",
        )
    },
    "verb or auxiliary": ("VERB", "AUX"),
    "noun or name": ("NOUN", "PROPN"),
    "nominal": ("NOUN", "PROPN", "PRON"),
    "content word": ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"),
    "function word": ("DET", "ADP", "AUX", "PRON", "SCONJ", "CCONJ", "PART"),
}  # fmt: skip
"""Parts of speech of Universal Dependencies, and unions of them."""
_CLASS_WORDS = CLASSES | {
    "verb": ("VERB",),
    "noun": ("NOUN", "PROPN"),
    "name": ("PROPN",),
    "pronoun": ("PRON",),
    "adjective": ("ADJ",),
    "determiner": ("DET",),
    "preposition": ("ADP",),
    "punctuation": ("PUNCT",),
    "end": ("PUNCT",),
    "boundary": ("PUNCT", "SCONJ", "CCONJ"),
    "others": ("ADJ", "ADV", "ADP", "AUX", "PRON", "PUNCT", "DET", "PART"),
}
MIRRORED, EITHER_SIDE = ", mirrored", ", on either side"
"""Endings of names of heads that see both ways."""

_LISTS = {
    "clause opener": "that which who if because when while as whether",
    "clause marker": "to that if because when as while since although",
    "comma": ",",
    "and": "and",
    "article": "a an the",
    "relative word": "that which who whom whose",
    "possessive": "my your his her its our their whose 's",
    "person": "i you he she it we they who",
    "form of be": "be is are was were been being am 's",
    "form of have": "have has had having",
    "modal": "can could may might must shall should will would",
    "negation": "not n't never no",
    "degree word": "very more most less so too as quite",
    "preposition of place": "in on at to from by",
    "of": "of",
    "to": "to",
}
"""Words of closed lists, by what a name calls one."""


def classes_of(words: str) -> tuple[str, ...]:
    """The parts of speech that a word of the grammar means: `verb`, `nominal`, `NOUN|PROPN`.

    >>> classes_of("nominal"), classes_of("VERB|AUX")
    (('NOUN', 'PROPN', 'PRON'), ('VERB', 'AUX'))
    """
    return _CLASS_WORDS.get(words) or tuple(words.split("|"))


def rule_of(name: str, scores: Mapping[str, Score]) -> AttentionRule:
    """The attention of the heuristic that a name says.

    Args:
        name: such as `nearest VERB`, `noun → first verb of the sentence`, `2 tokens back`.
        scores: numbers by which the highest is picked, by the adjective that names them.
    """
    for ending, transform in ((MIRRORED, mirrored), (EITHER_SIDE, on_either_side)):
        if name.endswith(ending):
            return transform(rule_of(name.removesuffix(ending), scores))
    if name in _TOKENS:
        return _TOKENS[name]
    if name.startswith("half "):
        halves = name.removeprefix("half ").split(", half ")
        return mixed(*((0.5, rule_of(half, scores)) for half in halves))
    if name.endswith(", with noise"):
        rule = rule_of(name.removesuffix(", with noise"), scores)
        return mixed((1 - NOISE, rule), (NOISE, lambda reading: reading.even))
    if name.count("→") > 1:  # several kinds of queries, each with its own nearest keys
        keys = [_keys(clause)[1] for clause in name.split(", ")]
        return _picked(lambda reading: np.logical_or.reduce([k(reading) for k in keys]), last_key)
    name, fades = _without(name, ", near ones more")
    name, or_only = _without(name, ", or its only one")
    pick, keys_of_name = _keys(name)
    if pick in scores:
        return partial(_highest, keys_of_name, scores[pick])
    if fades:
        return _picked(keys_of_name, _fading)
    return _picked(
        keys_of_name, partial(_PICKS[pick], or_only=or_only) if or_only else _PICKS[pick]
    )


def last_key(table: Table, rank: int = 1, *, or_only: bool = False) -> Table:
    """The last key of each row, or the last but `rank` − 1; the only one, if that is asked."""
    return first(table[:, ::-1], rank, or_only=or_only)[:, ::-1]


def first(table: Table, rank: int = 1, *, or_only: bool = False) -> Table:
    """The key of that rank in each row, counted from the left."""
    ranks = np.minimum(table.sum(1, keepdims=True), rank) if or_only else rank
    return np.asarray(table & (table.cumsum(1) == ranks))


def _every(table: Table) -> Table:
    return table


def _fading(table: Table) -> ndarray:
    """All keys, near ones more: e-fold less for every `WORD_FADE` words."""
    position = np.arange(len(table))
    return np.asarray(table * np.exp((position[None, :] - position[:, None]) / WORD_FADE))


_PICKS: dict[str, Callable[..., ndarray]] = {
    "nearest": last_key,
    "previous": last_key,
    "last": last_key,
    "": last_key,
    "second nearest": partial(last_key, rank=2),
    "first": first,
    "second": partial(first, rank=2),
    "every": _every,
    "all": _every,
    **{str(rank): partial(last_key, rank=rank) for rank in range(2, 9)},
}


def _picked(keys: Keys, pick: Callable[[Table], ndarray]) -> AttentionRule:
    return lambda reading: reading.rows(pick(keys(reading)))


def _highest(keys: Keys, score: Score, reading: WindowFeatures) -> Rows:
    """The key with the largest score; of equals the nearest."""
    table = keys(reading)
    if not table.any():
        return reading.rows(table)
    values = np.where(table, score(reading), -np.inf)
    best = values.shape[1] - 1 - values[:, ::-1].argmax(1)
    return reading.rows(table & (np.arange(len(table)) == best[:, None]))


def _within(reading: WindowFeatures, words: int) -> Table:
    """Words no farther back than so many."""
    return np.asarray(reading.position[:, None] - reading.position[None, :] <= words)


_PHRASE = re.compile(
    r"(?:(?P<queries>.+?) → )?(?:(?P<pick>second nearest|nearest|previous|last|first|second|every"
    r"|all|commonest|rarest|longest|\d) )?(?P<keys>.+)"
)
_NEIGHBOUR = re.compile(r"word (after|before) the (?:last|nearest) (.+)")
_BEYOND = re.compile(r"(.+) (after|before) the last (.+)")
_RUN = re.compile(r"(.+) that (opens|closes) a run")
_PLACES: dict[str, Callable[[WindowFeatures], Any]] = {
    " of the previous sentence": lambda reading: reading.sentences_back == 1,
    " of the sentence": lambda reading: reading.sentences_back == 0,
    " in the sentence": lambda reading: reading.sentences_back == 0,
    " of the clause": lambda reading: _same_clause(reading),
    " of the text": lambda reading: True,
    **{f" of the last {n} words": partial(_within, words=n) for n in (3, 4, 6, 10)},
}


def _keys(name: str) -> tuple[str, Keys]:
    """The pick of a name, and the words that it picks from."""
    phrase = _PHRASE.fullmatch(_without(name, " so far")[0])
    queries, pick, words = phrase.group("queries", "pick", "keys") if phrase else ("", "", name)
    neighbour, beyond = _NEIGHBOUR.fullmatch(words), _BEYOND.fullmatch(words)
    suffix = next((suffix for suffix in _PLACES if words.endswith(suffix)), "")
    keys: Keys
    if neighbour:
        keys = partial(_neighbours, _keys_of(neighbour[2]), 1 if neighbour[1] == "after" else -1)
    elif beyond:
        keys = partial(_beyond, _keys_of(beyond[1]), _keys_of(beyond[3]), beyond[2] == "after")
    elif suffix and words not in _KEYS:
        keys = _both(_keys_of(words.removesuffix(suffix)), _PLACES[suffix])
    else:
        keys = _keys_of(words)
    if queries == "mention":
        keys = _both(keys, lambda reading: reading.mentioned[:, None])
    elif queries:
        classes = classes_of(queries)
        keys = _both(keys, lambda reading: reading.is_of(*classes)[:, None])
    return pick or "", keys


def _keys_of(words: str) -> Keys:
    """Earlier words of a kind that a name says."""
    if words in _KEYS:
        return _both(_KEYS[words], lambda reading: reading.earlier)
    if run := _RUN.fullmatch(words):
        return partial(_edge_of_run, classes_of(run[1]), -1 if run[2] == "opens" else 1)
    classes = classes_of(words)
    return lambda reading: reading.earlier & reading.is_of(*classes)


def _both(keys: Keys, test: Callable[[WindowFeatures], Any]) -> Keys:
    return lambda reading: np.asarray(keys(reading) & test(reading))


def _edge_of_run(classes: Sequence[str], step: int, reading: WindowFeatures) -> Table:
    """Earlier words of some classes with none of them beside it on that side."""
    of_class = np.pad(reading.is_of(*classes), 1)
    neighbour = np.roll(of_class, -step)
    return np.asarray(reading.earlier & (of_class & ~neighbour)[1:-1])


def _neighbours(keys: Keys, step: int, reading: WindowFeatures) -> Table:
    """The earlier words that stand so many places after these (before them, if negative)."""
    moved = np.roll(keys(reading), step, axis=1)
    moved[:, slice(step) if step > 0 else slice(step, None)] = False
    return np.asarray(moved & reading.earlier)


def _beyond(keys: Keys, marks: Keys, after: bool, reading: WindowFeatures) -> Table:
    """The keys that stand behind the last mark before the query, or before that mark."""
    mark, position = marks(reading), reading.position
    last = (position * mark).max(1, initial=0)[:, None]
    beyond = position > last if after else position < last
    return np.asarray(keys(reading) & beyond & mark.any(axis=1, keepdims=True))


def _same_clause(reading: WindowFeatures) -> Table:
    """Words with no mark, conjunction or subordinator between them."""
    clause = np.cumsum(reading.is_of(*_CLASS_WORDS["boundary"]))
    return np.asarray(clause[:, None] == clause[None, :])


def _formed(test: Callable[[str], bool]) -> Keys:
    """Words whose form passes a test."""
    return lambda reading: np.array([test(form) for form in reading.forms], bool)


def _listed(words: str) -> Keys:
    """Words of a list."""
    members = frozenset(words.split())
    return _formed(lambda form: form.lower() in members)


def _same_feature(feature: Callable[[str], str]) -> Keys:
    """Words that have something of their form in common with the query."""

    def table(reading: WindowFeatures) -> Table:
        features = np.array([feature(form) for form in reading.forms], "U")
        return np.asarray(features[:, None] == features[None, :])

    return table


def _same_class(reading: WindowFeatures) -> Table:
    return np.asarray(reading.words.upos[:, None] == reading.words.upos[None, :])


def _word_before(reading: WindowFeatures) -> Table:
    """Words of the sentence before; marks are none here."""
    worded = [upos for upos in CLASSES if upos.isupper() and upos != "PUNCT"]
    return np.asarray((reading.sentences_back == 1) & reading.is_of(*worded))


def _copy_of_name(reading: WindowFeatures) -> Table:
    """The nearest earlier copy of the name that stands last before each word."""
    name = last_key(_keys_of("PROPN")(reading))
    copies = (name.astype(int) @ (reading.same_lemma & reading.earlier).astype(int)) > 0
    return last_key(copies)


def _sentence_of_copy(reading: WindowFeatures) -> Table:
    """Words of the sentence that holds that copy; marks are none here."""
    inside = _copy_of_name(reading).astype(int) @ (reading.sentences_back == 0)
    return np.asarray((inside > 0) & ~reading.is_of("PUNCT"))


_KEYS: dict[str, Keys] = {
    "word": lambda reading: reading.earlier,
    "words back": lambda reading: reading.earlier,
    "word of the previous sentence": _word_before,
    "mention": lambda reading: reading.mentioned,
    "of the same class": _same_class,
    "of the same lemma": lambda reading: reading.same_lemma,
    "the same pronoun": lambda reading: reading.same_lemma,
    "with the same first letter": _same_feature(lambda form: form[:1].lower()),
    "with the same last letters": _same_feature(lambda form: form[-2:].lower()),
    "of the same length": _same_feature(lambda form: str(len(form))),
    "word with a capital": _formed(lambda form: form[:1].isupper()),
    "figure": _formed(lambda form: form[:1].isdigit()),
    "word two after the name's copy": lambda reading: np.roll(_copy_of_name(reading), 2, axis=1),
    "word of the sentence of the name's copy": lambda reading: _sentence_of_copy(reading),
    **{name: _listed(words) for name, words in _LISTS.items()},
    **{
        f"word in -{ending}": _formed(lambda form, e=ending: form.lower().endswith(e))  # type: ignore[misc]
        for ending in ("ing", "ed", "s", "ly")
    },
}
"""Words that are no class of their own."""


def times_so_far(reading: WindowFeatures) -> ndarray:
    """Counts of how often each key's word has been read before each query."""
    return np.asarray(reading.earlier.astype(int) @ reading.same_lemma.astype(int))


def form_length(reading: WindowFeatures) -> ndarray:
    """Letters of each word."""
    return np.array([len(form) for form in reading.forms], float)


def _random_key(reading: WindowFeatures) -> ndarray:
    """A number at random for each query word and key word, the same for each call."""
    size = len(reading.words)
    return np.random.default_rng(reading.window.tokens.tolist()).random((size, size))


def _of_tokens(weights: Callable[[WindowFeatures], ndarray]) -> AttentionRule:
    return lambda reading: reading.token_rows(weights(reading))


def _tokens_back(distance: int) -> AttentionRule:
    return _of_tokens(lambda reading: (reading.back == distance) & reading.proper)


def _follower(reading: WindowFeatures) -> ndarray:
    """The token after the last occurrence of the query's own: induction."""
    moved = np.roll(reading.same_token, 1, axis=1) & (reading.back > 0)
    return last_key(moved & reading.proper)


def _word_ends_near_the_copy(reading: WindowFeatures) -> ndarray:
    """Last tokens of the earlier copy of a word and of the two words behind it."""
    copy = last_key(reading.same_lemma & reading.earlier)
    ends = np.zeros((len(reading.window),) * 2)
    for step in range(3):
        ends[np.ix_(reading.words.last, reading.words.last)] += np.roll(copy, step, axis=1)
    return np.asarray(ends * (reading.back > 0))


def _line_breaks(reading: WindowFeatures) -> ndarray:
    breaks = np.array(["\n" in token for token in reading.window.strings], bool)
    return np.asarray(breaks & (reading.back > 0))


def _sentence_so_far(reading: WindowFeatures) -> ndarray:
    sentence = reading.window.sentence_of_token
    return np.asarray((sentence[:, None] == sentence[None, :]) & (reading.back >= 0))


_TOKENS: dict[str, AttentionRule] = {
    "previous token": _tokens_back(1),
    **{f"{distance} tokens back": _tokens_back(distance) for distance in range(2, 9)},
    "sink": at_rest,
    "first token": at_rest,
    "second token": _of_tokens(
        lambda reading: (reading.back >= 0) & (reading.proper.cumsum() == 1)
    ),
    "all tokens alike": lambda reading: reading.even,
    "all tokens, near ones more": _of_tokens(
        lambda reading: np.tril(np.exp(np.minimum(-reading.back, 0) / TOKEN_FADE))
    ),
    "all tokens of the sentence": _of_tokens(_sentence_so_far),
    "the token itself": _of_tokens(lambda reading: reading.back == 0),
    "the same token before": _of_tokens(lambda reading: last_key(reading.same_token)),
    "all the same tokens before": _of_tokens(lambda reading: reading.same_token),
    "what followed the same token": _of_tokens(_follower),
    "line breaks": _of_tokens(_line_breaks),
    "word ends near the copy": _of_tokens(_word_ends_near_the_copy),
    "one and two tokens back": mixed(
        (0.4, _tokens_back(1)), (0.3, _tokens_back(2)), (0.3, at_rest)
    ),
    "some word or other": partial(_highest, lambda reading: reading.earlier, _random_key),
}
"""Heuristics of tokens, which need no words, so that random tokens show them too."""


def _without(name: str, ending: str) -> tuple[str, bool]:
    return name.removesuffix(ending), name.endswith(ending)
