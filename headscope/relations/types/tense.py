"""Tense heads attend from a verb to the nearest earlier verb of the same tense and form.

"They walked home. It is raining. They talked": from "talked" to "walked". Tense and form are the
features `Tense=` and `VerbForm=` of CoNLL-U. Text without them has no pairs. Two verbs of which one
governs the other, or a third word both, make no pair: coordinated verbs have one tense ("walked and
talked"), and a syntactic head finds them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window, WordTable
from headscope.relations.controls import word_cells, word_pairs
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, without
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
from headscope.relations.word_rows import nearest_equal, of_class


def same_tense(window: Window) -> Pairs:
    """Each verb with the nearest earlier verb of its tense and form, unless syntax links them."""
    words = window.words
    earlier = nearest_equal(words.tense)
    query = np.flatnonzero((words.tense != "") & (earlier >= 0))
    key = earlier[query]
    apart = ~_are_linked(words, query, key)
    return word_cells(window, query[apart], key[apart])


def _are_linked(
    words: WordTable, first: Int[ndarray, " pair"], second: Int[ndarray, " pair"]
) -> Bool[ndarray, " pair"]:
    """True for pairs of words of which one governs the other, or a third word both."""
    first_head, second_head = words.head[first], words.head[second]
    is_governor = (first_head == second) | (second_head == first)
    have_one_head = (first_head == second_head) & (first_head >= 0)
    linked: ndarray = is_governor | have_one_head
    return linked


@draws_nothing
def other_verbs(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, verbs of another tense or form: the next nearer and the next farther.

    A head that attends to every verb has no lift.
    """
    query_rows: list[int] = []
    key_rows: list[int] = []
    query_word, key_word = word_pairs(window.words, targets)
    for query, target in zip(query_word.tolist(), key_word.tolist(), strict=True):
        others = _earlier_verbs_of_another_form(window, query)
        nearer = others[others > target]
        farther = others[others < target]
        neighbours = [*nearer[:1], *farther[-1:]]
        key_rows += neighbours
        query_rows += [query] * len(neighbours)
    controls = word_cells(window, np.array(query_rows, np.int64), np.array(key_rows, np.int64))
    return without(controls, targets)  # two words can share a token


def _earlier_verbs_of_another_form(window: Window, query: int) -> Int[ndarray, " verb"]:
    """Rows of the verbs before a verb that differ from it in tense or form, in order."""
    words = window.words
    is_other = of_class(window, "VERB") & (words.tense != words.tense[query])
    return np.flatnonzero(is_other[:query])


TYPE = HeadType(
    name="tense",
    letter="V",
    order=160,
    colour="#661100",
    relations=(
        Relation(
            "tense",
            "same-tense",
            same_tense,
            other_verbs,
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, as for syntactic heads",
                "the nearest earlier verb of the same tense and form, unless syntax links the two",
                beats_surrogate=True,
            ),
            baseline=Baseline(),
        ),
    ),
    looks_at="from a verb: the nearest earlier verb of the same tense and form",
    control_keys="verbs of another tense or form, nearer and farther; the baseline's word at hard "
    "queries",
    on_request=True,
)
