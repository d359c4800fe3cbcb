"""Heads that look for a number of the query's own kind earn their tag, and habits earn none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.from_tokens import window_of_tokens
from headscope.corpus.structure import with_structure
from headscope.corpus.structure.numbers import NUMBER, numbers
from headscope.corpus.text import read_text
from headscope.corpus.window import Window
from headscope.relations.structure import from_other_kinds, nearest_of_kind, same_kind
from tests.helpers.looking import Look, candidate, knows, pattern, same_word, words_back

WORDS = "the a tea lamp barn cook river old red saw found near wall and with mill wrote".split()
PIECE = re.compile(r"[^\S\n]?(?:[^\W\d]+|\d|[^\w\s])|\s")
KINDS = ("date", "time", "money", "percentage", "ordinal", "decimal", "year", "count")


def made(kind: str, rng: np.random.Generator) -> str:
    small, day = int(rng.integers(10, 99)), int(rng.integers(1, 29))
    return {
        "date": f"{day} {rng.choice(['May', 'June', 'March'])} {rng.integers(1900, 2020)}",
        "time": f"{rng.integers(0, 24)}:{rng.integers(10, 60)}",
        "money": f"${small}.{rng.integers(10, 99)}",
        "percentage": f"{small}%",
        "ordinal": f"{small // 10 * 10 + 4}th",
        "decimal": f"{day}.{small}",
        "year": str(rng.integers(1500, 2099)),
        "count": str(small),
    }[kind]


def tokens(text: str) -> list[str]:
    return ["<bos>", *(each.group() for each in PIECE.finditer(text))]


@cache
def windows() -> tuple[Window, ...]:
    """Texts in which numbers of four kinds take turns at random, with two to six words between."""
    found = []
    for number in range(60):
        rng = np.random.default_rng(number)
        parts: list[str] = []
        own = rng.choice(KINDS, 4, replace=False)
        for _ in range(24):
            parts += [str(word) for word in rng.choice(WORDS, rng.integers(2, 7))]
            parts.append(made(str(rng.choice(own)), rng))
        text = " ".join([*parts, "end."])
        document = with_structure(read_text(f"made_{number}", text))
        found.append(window_of_tokens(tokens(text), document))
    return tuple(found)


def spans(window: Window) -> list[tuple[int, str]]:
    """The last token of each number of a window, and its kind."""
    text, ends = "", []
    for string in window.strings[1:]:
        text += string
        ends.append(len(text))
    return [(ends.index(each.end) + 1, each.kind) for each in numbers(text)]


def number_before(back: int) -> Look:
    """From any number the last token of the one so many before it; 0 is the text's first."""

    def look(window: Window) -> dict[int, int]:
        own = [place for place, _ in spans(window)]
        before = (own[max(0, row - back) if back else 0] for row in range(1, len(own)))
        return dict(zip(own[1:], before, strict=True))

    return look


def likes(kind: str, *, everywhere: bool = False) -> Look:
    """From every number, or token, the nearest one before it of one kind, whatever the query's."""

    def look(window: Window) -> dict[int, int]:
        own = spans(window)
        places = [place for place, _ in own]
        found = {}
        for query in range(len(window)) if everywhere else places:
            keys = [place for place, its in own if its == kind and place < query]
            found |= {query: keys[-1]} if keys else {}
        return found

    return look


def nearest_token(wanted: str) -> Look:
    def look(window: Window) -> dict[int, int]:
        found, last = {}, 0
        for query, own in enumerate(window.strings):
            found[query] = last
            last = query if re.fullmatch(wanted, own.strip()) else last
        return found

    return look


def same_token(window: Window) -> dict[int, int]:
    seen: dict[str, int] = {}
    found = {}
    for query, own in enumerate(window.strings):
        found[query] = seen.get(own, 0)
        seen[own] = query
    return found


HABITS: dict[str, Look] = {
    "nearest candidate": candidate(NUMBER, -1),
    "first candidate": candidate(NUMBER, 0),
    "last but one candidate": candidate(NUMBER, -2),
    **{f"number {back} before": number_before(back) for back in (0, 1, 2, 3)},
    **{f"nearest {kind}": likes(kind) for kind in KINDS},
    **{f"nearest {kind} from everywhere": likes(kind, everywhere=True) for kind in KINDS},
    "nearest digit": nearest_token(r"\d"),
    "nearest sign": nearest_token(r"[$%:.]"),
    "same token": same_token,
    "same word": same_word(-1),
    "first same word": same_word(0),
    **{f"{words} words back": words_back(words) for words in (1, 2, 3, 5, 8)},
}


@pytest.fixture(scope="module")
def evidence():
    shares = {
        "knows": (knows(NUMBER), 1.0),
        "half": (knows(NUMBER), 0.5),
        **{name: (look, 1.0) for name, look in HABITS.items()},
    }

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, *each) for each in shares.values()])[None]

    found = hs.score_patterns(patterns, windows(), types=["structure"]).evidence
    return found.assign(name=[[*shares][head] for head in found["head"]])


def verdict(evidence, name: str) -> str:
    own = evidence[(evidence["name"] == name) & (evidence["relation"] == NUMBER)]
    return str(own["verdict"].item())


@pytest.mark.parametrize("name", ["knows", "half"])
def test_a_head_that_knows_is_found(name, evidence):
    assert verdict(evidence, name) == "tagged"


@pytest.mark.parametrize("habit", HABITS)
def test_a_habit_is_refused(habit, evidence):
    assert verdict(evidence, habit) != "tagged"


def test_the_made_text_can_tell(evidence):
    own = evidence[evidence["relation"] == NUMBER]
    assert own["contested_n"].min() > 300


def example() -> Window:
    text = "He came in 1990 with $3 and 10:30 or 12 lamps, 5% until 1995 with $4, 6%."
    return window_of_tokens(tokens(text), with_structure(read_text("it", text)))


def by_word(window: Window, cells: Iterator[tuple[int, int]]) -> set[tuple[str, str]]:
    """Cells with the texts up to their ends: where digits are tokens, the last four characters."""
    return {
        tuple("".join(window.strings[1 : place + 1])[-4:] for place in cell)  # type: ignore[misc]
        for cell in cells
    }


def test_queries_targets_rule_and_second_control():
    window = example()
    targets = same_kind(window)
    cells = zip(targets.query.tolist(), targets.key.tolist(), strict=True)
    # of 6% nothing is asked, as a head of the same token would be right
    assert by_word(window, cells) == {
        ("1995", "in 1"), ("1995", "n 19"), ("1995", " 199"), ("1995", "1990"),
        ("h $4", "th $"), ("h $4", "h $3"),
    }  # fmt: skip
    picks = nearest_of_kind(window, kind=NUMBER)
    asked = [(query, int(picks[query])) for query in np.flatnonzero(picks >= 0).tolist()]
    assert by_word(window, iter(asked)) == {("1995", ", 5%"), ("h $4", "1995"), (", 6%", "h $4")}
    drawn = from_other_kinds(window, targets, np.random.default_rng(0))
    rows = zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)
    ends = {cell for cell in by_word(window, rows) if cell[1] in ("1990", "h $3")}
    assert ends == {
        *((own, "1990") for own in ("h $3", "0:30", "r 12", ", 5%")),
        *((own, "h $3") for own in ("0:30", "r 12", ", 5%", "1995")),
    }
