"""Syntactic heads: from a word to its dependents, or to the word that governs it.

One relation per Universal Dependencies relation and direction: `obj:dep>head` is the query at
the object with its verb as key, `obj:head>dep` the query at the verb with its object as key.
A causal model can show a direction only if the key comes first; an encoder shows both (Clark et al.
2019, 4.2). The matched control is another query at the same distance, with a key of the same class.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import DEPRELS
from headscope.corpus.window import Window
from headscope.relations.baselines import MENTION_BASELINES
from headscope.relations.controls import DRAWS, word_spans, words_of_its_class
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs
from headscope.relations.relation import Baseline, Label, Relation, above_baseline


def same_distance_same_class(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Word pairs that no dependency links, at the target's distance and with a key of its class.

    If the window has no such pair of that class, any unlinked pair at that distance is used.
    Without any pair the query has no control and is excluded, as are an encoder's later targets.
    """
    words = window.words
    targets = targets.where(targets.key < targets.owner)
    # every relation of a window draws from the same unlinked word pairs
    unlinked = window.once(_Unlinked)
    key_word = np.searchsorted(words.first, targets.key, side="right") - 1
    # one draw per target word, not one per sub-token
    last = targets.key == words.last[key_word]
    owner, key_word = targets.owner[last], key_word[last]
    query, key, owner = unlinked.draw(
        words.last[np.searchsorted(words.last, owner)] - words.last[key_word],
        unlinked.classes[key_word],
        owner,
        rng,
    )
    return span_pairs(words.last[query], words.first[key], words.last[key], owner)


class _Unlinked:
    """All word pairs (later word, earlier word) of a window without a dependency between them."""

    def __init__(self, window: Window) -> None:
        words = window.words
        n = len(words)
        _, self.classes = np.unique(words.upos, return_inverse=True)
        self.class_count = int(self.classes.max(initial=0)) + 1
        governed = np.flatnonzero(words.head >= 0)
        ends = np.stack([governed, words.head[governed]])
        key, query = ends.min(0), ends.max(0)
        # no target lies farther apart than a link, and a long text has too many such pairs
        longest = int((words.last[query] - words.last[key]).max(initial=0))
        reach = np.arange(n) - np.searchsorted(words.last, words.last - longest)
        back = int(reach.max(initial=0))
        free = np.ones((n, back), bool)
        free[query, back - (query - key)] = False
        query, key = np.nonzero(free)
        key += query - back
        query, key = query[key >= 0], key[key >= 0]
        distance = words.last[query] - words.last[key]
        apart = (words.last[key] < words.first[query]) & (distance <= longest)
        query, key, distance = query[apart], key[apart], distance[apart]
        code = distance * self.class_count + self.classes[key]
        order = np.argsort(code, kind="stable")
        self.query, self.key, self.code = query[order], key[order], code[order]

    def draw(
        self,
        distance: Int[ndarray, " target"],
        word_class: Int[ndarray, " target"],
        owner: Int[ndarray, " target"],
        rng: np.random.Generator,
    ) -> tuple[ndarray, ndarray, ndarray]:
        """Rows of query words and key words for each target, with the target's owner."""
        code = distance * self.class_count
        low = np.searchsorted(self.code, code + word_class, side="left")
        high = np.searchsorted(self.code, code + word_class, side="right")
        any_low = np.searchsorted(self.code, code, side="left")
        any_high = np.searchsorted(self.code, code + self.class_count, side="left")
        low, high = np.where(high > low, low, any_low), np.where(high > low, high, any_high)
        is_drawn = np.repeat(high > low, DRAWS)
        low, high, owner = (np.repeat(x, DRAWS)[is_drawn] for x in (low, high, owner))
        row = low + (rng.random(len(low)) * (high - low)).astype(np.int64)
        return self.query[row], self.key[row], owner


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
    apart = window.attention_kind.sees_apart((last, last), (words.first[key], words.last[key]))
    return distinct(word_spans(window, query[apart], key[apart]))


def label_of(deprel: str, direction: str) -> Label:
    """The place of a relation in the tree of labels.

    >>> label_of("cop", "dep>head").general
    ('phrase-head:dep>head', 'auxiliary:dep>head')
    """
    path = next(path for path, members in LABEL_TREE.items() if deprel in members.split())
    return Label(deprel, tuple(f"{name}:{direction}" for name in path.split("/")))


_MEANING = {"head>dep": "the word's {} dependent", "dep>head": "the word that it is the {} of"}

TYPE = HeadType(
    name="syntactic",
    letter="S",
    colour="#009e73",
    relations=tuple(
        Relation(
            "syntactic",
            f"{deprel}:{direction}",
            partial(words_linked_by, deprel=deprel, query_is_head=direction == "head>dep"),
            words_of_its_class,
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one word, besides the best baseline plus "
                "10 points (as Voita et al. 2019, 5.2, require over the best offset), at the "
                "queries where that baseline is wrong; GPT-2's heads keep 57 % on the first token "
                "(Vig & Belinkov 2019)",
                meaning.format(deprel),
                beats_surrogate=True,
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
    matched_control_keys="keys of the same word class and distance at other queries",
    behaviour="agreement",
)
