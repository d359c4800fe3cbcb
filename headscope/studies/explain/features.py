"""Features that a model can weigh: functions of query and key, family by family.

A family is a function from a window to the cells where its features hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import (
    ALL_BASELINES,
    BASELINES,
    FALLING_BACK,
    OFFSET_BASELINES,
    OFFSETS_AHEAD,
    PHRASE_BASELINES,
    UNION_BASELINES,
    UNION_BASELINES_AHEAD,
    picks,
)
from headscope.relations.pairs import distinct, span_pairs
from headscope.relations.types.delimiter import kinds_of
from headscope.relations.word_rows import CLASSES, UPOS, nearest, of_class

_CONTINUES = "##"
"""WordPiece's prefix of a piece that begins no word (Devlin et al. 2019)."""
COMMON = 48
"""Number of the most frequent tokens that have a feature each."""


@dataclass(frozen=True)
class Feature:
    """A function of query and key that a model can weigh."""

    name: str
    """Name in feature_model.csv: `offset-1`, `key NOUN`, `syntactic/obj:dep>head`."""
    kind: str
    """Type that attention on it counts as: `sink`, `position` or a head type."""


@dataclass(frozen=True, eq=False)
class FeatureCells:
    """Cells of one feature in one window, each once; the feature is 0 elsewhere."""

    feature: Feature
    query: Int[ndarray, " cell"]
    key: Int[ndarray, " cell"]
    value: Float[ndarray, " cell"]


@dataclass(frozen=True, eq=False)
class TokenFacts:
    """Counts and texts of the tokens of the fitting windows."""

    counts: dict[int, int]
    strings: dict[int, str]

    @classmethod
    def of(cls, windows: Sequence[Window]) -> TokenFacts:
        """Count the tokens of windows, without the first and the closing ones."""
        counts: Counter[int] = Counter()
        strings: dict[int, str] = {}
        for window in windows:
            tokens = window.tokens.tolist()
            counts.update(tokens[1 : window.stop])
            strings.update(zip(tokens, window.strings, strict=True))
        return cls(counts=dict(counts), strings=strings)

    def text_of(self, token: int) -> str:
        """A token for people: `the`, `…ing` if it begins no word, `⏎`, `space`.

        >>> TokenFacts({}, {5: " the"}).text_of(5)
        'the'
        """
        string = self.strings[token]
        text = string.strip(" ") or "space"
        text = text.replace("\n", "⏎")
        is_word_piece = any(other.startswith(_CONTINUES) for other in self.strings.values())
        if is_word_piece:
            begins = not text.startswith(_CONTINUES) or text == _CONTINUES
        else:
            begins = string.startswith(" ") or not is_word(string)
        return text if begins else f"…{text.removeprefix(_CONTINUES)}"

    @property
    def common(self) -> list[int]:
        """The `COMMON` most frequent tokens, the most frequent first."""
        order = sorted(self.counts, key=lambda token: (-self.counts[token], token))
        return order[:COMMON]


def is_word(text: str) -> bool:
    """Test whether a token has a letter or a digit.

    >>> is_word(" the"), is_word(","), is_word(" ")
    (True, False, False)
    """
    return any(char.isalnum() for char in text)


def cells(
    feature: Feature, query: ndarray, key: ndarray | int, value: ndarray | None = None
) -> FeatureCells:
    """Cells of a feature, of value 1 by default."""
    query, key = np.broadcast_arrays(query, key)
    if value is None:
        value = np.ones(len(query))
    return FeatureCells(feature=feature, query=query, key=key, value=value)


def all_seen(
    feature: Feature, window: Window, keys: Int[ndarray, " key"], *, itself: bool = True
) -> FeatureCells:
    """Cells of every query with all of these keys that it sees."""
    query_column = np.arange(len(window))[:, None]
    key_row = keys[None, :]
    is_seen = window.attention_kind.sees(query_column, key_row)
    if not itself:
        is_seen = is_seen & (query_column != key_row)
    query, column = np.nonzero(is_seen)
    return cells(feature, query, keys[column])


def seen_cells(window: Window) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """Queries and keys of all visible cells, row by row, without token 0 and a closing token."""
    is_seen = ~window.attention_kind.hidden(len(window))
    query, key = np.nonzero(is_seen)
    is_sink = key == 0
    if window.attention_kind.sees_future:
        is_sink |= key == window.closing
    return query[~is_sink], key[~is_sink]


EARLY = 4
"""Number of tokens after the first that have a feature each."""
TOKEN_0 = Feature("token 0", "sink")
LATER = Feature("token 0, later", "sink")
SEPARATOR = Feature("separator", "sink")
EARLY_TOKENS = [Feature(f"early-{i}", "sink") for i in range(1, EARLY + 1)]
OFFSET = [Feature(f"offset-{d}", "position") for d in range(11)]
AHEAD = [Feature(f"offset+{d}", "position") for d in range(1, 11)]
_FAR = ((11, 16), (17, 32), (33, 64), (65, None))
_FAR_AWAY = {(low, high): Feature(f"far {low}-{high or ''}", "position") for low, high in _FAR}
_FAR_AHEAD = {(low, high): Feature(f"far +{low}-{high or ''}", "position") for low, high in _FAR}
ANY_AHEAD = Feature("ahead", "position")
LOG_AHEAD = Feature("log distance ahead", "position")
LOG_DISTANCE = Feature("log distance", "position")
CURVE = Feature("log distance squared", "position")
DISTANCE = Feature("distance", "position")
PLACE_FEATURES = (
    TOKEN_0,
    LATER,
    EARLY_TOKENS[0],
    LOG_DISTANCE,
    CURVE,
    DISTANCE,
    *OFFSET[:4],
    SEPARATOR,
    ANY_AHEAD,
    LOG_AHEAD,
    *AHEAD[:3],
)
"""Features of the model by sinks and distance alone. Encoders alone have those from `SEPARATOR` on;
they lack `LATER`, because all of their queries see equally many keys."""


def sinks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Token 0, the few tokens after it, and an encoder's closing token."""
    sees_future = window.attention_kind.sees_future
    query = np.arange(0 if sees_future else 1, len(window))
    yield cells(TOKEN_0, query, 0)
    if sees_future:
        yield cells(SEPARATOR, query, window.closing)
    else:
        # a later query has more keys: token 0 keeps its share if its logit grows as ln q
        yield cells(LATER, query, 0, np.log(query))
    for index, feature in enumerate(EARLY_TOKENS, start=1):
        if index < window.stop:
            sees_token = (query > index) | sees_future
            yield cells(feature, query[sees_token], index)


def distances(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Single offsets, ranges of far offsets, and smooth functions of distance; not to token 0."""
    query, key = seen_cells(window)
    back = query - key
    # single offsets and ranges, back and ahead
    offsets = {(steps, steps): feature for steps, feature in enumerate(OFFSET)}
    yield from _in_ranges(offsets | _FAR_AWAY, query, key, back)
    if window.attention_kind.sees_future:
        offsets = {(steps, steps): feature for steps, feature in enumerate(AHEAD, start=1)}
        yield from _in_ranges(offsets | _FAR_AHEAD, query, key, -back)
        is_ahead = back < 0
        query_ahead = query[is_ahead]
        key_ahead = key[is_ahead]
        yield cells(ANY_AHEAD, query_ahead, key_ahead)
        yield cells(LOG_AHEAD, query_ahead, key_ahead, np.log1p(-back[is_ahead]))
    # smooth functions of distance
    distance = abs(back)
    log_distance = np.log1p(distance)
    yield cells(LOG_DISTANCE, query, key, log_distance)
    yield cells(CURVE, query, key, log_distance**2 / 4)
    yield cells(DISTANCE, query, key, distance / 64)


def _in_ranges(
    ranges: Mapping[tuple[int, int | None], Feature], query: ndarray, key: ndarray, steps: ndarray
) -> Iterator[FeatureCells]:
    """Cells of each feature: those whose number of steps is in its range."""
    for (low, high), feature in ranges.items():
        in_range = steps >= low
        if high is not None:
            in_range &= steps <= high
        yield cells(feature, query[in_range], key[in_range])


def sentences(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """The query's sentence and its neighbours, its first token, and any sentence's first token."""
    words = window.words
    if not len(words):
        return
    # the sentence of the query and its neighbours
    query, key = seen_cells(window)
    sentence_of_token = window.sentence_of_token
    back = sentence_of_token[query] - sentence_of_token[key]
    steps = {"same sentence": 0, "sentence before": 1, "sentence after": -1}
    for name, count in steps.items():
        is_there = back == count
        if count < 0 and not is_there.any():
            continue
        yield cells(Feature(name, "syntactic"), query[is_there], key[is_there])
    # beginnings of sentences: any of them, and that of the query's own
    is_first_word = np.diff(words.sentence, prepend=-1) != 0
    starts = words.first[is_first_word]
    yield all_seen(Feature("sentence start", "syntactic"), window, starts)
    positions = np.arange(len(window))
    sentence = np.searchsorted(starts, positions, side="right") - 1
    query = np.flatnonzero(sentence >= 0)
    start_of_query = starts[sentence[query]]
    yield cells(Feature("own sentence start", "syntactic"), query, start_of_query)


def trees(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Dependency links whatever their label, up to two steps away, and the roots of sentences."""
    # links of one and two steps
    words = window.words
    head = words.head
    has_head = head >= 0
    dependent = np.flatnonzero(has_head)
    head_of_head = np.where(has_head, head[head], -1)
    grandchild = np.flatnonzero(has_head & (head_of_head >= 0))
    is_sibling = (head[:, None] == head[None, :]) & has_head[:, None]
    np.fill_diagonal(is_sibling, False)
    sibling, other_sibling = np.nonzero(is_sibling)
    links = {
        "head": (dependent, head[dependent]),
        "dependent": (head[dependent], dependent),
        "head of head": (grandchild, head_of_head[grandchild]),
        "dependent of dependent": (head_of_head[grandchild], grandchild),
        "sibling": (sibling, other_sibling),
    }
    for name, (query, key) in links.items():
        # from a word's last token to all tokens of another word that it sees, each once
        is_seen = window.attention_kind.sees(words.last[query], words.last[key])
        query_token = words.last[query[is_seen]]
        first_key = words.first[key[is_seen]]
        last_key = words.last[key[is_seen]]
        pairs = distinct(span_pairs(query_token, first_key, last_key))
        yield cells(Feature(f"tree {name}", "syntactic"), pairs.query, pairs.key)
    # a root has no head, so that no link names it
    roots = words.last[~has_head]
    yield all_seen(Feature("key root", "syntactic"), window, roots)


def entities(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Any mention; links between mentions of one entity are relations."""
    if len(window.mentions):
        mention = Feature("key mention", "coreference")
        yield all_seen(mention, window, np.unique(window.mentions.last))


_MARKS = ("punctuation", "sentence-end", "newline", "quote-bracket")
_OF_TWO = {form.format(name) for name in CLASSES for form in FALLING_BACK}
"""Baselines that are not features: each picks what one of two others picks."""
_NO_FEATURES = {
    *("own", *OFFSET_BASELINES, *OFFSETS_AHEAD, *UNION_BASELINES, *UNION_BASELINES_AHEAD),
    *PHRASE_BASELINES,
    *_OF_TWO,
}
_FEATURES = {name for name in ALL_BASELINES if name.removeprefix("later-") not in _NO_FEATURES}
"""Baselines that are features: those of `BASELINES` for every model, the others for encoders."""


def _kind(name: str) -> str:
    return "delimiter" if "PUNCT" in name else "lexical"


def key_words(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Words of a class, and the window's first word of that class."""
    for upos in UPOS:
        of_upos = window.words.upos == upos
        if not of_upos.any():
            continue
        first = window.words.first[of_upos]
        last = window.words.last[of_upos]
        pieces = np.unique(span_pairs(last, first, last).key)
        yield all_seen(Feature(f"key {upos}", _kind(upos)), window, pieces)
        first_word = np.arange(first[0], last[0] + 1)
        feature = Feature(f"first {upos}", _kind(upos))
        yield all_seen(feature, window, first_word, itself=False)


def spelling(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Pieces of words, capitals, digits, tokens at their first occurrence, and common tokens."""
    words = window.words
    tokens = window.tokens
    has_pieces = words.last > words.first
    begins = [text.strip()[:1] for text in window.strings]
    _, first_occurrence = np.unique(tokens, return_index=True)
    # features that all texts share, then the most frequent tokens of these
    keys_by_name = {
        "key first piece": words.first[has_pieces],
        "key last piece": words.last[has_pieces],
        "key capitalised": np.flatnonzero([letter.isupper() for letter in begins]),
        "key digit": np.flatnonzero([letter.isdigit() for letter in begins]),
        "key new": np.sort(first_occurrence),
    }
    for name, keys in keys_by_name.items():
        inner = keys[(keys > 0) & (keys < window.stop)]
        yield all_seen(Feature(name, "lexical"), window, inner)
    for token in lexicon.common:
        keys = np.flatnonzero(tokens == token)
        keys = keys[keys > 0]
        if not len(keys):
            continue
        name = f"token {token} {lexicon.text_of(token)}"
        kind = "lexical" if is_word(lexicon.strings[token]) else "delimiter"
        yield all_seen(Feature(name, kind), window, keys)
        first = Feature(f"first {name}", kind)
        yield all_seen(first, window, keys[:1], itself=False)


def rarity(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Rarity of the key's token in the fitting text: −ln(frequency) / 4."""
    total = 1 + sum(lexicon.counts.values())
    counts = []
    for token in window.tokens.tolist():
        counts.append(lexicon.counts.get(token, 0))
    inverse_frequency = total / (1 + np.array(counts))
    rare = np.log(inverse_frequency) / 4
    query, key = seen_cells(window)
    yield cells(Feature("key rare", "lexical"), query, key, rare[key])


def marks(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Marks of each kind: any, the first, the nearest, and the token after the nearest."""
    kinds_of_token = kinds_of(window)
    for kind in _MARKS:
        is_mark = np.array([kind in kinds for kinds in kinds_of_token])
        is_mark[0] = False
        keys = np.flatnonzero(is_mark)
        if not len(keys):
            continue
        # a head may attend to all marks, or to one of them: the first, or the nearest
        yield all_seen(Feature(f"mark {kind}", "delimiter"), window, keys)
        first = Feature(f"first mark {kind}", "delimiter")
        yield all_seen(first, window, keys[:1], itself=False)
        query, near = _nearest_to_all(is_mark)
        yield cells(Feature(f"nearest mark {kind}", "delimiter"), query, near)
        yield cells(Feature(f"after mark {kind}", "delimiter"), query, near + 1)
        if window.attention_kind.sees_future:
            query, near = _next_to_all(is_mark)
            yield cells(Feature(f"next mark {kind}", "delimiter"), query, near)
            yield cells(Feature(f"before mark {kind}", "delimiter"), query, near - 1)


def repeat_features(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """Earlier copies of the query's token, the one and two tokens after them, and those before."""
    tokens = window.tokens
    # pairs of equal tokens; those ahead are features of their own
    is_equal = tokens[:, None] == tokens[None, :]
    if window.attention_kind.sees_future:
        yield from _repeats_ahead(np.triu(is_equal, k=1))
    same = np.tril(is_equal, k=-1)
    same[:, 0] = False
    query, key = np.nonzero(same)
    yield cells(Feature("same token", "lexical"), query, key)
    # True if the tokens before the query and the key are equal too
    two = np.zeros_like(same)
    two[1:, 1:] = same[1:, 1:] & same[:-1, :-1]
    # keys beside an earlier copy
    yield _beside_copies("follower", same, 1)
    yield _beside_copies("follower-2", same, 2)
    yield _beside_copies("before same", same, -1)
    yield _beside_copies("follower of two", two, 1)
    # the nearest copy alone, and the token after it
    back = same[:, ::-1].argmax(1)
    last = np.where(same.any(1), len(window) - 1 - back, -1)
    query = np.flatnonzero(last > 0)
    yield cells(Feature("nearest same token", "lexical"), query, last[query])
    is_before = last[query] + 1 < query
    query = query[is_before]
    yield cells(Feature("nearest follower", "induction"), query, last[query] + 1)


def _beside_copies(name: str, copies: Bool[ndarray, "query key"], step: int) -> FeatureCells:
    """The tokens some steps after earlier copies, without token 0 and the query."""
    query, copy = np.nonzero(copies)
    key = copy + step
    is_between = (key < query) & (key > 0)
    return cells(Feature(name, "induction"), query[is_between], key[is_between])


def _repeats_ahead(same: Bool[ndarray, "query key"]) -> Iterator[FeatureCells]:
    """Later copies of the query's token, and their neighbours."""
    steps = {
        Feature("same token ahead", "lexical"): 0,
        Feature("follower ahead", "induction"): 1,
        Feature("before same ahead", "induction"): -1,
    }
    query, copy = np.nonzero(same)
    for feature, step in steps.items():
        key = copy + step
        # an encoder's last token closes the window, and is a sink and no word
        is_ahead = (key > query) & (key < len(same) - 1)
        yield cells(feature, query[is_ahead], key[is_ahead])
    has_copy = np.flatnonzero(same.any(1))
    next_copy = same[has_copy].argmax(1)
    yield cells(Feature("next same token", "lexical"), has_copy, next_copy)


def baselines(window: Window, lexicon: TokenFacts) -> Iterator[FeatureCells]:
    """One key per query: the nearest verb, the second noun back, the sentence's first word."""
    words = window.words
    if not len(words):
        return
    sees_future = window.attention_kind.sees_future
    names = ALL_BASELINES if sees_future else BASELINES
    for name, keys in zip(names, picks(window), strict=False):
        if name in _FEATURES:
            query = np.flatnonzero(keys >= 0)
            yield cells(Feature(name, _kind(name)), query, keys[query])
    # the nearest word of a class, whatever the query is
    for name in CLASSES:
        last_tokens = words.last[of_class(window, name)]
        is_last = np.zeros(len(window), bool)
        is_last[last_tokens] = True
        query, near = _nearest_to_all(is_last)
        yield cells(Feature(f"nearest {name} to any", _kind(name)), query, near)
        if sees_future:
            query, near = _next_to_all(is_last)
            yield cells(Feature(f"next {name} to any", _kind(name)), query, near)


def _nearest_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the nearest earlier key of a mask."""
    key = nearest(mask)
    query = np.flatnonzero(key >= 0)
    return query, key[query]


def _next_to_all(mask: Bool[ndarray, " token"]) -> tuple[ndarray, ndarray]:
    """Every query with the next later key of a mask."""
    last = len(mask) - 1
    query_from_end, key_from_end = _nearest_to_all(mask[::-1])
    query = last - query_from_end[::-1]
    key = last - key_from_end[::-1]
    return query, key


FAMILIES = (
    sinks,
    distances,
    key_words,
    spelling,
    rarity,
    marks,
    repeat_features,
    baselines,
    sentences,
    trees,
    entities,
)
"""All families, in the order in which features are numbered."""
