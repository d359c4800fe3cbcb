"""Facts of three people, and what one of them has asked for in other words: small needles."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.prompts import facts
from headscope.corpus.document import Document
from headscope.stimuli.question_texts import QuestionText, question_document, question_windows
from headscope.stimuli.stimulus import Rounds, Stimulus, build_by_size

KIND, PROPERTY, HALF_RIGHT = "value", "property", "half-right"
"""Kinds of arrows from a question to its answer: among all values of the text, among those of the
property that is asked for, and among those of the person or of the property that is asked for."""
IN_DOCUMENT = 4
"""Texts of one document: so many that the documents that are read before the text hold more than
the 50 queries that a tag asks for."""


def fact_documents(document: int, *, seed: int) -> Iterator[Document]:
    """Texts of one document, each a text by itself.

    >>> first = next(fact_documents(0, seed=0))
    >>> first.text[-44:]
    ' The city where George has a home is Madrid.'
    >>> first.text[first.arrows[0].right[0] :][:6]
    'Madrid'
    """
    rng = np.random.default_rng([seed, document])
    for number in range(document * IN_DOCUMENT, (document + 1) * IN_DOCUMENT):
        one = facts(rng, number)
        half_right = (one.of_person, *one.of_property)
        values = {one.right, *half_right, *one.of_neither}
        yield question_document(
            f"facts_{number:03d}",
            QuestionText(
                one.text,
                one.right,
                {KIND: values, PROPERTY: one.of_property, HALF_RIGHT: half_right},
            ),
            upos=partial(_upos, values=values),
            stimulus=FACTS.name,
        )


def _upos(form: str, start: int, values: set[str]) -> str:
    """Values are the only nouns, so that the first or the second noun is the first or second."""
    if form in values:
        return "NOUN"
    return "PROPN" if form in _NAMES else "X" if form.isalpha() else "PUNCT"


_NAMES = frozenset({*lexicon.WOMEN, *lexicon.MEN})


fact_windows = partial(question_windows, fact_documents)
"""Windows of facts of several people and a question about one; a document is one block."""

FACTS = Stimulus(
    name="facts",
    title="facts and questions",
    build=partial(build_by_size, fact_windows),
    rounds=Rounds.DOCUMENTS,
    before_text=13,
    contested="natural",
    for_relations=True,
    study_documents=16,
    example_windows=8,
    ablation_near=True,
    picture="facts and a question: the first {half} tokens, then the last {half}",
)
