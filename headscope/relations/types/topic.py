"""Topic heads attend from content words to the most characteristic word of the document."""

from __future__ import annotations

from functools import partial

from headscope.relations.annotated_links import nearest_candidate, other_candidates, pointed_to
from headscope.relations.head_type import HeadType
from headscope.relations.relation import Baseline, Relation, above_baseline
from headscope.stimuli.topics import FREQUENT, TOPIC, TOPICS

TYPE = HeadType(
    name="topic",
    letter="T",
    order=150,
    colour="#117733",
    relations=(
        Relation(
            "topic",
            "topic-word",
            partial(pointed_to, kind=TOPIC),
            partial(other_candidates, kind=TOPIC),
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one word, as for syntactic heads",
                "the most characteristic word of the document",
                beats_surrogate=True,
            ),
            stimuli=(TOPICS.name,),
            baseline=Baseline(partial(nearest_candidate, kind=FREQUENT)),
        ),
    ),
    stimuli=(TOPICS,),
    looks_at="the noun or name that is most characteristic of the document (tf–idf)",
    control_keys="nouns of similar frequency in the document, nearer and farther; the noun that is "
    "most frequent so far",
    on_request=True,
    behaviour=TOPICS.name,
)
