"""Prompts that ask for one word, as texts and as windows, and minimal pairs of sentences.

Each prompt has words that would be as good but for the question. A window has only those questions
whose answers a tokenizer tells apart by their first token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import Document
from headscope.corpus.window import Question, Window
from headscope.stimuli.facts import facts
from headscope.stimuli.stimulus import MAX_DOCUMENTS, Stimulus, TextTokenizer
from headscope.stimuli.word_lists import (
    CYCLIC,
    FEMALE,
    IN_ORDER,
    INDIRECT_OBJECT_TEMPLATES,
    MALE,
    MEN,
    NEAR,
    ON_PEOPLE,
    ON_THINGS,
    PEOPLE,
    PLACES,
    THINGS,
    WOMEN,
    pick,
)

MEMBERS = 4
"""Members of a list in one prompt."""
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
    """The matched control."""


def successors(rng: np.random.Generator, number: int) -> list[Prompt]:
    """Members of a list in no order: after each its successor, against its predecessor.

    Neither stands in the prompt, nor do the other members that are the matched control: a head that
    lowers what it sees, or raises all of the list, gains nothing.

    >>> successors(np.random.default_rng(0), 0)[0].right
    ('Thursday',)
    """
    name = list(IN_ORDER)[number % len(IN_ORDER)]
    members = IN_ORDER[name]
    size = len(members)
    # no two neighbours, or a successor would stand in the prompt
    listed = _members_apart(rng, size, is_cyclic=name in CYCLIC)
    prompts = []
    for length, member in enumerate(listed, 1):
        prefix = listed[:length]
        # a control that stands in the prompt would be raised by a head that copies
        after = (member + 1) % size
        before = (member - 1) % size
        used = {*prefix, after, before}
        unseen = [index for index in rng.permutation(size).tolist() if index not in used]
        prompts.append(
            Prompt(
                kind="successor",
                text=" ".join(["Now", *(members[index] for index in prefix)]),
                right=(members[after],),
                wrong=(members[before],),
                other=tuple(members[index] for index in unseen[:OTHERS]),
            )
        )
    return prompts


def _members_apart(rng: np.random.Generator, size: int, *, is_cyclic: bool) -> list[int]:
    """Places of a list in random order, no two of them neighbours.

    Else one member's successor would be another that stands there. The ends of a list that is not
    cyclic have no neighbour on one side and are left out.
    """
    indices = np.arange(size) if is_cyclic else np.arange(1, size - 1)
    listed: list[int] = []
    for index in rng.permutation(indices).tolist():
        # the ends are neighbours in a cyclic list; of others they are not drawn
        neighbours = {(index - 1) % size, index, (index + 1) % size}
        if neighbours.isdisjoint(listed):
            listed.append(index)
    return listed[:MEMBERS]


def indirect_objects(rng: np.random.Generator, number: int) -> list[Prompt]:
    """Two names, and the second or the first of them again: after it the other one is due.

    >>> prompt, = indirect_objects(np.random.default_rng(0), 0)
    >>> prompt.text
    'When Ruth and George went to the kitchen, Ruth gave the shoe to'
    >>> prompt.right, prompt.wrong
    (('George',), ('Ruth',))
    """
    # names, a place and an object at random; who comes again alternates
    every_name = [*WOMEN, *MEN]
    names = [every_name[i] for i in rng.permutation(len(every_name)).tolist()]
    location = _first_form(pick(rng, PLACES))
    item = _first_form(pick(rng, THINGS))
    template = INDIRECT_OBJECT_TEMPLATES[number // 2 % len(INDIRECT_OBJECT_TEMPLATES)]
    repeated = names[number % 2]
    missing = names[1 - number % 2]
    return [
        Prompt(
            kind="indirect-object",
            text=template.format(names[0], names[1], location, repeated, item),
            right=(missing,),
            wrong=(repeated,),
            other=tuple(names[2 : 2 + OTHERS]),
        )
    ]


def _first_form(entry: str) -> str:
    """The first of the forms of a word, which a slash parts."""
    return entry.split("/")[0]


def retrievals(rng: np.random.Generator, number: int) -> list[Prompt]:
    """A prompt of what three people have, and then, in other words, what one of them has.

    >>> prompt, = retrievals(np.random.default_rng(0), 1)
    >>> prompt.text[-27:], prompt.right[0] in prompt.text
    ('subject that Ruth learns is', True)
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
    subject_number = number % 2
    other_number = number // 2 % 2
    subject = pick(rng, PEOPLE).split("/")[subject_number]
    other = pick(rng, THINGS).split("/")[other_number]
    text = f"The {subject} {pick(rng, NEAR)} the {other}"
    # verbs like `open/opens/…`: the forms after a singular subject and after a plural one
    forms = [entry.split("/") for entry in ON_THINGS]
    singular = tuple(form[1] for form in forms)
    plural = tuple(form[0] for form in forms)
    if subject_number:
        return [Prompt("agreement", text, right=plural, wrong=singular)]
    return [Prompt("agreement", text, right=singular, wrong=plural)]


def draws(count: int, *, seed: int) -> Iterator[tuple[int, list[Prompt]]]:
    """Prompts of every kind, `count` documents of them, each with its document.

    A document has one prompt of each kind.
    """
    for document in range(count):
        rng = np.random.default_rng([seed, document])
        for draw in (successors, indirect_objects, retrievals, agreements):
            # both halves of the documents, the even and the odd ones, have every version
            yield document, list(draw(rng, document // 2))


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that share a beginning."""

    good: str
    bad: str


def agreement_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The guards near the old boat open / opens the boxes: a noun of the other number between."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        subject_number = i % 2
        other_number = 1 - subject_number
        subject = pick(rng, PEOPLE).split("/")[subject_number]
        attractor = pick(rng, THINGS).split("/")[other_number]
        # the plural form of a verb comes first
        forms = pick(rng, ON_THINGS).split("/")
        right_verb, wrong_verb = forms[other_number], forms[subject_number]
        start = f"The {subject} {pick(rng, NEAR)} the {attractor}"
        end = f"the {_first_form(pick(rng, PLACES))}."
        pairs.append(
            MinimalPair(good=f"{start} {right_verb} {end}", bad=f"{start} {wrong_verb} {end}")
        )
    return pairs


def anaphor_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The queen behind the monk trusted herself / himself: two candidates, one antecedent."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        woman = _first_form(pick(rng, FEMALE))
        man = _first_form(pick(rng, MALE))
        # each gender comes first in half of the pairs, so that neither pronoun is right always
        past_verb = pick(rng, ON_PEOPLE).split("/")[2]
        near = pick(rng, NEAR)
        if i % 2 == 0:
            start = f"The {woman} {near} the {man} {past_verb}"
            pairs.append(MinimalPair(good=f"{start} herself.", bad=f"{start} himself."))
        else:
            start = f"The {man} {near} the {woman} {past_verb}"
            pairs.append(MinimalPair(good=f"{start} himself.", bad=f"{start} herself."))
    return pairs


PROMPTS = Stimulus(name="prompts", example_windows=0)
"""Texts built to ask about the next token; effects read it, and no relation."""

BEFORE = "It"
"""A word before another, so that this one is spelled as within a text."""


class Prompts(NamedTuple):
    """The windows of prompts, and how many there are of each kind."""

    windows: list[Window]
    usable: Counter[str]
    sampled: Counter[str]

    @property
    def notes(self) -> list[str]:
        """Notes on prompts that were left out, for the reader of the results."""
        listed = ", ".join(
            f"{self.usable[kind]} of {count} {kind}"
            for kind, count in self.sampled.items()
            if self.usable[kind] < count
        )
        note = (
            "prompts whose answers the tokenizer does not tell apart by their first token were "
            "left out; asked are "
        )
        return [note + listed] if listed else []


def prompt_windows(
    tokenizer: TextTokenizer,
    kinds: Collection[str],
    max_length: int,
    *,
    seed: int,
    count: int = MAX_DOCUMENTS,
) -> Prompts:
    """`count` documents with one prompt of each kind; those longer than a window are left out."""
    spelling, frame = Spelling(tokenizer), tokenizer.frame
    windows: list[Window] = []
    usable, sampled = Counter[str](), Counter[str]()
    for document, texts in draws(count, seed=seed):
        prompts = [prompt for prompt in texts if prompt.kind in kinds]
        sampled.update(prompt.kind for prompt in prompts)
        if not prompts:
            continue
        # the last prompt of a draw begins with the others: one window has the questions of all
        tokens = spelling.text(prompts[-1].text)
        answered = [spelling.question(prompt, tokens) for prompt in prompts]
        questions = tuple(question for question in answered if question is not None)
        if not questions or len(tokens) + 1 + frame.closing_tokens > max_length:
            continue
        usable.update(question.kind for question in questions)
        window = Window(
            f"prompts#{len(windows)}",
            np.concatenate([[tokenizer.bos], tokens]),
            (tokenizer.bos_string, *tokenizer.spell(tokens.tolist())),
            stimulus=PROMPTS.name,
            document=document,
            questions=questions,
        )
        windows.append(frame.close(window))
    return Prompts(windows, usable, sampled)


class Spelling:
    """Texts and words as a tokenizer spells them, each once."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self._texts: dict[str, Int[ndarray, " token"]] = {}

    def text(self, text: str) -> Int[ndarray, " token"]:
        """Tokens of a text."""
        if text not in self._texts:
            self._texts[text] = self.tokenizer.encode(Document("prompt", text, ())).tokens
        return self._texts[text]

    def first(self, word: str) -> int | None:
        """The first token of a word within a text; None if it does not spell any of it."""
        # a tokenizer spells a word behind a space otherwise than alone
        before = self.text(BEFORE)
        text = self.text(f"{BEFORE} {word}")
        if not _begins_with(text, before) or len(text) == len(before):
            return None
        first = int(text[len(before)])
        (token_string,) = self.tokenizer.spell([first])
        spelled = token_string.strip()
        is_of_word = spelled != "" and word.startswith(spelled)
        return first if is_of_word else None

    def question(self, prompt: Prompt, tokens: Int[ndarray, " token"]) -> Question | None:
        """The question of a prompt in a window of these tokens; None if it cannot be asked.

        Words whose first token is another's on the other side fall away.
        """
        # a text whose end joins with what follows has no place at which to ask
        text = self.text(prompt.text)
        if len(text) == 0 or not _begins_with(tokens, text):
            return None
        # a first token on both sides says nothing, and is left out of both
        right = self._firsts(prompt.right)
        wrong = self._firsts(prompt.wrong)
        other = self._firsts(prompt.other)
        shared = right & (wrong | other)
        lacks_control = bool(prompt.other) and not other - shared
        if not right - shared or not wrong - shared or lacks_control:
            return None
        # the text begins behind the beginning-of-text token
        return Question(
            prompt.kind,
            len(text),
            _sorted_array(right - shared),
            _sorted_array(wrong - shared),
            _sorted_array(other - shared),
        )

    def _firsts(self, words: Sequence[str]) -> set[int]:
        firsts = {self.first(word) for word in words}
        return {token for token in firsts if token is not None}


def _begins_with(tokens: Int[ndarray, " token"], prefix: Int[ndarray, " prefix"]) -> bool:
    return bool(np.array_equal(tokens[: len(prefix)], prefix))


def _sorted_array(tokens: set[int]) -> Int[ndarray, " token"]:
    return np.array(sorted(tokens), np.int64)
