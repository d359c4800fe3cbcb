"""Retrieval heads attend from a question to the answer in the text.

The metric of Wu et al. 2024 (arXiv 2404.15574) counts induction heads as retrieval heads. The
question here is therefore a paraphrase of the text, so that attention to the same word, or to the
token after it, does not find the answer. Each question is about one property of one of three
people: a head that finds the person alone is right at half of them, the property alone at a third.
All values of a text are of one kind and follow the same preposition, so that neither the word
before a value nor its capital letter tells it from the others.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from headscope.corpus.window import Window
from headscope.relations.annotated_links import (
    as_one_word,
    every_candidate,
    nearest_candidate,
    of_kind,
    pointed_to,
)
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, no_pairs, pairs
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
from headscope.stimuli.facts import FACTS, HALF_RIGHT, KIND, PROPERTY
from headscope.stimuli.haystack import HAYSTACK, NEEDLE, NULL, WORDS


@draws_nothing
def half_right(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the person's other value and the others' values of the property, together."""
    return as_one_word(every_candidate(window, targets, rng, kind=HALF_RIGHT), len(window))


@draws_nothing
def beside_the_answer(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same keys from the question about nothing, plus the mean of the needle's other words.

    A head that attends to odd words whatever is asked, or to a needle as a whole, scores the same.
    """
    null = of_kind(window, NULL).query[:1]
    if not len(null):
        return no_pairs()
    # each kind counts half of the target's words, so that the two masses are added up
    unasked = pairs(np.full(len(targets), null[0]), targets.key, targets.owner)
    unasked = replace(unasked, share=targets.share / 2)
    words = every_candidate(window, targets, rng, kind=WORDS)
    asked_words = np.bincount(targets.owner, targets.share, len(window))
    other_words = np.bincount(words.owner, words.share, len(window))
    weight = (asked_words / np.maximum(other_words, 1))[words.owner]
    words = replace(words, weight=weight, share=words.share / 2)
    columns = (
        np.concatenate(both) for both in zip(_columns(unasked), _columns(words), strict=True)
    )
    return Pairs(*columns)


def _columns(cells: Pairs) -> tuple[np.ndarray, ...]:
    return cells.query, cells.key, cells.owner, cells.weight, cells.share


IN_HAYSTACK = Relation(
    "retrieval",
    "haystack",
    partial(pointed_to, kind=NEEDLE),
    partial(every_candidate, kind=NEEDLE),
    above_baseline(
        0.1,
        "ours: as for `value`; QRHead (Zhang et al. 2025) subtracts the same window without the "
        "question",
        "the answer to a question about a fact far back",
    ),
    stimuli=(HAYSTACK.name,),
    baseline=Baseline(partial(nearest_candidate, kind=NEEDLE), by_class=False),
    matched_control=beside_the_answer,
)
"""The relation of haystacks; controls are the other answers of the same form."""

TYPE = HeadType(
    name="retrieval",
    letter="N",
    order=100,
    colour="#ddcc77",
    relations=(
        Relation(
            "retrieval",
            "value",
            partial(pointed_to, kind=KIND),
            partial(every_candidate, kind=KIND),
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, as for syntactic heads; "
                "Wu et al. 2024 call a head that copies from the needle a tenth of the time a "
                "retrieval head",
                "what the text says of the one that is asked for, in other words",
                beats_surrogate=True,
            ),
            stimuli=(FACTS.name,),
            baseline=Baseline(partial(nearest_candidate, kind=PROPERTY), by_class=False),
            matched_control=half_right,
        ),
    ),
    haystack_relations=(IN_HAYSTACK,),
    stimuli=(FACTS, HAYSTACK),
    looks_at="the answer to a question about one of three people, asked in other words",
    control_keys="all other facts; other values of the same person or the same property; the "
    "nearest value of the property",
    matched_control_keys="what is said of that person or of that property alone",
    on_request=True,
    behaviour=FACTS.name,
)
