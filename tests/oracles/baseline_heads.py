"""Heuristics: heads without syntax, reference or meaning, with the tags that are true of each.

Every third head of the templates is held back while rules are chosen, so that it says how many
habits pass that no rule was made for; it is no longer so once a rule is chosen by it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

import numpy as np
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind
from headscope.corpus.window import Window
from headscope.relations import relations_of
from tests.oracles.grammar import (
    CLASSES,
    EITHER_SIDE,
    MIRRORED,
    classes_of,
    form_length,
    rule_of,
    times_so_far,
)
from tests.oracles.window_features import (
    AttentionRule,
    Rows,
    WindowFeatures,
)

BROAD = tuple(r.id for r in relations_of(["all"], BIDIRECTIONAL) if r.rule.broad)
TRUE_OF_ALL = ("sink/*", *BROAD)
"""Resting somewhere is no claim about what a head does, nor is what kind of key gets its attention:
true of any head of which it was measured."""


@dataclass(frozen=True, eq=False)
class KnownHead:
    """A head of which it is known what tags are true."""

    name: str
    earns: tuple[str, ...] = ()
    """The tags that it must earn, where there are such relations."""
    may: tuple[str, ...] = ()
    """Patterns of other tags that are true of it."""

    def true(self, relation: str) -> bool:
        """Tells whether a tag says no more of the head than is so."""
        return any(
            fnmatchcase(relation, pattern) for pattern in (*self.earns, *self.may, *TRUE_OF_ALL)
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Heuristic(KnownHead):
    """A head that follows the simple rule that is its name.

    Called with a window it gives its pattern `[query key]`.
    """

    attention: AttentionRule
    held_back: bool = False
    """True where no simple rule was chosen by it."""

    def __call__(self, window: Window) -> Rows:
        return self.attention(WindowFeatures(window))


def heuristics(
    windows: Sequence[Window], attention_kind: AttentionKind = CAUSAL
) -> tuple[Heuristic, ...]:
    """Every heuristic; what is rare is so in these windows.

    >>> [heuristic.name for heuristic in heuristics([])][:3]
    ['nearest VERB', 'nearest NOUN', 'nearest PROPN']
    """
    frequency = Counter(
        lemma
        for window in windows
        if window.stimulus == "text"
        for lemma in window.words.lemma.tolist()
    )

    def rarity(reading: WindowFeatures) -> ndarray:
        return -np.array([frequency.get(lemma, 0) for lemma in reading.words.lemma.tolist()], float)

    scores = {"commonest": times_so_far, "longest": form_length, "rarest": rarity}
    rows = (*_by_class(), *_by_query(), *_by_place(), *_OTHERS, *_of_templates(), *_mixtures())
    if attention_kind.sees_future:
        rows = (*rows, *map(_mirrored, filter(_has_mirror, rows)), *_both_sides())
    return tuple(
        Heuristic(name, earns, may, attention=rule_of(name, scores), held_back=_base(name) in _HELD)
        for name, earns, may in rows
    )


Row = tuple[str, tuple[str, ...], tuple[str, ...]]
"""A name, the tags that it must earn, and patterns of those that it may."""


def _lexical(classes: Iterable[str]) -> tuple[str, ...]:
    """Patterns of the lexical tags, and of those for punctuation, that name one of the classes."""
    names = tuple(f"lexical/nearest*{upos}*" for upos in classes)
    return (*names, "delimiter/*") if "PUNCT" in classes else names


_VERB, _NOUN, _NOMINAL = (classes_of(name) for name in ("verb", "noun", "nominal"))
_FREQUENT_CLASSES = ("verb or auxiliary", "noun or name", "nominal")
_TWICE = ("VERB", "NOUN", "AUX", "DET", "ADP", "CCONJ", *_FREQUENT_CLASSES)
_OF_CLASSES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("second nearest {}", ("VERB", "NOUN", "AUX", "DET", "ADP", *_FREQUENT_CLASSES[1:])),
    ("nearest {} of the sentence", ("VERB", "DET", "ADP", *_FREQUENT_CLASSES)),
    ("first {} of the sentence", ("VERB", "DET", "SCONJ", *_FREQUENT_CLASSES)),
    ("second nearest {} of the sentence, or its only one", _TWICE),
    ("second {} of the sentence, or its only one", _TWICE),
    ("first {} of the text", ("VERB", "NOUN", "PROPN", "nominal")),
    ("every {}", (*list(CLASSES)[:5], "ADP", "DET", "PUNCT", "content word")),
    ("every {} of the sentence", (*_FREQUENT_CLASSES, "content word", "function word")),
    ("every {}, near ones more", (*_FREQUENT_CLASSES, "content word")),
)
"""A name, and the classes that it is tried on."""


def _by_class() -> Iterator[Row]:
    for name, classes in CLASSES.items():
        relations = tuple(f"lexical/nearest-{upos}" for upos in classes if len(classes) == 1)
        relations = ("delimiter/punctuation",) if name == "PUNCT" else relations
        yield f"nearest {name}", relations, _lexical(classes)
    for title, names in _OF_CLASSES:
        for name in names:
            yield title.format(name), (), _lexical(CLASSES[name])


_QUERIES = {
    "NOUN|PROPN": "VERB, VERB|AUX, ADJ, DET, ADP, NUM, NOUN|PROPN, PRON, CCONJ",
    "NOUN|PROPN|PRON": "VERB",
    "VERB": "NOUN|PROPN, NOUN|PROPN|PRON, PRON, AUX, PART, SCONJ, ADV, VERB",
    "AUX": "NOUN|PROPN|PRON, AUX",
    "VERB|AUX": "NOUN|PROPN|PRON",
    "ADJ": "NOUN|PROPN, ADV, AUX, ADJ",
    "ADP": "NOUN|PROPN, VERB",
    "ADV": "VERB, AUX",
    "SCONJ": "VERB",
    "CCONJ": "NOUN|PROPN",
    "PRON": "NOUN|PROPN, PROPN, VERB, PRON",
    "PROPN": "PROPN, NOUN",
    "NUM": "NOUN|PROPN",
    "PUNCT": "VERB",
    "DET": "VERB",
    "PART": "VERB",
}
"""Queries of which classes look at the nearest word of which; all others rest."""
_OF_QUERIES = (
    "verb → first nominal of the sentence",
    "noun → first verb of the sentence",
    "noun → nearest verb of the sentence",
    "verb → nearest nominal of the sentence",
    "verb → second nearest nominal",
    "noun → second nearest verb",
    "verb → first verb of the sentence",
    "verb → second nearest nominal of the sentence, or its only one",
    "verb → second nominal of the sentence, or its only one",
    "noun → second nearest verb of the sentence, or its only one",
    "noun → previous word",
    "verb → previous word",
    "determiner → previous word",
    "noun → verb, verb → nominal",
    "noun → determiner, verb → nominal, others → previous word",
    "verb → first nominal of the clause",
    "verb → first noun after the last determiner",
    "noun → content word before the last preposition",
    "verb → nearest clause marker",
)
_OFFSETS = ("positional/offset-*",)


def _by_query() -> Iterator[Row]:
    for queries, keys_of_queries in _QUERIES.items():
        for keys in keys_of_queries.split(", "):
            same = ("lexical/same-class",) if queries == keys else ()
            yield f"{queries} → nearest {keys}", (), (*_lexical(classes_of(keys)), *same)
    for name in _OF_QUERIES:
        yield name, (), (*_lexical(("VERB", "DET", *_NOMINAL)), *_OFFSETS)


def _by_place() -> Iterator[Row]:
    for distance in range(1, 9):
        name = "previous token" if distance == 1 else f"{distance} tokens back"
        relation = f"positional/offset-{distance}"
        yield name, (relation, f"{relation}-random"), ()
    for distance in range(1, 9):
        yield "previous word" if distance == 1 else f"{distance} words back", (), _OFFSETS
    yield "first word of the sentence", (), ("delimiter/*",)  # which the last one is
    yield "second word of the sentence", (), ()
    yield "every word of the sentence", (), ()
    yield "every word, near ones more", (), _OFFSETS


_COPY = ("lexical/duplicate*", "lexical/same-class", "induction/duplicate", "induction/natural")
_SAME = ("lexical/same-class", "lexical/nearest*")
_NAMES = (*_lexical(_NOMINAL), "lexical/same-class", "lexical/duplicate")
_OTHERS: tuple[Row, ...] = (
    ("first token", ("sink/first-token",), ()),
    ("second token", (), ()),
    ("all tokens alike", (), ()),
    ("all tokens, near ones more", (), _OFFSETS),
    ("all tokens of the sentence", (), _OFFSETS),
    ("the token itself", ("positional/offset-0", "positional/offset-0-random"), ()),
    ("the same token before", ("induction/duplicate",), _COPY),
    ("all the same tokens before", ("induction/duplicate",), _COPY),
    ("what followed the same token", ("induction/repeat",), ("induction/natural",)),
    ("line breaks", (), ("delimiter/*",)),
    ("nearest of the same class", _SAME[:1], _SAME),
    ("second nearest of the same class", (), _SAME),
    ("nearest of the same class in the sentence", (), _SAME),
    ("all of the same class", (), _SAME),
    ("all of the same class in the sentence", (), _SAME),
    ("nearest of the same lemma", ("lexical/duplicate",), _COPY),
    ("first of the same lemma", (), _COPY),
    ("all of the same lemma", (), _COPY),
    ("nearest with the same first letter", (), ()),
    ("nearest with the same last letters", (), ()),
    ("nearest of the same length", (), ()),
    ("rarest word so far", (), ()),
    ("rarest word of the sentence so far", (), ()),
    ("longest word so far", (), ()),
    ("longest word of the sentence so far", (), ()),
    ("commonest word so far", (), ()),
    ("commonest noun so far", (), _lexical(_NOUN)),
    ("some word or other", (), ()),
    ("nearest word with a capital", (), _lexical(("PROPN",))),
    ("nearest figure", (), _lexical(("NUM",))),
    *((f"nearest word in -{ending}", (), ()) for ending in ("ing", "ed", "s", "ly")),
    ("nearest clause opener", (), _lexical(("SCONJ", "PRON"))),
    ("word after the last clause opener", (), ()),
    ("word after the last comma", (), ()),
    ("word before the last comma", (), ()),
    ("word after the last punctuation", (), ()),
    ("word before the last punctuation", (), ()),
    ("word after the nearest determiner", (), ()),
    ("word after the nearest preposition", (), ()),
    ("word before the nearest verb", (), ()),
    ("word after the nearest verb", (), ()),
    ("last word of the previous sentence", (), ()),
    ("first word of the previous sentence", (), ()),
    ("end of the previous sentence", (), ("delimiter/*",)),
    ("first nominal of the previous sentence", (), ()),
    ("every word of the previous sentence", (), ()),
    ("pronoun → first name of the text", (), _NAMES),
    ("pronoun → commonest name so far", (), _NAMES),
    ("pronoun → commonest noun or name so far", (), _NAMES),
    ("pronoun → first nominal of the sentence", (), _NAMES),
    ("pronoun → first nominal of the previous sentence", (), _NAMES),
    ("pronoun → nearest mention", (), _NAMES),
    ("pronoun → every mention", (), _NAMES),
    ("pronoun → the same pronoun", (), _NAMES),
    ("commonest name so far", (), _NAMES),
    ("mention → nearest mention", (), _NAMES),
    ("mention → first mention of the text", (), _NAMES),
    ("mention → every mention", (), _NAMES),
    ("noun → first noun of the text", (), _NAMES),
    ("name → first name of the text", (), _NAMES),
)


_TEMPLATES = (
    ("nearest {} that opens a run", "noun, nominal, content word, function word, VERB|AUX"),
    ("nearest {} that closes a run", "noun, nominal, content word, function word, VERB|AUX"),
    ("{} noun that closes a run", "second nearest"),
    ("first noun of the last {} words", "3, 4, 6"),
    ("first nominal of the last {} words", "4, 6"),
    ("first content word of the last {} words", "3, 6"),
    ("first {} of the last 6 words", "verb, VERB|AUX"),
    ("longest word of the last {} words", "3, 4, 6"),
    ("rarest word of the last {} words", "4, 6, 10"),
    ("every {} of the last 6 words", "noun, content word, verb"),
    ("word after the nearest {}", "ADP|VERB|PUNCT, boundary, VERB|AUX|ADP, function word, nominal"),
    ("word before the nearest {}", "ADP|VERB|PUNCT, boundary, function word, determiner, AUX"),
    ("first {} of the clause", "word, noun, nominal, verb, VERB|AUX"),
    ("verb → {} of the clause", "first noun, nearest nominal"),
    ("{} nominal of the clause", "nearest, AUX → first"),
    ("noun → first {} of the clause", "verb"),
    ("{} before the last preposition", "noun, verb, content word"),
    ("{} before the last and", "noun, verb, content word"),
    ("{} before the last comma", "noun, verb, content word"),
    ("noun → noun {}", "before the last and, before the last comma, before the last preposition"),
    ("noun → verb {}", "before the last preposition"),
    ("verb → verb {}", "before the last and, before the last comma"),
    ("verb → noun {}", "before the last comma, after the last determiner"),
    ("noun → noun {}", "after the last determiner"),
    ("nearest {}", "relative word, form of be, form of have, modal, article"),
    ("verb → nearest {}", "relative word, form of be, modal, negation, to, person"),
    ("noun → nearest {}", "of, possessive, preposition of place"),
    ("{} → nearest degree word", "adjective"),
    ("{} → nearest noun that opens a run", "DET, DET|ADJ|NUM, DET|ADJ|ADP, ADP, ADJ|NOUN"),
    ("function word → nearest {}", "content word, content word that opens a run"),
    ("{}", "DET|ADP|AUX → nearest NOUN|PROPN|VERB, AUX|PART|SCONJ → nearest VERB"),
    ("{}every mention, near ones more", ", mention → "),
    ("noun → every {}, near ones more", "noun, verb, noun of the sentence"),
    ("verb → every {}, near ones more", "nominal of the sentence"),
    ("pronoun → every {}, near ones more", "name"),
    ("{}", "word two after the name's copy, last word of the sentence of the name's copy"),
    ("{}", "word ends near the copy"),
)
"""Names, and what stands in their gaps."""
_EITHER_SIDE_TEMPLATES = (
    ("nearest {}", "noun, verb, VERB|AUX, adjective, comma, content word, function word"),
    ("nearest {}", "nominal that closes a run, of the same class, of the same lemma"),
    ("noun → nearest {}", "verb, noun"),
    ("verb → nearest {}", "nominal, noun, verb"),
    ("{} → nearest noun", "DET|ADJ|ADP, pronoun"),
    ("{}", "function word → nearest content word, mention → nearest mention"),
    ("{}", "longest word of the last 3 words, word after the nearest boundary"),
)
"""Likewise of heads that look on either side, whichever is nearer."""


def _names(table: Iterable[tuple[str, str]]) -> list[str]:
    return [name.format(word) for name, words in table for word in words.split(", ")]


_HELD = frozenset((*_names(_TEMPLATES)[2::3], *_names(_EITHER_SIDE_TEMPLATES)[2::3]))


def _of_templates() -> Iterator[Row]:
    may = (*_lexical((*CLASSES["content word"], *CLASSES["function word"])), *_OFFSETS, *_COPY)
    for name in _names(_TEMPLATES):
        yield name, (), (*may, "delimiter/*") if name == "first word of the clause" else may


def _both_sides() -> Iterator[Row]:
    for name in _names(_EITHER_SIDE_TEMPLATES):
        yield name + EITHER_SIDE, (), ("lexical/*", "positional/*", "delimiter/*", *_COPY)


def _base(name: str) -> str:
    return name.removesuffix(MIRRORED).removesuffix(EITHER_SIDE)


def _has_mirror(row: Row) -> bool:
    """Heads of words and of places; the first token is none, nor is a copy."""
    return "token" not in row[0] or "tokens back" in row[0] or "previous token" in row[0]


def _mirrored(row: Row) -> Row:
    """The head that reads the text from its end, of which the mirrored tags are true."""
    name, earns, may = row
    return name + MIRRORED, _ahead(earns), _ahead(may)


def _ahead(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags of the mirror image.

    >>> _ahead(("lexical/nearest-VERB", "positional/offset-1"))
    ('lexical/next-VERB', 'positional/offset+1')
    """
    swaps = (("/nearest", "/next"), ("/same-class", "/next-same-class"), ("/offset-", "/offset+"))
    for old, new in swaps:
        tags = [tag.replace(old, new) for tag in tags]
    return tuple(tags)


def _mixtures() -> Iterator[Row]:
    for name, may in (
        ("nearest verb", _lexical(_VERB)),
        ("nearest nominal", _lexical(_NOMINAL)),
        ("nearest determiner", _lexical(("DET",))),
        ("nearest of the same class", ("lexical/*",)),
        ("noun → nearest verb", _lexical(_VERB)),
        ("verb → nearest nominal", _lexical(_NOMINAL)),
        ("pronoun → nearest name", _lexical(("PROPN",))),
    ):
        yield f"half sink, half {name}", (), may
        yield f"half previous token, half {name}", (), (*may, "positional/offset-1*")
        yield f"{name}, with noise", (), may
    yield "half nearest verb, half nearest nominal", (), _lexical((*_VERB, *_NOMINAL))
    yield "one and two tokens back", (), _OFFSETS
