"""Heads that read the annotation: each looks at what one relation asks for, and is noisy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import own_label
from headscope.corpus.window import MentionTable, Window
from headscope.stimuli.word_pairs import RELATIONS as PAIRS
from headscope.stimuli.word_pairs import shipped_pairs
from tests.oracles.baseline_heads import Keys, KnownHead
from tests.oracles.window_features import Rows, Table, WindowFeatures

NOISES = (0.0, 0.1, 0.2, 0.35, 0.5)
"""Shares of an oracle's attention that are noise."""
QUIET = 0.2
"""An oracle with no more noise than this is expected to be found."""
_Mentions = Bool[ndarray, "mention mention"]
_Rule = Callable[[MentionTable], _Mentions]


@dataclass(frozen=True, eq=False, kw_only=True)
class Oracle(KnownHead):
    """A head that knows the partners of a word and looks at the nearest that it sees.

    What is noise goes half to all keys alike and half to a wrong word: the nearest one of the
    partner's part of speech that is no partner.
    """

    partners: Keys

    def parts(self, reading: WindowFeatures) -> tuple[Rows, Rows, Rows]:
        """Attention on the partner, on a wrong word, and on all keys alike."""
        partners = self.partners(reading)
        right = _nearest_keys(partners)
        wrong = _nearest_keys(_mistakable(reading, right) & ~partners)
        return reading.rows(right), reading.rows(wrong), reading.even


def noisy(parts: tuple[Rows, Rows, Rows], noise: float) -> Rows:
    """A pattern with this share of noise."""
    right, wrong, all_keys = parts
    return np.asarray((1 - noise) * right + noise / 2 * (wrong + all_keys), np.float32)


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
