"""Syntactic heads: from a word to its dependents, or to the word that governs it.

One relation per Universal Dependencies relation and direction: `obj:dep>head` is the query at
the object with its verb as key, `obj:head>dep` the query at the verb with its object as key.
A causal model can show a direction only if the key comes first; an encoder shows both (Clark et al.
2019, 4.2). The matched control is another query at the same distance, with a key of the same class.
"""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import DEPRELS
from headscope.corpus.window import Window, WordTable
from headscope.relations.baselines import MENTION_BASELINES
from headscope.relations.controls import DRAWS, word_pairs, word_spans, words_of_its_class
from headscope.relations.dependents import DEPENDENTS, governor_of
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs
from headscope.relations.relation import Baseline, Label, Relation, above_surrogate


def same_distance_same_class(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Word pairs that no dependency links, at the target's distance and with a key of its class.

    If the window has no such pair of that class, any unlinked pair at that distance is used.
    Without any pair the query has no control and is excluded, as are an encoder's later targets.
    """
    words = window.words
    targets = targets.where(targets.key < targets.owner)
    # every relation of a window draws from the same unlinked word pairs
    unlinked = window.once(_Unlinked)
    # one draw per target word, not one per sub-token
    query_word, key_word = word_pairs(words, targets)
    owner = words.last[query_word]
    distance = owner - words.last[key_word]
    cells = unlinked.draw(distance, unlinked.classes[key_word], owner, rng)
    key = cells.key
    return span_pairs(words.last[cells.query], words.first[key], words.last[key], cells.owner)


class _DrawnWords(NamedTuple):
    """Drawn pairs of words by their rows, each with the query that it is a control of."""

    query: Int[ndarray, " pair"]
    key: Int[ndarray, " pair"]
    owner: Int[ndarray, " pair"]


class _Unlinked:
    """All word pairs (later word, earlier word) of a window without a dependency between them."""

    def __init__(self, window: Window) -> None:
        words = window.words
        _, self.classes = np.unique(words.upos, return_inverse=True)
        self.class_count = int(self.classes.max(initial=0)) + 1
        query, key = _unlinked_rows(words)
        distance = words.last[query] - words.last[key]
        code = distance * self.class_count + self.classes[key]
        order = np.argsort(code, kind="stable")
        self.query = query[order]
        self.key = key[order]
        self.code = code[order]

    def draw(
        self,
        distance: Int[ndarray, " target"],
        word_class: Int[ndarray, " target"],
        owner: Int[ndarray, " target"],
        rng: np.random.Generator,
    ) -> _DrawnWords:
        """Pairs of words for each target, with the target's owner."""
        # pairs are sorted by distance, then by class: those of one code follow each other
        any_class = distance * self.class_count
        code = any_class + word_class
        low, high = self._rows(code, code + 1)
        any_low, any_high = self._rows(any_class, any_class + self.class_count)
        # where no pair of the class is as far apart, one of any class is drawn
        is_known = high > low
        low = np.where(is_known, low, any_low)
        high = np.where(is_known, high, any_high)
        is_drawn = np.repeat(high > low, DRAWS)
        low = np.repeat(low, DRAWS)[is_drawn]
        high = np.repeat(high, DRAWS)[is_drawn]
        step = rng.random(len(low)) * (high - low)
        row = low + step.astype(np.int64)
        return _DrawnWords(
            query=self.query[row],
            key=self.key[row],
            owner=np.repeat(owner, DRAWS)[is_drawn],
        )

    def _rows(
        self, code: Int[ndarray, " target"], end: Int[ndarray, " target"]
    ) -> tuple[Int[ndarray, " target"], Int[ndarray, " target"]]:
        """Places at which pairs with a code from `code` on begin, and those from `end` on."""
        return np.searchsorted(self.code, code), np.searchsorted(self.code, end)


def _unlinked_rows(words: WordTable) -> tuple[Int[ndarray, " pair"], Int[ndarray, " pair"]]:
    """Rows of the later and of the earlier word of each pair that no dependency links."""
    governed = np.flatnonzero(words.head >= 0)
    ends = np.stack([governed, words.head[governed]])
    linked_key = ends.min(0)
    linked_query = ends.max(0)
    # no target lies farther apart than a link, and a long text has too many such pairs
    distances = words.last[linked_query] - words.last[linked_key]
    longest = int(distances.max(initial=0))
    nearest_row = np.searchsorted(words.last, words.last - longest)
    reach = np.arange(len(words)) - nearest_row
    back = int(reach.max(initial=0))
    # row r, column c: the word r with the word r − back + c
    is_free = np.ones((len(words), back), bool)
    linked_column = back - (linked_query - linked_key)
    is_free[linked_query, linked_column] = False
    query, column = np.nonzero(is_free)
    key = query - back + column
    is_word = key >= 0
    distance = words.last[query] - words.last[key]
    ends_before = words.last[key] < words.first[query]
    is_apart = is_word & ends_before & (distance <= longest)
    return query[is_apart], key[is_apart]


LABEL_TREE = {
    "phrase-head": "advmod amod case cc compound det discourse mark nmod:poss nummod",
    "phrase-head/auxiliary": "aux aux:pass cop",
    "argument": "ccomp dislocated expl iobj obj obl vocative xcomp",
    "argument/subject": "csubj nsubj nsubj:pass",
    "modifier": "acl acl:relcl advcl appos conj list nmod orphan parataxis",
    "multiword": "compound:prt fixed flat",
}
"""General labels by their path, each with the labels under it. Function words and modifier words,
core and non-core dependents are the columns of UD's table of relations."""


INSIDE_MENTIONS = ("appos", "compound", "flat", "nmod:poss")
"""Labels inside mentions or between mentions of the same entity. Only their baselines include the
nearest mention: mentions are annotated at the heads of noun phrases, which other labels name."""


def words_linked_by(window: Window, deprel: str, query_is_head: bool) -> Pairs:
    """The query at a word's last sub-token with all sub-tokens of its earlier dependent or head.

    In an encoder of its later ones too.
    """
    words = window.words
    dependent = words.dependents.get(deprel)
    if dependent is None:
        return no_pairs()
    head = words.head[dependent]
    query, key = (head, dependent) if query_is_head else (dependent, head)
    # the whole key word must have been read before the query word begins to be complete
    last = words.last[query]
    key_span = words.first[key], words.last[key]
    is_apart = window.attention_kind.sees_apart((last, last), key_span)
    return distinct(word_spans(window, query[is_apart], key[is_apart]))


def label_of(deprel: str, direction: str) -> Label:
    """The place of a relation in the tree of labels.

    >>> label_of("cop", "dep>head").general
    ('phrase-head:dep>head', 'auxiliary:dep>head')
    """
    (path,) = (path for path, members in LABEL_TREE.items() if deprel in members.split())
    general = [f"{name}:{direction}" for name in path.split("/")]
    return Label(deprel, tuple(general))


_MEANING = {
    "head>dep": "the {governor}'s {dependent}",
    "dep>head": "the {dependent}'s {governor}",
}

TYPE = HeadType(
    name="syntactic",
    letter="S",
    order=60,
    colour="#009e73",
    relations=tuple(
        Relation(
            "syntactic",
            f"{deprel}:{direction}",
            partial(words_linked_by, deprel=deprel, query_is_head=direction == "head>dep"),
            words_of_its_class,
            above_surrogate(
                0.1,
                "ours: a tenth of a head's attention on one word, besides the best baseline plus "
                "10 points (as Voita et al. 2019, 5.2, require over the best offset), at the "
                "queries where that baseline is wrong; GPT-2's heads keep 57 % on the first token "
                "(Vig & Belinkov 2019)",
                meaning.format(governor=governor_of(deprel), dependent=DEPENDENTS[deprel]),
            ),
            baseline=Baseline(
                without=frozenset() if deprel in INSIDE_MENTIONS else frozenset(MENTION_BASELINES)
            ),
            matched_control=same_distance_same_class,
            label=label_of(deprel, direction),
        )
        for deprel in DEPRELS
        for direction, meaning in _MEANING.items()
    ),
    looks_at="the word that governs a word, or its dependent; one relation for each UD "
    "relation and direction",
    control_keys="other words of the target's class, nearer and farther, or at the same distance "
    "from other queries; the baseline's word at hard queries",
    matched_control_keys="keys of that class and distance from other words",
    behaviour="agreement",
)
