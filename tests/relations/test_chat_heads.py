"""Heads that attend to a message by its role, beside lazy heads that go by its place."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import relations_of
from headscope.statistics.conditions import failures
from headscope.stimuli.conversations import ASSISTANT, CONVERSATIONS, SYSTEM, USER
from headscope.stimuli.stimulus import StimulusConfig
from tests.helpers.chat import with_chat_template
from tests.relations.looking import Keys, Look, pattern

RELATIONS = {relation.name: relation for relation in relations_of(["chat"], in_chat=True)}


@cache
def conversations() -> list[Window]:
    backend = with_chat_template(load_tokenizer("mini", mini_folder()))
    tokenizer = Tokenizer(backend, name="m").in_chat()
    return CONVERSATIONS.windows(StimulusConfig(tokenizer, 4096, 320, seed=3, documents=48))


def answer(window: Window) -> range:
    return range(window.turns[-1].start, window.turns[-1].stop)


def message(role: str, number: int = -1) -> Look:
    """From every token of the last answer to a message of a role before it."""

    def look(window: Window) -> Keys:
        turns = [turn for turn in window.turns[:-1] if turn.role == role]
        return {key: [*range(turns[number].start, turns[number].stop)] for key in answer(window)}

    return look


def everywhere(keys: range) -> Look:
    """From every token to the same positions."""
    return lambda window: {
        query: [key for key in keys if 0 < key <= query]
        for query in range(1, len(window))
        if query >= keys.start
    }


def back(least: int, most: int) -> Look:
    """From every token to those that lie so many tokens back."""
    return lambda window: {
        query: [*range(max(1, query - most), query - least + 1)]
        for query in range(least + 1, len(window))
    }


def outside_messages(window: Window) -> Keys:
    inside = {place for turn in window.turns for place in range(turn.start, turn.stop)}
    keys = [place for place in range(1, len(window)) if place not in inside]
    return {key: [key for key in keys if key < answer(window).start] for key in answer(window)}


def starts(window: Window) -> Keys:
    """The first four tokens of each message."""
    keys = [turn.start + step for turn in window.turns[:-1] for step in range(4)]
    return dict.fromkeys(answer(window), keys)


KNOWS = {
    f"{name}, noise {noise}": (message(role), noise)
    for name, role in (("system", SYSTEM), ("last-user", USER), ("turn-before", ASSISTANT))
    for noise in (0.0, 0.5)
}
LAZY = {
    **{f"first {n} tokens": everywhere(range(1, n)) for n in (4, 16, 40, 80, 160)},
    **{f"last {n} tokens": back(0, n) for n in (8, 30, 60, 120, 320)},
    **{f"{n} to {2 * n} back": back(n, 2 * n) for n in (20, 40, 80)},
    "template": outside_messages,
    "starts of messages": starts,
    "first system prompt": message(SYSTEM, 0),
    "first user message": message(USER, 0),
}


@cache
def judged() -> pd.DataFrame:
    """Whether each head, a row, fails another condition of each relation than the q value."""
    heads = [look if isinstance(look, tuple) else (look, 0.0) for look in (KNOWS | LAZY).values()]

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, *head) for head in heads])[None]

    run = hs.score_patterns(patterns, conversations(), relations=[*RELATIONS.values()])
    failed = failures(run.evidence_with_thresholds).drop(columns="q value").any(axis=1)
    names = [[*KNOWS, *LAZY][head] for head in run.evidence["head"]]
    return run.evidence.assign(name=names, fails=failed.to_numpy())


def earned(name: str) -> set[str]:
    rows = judged()
    return {*rows["relation"][(rows["name"] == name) & ~rows["fails"]]}


@pytest.mark.parametrize("name", KNOWS)
def test_a_head_that_goes_by_a_role_earns_its_tag_alone(name):
    assert earned(name) == {name.partition(",")[0]}


@pytest.mark.parametrize("name", LAZY)
def test_a_head_that_goes_by_place_earns_nothing(name):
    assert not earned(name)
