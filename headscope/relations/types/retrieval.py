"""Retrieval heads attend from a question to the answer in the text.

The metric of Wu et al. 2024 (arXiv 2404.15574) counts induction heads as retrieval heads. The
question here is therefore a paraphrase of the text, so that attention to the same word, or to the
token after it, does not find the answer. Each question is about one property of one of three
people: a head that finds the person alone is right at half of them, the property alone at a third.
All values of a text are of one kind and follow the same preposition, so that neither the word
before a value nor its capital letter tells it from the others.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from headscope.corpus.window import Window
from headscope.relations.annotated_links import (
    as_one_word,
    every_candidate,
    nearest_candidate,
    pointed_to,
)
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing
from headscope.stimuli.facts import FACTS, HALF_RIGHT, KIND, PROPERTY


@draws_nothing
def half_right(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the person's other value and the others' values of the property, together."""
    return as_one_word(every_candidate(window, targets, rng, kind=HALF_RIGHT), len(window))


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
    stimuli=(FACTS,),
    looks_at="the answer to a question about one of three people, asked in other words",
    control_keys="all other facts; other values of the same person or the same property; the "
    "nearest value of the property",
    matched_control_keys="what is said of that person or of that property alone",
    on_request=True,
    behaviour=FACTS.name,
)
