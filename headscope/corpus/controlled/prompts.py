"""Prompts that ask for one word, and pairs of sentences of which only one is grammatical.

Each prompt has words that would be as good but for what is asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np

from headscope.corpus.controlled import lists
from headscope.corpus.controlled.lists import (
    CYCLIC,
    IN_ORDER,
    INDIRECT_OBJECT_TEMPLATES,
    PROPERTIES,
    RELATED,
    TWO_PROPERTIES,
)

MEMBERS = 4
"""Members of a list in one prompt."""
ENTITIES = 3
OTHERS = 6
"""Words of the same kind that a prompt does not hold, as control."""


class Prompt(NamedTuple):
    """A text, and what is asked after it."""

    kind: str
    text: str
    right: tuple[str, ...]
    """Words that fit next."""
    wrong: tuple[str, ...]
    """Words that do not, but would if the text were another."""
    other: tuple[str, ...] = ()
    """The second control."""


def successors(rng: np.random.Generator, number: int) -> list[Prompt]:
    """Members of a list in no order: after each its successor, against its predecessor.

    Neither stands in the prompt, nor do the other members that are the second control: a head that
    lowers what it sees, or raises all of the list, gains nothing.

    >>> successors(np.random.default_rng(0), 0)[0].right
    ('Thursday',)
    """
    name = list(IN_ORDER)[number % len(IN_ORDER)]
    members = IN_ORDER[name]
    size, cyclic = len(members), name in CYCLIC
    free = rng.permutation(size if cyclic else np.arange(1, size - 1))
    members_due: list[int] = []
    for member in free.tolist():
        # no neighbours: else one member's successor would be another that stands there
        apart = [min((member - one) % size, (one - member) % size) for one in members_due]
        if len(members_due) < MEMBERS and min(apart, default=size) > 1:
            members_due.append(member)
    prompts = []
    for length, member in enumerate(members_due, 1):
        prefix, after, before = members_due[:length], (member + 1) % size, (member - 1) % size
        unseen = [x for x in rng.permutation(size).tolist() if x not in (*prefix, after, before)]
        text = " ".join(["Now", *(members[one] for one in prefix)])
        controls = tuple(members[one] for one in unseen[:OTHERS])
        prompts.append(Prompt("successor", text, (members[after],), (members[before],), controls))
    return prompts


def indirect_objects(rng: np.random.Generator, number: int) -> list[Prompt]:
    """Two names, and the second or the first of them again: after it the other one is due.

    >>> prompt, = indirect_objects(np.random.default_rng(0), 0)
    >>> prompt.text
    'When Ruth and George went to the kitchen, Ruth gave the shoe to'
    >>> prompt.right, prompt.wrong
    (('George',), ('Ruth',))
    """
    names = [*lists.WOMEN, *lists.MEN]
    shuffled_names = [names[i] for i in rng.permutation(len(names)).tolist()]
    location, item = (lists.pick(rng, deck).split("/")[0] for deck in (lists.PLACES, lists.THINGS))
    template = INDIRECT_OBJECT_TEMPLATES[number // 2 % len(INDIRECT_OBJECT_TEMPLATES)]
    again, due = number % 2, 1 - number % 2
    text = template.format(
        shuffled_names[0], shuffled_names[1], location, shuffled_names[again], item
    )
    controls = tuple(shuffled_names[2 : 2 + OTHERS])
    return [
        Prompt("indirect-object", text, (shuffled_names[due],), (shuffled_names[again],), controls)
    ]


class Facts(NamedTuple):
    """Two properties of each of three people, and a question for one of them."""

    stated: str
    question: str
    right: str
    of_person: str
    """Other value of the person that is asked for."""
    of_property: tuple[str, ...]
    """Values of the others for the property that is asked for."""
    of_neither: tuple[str, ...]

    @property
    def text(self) -> str:
        """The text up to where the answer is due."""
        return f"{self.stated} {self.question}"


def facts(rng: np.random.Generator, number: int) -> Facts:
    """Two properties of three people in sentences of several forms, and a question for one.

    Each property, each person and each place of the value in what is said of a person, the first
    or the second, is asked for as often as the others: who knows the person alone is right half of
    the time, who knows the property alone a third.

    >>> one = facts(np.random.default_rng(0), 1)
    >>> one.stated[:75]
    'George teaches physics, and at times lives in Boston. Hugo, who lives in Du'
    >>> one.question, one.right, one.of_person
    ('The subject that George knows best is', 'physics', 'Boston')
    """
    count = len(PROPERTIES)
    prop, entity, rank = (
        number % count,
        number // count % ENTITIES,
        number // (count * ENTITIES) % 2,
    )
    other = (prop + int(rng.integers(1, count))) % count
    names = rng.permutation([*lists.WOMEN, *lists.MEN])[:ENTITIES].tolist()
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
        pronoun = "She" if name in lists.WOMEN else "He"
        form = TWO_PROPERTIES[forms[i]]
        sentences.append(form.format(name=name, first=first, second=second, pronoun=pronoun))
    rivals = [i for i in range(ENTITIES) if i != entity]
    return Facts(
        " ".join(sentences),
        PROPERTIES[prop].question.format(names[entity]),
        values[entity],
        others[entity],
        tuple(values[i] for i in rivals),
        tuple(others[i] for i in rivals),
    )


def retrievals(rng: np.random.Generator, number: int) -> list[Prompt]:
    """A prompt of what three people have, and then, in other words, what one of them has.

    >>> prompt, = retrievals(np.random.default_rng(0), 1)
    >>> prompt.text[-33:], prompt.right[0] in prompt.text
    ('subject that George knows best is', True)
    """
    one = facts(rng, number)
    return [Prompt("retrieval", one.text, (one.right,), one.of_property, (one.of_person,))]


def agreements(rng: np.random.Generator, number: int) -> list[Prompt]:
    """A subject and another noun behind it: after them the verbs of the subject's number.

    Both numbers of the subject come with both of the other noun, so that it does not help to go
    by this one, nor to raise one form always.

    >>> prompt, = agreements(np.random.default_rng(0), 1)
    >>> prompt.text, prompt.right[:2], prompt.wrong[:2]
    ('The guests beside the plate', ('open', 'carry'), ('opens', 'carries'))
    """
    many, others = number % 2, number // 2 % 2
    subject = lists.pick(rng, lists.PEOPLE).split("/")[many]
    other = lists.pick(rng, lists.THINGS).split("/")[others]
    text = f"The {subject} {lists.pick(rng, lists.NEAR)} the {other}"
    forms = [entry.split("/")[:2] for entry in lists.ON_THINGS]
    right, wrong = (tuple(verb[form] for verb in forms) for form in (1 - many, many))
    return [Prompt("agreement", text, right, wrong)]


def related(rng: np.random.Generator, number: int) -> list[Prompt]:
    """A word, and a question for the one that is related to it, against those of other words.

    The second control is the word itself: what is like it in form or meaning is raised by a head
    that copies it, but not more than it.

    >>> prompt, = related(np.random.default_rng(0), 1)
    >>> prompt.kind, prompt.text, prompt.right
    ('capital', 'The capital of Peru is', ('Lima',))
    """
    kind = list(RELATED)[number % len(RELATED)]
    template, pairs = RELATED[kind]
    pair = int(rng.integers(len(pairs)))
    # a word that is another's answer too is no wrong one
    fitting = {pairs[pair][1], *(b for a, b in pairs if a == pairs[pair][0])}
    unrelated = [b for i, (_, b) in enumerate(pairs) if i != pair and b not in fitting]
    wrong = tuple(rng.permutation(unrelated)[:OTHERS].tolist())
    first, second = pairs[pair]
    return [Prompt(kind, template.format(first), (second,), wrong, (first,))]


def draws(count: int, *, seed: int) -> Iterator[tuple[int, list[Prompt]]]:
    """Prompts of every kind, `count` documents of them, each with its document.

    A document has one prompt of each kind, and one of each relation between words.
    """
    for document in range(count):
        rng = np.random.default_rng([seed, document])
        for draw in (successors, indirect_objects, retrievals, agreements):
            # both halves of the documents, the even and the odd ones, have every version
            yield document, list(draw(rng, document // 2))
        for relation in range(len(RELATED)):
            yield document, related(rng, relation)


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that share a beginning."""

    good: str
    bad: str


def agreement_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The guards near the old boat open / opens the boxes: a noun of the other number between."""
    pick = partial(lists.pick, np.random.default_rng(seed))
    pairs = []
    for i in range(count):
        many = i % 2
        subject = pick(lists.PEOPLE).split("/")[many]
        attractor = pick(lists.THINGS).split("/")[1 - many]
        forms = pick(lists.ON_THINGS).split("/")
        start = f"The {subject} {pick(lists.NEAR)} the {attractor}"
        end = f"the {pick(lists.PLACES).split('/')[0]}."
        pairs.append(
            MinimalPair(f"{start} {forms[1 - many]} {end}", f"{start} {forms[many]} {end}")
        )
    return pairs


def anaphor_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The queen behind the monk trusted herself / himself: two candidates, one antecedent."""
    pick = partial(lists.pick, np.random.default_rng(seed))
    pairs = []
    for i in range(count):
        people = [pick(lists.FEMALE).split("/")[0], pick(lists.MALE).split("/")[0]]
        pronouns = ["herself", "himself"]
        subject, other = i % 2, 1 - i % 2
        verb = pick(lists.ON_PEOPLE).split("/")[2]
        start = f"The {people[subject]} {pick(lists.NEAR)} the {people[other]} {verb}"
        pairs.append(MinimalPair(f"{start} {pronouns[subject]}.", f"{start} {pronouns[other]}."))
    return pairs
