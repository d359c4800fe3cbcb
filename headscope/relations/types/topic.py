"""Topic heads attend from content words to the most characteristic word of the document."""

from __future__ import annotations

from headscope.relations.annotated_links import linked_relation
from headscope.relations.head_type import HeadType
from headscope.stimuli.topics import FREQUENT, TOPIC, TOPICS

TYPE = HeadType(
    name="topic",
    letter="T",
    order=150,
    colour="#117733",
    relations=(
        linked_relation(
            "topic",
            "topic-word",
            kind=TOPIC,
            baseline_kind=FREQUENT,
            stimulus=TOPICS.name,
            meaning="the most characteristic word of the document",
        ),
    ),
    stimuli=(TOPICS,),
    looks_at="the noun or name that is most characteristic of the document (tf–idf)",
    control_keys="nouns of similar frequency in the document, nearer and farther; the noun that is "
    "most frequent so far",
    on_request=True,
    behaviour=TOPICS.name,
)
