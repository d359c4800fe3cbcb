"""Oracles: heads that read the annotation, some of them less well than others."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import own_label
from headscope.corpus.window import MentionTable, Window
from headscope.relations.types.semantic import RELATIONS as PAIRS
from headscope.relations.types.semantic import shipped_pairs
from tests.oracles.baseline_heads import Keys, KnownHead
from tests.oracles.window_features import Rows, Table, WindowFeatures, at_rest, spread_rows


class Kind(NamedTuple):
    """An oracle's skill."""

    name: str
    accuracy: float
    """Share of queries at which it looks at the partner; at others, at the nearest such word."""
    mass: float
    """Attention on that word."""
    spread: bool
    """True if the rest is spread as a real head's, False if it is on the first token."""


KINDS = (
    Kind("right, mass .3", 1.0, 0.3, spread=False),
    Kind("right at 70 %, mass .6", 0.7, 0.6, spread=False),
    Kind("right at 50 %, mass .6", 0.5, 0.6, spread=False),
    Kind("right at 70 %, mass .3, spread", 0.7, 0.3, spread=True),
    Kind("right, mass .2, spread", 1.0, 0.2, spread=True),
)
"""Kinds of oracles; real heads are like the last ones."""


_Mentions = Bool[ndarray, "mention mention"]
_Rule = Callable[[MentionTable], _Mentions]


@dataclass(frozen=True, eq=False, kw_only=True)
class Oracle(KnownHead):
    """A head that knows the partners of a word and looks at the nearest that it sees, or where it
    is wrong at the nearest word of the partner's part of speech."""

    partners: Keys

    def patterns(self, reading: WindowFeatures) -> Iterator[Rows]:
        """The patterns of each of `KINDS`."""
        window, words = reading.window, reading.words
        partners = _nearest_keys(self.partners(reading))
        nearest = _nearest_keys(_mistakable(reading, partners))
        text = zlib.crc32(np.asarray(window.tokens, np.int64).tobytes())
        rng = np.random.default_rng([text, zlib.crc32(self.name.encode())])
        luck = rng.random(len(words))
        asked = np.zeros(len(window), bool)
        asked[words.last[partners.any(1)]] = True
        for kind in KINDS:
            is_right = (luck < kind.accuracy)[:, None]
            looked_at = reading.rows(np.where(is_right, partners, nearest))
            if kind.spread:
                rest = spread_rows(window, rng)
                looked_at = np.where(asked[:, None], looked_at, rest)
            else:
                rest = at_rest(reading)
            yield kind.mass * looked_at + (1 - kind.mass) * rest


def oracles(windows: Sequence[Window], relations: Collection[str]) -> tuple[Oracle, ...]:
    """An oracle for each of these relations that annotation can answer and that these windows hold.

    Args:
        windows: the text.
        relations: full names, such as `syntactic/obj:dep>head`.
    """
    links = Counter(
        own_label(label)
        for window in windows
        for label in window.words.deprel[window.words.head >= 0].tolist()
    )
    heads = [
        _oracle(f"syntactic/{deprel}:{way}", partial(linked, deprel=deprel, from_head=from_head))
        for deprel in sorted(links)
        for way, from_head in (("head>dep", True), ("dep>head", False))
    ]
    for name, rule in _CHAINS.items():
        heads.append(_oracle(f"coreference/{name}", partial(referring, rule=rule)))
    for name in PAIRS:
        heads.append(_oracle(f"semantic/{name}", partial(related_words, name=name)))
    return tuple(oracle for oracle in heads if oracle.name in relations)


def _oracle(relation: str, partners: Keys) -> Oracle:
    """An oracle of a relation; of reference and meaning, one relation's partners are another's."""
    kind = relation.split("/")[0]
    may = () if kind == "syntactic" else (f"{kind}/*",)
    return Oracle(relation, (relation,), may, partners=partners)


def linked(reading: WindowFeatures, deprel: str, from_head: bool) -> Table:
    """The words that hang on the query by this relation, or that it hangs on by it."""
    words = reading.words
    matching = np.array([own_label(label) == deprel for label in words.deprel.tolist()], bool)
    dependent = np.flatnonzero(matching & (words.head >= 0))
    head = words.head[dependent]
    table = np.zeros((len(words),) * 2, bool)
    table[(head, dependent) if from_head else (dependent, head)] = True
    return np.asarray(table & reading.seen)


def referring(reading: WindowFeatures, rule: _Rule) -> Table:
    """The words of the nearest mention of the query's entity that may be meant.

    A mention is asked at the last word of its name, and all words of a name are looked at.
    """
    words, mentions = reading.words, reading.window.mentions
    table = np.zeros((len(words),) * 2, bool)
    same = mentions.entity[:, None] == mentions.entity[None, :]
    seen = reading.window.attention_kind.sees_apart(
        (mentions.first[:, None], mentions.last[:, None]), (mentions.first, mentions.last)
    )
    antecedents = same & rule(mentions) & seen
    nearest = _nearest_keys(antecedents)
    for row, key in zip(*np.nonzero(nearest), strict=True):
        inside = (words.first >= mentions.first[key]) & (words.last <= mentions.last[key])
        table[words.last == mentions.last[row]] |= inside
    return np.asarray(table & reading.seen)


def related_words(reading: WindowFeatures, name: str) -> Table:
    """Earlier words that the list of pairs relates to the query, of one part of speech."""
    words, listed = reading.words, shipped_pairs().related[name]
    noun = np.where(words.upos == "PROPN", "NOUN", words.upos)
    known = np.isin(noun, ("NOUN", "VERB", "ADJ"))
    lemmas = words.lemma.tolist()
    table = np.array([[key in listed.get(query, ()) for key in lemmas] for query in lemmas], bool)
    table = table.reshape(len(words), len(words)) & (noun[:, None] == noun[None, :])
    return np.asarray(table & known & reading.seen)


def _anaphor(mentions: MentionTable) -> _Mentions:
    """Pronouns, and mentions that are no pronouns and spelled otherwise."""
    other = mentions.surface[:, None] != mentions.surface[None, :]
    return np.asarray(mentions.personal[:, None] & ~mentions.pronoun[None, :] & other)


def _renamed(mentions: MentionTable) -> _Mentions:
    """Names and nouns without a word in common."""
    noun = ~mentions.pronoun
    return np.asarray(noun[:, None] & noun[None, :] & ~mentions.shared)


def _any(mentions: MentionTable) -> _Mentions:
    return np.ones((len(mentions),) * 2, bool)


_CHAINS = {"pronoun": _anaphor, "nominal": _renamed, "chain": _any}
"""Pairs of mentions of one entity, by relation: may the first look at the second?"""


def _mistakable(reading: WindowFeatures, partner: Table) -> Table:
    """Words of the part of speech of each query's partner."""
    upos = reading.words.upos
    same_class = (upos[:, None] == upos[None, :])[partner.argmax(1)] if len(upos) else partner
    return np.asarray(same_class & partner.any(1, keepdims=True) & reading.seen)


def _nearest_keys(table: Table) -> Table:
    """The nearest key of each row; of two that are as far the earlier."""
    position = np.arange(len(table))
    far = np.where(table, np.abs(position[None, :] - position[:, None]), len(position))
    nearest = far.argmin(1) if len(position) else position
    return np.asarray(table & (position[None, :] == nearest[:, None]))
