"""Heads that know a text's structure earn their tags, and habits earn none."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from functools import cache

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.align import TokenizedDocument
from headscope.corpus.document import Document
from headscope.corpus.from_tokens import window_of_tokens
from headscope.corpus.shipped import named_corpora
from headscope.corpus.structure import MARKS
from headscope.corpus.window import Window
from headscope.relations.structure import nearest_of_kind
from headscope.stimuli.text import TextWindows
from tests.helpers.looking import Look, candidate, knows, pattern
from tests.relations import structure_example

OPENERS = set("([{“«")


TOKEN = re.compile(r"\n[^\S\n]*(?=[^\S\n])|[^\S\n]?(?:\w+|[^\w\s])|\s")


class ByWord:
    """A token for each word or mark, with the blank before it: ` -` is another than `-`."""

    bos, bos_string = 1, "<bos>"

    def encode(self, document: Document) -> TokenizedDocument:
        found = list(TOKEN.finditer(document.text))
        forms = [each.group() for each in found]
        ids = np.array([zlib.crc32(form.encode()) % 30_000 for form in forms], np.int64)
        offsets = np.array([each.span() for each in found], np.int64)
        return TokenizedDocument(document, ids, forms, offsets)

    def spell(self, tokens: Sequence[int]) -> list[str]:
        raise NotImplementedError


@cache
def windows() -> tuple[Window, ...]:
    place = named_corpora()["structure"]
    return tuple(TextWindows([place], ByWord(), max_tokens=30_000, max_length=256, seed=0))


def alike(kind: str) -> Look:
    """What is nearest of the right one's form, as the simple rule has it."""

    def look(window: Window) -> dict[int, int]:
        picks = nearest_of_kind(window, kind=kind)
        return {int(query): int(picks[query]) for query in np.flatnonzero(picks >= 0)}

    return look


def _nearest_of(wanted: Callable[[str, str], bool]) -> Look:
    def look(window: Window) -> dict[int, int]:
        found = {}
        for query, own in enumerate(window.strings):
            keys = [key for key in range(1, query) if wanted(own, window.strings[key])]
            found |= {query: keys[-1]} if keys else {}
        return found

    return look


def back(tokens: int) -> Look:
    return lambda window: {query: query - tokens for query in range(tokens, len(window))}


HABITS = {
    **{f"nearest {kind}": candidate(kind, -1) for kind in MARKS},
    **{f"nearest alike {kind}": alike(kind) for kind in MARKS},
    **{f"first {kind}": candidate(kind, 0) for kind in MARKS},
    **{f"last but one {kind}": candidate(kind, -2) for kind in MARKS},
    **{f"place {n} of {kind}": candidate(kind, n) for kind in MARKS[3:] for n in (1, 2)},
    "nearest opener": _nearest_of(lambda own, key: key.strip() in OPENERS),
    "same token": _nearest_of(lambda own, key: own == key),
    **{f"{d} back": back(d) for d in (1, 2, 4, 8)},
}


@pytest.fixture(scope="module")
def evidence():
    rng = np.random.default_rng(0)
    shares = {
        **{kind: (knows(kind), 1.0) for kind in MARKS},
        **{f"half {kind}": (knows(kind), 0.5) for kind in MARKS},
        **{name: (look, 1.0) for name, look in HABITS.items()},
    }

    def patterns(window: Window) -> np.ndarray:
        known = [pattern(window, *each) for each in shares.values()]
        random = np.tril(np.exp(rng.normal(0, 2, (4, len(window), len(window)))))
        return np.concatenate([known, random / random.sum(-1, keepdims=True)])[None]

    names = [*shares, *(f"random {number}" for number in range(4))]
    found = hs.score_patterns(patterns, windows(), types=["structure"]).evidence
    return found.assign(name=[names[head] for head in found["head"]])


@pytest.fixture
def tagged(evidence) -> dict[str, set[str]]:
    return {
        str(name): set(own["relation"][own["verdict"] == "tagged"])
        for name, own in evidence.groupby("name")
    }


@pytest.mark.parametrize("kind", MARKS)
def test_a_head_that_knows_is_found(kind, tagged):
    assert tagged[kind] == {kind}


@pytest.mark.parametrize("kind", MARKS)
def test_a_head_that_knows_is_found_under_as_much_noise(kind, tagged):
    assert tagged[f"half {kind}"] == {kind}


@pytest.mark.parametrize("habit", [*HABITS, *(f"random {number}" for number in range(4))])
def test_a_habit_is_refused(habit, tagged):
    assert tagged[habit] == set()


@pytest.mark.parametrize("kind", MARKS)
def test_the_simple_rule_picks_what_is_nearest_and_alike(kind):
    window = window_of_tokens(structure_example.TOKENS, structure_example.DOCUMENT)
    picks = nearest_of_kind(window, kind=kind)
    found = {int(query): int(picks[query]) for query in np.flatnonzero(picks >= 0)}
    assert found == structure_example.NEAREST[kind]
