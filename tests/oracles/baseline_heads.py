"""Baseline heads: heads without syntax, reference or meaning, with the tags that are true of each.

A head looks from some queries at words of a kind within a stretch of text, and picks among them:
"verb → first nominal of the sentence". Neither a tree nor an entity is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

import numpy as np
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.corpus.window import Window
from headscope.relations import relations_of
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
"""The words that a head may look at, a row for each query word."""
WORD_FADE, TOKEN_FADE = 3.0, 4.0
"""Words and tokens over which attention that fades falls to 1/e."""
NOISE = 0.2
"""Share of a noisy head's attention that is even over all earlier tokens."""
BROAD = tuple(r.id for r in relations_of(["all"], BIDIRECTIONAL) if r.thresholds.broad)
TRUE_OF_ALL = ("sink/*", *BROAD)
"""Tags that are true of any head: an attention sink is no function, and the kind of key is only
measured."""


@dataclass(frozen=True, eq=False)
class KnownHead:
    """A head with the tags that are true of it."""

    name: str
    earns: tuple[str, ...] = ()
    """The tags that it must earn, if there are such relations."""
    may: tuple[str, ...] = ()
    """Patterns of other tags that are true of it."""

    def true(self, relation: str) -> bool:
        """Tells whether a tag says no more of the head than is so."""
        return any(
            fnmatchcase(relation, pattern) for pattern in (*self.earns, *self.may, *TRUE_OF_ALL)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class BaselineHead(KnownHead):
    """A head that follows the baseline that is its name; called with a window it gives `[query
    key]`."""

    attention: AttentionRule

    def __call__(self, window: Window) -> Rows:
        return self.attention(WindowFeatures(window))

    def patterns(self, reading: WindowFeatures) -> Iterator[Rows]:
        """The one pattern of a baseline head; oracles have several."""
        yield self.attention(reading)


_SINGLE = "VERB NOUN PROPN PRON ADJ ADV AUX ADP DET SCONJ CCONJ NUM PART PUNCT".split()
CLASSES: dict[str, tuple[str, ...]] = {
    **{upos: (upos,) for upos in _SINGLE},
    "verb or auxiliary": ("VERB", "AUX"),
    "noun or name": ("NOUN", "PROPN"),
    "nominal": ("NOUN", "PROPN", "PRON"),
    "content word": ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"),
    "function word": ("DET", "ADP", "AUX", "PRON", "SCONJ", "CCONJ", "PART"),
}
"""Parts of speech of Universal Dependencies, and unions of them."""
_UNIONS = list(CLASSES)[len(_SINGLE) :]
_BOUNDARY = ("PUNCT", "SCONJ", "CCONJ")
_LISTS = {
    "clause opener": "that which who if because when while as whether",
    "relative word": "that which who whom whose",
    "possessive": "my your his her its our their whose 's",
    "form of be": "be is are was were been being am 's",
    "modal": "can could may might must shall should will would",
    "comma": ",",
    "clause mark": "to that if because as while when for",
    "common adverb": "not n't also just so then only very more",
    "verb of speech": "say said says think thought know told tell believe see want",
    "preposition of nouns": "of in for on with",
}
"""Words of closed lists."""


def classes_of(words: str) -> tuple[str, ...]:
    """Parts of speech by a name in `CLASSES`, or joined by bars."""
    return CLASSES.get(words) or tuple(words.split("|"))


def keys_of(kind: str) -> Keys:
    """Earlier words of a kind: see `_KINDS`, `_LISTS` and `CLASSES`."""
    if kind in _KINDS:
        return _KINDS[kind]
    if kind in _LISTS:
        members = frozenset(_LISTS[kind].split())
        return lambda w: w.earlier & np.array([form.lower() in members for form in w.forms], bool)
    if kind.endswith((" that opens a run", " that closes a run")):
        classes, _, edge = kind.partition(" that ")
        return partial(_edge_of_run, classes_of(classes), -1 if edge.startswith("opens") else 1)
    if kind.startswith(("word before the nearest ", "word after the nearest ")):
        before, _, mark = kind.partition(" the nearest ")
        return partial(_beside, keys_of(mark), -1 if before == "word before" else 1)
    for phrase, restrict in _RESTRICTIONS.items():
        if phrase in kind:
            return partial(restrict, *map(keys_of, kind.split(phrase)))
    if kind.startswith("word in -"):
        ending = kind.removeprefix("word in -")
        return lambda w: w.earlier & np.array([form.endswith(ending) for form in w.forms], bool)
    return lambda w: w.earlier & w.is_of(*classes_of(kind))


def _edge_of_run(classes: Sequence[str], step: int, features: WindowFeatures) -> Table:
    """Earlier words of some classes with none of them next to it on that side."""
    of_class = np.pad(features.is_of(*classes), 1)
    neighbour = np.roll(of_class, -step)
    return np.asarray(features.earlier & (of_class & ~neighbour)[1:-1])


def _beside(marks: Keys, step: int, features: WindowFeatures) -> Table:
    """The earlier words that stand after marks, or before them."""
    moved = np.roll(marks(features), step, axis=1)
    moved[:, slice(step) if step > 0 else slice(step, None)] = False
    return np.asarray(moved & features.earlier)


def _beyond(keys: Keys, marks: Keys, features: WindowFeatures) -> Table:
    """Keys that stand before the nearest mark."""
    mark = last_key(marks(features))
    return np.asarray(keys(features) & (mark[:, ::-1].cumsum(1)[:, ::-1] > mark))


def _since(keys: Keys, marks: Keys, features: WindowFeatures) -> Table:
    """Keys that stand after the nearest mark."""
    mark = last_key(marks(features))
    return np.asarray(keys(features) & (mark.cumsum(1) > mark))


def _after(keys: Keys, marks: Keys, features: WindowFeatures) -> Table:
    """Keys whose neighbour before them is a mark."""
    return np.asarray(keys(features) & _beside(marks, 1, features))


def _not_after(keys: Keys, marks: Keys, features: WindowFeatures) -> Table:
    return np.asarray(keys(features) & ~_beside(marks, 1, features))


_RESTRICTIONS = {
    " beyond the nearest ": _beyond,
    " since the nearest ": _since,
    " not behind ": _not_after,
    " behind ": _after,
}
"""Phrases between the name of keys and that of marks."""
_PHRASE = ("DET", "ADJ", "NUM", "NOUN", "PROPN", "PRON")


def _of_another_phrase(features: WindowFeatures) -> Table:
    """Nominals with a word between that is of no noun phrase."""
    breaks = np.cumsum(~features.is_of(*_PHRASE))
    apart = breaks[:, None] != breaks[None, :]
    return np.asarray(features.earlier & apart & features.is_of("NOUN", "PROPN", "PRON"))


def _most_frequent(features: WindowFeatures) -> Table:
    """The earlier nouns and names of the lemma that was read most often."""
    noun = features.earlier & features.is_of("NOUN", "PROPN")
    counts = noun @ features.same_lemma.astype(np.int64) * noun
    return np.asarray(noun & (counts == counts.max(1, keepdims=True, initial=0)))


def _most_frequent_capital(features: WindowFeatures) -> Table:
    """The earlier words with a capital, of the form that was read most often."""
    forms = np.array(features.forms, "U")
    has_capital = np.array([form[:1].isupper() for form in features.forms], bool)
    capital = features.earlier & has_capital
    counts = capital @ (forms[:, None] == forms[None, :]).astype(np.int64) * capital
    return np.asarray(capital & (counts == counts.max(1, keepdims=True, initial=0)))


def _in_digits(features: WindowFeatures) -> Table:
    return np.asarray(features.earlier & np.array([f.isdigit() for f in features.forms], bool))


_KINDS: dict[str, Keys] = {
    "word": lambda w: w.earlier,
    "mention": lambda w: w.earlier & w.mentioned,
    "word of the same class": lambda w: w.earlier & (w.words.upos[:, None] == w.words.upos),
    "word of the same lemma": lambda w: w.earlier & w.same_lemma,
    "word with a capital": lambda w: w.earlier & np.array([f[:1].isupper() for f in w.forms], bool),
    "boundary": lambda w: w.earlier & w.is_of(*_BOUNDARY),
    "nominal of another phrase": _of_another_phrase,
    "most frequent noun": _most_frequent,
    "most frequent capital": _most_frequent_capital,
    "number in digits": _in_digits,
}


def _within(words: int, features: WindowFeatures) -> Table:
    """Words no farther back than so many."""
    return np.asarray(features.position[:, None] - features.position[None, :] <= words)


def _same_clause(features: WindowFeatures) -> Table:
    """Words with no mark, conjunction or subordinator between them."""
    clause = np.cumsum(features.is_of(*_BOUNDARY))
    return np.asarray(clause[:, None] == clause[None, :])


STRETCHES: dict[str, Keys] = {
    "": lambda w: w.earlier,
    " of the sentence": lambda w: w.sentences_back == 0,
    " of the previous sentence": lambda w: w.sentences_back == 1,
    " of the clause": _same_clause,
    **{f" of the last {n} words": partial(_within, n) for n in (3, 4, 6)},
}


def last_key(table: Table, rank: int = 1) -> Table:
    """The last key of each row, or the last but `rank` − 1."""
    return first(table[:, ::-1], rank)[:, ::-1]


def first(table: Table, rank: int = 1) -> Table:
    """The key of that rank in each row, counted from the left."""
    return np.asarray(table & (table.cumsum(1) == rank))


def fading(table: Table, features: WindowFeatures) -> ndarray:
    """All keys, near ones more: e-fold less for every `WORD_FADE` words."""
    position = features.position
    return np.asarray(table * np.exp((position[None, :] - position[:, None]) / WORD_FADE))


def _longest(table: Table, features: WindowFeatures) -> Table:
    """The key of the most letters; of equals the nearest."""
    letters = np.where(table, [len(form) for form in features.forms], -1)
    return last_key(table & (letters == letters.max(1, keepdims=True, initial=0)))


PICKS: dict[str, Callable[[Table, WindowFeatures], ndarray]] = {
    "nearest {}": lambda table, _: last_key(table),
    "second nearest {}": lambda table, _: last_key(table, 2),
    "first {}": lambda table, _: first(table),
    "every {}": lambda table, _: table,
    "every {}, near ones more": fading,
    "longest {}": _longest,
    **{f"{n} {{}}s back": lambda table, _, n=n: last_key(table, n) for n in range(1, 9)},  # type: ignore[misc]
}
_OFFSETS = ("positional/offset-*",)
_COPY = ("lexical/duplicate*", "lexical/same-class", "duplicate-token/repeat", "induction/natural")


def _lexical(classes: Sequence[str]) -> tuple[str, ...]:
    """Patterns of the lexical tags, and of those for punctuation, that name one of the classes."""
    names = tuple(f"lexical/nearest*{upos}*" for upos in classes)
    return (*names, "delimiter/*") if "PUNCT" in classes else names


def looking(pick: str, kind: str, stretch: str = "", queries: str = "") -> BaselineHead:
    """The head that looks from words of some classes at what it picks among words of a kind."""
    keys = keys_of(kind)

    def attention(features: WindowFeatures) -> Rows:
        table = keys(features) & STRETCHES[stretch](features)
        if queries == "mention":
            table = table & features.mentioned[:, None]
        elif queries:
            table = table & features.is_of(*classes_of(queries))[:, None]
        return features.rows(PICKS[pick](table, features))

    is_class = kind in CLASSES or ("|" in kind and " " not in kind)
    may = _lexical(classes_of(kind)) if is_class else ()
    if kind in _ALIKE:
        may = _COPY
    if kind in _FREQUENT:
        may = _lexical([_FREQUENT[kind]])
    if " not behind " in kind:
        may = _lexical(classes_of(kind.partition(" not behind ")[0]))
    if queries == kind:
        may = (*may, "lexical/same-class")
    earns: tuple[str, ...] = ()
    if pick == "nearest {}" and not stretch and not queries:
        earns = _EARNS.get(kind) or ((f"lexical/nearest-{kind}",) if kind.isupper() else ())
    name = f"{queries} → " * bool(queries) + pick.format(kind + stretch)
    return BaselineHead(name, earns, may, attention=attention)


_EARNS = {
    "PUNCT": ("delimiter/punctuation",),
    "word of the same class": ("lexical/same-class",),
    "word of the same lemma": ("lexical/duplicate",),
}
_FREQUENT = {"form of be": "AUX", "preposition of nouns": "ADP"}
"""Lists of the words that most words of a class are."""
_ALIKE = ("word of the same class", "word of the same lemma")
_NEAREST, _SECOND, _FIRST, _EVERY, _FADING, _LONG = list(PICKS)[:6]
_KEYS = (*_UNIONS, "VERB", "DET", "ADP")
_RUNS = [
    f"{name} that {edge} a run" for name in (*_UNIONS, "VERB|AUX") for edge in ("opens", "closes")
]
_SIDES = [
    f"word {side} the nearest {mark}"
    for side in ("before", "after")
    for mark in (
        "boundary",
        "ADP|VERB|PUNCT",
        "function word",
        "VERB",
        "DET",
        "clause opener",
        "comma",
    )
]
_FREE = ("mention", *list(_KINDS)[2:5], *_RUNS, *_SIDES, *_LISTS)
_FAR = ("word", "noun or name", "nominal", "content word", "VERB", "VERB|AUX")
_NEAR = ("word", "noun or name", "nominal", "VERB", "VERB|AUX")
_LAST = [stretch for stretch in STRETCHES if "last" in stretch]
GRID: tuple[tuple[Sequence[str], Sequence[str], Sequence[str]], ...] = (
    ([_NEAREST], (*CLASSES, *_FREE), [""]),
    ([_SECOND], (*_UNIONS, "VERB", "NOUN", "AUX", "DET", "ADP"), [""]),
    ([_NEAREST, _FIRST, _SECOND, _EVERY], _KEYS, [" of the sentence"]),
    ([_FIRST], ("VERB", "NOUN", "PROPN", "nominal", "word of the same lemma"), [""]),
    ([_EVERY, _FADING], (*_KEYS, "PUNCT", "mention", *_ALIKE), [""]),
    ([_FIRST, _LONG, _EVERY], _FAR, _LAST),
    ([_FIRST, _NEAREST], _NEAR, [" of the clause"]),
    ([_FIRST, _NEAREST, _EVERY], ("word", "nominal"), [" of the previous sentence"]),
    ([_FIRST, _EVERY, _FADING, _LONG], ("word",), [" of the sentence"]),
    (list(PICKS)[6:], ("word",), [""]),
)
"""Picks, kinds of words and stretches of text: a head for each combination."""
QUERIES = {
    "noun or name": "VERB, VERB|AUX, ADJ, DET, ADP, NUM, noun or name, PRON, CCONJ, mention, "
    "possessive",
    "nominal": "VERB",
    "VERB": "noun or name, nominal, PRON, AUX, PART, SCONJ, ADV, VERB, relative word, form of be, "
    "modal",
    "AUX": "nominal, AUX",
    "VERB|AUX": "nominal",
    "ADJ": "noun or name, ADV, AUX, ADJ",
    "ADP": "noun or name, VERB",
    "ADV": "VERB, AUX",
    "SCONJ": "VERB",
    "CCONJ": "noun or name",
    "PRON": "noun or name, PROPN, VERB, PRON, mention, word of the same lemma",
    "PROPN": "PROPN, NOUN",
    "NUM": "noun or name",
    "PUNCT": "VERB",
    "DET": "VERB",
    "PART": "VERB",
    "DET|ADJ|NUM": "noun or name that opens a run, noun or name",
    "DET|ADP|AUX": "noun or name that opens a run, NOUN|PROPN|VERB",
    "function word": "content word, content word that opens a run",
    "mention": "mention",
}
"""Queries of these classes look at the nearest of these words; all others rest."""
_OF_QUERIES = (
    ("VERB", "nominal", [_FIRST, _NEAREST, _SECOND], [" of the sentence", " of the clause"]),
    ("noun or name", "VERB", [_FIRST, _NEAREST, _SECOND], [" of the sentence", " of the clause"]),
    ("VERB", "nominal", [_SECOND, _FADING], [""]),
    ("noun or name", "VERB", [_SECOND, _FADING], [""]),
    ("noun or name", "noun or name", [_FIRST, _FADING], ["", " of the sentence"]),
    ("VERB", "VERB", [_FIRST], [" of the sentence"]),
    ("PRON", "PROPN", [_FIRST, _FADING], [""]),
    ("PRON", "nominal", [_FIRST], [" of the sentence", " of the previous sentence"]),
    ("PRON", "mention", [_EVERY], [""]),
    ("mention", "mention", [_FIRST, _EVERY, _FADING], [""]),
    ("noun or name", "word", [_NEAREST], [""]),
    ("VERB", "word", [_NEAREST], [""]),
    ("DET", "word", [_NEAREST], [""]),
)
"""Heads of other picks from some queries alone."""


def baseline_heads(attention_kind: AttentionKind = CAUSAL) -> tuple[BaselineHead, ...]:
    """Every baseline head; of encoders mirror images, and heads that look on either side too."""
    words = list(_of_words())
    tokens_back = [_back(distance) for distance in range(1, 9)]
    heads = (*words, *tokens_back, *_OF_TOKENS, *_mixtures())
    if attention_kind.sees_future:
        sides = (
            _both_sides(head) for head in words if head.name.removeprefix("nearest ") != head.name
        )
        heads = (*heads, *map(mirrored_head, (*words, *tokens_back)), *sides)
    return heads


def _of_words() -> Iterator[BaselineHead]:
    for picks, kinds, stretches in GRID:
        for pick in picks:
            for kind in kinds:
                yield from (looking(pick, kind, stretch) for stretch in stretches)
    for queries, kinds_of_queries in QUERIES.items():
        for kind in kinds_of_queries.split(", "):
            yield looking(_NEAREST, kind, queries=queries)
    for queries, kind, picks, stretches in _OF_QUERIES:
        for pick in picks:
            yield from (looking(pick, kind, stretch, queries) for stretch in stretches)


def _back(distance: int) -> BaselineHead:
    relation = f"positional/offset-{distance}"
    name = "previous token" if distance == 1 else f"{distance} tokens back"
    baseline = _of_tokens(lambda w: (w.back == distance) & w.proper)
    return BaselineHead(name, (relation, f"{relation}-random"), attention=baseline)


def _of_tokens(weights: Callable[[WindowFeatures], ndarray]) -> AttentionRule:
    return lambda features: features.token_rows(weights(features))


def _sentence_so_far(features: WindowFeatures) -> ndarray:
    sentence = features.window.sentence_of_token
    return np.asarray((sentence[:, None] == sentence[None, :]) & (features.back >= 0))


def _second_token(features: WindowFeatures) -> ndarray:
    return np.asarray((features.back >= 0) & (features.proper.cumsum() == 1))


def _near_tokens(features: WindowFeatures) -> ndarray:
    """All tokens so far, near ones more."""
    return np.asarray(np.tril(np.exp(np.minimum(-features.back, 0) / TOKEN_FADE)))


def _after_same_token(features: WindowFeatures) -> Table:
    """The last token that followed an earlier copy of the query."""
    follows = np.roll(features.same_token, 1, axis=1)
    return last_key(follows & (features.back > 0) & features.proper)


def _line_breaks(features: WindowFeatures) -> ndarray:
    has_break = np.array(["\n" in string for string in features.window.strings], bool)
    return np.asarray((features.back > 0) & has_break)


def _token_head(
    name: str,
    weights: Callable[[WindowFeatures], ndarray],
    *,
    earns: tuple[str, ...] = (),
    may: tuple[str, ...] = (),
) -> BaselineHead:
    return BaselineHead(name, earns, may, attention=_of_tokens(weights))


_ITSELF = ("positional/offset-0", "positional/offset-0-random")
_DUPLICATE = ("duplicate-token/repeat",)
_OF_TOKENS = (
    BaselineHead("first token", ("sink/first-token",), attention=at_rest),
    _token_head("second token", _second_token),
    BaselineHead("all tokens alike", attention=lambda w: w.even),
    _token_head("all tokens, near ones more", _near_tokens, may=_OFFSETS),
    _token_head("all tokens of the sentence", _sentence_so_far, may=_OFFSETS),
    _token_head("the token itself", lambda w: w.back == 0, earns=_ITSELF),
    _token_head(
        "the same token before", lambda w: last_key(w.same_token), earns=_DUPLICATE, may=_COPY
    ),
    _token_head("all the same tokens before", lambda w: w.same_token, earns=_DUPLICATE, may=_COPY),
    _token_head(
        "what followed the same token",
        _after_same_token,
        earns=("induction/repeat",),
        may=("induction/natural",),
    ),
    _token_head("line breaks", _line_breaks, may=("delimiter/*",)),
)


def _mixtures() -> Iterator[BaselineHead]:
    """Heads that divide their attention."""
    previous, sink = _back(1), next(head for head in _OF_TOKENS if head.name == "first token")
    verb, nominal = looking(_NEAREST, "VERB"), looking(_NEAREST, "nominal")
    for head in (
        verb,
        nominal,
        looking(_NEAREST, "DET"),
        looking(_NEAREST, "word of the same class"),
        looking(_NEAREST, "VERB", queries="noun or name"),
        looking(_NEAREST, "nominal", queries="VERB"),
        looking(_NEAREST, "PROPN", queries="PRON"),
    ):
        yield halves(sink, head)
        yield halves(previous, head)
        baseline = mixed((1 - NOISE, head.attention), (NOISE, lambda w: w.even))
        yield BaselineHead(
            f"{head.name}, with noise", may=(*head.earns, *head.may), attention=baseline
        )
    yield halves(verb, nominal)
    yield halves(previous, _back(2))


def halves(one: BaselineHead, two: BaselineHead) -> BaselineHead:
    may = (*one.earns, *one.may, *two.earns, *two.may)
    baseline = mixed((0.5, one.attention), (0.5, two.attention))
    return BaselineHead(f"half {one.name}, half {two.name}", may=may, attention=baseline)


def mirrored_head(head: BaselineHead) -> BaselineHead:
    """The head that reads the text from its end, of which the mirrored tags are true."""
    earns, may = _ahead(head.earns), _ahead(head.may)
    return BaselineHead(f"{head.name}, mirrored", earns, may, attention=mirrored(head.attention))


def _ahead(tags: tuple[str, ...]) -> tuple[str, ...]:
    """Tags of the mirror image."""
    swaps = (("/nearest", "/next"), ("/same-class", "/next-same-class"), ("/offset-", "/offset+"))
    for old, new in swaps:
        tags = tuple(tag.replace(old, new) for tag in tags)
    return tags


def _both_sides(head: BaselineHead) -> BaselineHead:
    may = ("lexical/*", "positional/*", "delimiter/*", *_COPY)
    baseline = on_either_side(head.attention)
    return BaselineHead(f"{head.name}, on either side", may=may, attention=baseline)
