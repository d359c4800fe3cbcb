"""Tasks that ship, by name: prompts made from word lists."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType

import numpy as np

from headscope.stimuli.few_shot import ANSWER, END, QUESTION, word_tasks
from headscope.stimuli.word_lists import (
    FEMALE,
    IN_ORDER,
    INDIRECT_OBJECT_TEMPLATES,
    MALE,
    MEN,
    NEAR,
    NUMBERS,
    ON_PEOPLE,
    ON_THINGS,
    PEOPLE,
    PLACES,
    THINGS,
    WOMEN,
    pick,
)

Row = dict[str, str]
PERSON = "person"
PROMPTS = 100
"""Prompts of a task that ships."""
SHOTS = 5
"""Examples in a prompt of a word task."""
VERBS = (
    *("work", "play", "read", "write", "run", "walk", "talk", "sing", "eat", "sleep"),
    *("drive", "cook", "dance", "laugh", "listen", "wait", "live", "smile", "learn", "speak"),
)
"""Verbs whose third person singular has the ending -s."""
PRONOUNS = (("he", "they"), ("she", "we"))
"""A pronoun of the third person singular, and one of another person or number."""


def shipped_rows(name: str, *, seed: int) -> list[Row]:
    """The rows of a task, at most `PROMPTS`.

    >>> row = shipped_rows("ioi", seed=0)[0]
    >>> row["prompt"], row["answer"], row["wrong"]
    ('When Ruth and George went to the kitchen, Ruth gave the shoe to', ' George', ' Ruth')
    """
    if name == PERSON:
        return list(_person())
    make = _MAKERS.get(name)
    if make is None:
        return list(_word_task(name, seed))
    return [make(np.random.default_rng([seed, number]), number) for number in range(PROMPTS)]


def _form(entry: str, number: int) -> str:
    """One of the forms of a word list's entry, which slashes part."""
    return entry.split("/")[number]


def indirect_object(rng: np.random.Generator, number: int) -> Row:
    """Two names, one of which comes again (Wang et al. 2022): the other one is due.

    The corrupt prompt repeats the other name.
    """
    every_name = [*WOMEN, *MEN]
    order = rng.permutation(len(every_name))
    first = every_name[order[0]]
    second = every_name[order[1]]
    location = _form(pick(rng, PLACES), 0)
    item = _form(pick(rng, THINGS), 0)
    template = INDIRECT_OBJECT_TEMPLATES[number // 2 % len(INDIRECT_OBJECT_TEMPLATES)]
    # who comes again alternates, so that the order of the names does not give the answer
    repeated, missing = (first, second) if number % 2 == 0 else (second, first)
    return {
        "prompt": template.format(first, second, location, repeated, item),
        "answer": f" {missing}",
        "wrong": f" {repeated}",
        "corrupt": template.format(first, second, location, missing, item),
    }


def greater_than(rng: np.random.Generator, number: int) -> Row:
    """A span of years (Hanna et al. 2023): a later year of the century is due, not an earlier one.

    The corrupt prompt begins in year 01 of the century, so that both answers would do.
    """
    century = int(rng.integers(11, 19))
    start = int(rng.integers(12, 89))
    later = int(rng.integers(start + 10, 100))
    earlier = int(rng.integers(2, start - 8))
    noun = pick(rng, ("war", "expedition", "plague", "project", "reign", "strike"))
    sentence = "The {} lasted from the year {}{:02} to the year {}"
    return {
        "prompt": sentence.format(noun, century, start, century),
        "answer": f"{later:02}",
        "wrong": f"{earlier:02}",
        "corrupt": sentence.format(noun, century, 1, century),
    }


def agreement(rng: np.random.Generator, number: int) -> Row:
    """A subject and a noun of the other number behind it: the verb agrees with the subject.

    The corrupt prompt has the subject's other number.
    """
    subject, attractor = pick(rng, PEOPLE), pick(rng, THINGS)
    near = pick(rng, NEAR)
    forms = pick(rng, ON_THINGS).split("/")
    # the nearer noun has the other number, so that it misleads
    subject_number = number % 2
    noun = _form(attractor, 1 - subject_number)
    return {
        "prompt": f"The {_form(subject, subject_number)} {near} the {noun}",
        "answer": f" {forms[1 - subject_number]}",
        "wrong": f" {forms[subject_number]}",
        "corrupt": f"The {_form(subject, 1 - subject_number)} {near} the {noun}",
    }


def pronoun_gender(rng: np.random.Generator, number: int) -> Row:
    """A subject of one gender and another person: the reflexive pronoun agrees with the subject.

    The corrupt prompt exchanges the two.
    """
    woman = _form(pick(rng, FEMALE), 0)
    man = _form(pick(rng, MALE), 0)
    near = pick(rng, NEAR)
    verb = _form(pick(rng, ON_PEOPLE), 2)
    # a model that prefers one of the pronouns is right at half of the prompts
    if number % 2 == 0:
        subject, other = woman, man
        answer, wrong = " herself", " himself"
    else:
        subject, other = man, woman
        answer, wrong = " himself", " herself"
    return {
        "prompt": f"The {subject} {near} the {other} {verb}",
        "answer": answer,
        "wrong": wrong,
        "corrupt": f"The {other} {near} the {subject} {verb}",
    }


def induction(rng: np.random.Generator, number: int) -> Row:
    """A pair of words that comes again: after the first the second is due.

    The wrong answer followed another word; the corrupt prompt ends in that word. A space stands
    before each word, so that a tokenizer reads it the same way when it comes again.
    """
    words = [_form(entry, 0) for entry in (*PEOPLE, *THINGS, *PLACES)]
    order = rng.permutation(len(words))
    firsts = [words[i] for i in order[0:8:2]]
    seconds = [words[i] for i in order[1:8:2]]
    pairs = [f"{first} {second}" for first, second in zip(firsts, seconds, strict=True)]
    listed = f"Words: {', '.join(pairs)}"
    # both answers stand in the prompt once: a head that copies any word gains nothing
    right, other = rng.permutation(len(pairs))[:2]
    return {
        "prompt": f"{listed}. Again: {firsts[right]}",
        "answer": f" {seconds[right]}",
        "wrong": f" {seconds[other]}",
        "corrupt": f"{listed}. Again: {firsts[other]}",
    }


def successor(rng: np.random.Generator, number: int) -> Row:
    """Three members of an ordered list: the fourth is due, not the one before the first.

    The corrupt prompt lists the members backwards, so that the wrong answer is due.
    """
    lists = (IN_ORDER["days"], IN_ORDER["months"], NUMBERS, IN_ORDER["letters"])
    members = lists[number % len(lists)]
    # a member must stand before the three and one after them, within the list
    start = int(rng.integers(1, len(members) - 3))
    listed = members[start : start + 3]
    return {
        "prompt": f"In order: {', '.join(listed)},",
        "answer": f" {members[start + 3]}",
        "wrong": f" {members[start - 1]}",
        "corrupt": f"In order: {', '.join(reversed(listed))},",
    }


def _person() -> Iterator[Row]:
    """A row for each verb: `I work, you work, he`, and the same with `they`; pronouns alternate.

    After "he" or "she" the verb needs the ending -s, after "they" or "we" it does not. The verb
    stands twice in each prompt without it, so that a head which copies the verb does not help.
    """
    for number, verb in enumerate(VERBS):
        singular, other = PRONOUNS[number % len(PRONOUNS)]
        start = f"I {verb}, you {verb}, "
        yield {
            "prompt": start + singular,
            "answer": f" {verb}s",
            "wrong": f" {verb}",
            "corrupt": start + other,
        }


def _word_task(name: str, seed: int) -> Iterator[Row]:
    """Few-shot prompts of pairs of words (Todd et al. 2024)."""
    pairs = word_tasks()[name]
    rng = np.random.default_rng([seed, *name.encode()])
    for number in rng.permutation(len(pairs))[:PROMPTS].tolist():
        question, answer = pairs[number]
        # an example that answers the question would be copied
        others = [pair for pair in pairs if pair[0] != question]
        solved = ""
        for shot in rng.permutation(len(others))[:SHOTS]:
            word, right = others[shot]
            solved += f"{QUESTION}{word}{ANSWER} {right}{END}"
        yield {
            "prompt": f"{solved}{QUESTION}{question}{ANSWER}",
            "answer": f" {answer}",
        }


_MAKERS: Mapping[str, Callable[[np.random.Generator, int], Row]] = MappingProxyType(
    {
        "ioi": indirect_object,
        "greater-than": greater_than,
        "agreement": agreement,
        "pronoun-gender": pronoun_gender,
        "induction": induction,
        "successor": successor,
    }
)


def shipped_names() -> tuple[str, ...]:
    """Names of the tasks that ship.

    >>> shipped_names()[:3]
    ('ioi', 'greater-than', 'agreement')
    """
    return (*_MAKERS, PERSON, *word_tasks())
