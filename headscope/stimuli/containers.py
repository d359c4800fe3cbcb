"""Four containers and what each holds, and a question for one of them in other words.

Two colours and two kinds of containers make all four, so that no single word of a name says which
one is meant. What a container holds is said before its name or behind it, at several distances, two
containers to a sentence that share a colour or a kind. The same text is asked for all four in turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from headscope.corpus.document import Document
from headscope.stimuli.question_texts import QuestionText, question_document, question_windows
from headscope.stimuli.stimulus import Rounds, Stimulus, build_by_size

_COLOURS = "red blue green black white yellow brown pink"
_CONTAINERS = "box bag basket drawer jar crate bucket barrel"
_CONTENTS = """
rice sugar coins salt flour sand tea coffee nails beans stones books keys apples pens letters shoes
toys bread cheese candles water soap honey butter
"""
COLOURS, CONTAINERS, CONTENTS = (
    tuple(words.split()) for words in (_COLOURS, _CONTAINERS, _CONTENTS)
)
SENTENCES = (
    "The {0} holds {2}, and the {1} holds {3}.",
    "Mary put {2} into the {0} and {3} into the {1}.",
    "She hid {2} down at the bottom of the {0}, {3} at the very back of the {1}.",
    "The {0} was opened and packed with {2}, the {1} was washed and filled with {3}.",
    "In the {0} we soon found {2}, but {3} had gone into the {1}.",
    "The {0} has long been used for {2}, and the {1} is now cleared for {3}.",
)
"""Two containers and what they hold, before the name or behind it, often nearer to the other."""
QUESTIONS = (
    "Inside the {} there should be",
    "Whoever opens the {} will see",
    "Look inside the {} and you discover",
    "Take a look at the {} and you get",
)
"""Each ends in a word that stands nowhere before."""
HELD, HALF_RIGHT = "held", "half-held"
"""Kinds of arrows: among all that is held, and among what containers of the same colour or kind
hold, of which one stands in the same sentence."""


class Containers(NamedTuple):
    """What four containers hold, and a question for one."""

    text: str
    """Up to where the answer is due."""
    name: str
    right: str
    half_right: tuple[str, str]
    other: str


def containers(document: int, *, seed: int) -> Iterator[Containers]:
    """The text of a document, with a question for each of its containers.

    >>> first, *others = containers(0, seed=0)
    >>> len(others), len({one.right for one in others} | {first.right})
    (3, 4)
    """
    rng = np.random.default_rng([seed, document])
    colours, kinds = (rng.permutation(words)[:2].tolist() for words in (COLOURS, CONTAINERS))
    held = rng.permutation(CONTENTS)[:4].tolist()
    forms = [SENTENCES[i] for i in rng.permutation(len(SENTENCES))[:2].tolist()]
    # the first sentence is of one colour, or of one kind
    cells = [(0, 0), (0, 1), (1, 0), (1, 1)] if document % 2 else [(0, 0), (1, 0), (0, 1), (1, 1)]
    order = rng.permutation(2).tolist(), rng.permutation(2).tolist(), rng.permutation(2).tolist()
    pairs = [
        [cells[2 * half + index] for index in indices]
        for half, indices in zip(order[0], order[1:], strict=True)
    ]
    placed = [cell for pair in pairs for cell in pair]
    content = dict(zip(placed, held, strict=True))
    names = {cell: f"{colours[cell[0]]} {kinds[cell[1]]}" for cell in placed}
    stated = " ".join(
        form.format(*(names[cell] for cell in pair), *(content[cell] for cell in pair))
        for form, pair in zip(forms, pairs, strict=True)
    )
    question = QUESTIONS[document // 2 % len(QUESTIONS)]
    for colour, kind in placed:
        yield Containers(
            f"{stated} {question.format(names[colour, kind])}",
            names[colour, kind],
            content[colour, kind],
            (content[colour, 1 - kind], content[1 - colour, kind]),
            content[1 - colour, 1 - kind],
        )


def container_documents(document: int, *, seed: int) -> Iterator[Document]:
    """Texts of one document, each a text by itself."""
    for number, one in enumerate(containers(document, seed=seed)):
        values = {one.right, *one.half_right, one.other}
        yield question_document(
            f"containers_{document:02d}_{number}",
            QuestionText(one.text, one.right, {HELD: values, HALF_RIGHT: one.half_right}),
            upos=partial(_upos, values=values),
            stimulus=CONTAINERS_HELD.name,
        )


def _upos(form: str, start: int, values: set[str]) -> str:
    """What is held is the only noun, so that the first noun is what is named first."""
    if form in values:
        return "NOUN"
    if form in CONTAINERS:
        return "PROPN"
    return "ADJ" if form in COLOURS else "X" if form.isalpha() else "PUNCT"


container_windows = partial(question_windows, container_documents)
"""Windows of what containers hold and a question; a document is one block."""

CONTAINERS_HELD = Stimulus(
    name="containers",
    title="containers and questions",
    build=partial(build_by_size, container_windows),
    rounds=Rounds.FIRST,
    contested="natural",
    for_relations=True,
    study_documents=16,
    example_windows=8,
    ablation_near=True,
)
