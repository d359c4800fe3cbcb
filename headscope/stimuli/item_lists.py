"""Lists of words and a question for the one that fits, in two families of formats and wordings.

A list holds a member of each of four categories, and for each a word of its field that is no
member: "orchard" for fruit. The same list is asked for all four in turn, so that each member is
right as often as the others, wherever it stands and whatever its length and frequency.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from headscope.corpus.document import Document
from headscope.stimuli.question_texts import QuestionText, question_document, question_windows
from headscope.stimuli.stimulus import Rounds, Stimulus, build_by_size


class Category(NamedTuple):
    """What may be asked for."""

    article: str
    members: tuple[str, ...]
    lures: tuple[str, ...]
    """Words of the same field that are no members."""


def _category(article: str, members: str, lures: str) -> Category:
    return Category(article, tuple(members.split()), tuple(lures.split()))


CATEGORIES = {
    "fruit": _category("a", "apple banana mango peach pear cherry plum lemon", "orchard juice jam"),
    "animal": _category("an", "tiger horse rabbit wolf sheep camel goat monkey", "zoo cage stable"),
    "tool": _category(
        "a", "hammer saw drill wrench shovel chisel axe", "workshop toolbox mechanic"
    ),
    "instrument": _category(
        "an", "violin guitar piano flute trumpet drum cello", "orchestra concert melody"
    ),
    "vehicle": _category("a", "truck bus van tractor taxi bicycle tram", "road garage driver"),
    "vegetable": _category(
        "a", "carrot onion potato cabbage spinach lettuce", "salad greenhouse soup"
    ),
    "flower": _category("a", "tulip daisy lily daffodil orchid", "vase bouquet petal"),
    "metal": _category("a", "iron copper silver tin zinc steel", "furnace foundry blacksmith"),
    "sport": _category("a", "tennis soccer hockey golf rugby cricket", "stadium referee trophy"),
    "drink": _category("a", "coffee tea milk wine beer lemonade", "bottle straw bartender"),
    "weapon": _category("a", "sword rifle spear dagger pistol", "soldier battle army"),
    "profession": _category(
        "a", "doctor lawyer nurse teacher plumber baker", "office salary career"
    ),
    "insect": _category("an", "ant bee wasp beetle moth", "hive web antenna"),
    "garment": _category("a", "shirt jacket sock scarf sweater skirt", "wardrobe tailor hanger"),
}
"""Categories, each with words that belong to no other one."""


class Family(NamedTuple):
    """Formats of a list and wordings of a question that stand together."""

    kind: str
    """Of its arrows."""
    formats: tuple[tuple[str, str, str], ...]
    """What opens a list, what stands before an item (`{}` is its number), and what after it."""
    questions: tuple[str, ...]


INLINE = Family(
    "inline",
    (("Here is a list: ", "", ", "), ("Words: ", "", "; "), ("Options are ", "", " / ")),
    (
        "Which of these is {} {}? The answer is",
        "Of these words, only one names {} {}, namely",
        "Someone in search of {} {} would choose",
    ),
)
LINES = Family(
    "lines",
    (("List\n", "{}. ", "\n"), ("", "- ", "\n"), ("Items\n", "({}) ", "\n")),
    (
        "Question: what item above is {} {}?\nAnswer:",
        "If you need {} {}, take the",
        "One line says what {} {} could be called:",
    ),
)
FAMILIES = (INLINE, LINES)
CATEGORIES_PER_LIST = 4
"""Categories of a list, each of which is asked for in a text of its own."""
LURE = "lure"
"""What follows a family's name in the kind of the arrows to the lure of what is asked for."""


class Choice(NamedTuple):
    """A list and a question."""

    family: Family
    category: str
    text: str
    """Up to where the answer is due."""
    items: tuple[tuple[str, int], ...]
    """Each item with its first character."""
    right: str
    members: tuple[str, ...]
    """Those items that are right of one of the list's questions."""
    lure: str


def choices(document: int, *, seed: int) -> Iterator[Choice]:
    """The lists of a document, one of each family, each with its questions.

    >>> first, *_ = choices(0, seed=0)
    >>> first.right in CATEGORIES[first.category].members
    True
    >>> len(list(choices(0, seed=0)))
    8
    """
    rng = np.random.default_rng([seed, document])
    for family in FAMILIES:
        names = rng.permutation(list(CATEGORIES))[:CATEGORIES_PER_LIST].tolist()
        right, lures = [
            [str(rng.choice(getattr(CATEGORIES[name], part))) for name in names]
            for part in ("members", "lures")
        ]
        words = rng.permutation([*right, *lures]).tolist()
        listed, items = _listed(words, family.formats[document % len(family.formats)])
        question = family.questions[document // len(family.formats) % len(family.questions)]
        for name, fitting, lure in zip(names, right, lures, strict=True):
            question_text = question.format(CATEGORIES[name].article, name)
            yield Choice(
                family, name, f"{listed}{question_text}", items, fitting, tuple(right), lure
            )


def _listed(
    words: Sequence[str], form: tuple[str, str, str]
) -> tuple[str, tuple[tuple[str, int], ...]]:
    """A list as text, with the first character of each item."""
    text, before, after = form
    items = []
    for number, word in enumerate(words, 1):
        text += before.format(number)
        items.append((word, len(text)))
        text += word + after
    is_inline = after != "\n"
    return (text.rstrip(after) + ". " if is_inline else text), tuple(items)


def choice_documents(document: int, *, seed: int) -> Iterator[Document]:
    """Texts of one document, each a text by itself; the answer follows its question.

    >>> first, *_ = choice_documents(0, seed=0)
    >>> first.text[first.arrows[0].right[0] :].split(",")[0] in first.text.rsplit(" ", 1)[1]
    True
    """
    for number, choice in enumerate(choices(document, seed=seed)):
        starts = dict(choice.items)
        kind = choice.family.kind
        yield question_document(
            f"items_{document:02d}_{number}",
            QuestionText(
                choice.text,
                choice.right,
                {kind: choice.members, f"{kind}-{LURE}": (choice.lure,)},
                starts,
            ),
            upos=partial(_upos, starts=starts),
            stimulus=ITEM_LISTS.name,
            sentence_end="",  # numbers of a list end none
        )


def _upos(form: str, start: int, starts: dict[str, int]) -> str:
    """Items are the only nouns, so that the first or the nearest noun is the first or nearest."""
    if starts.get(form) == start:
        return "NOUN"
    return "NUM" if form.isdigit() else "X" if form.isalpha() else "PUNCT"


choice_windows = partial(question_windows, choice_documents)
"""Windows of lists and questions; a document is one block."""

ITEM_LISTS = Stimulus(
    name="items",
    title="lists and questions",
    build=partial(build_by_size, choice_windows),
    rounds=Rounds.FIRST,
    contested="natural",
    for_relations=True,
    study_documents=16,
    example_windows=8,
    ablation_near=True,
)
