"""Retrieval heads look from where something is asked for to where the text says it.

Wu et al. 2024 (arXiv 2404.15574) count what a head copies out of a needle that is hidden in a long
text. By that count induction heads are retrieval heads: of Llama-2-7b the four that come first are
the same by both. So the question here is in other words than the text: it ends in a word that
stands nowhere before, so that a head that looks at what followed, or at the same word, has nothing
to look at. Three people have something each, and each of the three is asked for equally often.
"""

from __future__ import annotations

from functools import partial

from headscope.relations.annotated_links import every_candidate, nearest_candidate, pointed_to
from headscope.relations.relation import Baseline, Relation, TagThresholds
from headscope.relations.types import HeadType
from headscope.stimuli.facts import FACTS, KIND

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on one earlier word, as syntactic heads are asked for; Wu "
    "et al. 2024 call a head that copies from the needle a tenth of the time a retrieval head"
)
BEAT_RULE_BY = 0.10

RELATIONS = (
    Relation(
        "retrieval",
        "value",
        partial(pointed_to, kind=KIND),
        partial(every_candidate, kind=KIND),
        TagThresholds(
            FLOOR,
            SOURCE,
            "what the text says of the one that is asked for, in other words",
            beat_baseline_by=BEAT_RULE_BY,
            beats_shadow=True,
        ),
        stimuli=(FACTS.name,),
        baseline=Baseline(partial(nearest_candidate, kind=KIND), by_class=False),
    ),
)

TYPE = HeadType(
    name="retrieval",
    letter="N",
    colour="#ddcc77",
    marker=">",
    relations=RELATIONS,
    looks_at="from a question to what the text says of the one asked for, where the same words do "
    "not lead there",
    rivals="same query, what the text says of others, nearer and farther; the nearest of all",
    behaviour=FACTS.name,
)
