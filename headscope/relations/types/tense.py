"""Tense heads attend from a verb to the nearest earlier verb of the same tense and form.

"They walked home. It is raining. They talked": from "talked" to "walked". Tense and form are the
features `Tense=` and `VerbForm=` of CoNLL-U. Text without them has no pairs. Two verbs of which one
governs the other, or a third word both, make no pair: coordinated verbs have one tense ("walked and
talked"), and a syntactic head finds them.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.controls import nearest_others, word_cells
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
from headscope.relations.word_rows import nearest_equal, of_class


def same_tense(window: Window) -> Pairs:
    """Each verb with the nearest earlier verb of its tense and form, unless syntax links them."""
    words = window.words
    earlier = nearest_equal(words.tense.tolist())
    query = np.flatnonzero((words.tense != "") & (earlier >= 0))
    key = earlier[query]
    # one of the two governs the other, or a third word both
    query_head, key_head = words.head[query], words.head[key]
    is_governor = (query_head == key) | (key_head == query)
    have_one_head = (query_head == key_head) & (query_head >= 0)
    apart = ~(is_governor | have_one_head)
    return word_cells(window, query[apart], key[apart])


@draws_nothing
def other_verbs(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, verbs of another tense or form: the next nearer and the next farther.

    A head that attends to every verb has no lift.
    """
    tense = window.words.tense
    is_verb = of_class(window, "VERB")

    def earlier_verbs_of_another_form(query: int, target: int) -> Int[ndarray, " verb"]:
        is_other = is_verb & (tense != tense[query])
        return np.flatnonzero(is_other[:query])

    return nearest_others(window, targets, earlier_verbs_of_another_form)


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
