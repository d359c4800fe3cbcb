"""Built Markdown in which the nearest mark is often the wrong one.

Brackets and quotations stand within others of their own form and behind some that are closed, lists
hold lists that are marked alike, and tables have three to five columns with cells of one or two
words. So the nearest opener, the line before, the last cell and any fixed distance are wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from headscope.corpus.controlled.lexicon import ADJECTIVES, MEN, PEOPLE, PLACES, THINGS, WOMEN

DOCUMENTS, SEED = 72, 0
FORMS = ("()", "()", "[]", "{}")
QUOTED = ("“”", "“”", "«»")
NESTED = 3
"""Pairs within pairs, at most."""
INDENT, DEEP = "   ", 3
"""Lists within lists, at most: an indented marker may be another token than one that is not, so
that of two levels the same token would tell which list it is."""
Draw = np.random.Generator


def structure_corpus(documents: int = DOCUMENTS, *, seed: int = SEED) -> Iterator[tuple[str, str]]:
    """The documents: the name of each file, and its text.

    >>> name, text = next(structure_corpus())
    >>> name, text.count("(") == text.count(")")
    ('built_00.md', True)
    """
    for number in range(documents):
        rng = np.random.default_rng([seed, number])
        parts = [part(rng) for part in _PARTS]
        order = rng.permutation(len(parts))
        yield f"built_{number:02d}.md", "\n\n".join(parts[i] for i in order) + "\n"


def bracketed(rng: Draw) -> str:
    """Sentences with brackets in brackets.

    “The cook (from the mill (by the river) and the barn) saw the lamp (red) of Anna.”
    """
    return " ".join(_sentence(rng, FORMS) for _ in range(3))


def quoted(rng: Draw) -> str:
    """Sentences with quotations in quotations, mostly of one form.

    John said: “Emma wrote «the old mill» and “the red barn” on the wall.”
    """
    return " ".join(_sentence(rng, QUOTED) for _ in range(3))


def nested_list(rng: Draw) -> str:
    """A list of lists of lists, all marked alike, of items with a line or two."""
    mark = str(rng.choice(["-", "*", "+", "1"]))
    lines: list[str] = []

    def marker(number: int) -> str:
        return f"{number}." if mark == "1" else mark

    def add(depth: int) -> None:
        for number in range(1, 1 + int(rng.integers(2, 4))):
            lines.append(f"{INDENT * depth}{marker(number)} {_noun(rng)}")
            if rng.random() < 0.2:
                lines.append(f"{INDENT * (depth + 1)}{_noun(rng)} of {_name(rng)}")
            if depth + 1 < DEEP and rng.random() < 0.6:
                add(depth + 1)

    add(0)
    return "\n".join(lines)


def tabled(rng: Draw) -> str:
    """A table of three to five columns, with cells of one or two words."""
    columns, rows = int(rng.integers(3, 6)), int(rng.integers(3, 5))
    header = [
        column_name.split("/")[0] for column_name in rng.choice(PLACES, columns, replace=False)
    ]
    body = [[_noun(rng, 0.4) for _ in range(columns)] for _ in range(rows)]
    lines = [header, ["---"] * columns, *body]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


_PARTS: tuple[Callable[[Draw], str], ...] = (bracketed, quoted, nested_list, tabled)


def _sentence(rng: Draw, forms: tuple[str, ...]) -> str:
    marks = str(rng.choice(forms))
    aside = _pair(rng, forms, marks, NESTED)
    form = rng.integers(3)
    if form == 0:
        return f"{_name(rng)} saw the {_noun(rng)} {aside} near the {_one(rng, PLACES)}."
    if form == 1:
        return f"The {_one(rng, PEOPLE)} {aside} found the {_noun(rng)}."
    return f"{_name(rng)} wrote {aside} to the {_one(rng, PEOPLE)}."


def _pair(rng: Draw, forms: tuple[str, ...], marks: str, deeper: int) -> str:
    """A pair with words in it, and as often as not pairs, of its own form or another."""
    words = [f"the {_noun(rng)}"]
    inside = int(rng.integers(0, 3)) if deeper > 1 else 0
    for _ in range(inside):
        form = marks if rng.random() < 0.7 else str(rng.choice(forms))
        words += [_pair(rng, forms, form, deeper - 1), _link(rng)]
    if inside and rng.random() < 0.3:
        words.pop()
    return marks[0] + " ".join(words) + marks[1]


def _link(rng: Draw) -> str:
    return f"{rng.choice(['and', 'by', 'with', 'of'])} the {_noun(rng)}"


def _noun(rng: Draw, adjective: float = 0.5) -> str:
    noun = _one(rng, THINGS)
    return f"{rng.choice(ADJECTIVES)} {noun}" if rng.random() < adjective else noun


def _one(rng: Draw, words: Sequence[str]) -> str:
    return str(rng.choice(words)).split("/")[0]


def _name(rng: Draw) -> str:
    return str(rng.choice([*WOMEN, *MEN]))
