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
    names = [*WOMEN, *MEN]
    shuffled_names = [names[i] for i in rng.permutation(len(names)).tolist()]
    location, item = (pick(rng, deck).split("/")[0] for deck in (PLACES, THINGS))
    template = INDIRECT_OBJECT_TEMPLATES[number // 2 % len(INDIRECT_OBJECT_TEMPLATES)]
    again, due = number % 2, 1 - number % 2
    text = template.format(
        shuffled_names[0], shuffled_names[1], location, shuffled_names[again], item
    )
    controls = tuple(shuffled_names[2 : 2 + OTHERS])
    return [
        Prompt("indirect-object", text, (shuffled_names[due],), (shuffled_names[again],), controls)
    ]


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
    many, others = number % 2, number // 2 % 2
    subject = pick(rng, PEOPLE).split("/")[many]
    other = pick(rng, THINGS).split("/")[others]
    text = f"The {subject} {pick(rng, NEAR)} the {other}"
    forms = [entry.split("/")[:2] for entry in ON_THINGS]
    right, wrong = (tuple(verb[form] for verb in forms) for form in (1 - many, many))
    return [Prompt("agreement", text, right, wrong)]


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
        many = i % 2
        subject = pick(rng, PEOPLE).split("/")[many]
        attractor = pick(rng, THINGS).split("/")[1 - many]
        forms = pick(rng, ON_THINGS).split("/")
        start = f"The {subject} {pick(rng, NEAR)} the {attractor}"
        end = f"the {pick(rng, PLACES).split('/')[0]}."
        pairs.append(
            MinimalPair(f"{start} {forms[1 - many]} {end}", f"{start} {forms[many]} {end}")
        )
    return pairs


def anaphor_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The queen behind the monk trusted herself / himself: two candidates, one antecedent."""
    rng = np.random.default_rng(seed)
    pairs = []
    for i in range(count):
        people = [pick(rng, FEMALE).split("/")[0], pick(rng, MALE).split("/")[0]]
        pronouns = ["herself", "himself"]
        subject, other = i % 2, 1 - i % 2
        verb = pick(rng, ON_PEOPLE).split("/")[2]
        start = f"The {people[subject]} {pick(rng, NEAR)} the {people[other]} {verb}"
        pairs.append(MinimalPair(f"{start} {pronouns[subject]}.", f"{start} {pronouns[other]}."))
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
        before, text = self.text(BEFORE), self.text(f"{BEFORE} {word}")
        if len(text) <= len(before) or (text[: len(before)] != before).any():
            return None
        first = int(text[len(before)])
        (spelled,) = self.tokenizer.spell([first])
        return first if spelled.strip() and word.startswith(spelled.strip()) else None

    def question(self, prompt: Prompt, tokens: Int[ndarray, " token"]) -> Question | None:
        """The question of a prompt in a window of these tokens; None if it cannot be asked.

        Words whose first token is another's on the other side fall away.
        """
        text = self.text(prompt.text)
        if not 0 < len(text) <= len(tokens) or (tokens[: len(text)] != text).any():
            return None
        right, wrong, other = map(self._firsts, (prompt.right, prompt.wrong, prompt.other))
        shared = right & (wrong | other)
        right, wrong, other = right - shared, wrong - shared, other - shared
        if not right or not wrong or (prompt.other and not other):
            return None
        # the text begins behind the beginning-of-text token
        sides = (np.array(sorted(side), np.int64) for side in (right, wrong, other))
        return Question(prompt.kind, len(text), *sides)

    def _firsts(self, words: Sequence[str]) -> set[int]:
        return {token for word in words if (token := self.first(word)) is not None}
