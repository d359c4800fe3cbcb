"""Syntactic heads: from a word to its dependents, or to the word that governs it.

One relation per Universal Dependencies relation and direction: `obj:dep>head` is the query at
the object with its verb as key, `obj:head>dep` the query at the verb with its object as key.
A causal model shows a direction only where the key comes first; an encoder shows both, wherever the
key stands (Clark et al. 2019, 4.2, score both directions of each relation).
"""

from __future__ import annotations

from functools import partial

from headscope.corpus.deprels import DEPRELS
from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs
from headscope.relations.relation import Baseline, Label, Relation, TagThresholds
from headscope.relations.rivals import words_of_its_class
from headscope.relations.syntactic_control import same_distance_same_class
from headscope.relations.types import HeadType

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on one word, beside the best simple rule plus 10 points "
    "(as Voita et al. 2019, 5.2, ask of the best offset), at the queries where that rule is wrong; "
    "GPT-2's heads keep 57 % on the first token (Vig & Belinkov 2019)"
)
BEAT_RULE_BY = 0.10
LABEL_TREE = {
    "phrase-head": (
        "function words, and words before the head of their phrase",
        "advmod amod case cc compound det discourse mark nmod:poss nummod",
    ),
    "phrase-head/auxiliary": ("auxiliaries and copulas", "aux aux:pass cop"),
    "argument": (
        "what a predicate takes",
        "ccomp dislocated expl iobj obj obl vocative xcomp",
    ),
    "argument/subject": ("subjects", "csubj nsubj nsubj:pass"),
    "modifier": (
        "phrases and clauses attached to another, conjuncts among them",
        "acl acl:relcl advcl appos conj list nmod orphan parataxis",
    ),
    "multiword": ("parts of one expression", "compound:prt fixed flat"),
}
"""General labels by their path, each with its meaning and the labels under it. Function words and
modifier words, core and non-core dependents are the columns of UD's table of relations."""


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
    query, key = query[apart], key[apart]
    if not len(query):
        return no_pairs()
    places = words.last[query], words.first[key], words.last[key]
    return distinct(span_pairs(*places, attention_kind=window.attention_kind))


def label_of(deprel: str, direction: str) -> Label:
    """The place of a relation in the tree of labels.

    >>> label_of("cop", "dep>head").general
    ('phrase-head:dep>head', 'auxiliary:dep>head')
    """
    path = next(path for path, (_, members) in LABEL_TREE.items() if deprel in members.split())
    return Label(deprel, tuple(f"{name}:{direction}" for name in path.split("/")))


_MEANING = {"head>dep": "the word's {} dependent", "dep>head": "the word that it is the {} of"}

RELATIONS = [
    Relation(
        "syntactic",
        f"{deprel}:{direction}",
        partial(words_linked_by, deprel=deprel, query_is_head=direction == "head>dep"),
        words_of_its_class,
        TagThresholds(
            FLOOR, SOURCE, meaning.format(deprel), beat_baseline_by=BEAT_RULE_BY, beats_shadow=True
        ),
        baseline=Baseline(),
        matched=same_distance_same_class,
        label=label_of(deprel, direction),
    )
    for deprel in DEPRELS
    for direction, meaning in _MEANING.items()
]

TYPE = HeadType(
    name="syntactic",
    letter="S",
    colour="#009e73",
    marker="^",
    relations=tuple(RELATIONS),
    looks_at="the word that governs a word, or a dependent of it; one relation for each UD "
    "relation and direction",
    rivals="same query, other words of the target's class nearer and farther; at contested "
    "queries, where the nearest word of a class or a fixed distance is wrong, what that rule picks",
    behaviour="agreement",
)
