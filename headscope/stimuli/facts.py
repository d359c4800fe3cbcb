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
from headscope.stimuli.word_lists import MEN, WOMEN

KIND, PROPERTY, HALF_RIGHT = "value", "property", "half-right"
"""Kinds of arrows from a question to its answer: among all values of the text, among those of the
property that is asked for, and among those of the person or of the property that is asked for."""
ENTITIES = 3
IN_DOCUMENT = 4
"""Texts of one document: those read before the text hold more than 50 queries."""
_WORD = re.compile(r"\w+|[^\w\s]")
_NAMES = frozenset({*WOMEN, *MEN})


class Domain(NamedTuple):
    """Values of one kind, and two properties that have them."""

    values: str
    predicates: tuple[str, str]
    """Predicates of a person, one for each property, with the same word before the value."""
    questions: tuple[str, str]
    """Paraphrases that ask for a person's value. They end in a word that stands nowhere before:
    nothing follows it there to be repeated."""


DOMAINS = (
    Domain(
        "Paris London Rome Berlin Madrid Vienna Moscow Tokyo Boston Chicago Dublin Athens",
        ("lives in {}", "works in {}"),
        ("The city where {} has a home is", "The city where {} has a job is"),
    ),
    Domain(
        "music history physics biology chemistry art law medicine",
        ("gives lessons in {}", "takes lessons in {}"),
        ("The subject that {} teaches is", "The subject that {} learns is"),
    ),
    Domain(
        "red blue green yellow purple orange black white brown pink",
        ("writes in {}", "dresses in {}"),
        ("The colour of the ink of {} is", "The colour of the coat of {} is"),
    ),
    Domain(
        "water milk wine beer tea coffee juice",
        ("starts the day with {}", "ends the day with {}"),
        ("The drink that {} has each morning is", "The drink that {} has each night is"),
    ),
    Domain(
        "France Spain Italy Germany China Japan India Russia Canada Mexico Brazil Egypt",
        ("comes from {}", "buys from {}"),
        ("The land where {} was born is", "The land that sells goods to {} is"),
    ),
)
TWO_PROPERTIES = (
    "{name} {first} and {second}.",
    "{name}, who {first}, {second}.",
    "{name} {first}. {pronoun} also {second}.",
    "{name} {first}, but {second}.",
)
"""Forms of what is said of a person: values stand at several distances from the name, in one
sentence with it or in the next."""


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

    All values of a text are of one kind and follow the same preposition, so that only the person
    and the verb tell them apart. Each property, each person and each place of the value in what is
    said of a person, the first or the second, is asked for as often as the others: a head that
    finds the person alone is right half of the time, the property alone a third.

    >>> one = facts(np.random.default_rng(0), 1)
    >>> one.text[:58]
    'Ruth takes lessons in biology. She also gives lessons in a'
    >>> one.text[-31:], one.right, one.of_person
    ('The subject that Ruth learns is', 'biology', 'art')
    """
    # the number decides what is asked for, so that each combination comes equally often
    domain = DOMAINS[number % len(DOMAINS)]
    target = number % 2
    entity = number // 2 % ENTITIES
    first_of_target = (target + number // (2 * ENTITIES)) % 2
    # people, values and forms are drawn without repetition
    names = rng.permutation([*WOMEN, *MEN])[:ENTITIES].tolist()
    all_values = rng.permutation(domain.values.split())
    values = all_values[: 2 * ENTITIES].reshape(2, ENTITIES).tolist()
    forms = rng.permutation(len(TWO_PROPERTIES))[:ENTITIES].tolist()
    sentences = []
    for i, name in enumerate(names):
        first = first_of_target if i == entity else int(rng.integers(2))
        predicates = [domain.predicates[j].format(values[j][i]) for j in range(2)]
        form = TWO_PROPERTIES[forms[i]]
        sentence = form.format(
            name=name,
            first=predicates[first],
            second=predicates[1 - first],
            pronoun="She" if name in WOMEN else "He",
        )
        sentences.append(sentence)
    # the value of the other property and those of other people are the distractors
    question = domain.questions[target].format(names[entity])
    of_property = values[target]
    of_other = values[1 - target]
    right = of_property.pop(entity)
    of_person = of_other.pop(entity)
    text = " ".join([*sentences, question])
    return Facts(text, right, of_person, tuple(of_property), tuple(of_other))


def fact_documents(document: int, *, seed: int) -> Iterator[Document]:
    """Texts of one document, each a separate text.

    >>> first = next(fact_documents(0, seed=0))
    >>> first.text[-41:]
    'The city where Ruth has a home is Madrid.'
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
    text = f"{question} {answer}."
    # words with parts of speech, for baselines: values are the only nouns, so that the first or the
    # second noun is the first or second value
    words: list[Word] = []
    sentence = 0
    for match in _WORD.finditer(text):
        form = match.group()
        upos = "X" if form.isalpha() else "PUNCT"
        if form in candidates[KIND]:
            upos = "NOUN"
        elif form in _NAMES:
            upos = "PROPN"
        words.append(Word(form, match.start(), match.end(), sentence, form, upos))
        if form == ".":
            sentence += 1
    # arrows from the last word of the question
    of_question = [word for word in words if word.end <= len(question)]
    query = of_question[-1].start
    starts = {word.form: word.start for word in of_question[:-1]}
    arrows = []
    for kind, forms in candidates.items():
        others = [starts[form] for form in forms]
        arrows.append(arrow(kind, query, [starts[answer]], others))
    document = Document(name, text, tuple(words), source=FACTS.name)
    return document.with_arrows(arrows, stimulus=FACTS.name)


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
