"""Facts of three people, and what one of them has asked for in other words: small needles."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import arrow
from headscope.corpus.window import Window
from headscope.stimuli.stimulus import Stimulus, StimulusConfig, cut_document
from headscope.stimuli.word_lists import (
    MEN,
    PROPERTIES,
    TWO_PROPERTIES,
    WOMEN,
)

KIND, PROPERTY, HALF_RIGHT = "value", "property", "half-right"
"""Kinds of arrows from a question to its answer: among all values of the text, among those of the
property that is asked for, and among those of the person or of the property that is asked for."""
ENTITIES = 3
IN_DOCUMENT = 4
"""Texts of one document: those read before the text hold more than 50 queries."""
_WORD = re.compile(r"\w+|[^\w\s]")
_NAMES = frozenset({*WOMEN, *MEN})


class Facts(NamedTuple):
    """Two properties of each of three people, and a question for one of them."""

    text: str
    """The text up to where the answer is due."""
    right: str
    of_person: str
    """Other value of the person that is asked for."""
    of_property: tuple[str, ...]
    """Values of the others for the property that is asked for."""
    of_neither: tuple[str, ...]


def facts(rng: np.random.Generator, number: int) -> Facts:
    """Two properties of three people in sentences of several forms, and a question for one.

    Each property, each person and each place of the value in what is said of a person, the first
    or the second, is asked for as often as the others: who knows the person alone is right half of
    the time, who knows the property alone a third.

    >>> one = facts(np.random.default_rng(0), 1)
    >>> one.text[:75]
    'George teaches physics, and at times lives in Boston. Hugo, who lives in Du'
    >>> one.text[-37:], one.right, one.of_person
    ('The subject that George knows best is', 'physics', 'Boston')
    """
    count = len(PROPERTIES)
    prop, entity, rank = (
        number % count,
        number // count % ENTITIES,
        number // (count * ENTITIES) % 2,
    )
    other = (prop + int(rng.integers(1, count))) % count
    names = rng.permutation([*WOMEN, *MEN])[:ENTITIES].tolist()
    values, others = (rng.permutation(PROPERTIES[i].values).tolist() for i in (prop, other))
    ranks = [rank if i == entity else int(rng.integers(2)) for i in range(ENTITIES)]
    forms = rng.permutation(len(TWO_PROPERTIES))[:ENTITIES].tolist()
    sentences = []
    for i, name in enumerate(names):
        predicates = [
            PROPERTIES[prop].predicate.format(values[i]),
            PROPERTIES[other].predicate.format(others[i]),
        ]
        first, second = predicates[ranks[i]], predicates[1 - ranks[i]]
        pronoun = "She" if name in WOMEN else "He"
        form = TWO_PROPERTIES[forms[i]]
        sentences.append(form.format(name=name, first=first, second=second, pronoun=pronoun))
    distractors = [i for i in range(ENTITIES) if i != entity]
    question = PROPERTIES[prop].question.format(names[entity])
    return Facts(
        " ".join([*sentences, question]),
        values[entity],
        others[entity],
        tuple(values[i] for i in distractors),
        tuple(others[i] for i in distractors),
    )


def fact_documents(document: int, *, seed: int) -> Iterator[Document]:
    """Texts of one document, each a separate text.

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
        yield _question_document(
            f"facts_{number:03d}",
            one.text,
            one.right,
            {KIND: values, PROPERTY: one.of_property, HALF_RIGHT: half_right},
        )


def _question_document(
    name: str, question: str, answer: str, candidates: Mapping[str, Collection[str]]
) -> Document:
    """A question and its answer, with an arrow of each kind from the question's last word."""
    text, end = f"{question} {answer}.", len(question)
    words, sentence = [], 0
    for match in _WORD.finditer(text):
        form = match.group()
        words.append(Word(form, *match.span(), sentence, form, _upos(form, candidates[KIND])))
        sentence += form == "."
    starts = {word.form: word.start for word in words if word.end < end}
    query = max(word.start for word in words if word.end <= end)
    links = [
        arrow(kind, query, [starts[answer]], [starts[form] for form in forms])
        for kind, forms in candidates.items()
    ]
    arrows = tuple(link for link in links if link is not None)
    source = FACTS.name
    return Document(name, text, tuple(words), source=source, arrows=arrows, stimulus=source)


def _upos(form: str, values: Collection[str]) -> str:
    """Values are the only nouns, so that the first or the second noun is the first or second."""
    if form in values:
        return "NOUN"
    return "PROPN" if form in _NAMES else "X" if form.isalpha() else "PUNCT"


def _build(config: StimulusConfig) -> Iterator[Window]:
    """Windows of facts of several people and a question about one, each a separate text.

    Texts that are longer than a window are left out.
    """
    tokenizer, length = config.tokenizer, config.max_length
    for number in range(config.documents):
        for text in fact_documents(number, seed=config.seed):
            cut = list(cut_document(text, tokenizer, text.stimulus, length, number=number))
            if len(cut) == 1:
                yield from cut


FACTS = Stimulus(
    name="facts",
    title="facts and questions",
    build=_build,
    before_text=13,
    study_documents=16,
    example_windows=8,
    picture="facts and a question: the first {half} tokens, then the last {half}",
)
