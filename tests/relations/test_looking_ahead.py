"""Heads of encoders that look ahead earn their tags; habits on either side earn none."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import PatternError
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import relations_of

RELATIONS = {r.id: r for r in relations_of(["all"], BIDIRECTIONAL)}
Look = Callable[[Window], dict[int, list[int]]]


@cache
def prose() -> tuple[Window, ...]:
    tokenizer = load_tokenizer("mini", mini_folder())
    return tuple(hs.windows(None, tokenizer, max_tokens=9_000, attention_kind="bidirectional"))


def pattern(window: Window, look: Look) -> np.ndarray:
    """Queries look evenly at their keys; the others rest on the first token."""
    rows = np.zeros((len(window), len(window)), np.float32)
    rows[:, 0] = 1
    for query, keys in look(window).items():
        rows[query] = np.isin(np.arange(len(window)), keys) / len(set(keys))
    return rows


def evidence(looks: dict[str, Look], types: list[str]):
    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, look) for look in looks.values()])[None]

    found = hs.score_patterns(patterns, prose(), types=types).evidence
    return found.assign(name=[list(looks)[head] for head in found["head"]])


def rows_where(window: Window, upos: str) -> np.ndarray:
    return np.flatnonzero(window.words.upos == upos)


def next_word(window: Window, upos: str) -> dict[int, list[int]]:
    last, there = window.words.last, rows_where(window, upos)
    first = window.words.first
    return {
        int(last[i]): list(range(first[k], last[k] + 1))
        for i in range(len(last))
        for k in there[there > i][:1]
        if first[k] > last[i]
    }


def either_side(window: Window, upos: str) -> dict[int, list[int]]:
    last, there = window.words.last, rows_where(window, upos)
    found = {}
    for i in range(len(last)):
        others = [k for k in there if k != i]
        if others:
            near = min(others, key=lambda k: (abs(last[k] - last[i]), k))
            found[int(last[i])] = [int(last[near])]
    return found


def ahead(window: Window, distance: int) -> dict[int, list[int]]:
    return {q: [q + distance] for q in range(1, window.stop - distance)}


def later_of_entity(window: Window) -> dict[int, list[int]]:
    m = window.mentions
    return {
        int(m.last[q]): [int(m.last[k]) for k in keys][:1]
        for q in range(len(m))
        if (keys := [k for k in range(len(m)) if m.entity[k] == m.entity[q]
                     and m.first[k] > m.last[q]])
    }  # fmt: skip


def any_of_entity(window: Window) -> dict[int, list[int]]:
    m = window.mentions
    found = {}
    for q in range(len(m)):
        keys = [k for k in range(len(m)) if m.entity[k] == m.entity[q]
                and (m.first[k] > m.last[q] or m.last[k] < m.first[q])]  # fmt: skip
        if keys:
            found[int(m.last[q])] = [int(m.last[k]) for k in keys]
    return found


def nearest_mention(window: Window) -> dict[int, list[int]]:
    m = window.mentions
    found = {}
    for q in range(len(m)):
        others = [k for k in range(len(m)) if m.first[k] > m.last[q] or m.last[k] < m.first[q]]
        if others:
            near = min(others, key=lambda k: abs(m.last[k] - m.last[q]))
            found[int(m.last[q])] = [int(m.last[near])]
    return found


def tags(found) -> dict[str, set[str]]:
    named = {name: set() for name in found["name"]}
    for row in found[found["tagged"]].itertuples():
        named[row.name].add(row.relation)
    return named


def test_the_next_word_of_a_class_is_found_and_habits_on_either_side_are_not():
    looks = {
        "next verb": lambda w: next_word(w, "VERB"),
        "next noun": lambda w: next_word(w, "NOUN"),
        "verb on either side": lambda w: either_side(w, "VERB"),
        "noun on either side": lambda w: either_side(w, "NOUN"),
        "two ahead": lambda w: ahead(w, 2),
    }
    found = tags(evidence(looks, ["lexical"]))
    assert found["next verb"] == {"next-VERB"}
    assert found["next noun"] == {"next-NOUN"}
    assert found["verb on either side"] == found["noun on either side"] == set()
    assert found["two ahead"] == set()


def test_reference_is_found_on_both_sides_and_the_nearest_mention_is_refused():
    looks = {
        "later": later_of_entity,
        "any": any_of_entity,
        "nearest on either side": nearest_mention,
    }
    found = tags(evidence(looks, ["coreference"]))
    assert {"chain", "pronoun"} <= found["any"]
    assert "chain" in found["later"]
    assert found["nearest on either side"] == set()


def test_patterns_of_both_kinds_of_windows_are_not_mixed():
    tokenizer = load_tokenizer("mini", mini_folder())
    causal = hs.windows(None, tokenizer, max_tokens=300)[0]
    even = [np.eye(len(w), dtype=np.float32)[None, None] for w in (causal, prose()[0])]
    with pytest.raises(PatternError, match="score them apart"):
        hs.score_patterns(even, [causal, prose()[0]])
    later = np.eye(len(causal), k=1, dtype=np.float32)
    later[-1, 0] = 1
    with pytest.raises(PatternError, match="attention_kind='bidirectional'"):
        hs.score_patterns(later[None, None], [causal])
