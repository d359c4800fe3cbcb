"""Prompts that ask for one word, with words that would be as good but for what is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.lists import CYCLIC, GIVEN, IN_ORDER, KNOWN_OF, RELATED

MEMBERS = 4
"""Of a list, in one prompt."""
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


Draw = Callable[[np.random.Generator, int], Sequence[Prompt]]
"""Prompts of which each text begins the next one; the number says which of several versions."""


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
    chosen: list[int] = []
    for each in free.tolist():
        # no neighbours: else one member's successor would be another that stands there
        apart = [min((each - one) % size, (one - each) % size) for one in chosen]
        if len(chosen) < MEMBERS and min(apart, default=size) > 1:
            chosen.append(each)
    found = []
    for place, each in enumerate(chosen, 1):
        said, after, before = chosen[:place], (each + 1) % size, (each - 1) % size
        unseen = [x for x in rng.permutation(size).tolist() if x not in (*said, after, before)]
        text = " ".join(["Now", *(members[one] for one in said)])
        rest = tuple(members[one] for one in unseen[:OTHERS])
        found.append(Prompt("successor", text, (members[after],), (members[before],), rest))
    return found


def indirect_objects(rng: np.random.Generator, number: int) -> list[Prompt]:
    """Two names, and the second or the first of them again: after it the other one is due.

    >>> prompt, = indirect_objects(np.random.default_rng(0), 0)
    >>> prompt.text
    'When Ruth and George went to the kitchen, Ruth gave the shoe to'
    >>> prompt.right, prompt.wrong
    (('George',), ('Ruth',))
    """
    names = [*lexicon.WOMEN, *lexicon.MEN]
    drawn = [names[i] for i in rng.permutation(len(names)).tolist()]
    place, thing = (_pick(rng, deck).split("/")[0] for deck in (lexicon.PLACES, lexicon.THINGS))
    template = GIVEN[number // 2 % len(GIVEN)]
    again, due = number % 2, 1 - number % 2
    text = template.format(drawn[0], drawn[1], place, drawn[again], thing)
    rest = tuple(drawn[2 : 2 + OTHERS])
    return [Prompt("indirect-object", text, (drawn[due],), (drawn[again],), rest)]


def retrievals(rng: np.random.Generator, number: int) -> list[Prompt]:
    """What each of three people has, and then, in other words, what one of them has.

    >>> prompt, = retrievals(np.random.default_rng(0), 1)
    >>> prompt.text[-33:], prompt.right[0] in prompt.text
    ('e subject that Ruth knows best is', True)
    """
    said, cue, values = KNOWN_OF[number % len(KNOWN_OF)]
    names = rng.permutation([*lexicon.WOMEN, *lexicon.MEN])[:ENTITIES].tolist()
    drawn = rng.permutation(values).tolist()
    asked = number // len(KNOWN_OF) % ENTITIES
    facts = [said.format(name, value) for name, value in zip(names, drawn, strict=False)]
    text = " ".join([*facts, cue.format(names[asked])])
    wrong = tuple(value for i, value in enumerate(drawn[:ENTITIES]) if i != asked)
    rest = tuple(drawn[ENTITIES : ENTITIES + OTHERS])
    return [Prompt("retrieval", text, (drawn[asked],), wrong, rest)]


def agreements(rng: np.random.Generator, number: int) -> list[Prompt]:
    """A subject and another noun behind it: after them the verbs of the subject's number.

    Both numbers of the subject come with both of the other noun, so that it does not help to go
    by this one, nor to raise one form always.

    >>> prompt, = agreements(np.random.default_rng(0), 1)
    >>> prompt.text, prompt.right[:2], prompt.wrong[:2]
    ('The guests beside the plate', ('open', 'carry'), ('opens', 'carries'))
    """
    many, others = number % 2, number // 2 % 2
    subject = _pick(rng, lexicon.PEOPLE).split("/")[many]
    other = _pick(rng, lexicon.THINGS).split("/")[others]
    text = f"The {subject} {_pick(rng, lexicon.NEAR)} the {other}"
    forms = [entry.split("/")[:2] for entry in lexicon.ON_THINGS]
    right, wrong = (tuple(each[form] for each in forms) for form in (1 - many, many))
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
    own = int(rng.integers(len(pairs)))
    # a word that is another's answer too is no wrong one
    fitting = {pairs[own][1], *(b for a, b in pairs if a == pairs[own][0])}
    rest = [b for i, (_, b) in enumerate(pairs) if i != own and b not in fitting]
    wrong = tuple(rng.permutation(rest)[:OTHERS].tolist())
    first, second = pairs[own]
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


def _pick(rng: np.random.Generator, words: Sequence[str]) -> str:
    return words[int(rng.integers(len(words)))]
