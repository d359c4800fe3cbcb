"""Alignment: from a word of the target to the words of the source that it translates.

Asked of heads across, from a decoder to its encoder, on pairs of sentences whose words are aligned.
A decoder that has read a word may look at what it translated (Kobayashi et al. 2020 call this
alignment with input), or at what it translates next (with output); both are asked.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from headscope.attention_kind import CROSS
from headscope.corpus.window import Window
from headscope.relations.cross_attention_heuristics import ACROSS, across_picks
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs, without
from headscope.relations.relation import Baseline, Relation, TagThresholds, draws_nothing
from headscope.relations.types import HeadType

FLOOR = 0.3
SOURCE = (
    "ours: nearly a third of a head's attention on the words that translate its own, beside the "
    "best simple rule plus 10 points at the queries where that rule is wrong"
)
BEAT_RULE_BY = 0.10
DIAGONAL_FLOOR = 0.4
DIAGONAL_SOURCE = (
    "as of positional heads; asked where the word at that place is no translation of the query's"
)


def translations(window: Window, *, ahead: bool) -> Pairs:
    """The query at a target word's last token, or before its first, with its source words.

    Args:
        window: a target behind its source.
        ahead: whether the query is where the word is predicted, before it is read.
    """
    if not len(window.links):
        return no_pairs()
    words, (target_word, other) = window.words, window.links.T
    query = words.first[other] - 1 if ahead else words.last[other]
    return distinct(span_pairs(query, words.first[target_word], words.last[target_word]))


@draws_nothing
def other_source_words(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the other words of the source."""
    words, queries = window.words, targets.queries
    source_words = np.flatnonzero(words.first < window.source)
    query, row = (axis.ravel() for axis in np.meshgrid(queries, source_words, indexing="ij"))
    return without(span_pairs(query, words.first[row], words.last[row]), targets)


def on_the_diagonal(window: Window) -> Pairs:
    """The query at a target word's last token with the source word at its place.

    Scaled to the source's length. Only where that word is another than those that it translates.
    """
    if not len(window.links):
        return no_pairs()
    words = window.words
    query = np.unique(words.last[window.links[:, 1]])
    key = across_picks(window)[ACROSS.index("diagonal"), query]
    there = key >= 0
    row = np.searchsorted(words.last, key[there])
    diagonal = span_pairs(query[there], words.first[row], words.last[row])
    right = translations(window, ahead=False)
    size = len(window)
    is_target = np.isin(diagonal.query * size + diagonal.key, right.query * size + right.key)
    return diagonal.where(~is_target)


RELATIONS = tuple(
    Relation(
        "alignment",
        name,
        partial(translations, ahead=ahead),
        other_source_words,
        TagThresholds(FLOOR, SOURCE, meaning, beat_baseline_by=BEAT_RULE_BY),
        baseline=Baseline(),
    )
    for name, ahead, meaning in (
        ("this-word", False, "the source words that the word just read translates"),
        ("next-word", True, "the source words that the coming word translates"),
    )
)

TYPE = HeadType(
    name="alignment",
    letter="A",
    colour="#7a4a12",
    marker="h",
    relations=(),
    relations_by_kind={CROSS: RELATIONS},
    looks_at="the source words that a word of the target translates (models with an encoder and a "
    "decoder, on aligned text)",
    rivals="same query, other words of the source; where the diagonal or another simple rule is "
    "wrong, what that rule picks",
    behaviour="text",
)
DIAGONAL = Relation(
    "positional",
    "diagonal",
    on_the_diagonal,
    other_source_words,
    TagThresholds(DIAGONAL_FLOOR, DIAGONAL_SOURCE, "the source word at the same share of the way"),
)
"""A positional relation across."""
