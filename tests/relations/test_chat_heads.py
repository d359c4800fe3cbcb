"""Heads that attend to a message by its role, beside lazy heads that go by its place."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import ArgumentError, CorpusError
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import relations_of
from headscope.relations.relation import targets_of
from headscope.statistics.conditions import failures
from headscope.stimuli.conversations import (
    ASSISTANT,
    CONVERSATIONS,
    SYSTEM,
    USER,
    conversation_document,
)
from headscope.stimuli.stimulus import StimulusConfig, cut_document
from tests.helpers.chat import CONVERSATION, with_chat_template
from tests.helpers.models import save_model
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


def test_targets_are_the_messages_of_a_conversation_by_hand():
    backend = with_chat_template(load_tokenizer("mini", mini_folder()))
    tokenizer = Tokenizer(backend, name="m").in_chat()
    rows = [(message["role"], message["content"]) for message in CONVERSATION]

    def looked_at(*conversations: list[tuple[str, str]]) -> dict[str, set[str]]:
        document = conversation_document("d", conversations, tokenizer.template)
        (window,) = cut_document(document, tokenizer, "conversations", 320, number=0)
        found = {}
        for name, relation in RELATIONS.items():
            cells = targets_of(relation, window)
            queries = {*cells.query.tolist()}
            if not queries:
                continue
            assert queries == {*answer(window)}
            for query in queries:
                keys = sorted(cells.key[cells.query == query].tolist())
                found.setdefault(name, set()).add("".join(window.strings[key] for key in keys))
        return found

    messages = {"last-user": {"Who found them?"}, "turn-before": {"She told him."}}
    assert looked_at(rows) == {"system": {"You are old."}, **messages}
    first = [("system", "Be old."), ("user", "Who?"), ("assistant", "He.")]
    assert looked_at(first, rows) == {"system-later": {"You are old."}, **messages}
    # a conversation that ends with the user, or has one answer, asks for less
    assert looked_at(rows[:4]) == {}
    assert looked_at(rows[1:3]) == {"last-user": {"Who lost the keys?"}}


def test_messages_have_many_lengths_and_each_sentence_once():
    windows = conversations()
    assert len(windows) == 48
    lengths = np.array([[turn.stop - turn.start for turn in w.turns[-5:]] for w in windows])
    assert (np.quantile(lengths, 0.9, axis=0) > 1.7 * np.quantile(lengths, 0.1, axis=0)).all()
    for window in windows:
        assert len(window) <= 320
        contents = ["".join(window.strings[turn.start : turn.stop]) for turn in window.turns]
        assert len({*contents}) == len(contents)


@pytest.fixture(scope="module")
def model(tokenizer, tmp_path_factory):
    words = with_chat_template(tokenizer)
    folder = tmp_path_factory.mktemp("chat")
    return hs.load_model(str(save_model("llama", words, folder, context=512)))


def test_a_run_of_the_type_records_the_template_and_can_be_repeated(model):
    run = hs.classify(model, types=["chat"], chat=True, max_tokens=600, max_length=320)
    assert set(run.evidence["relation"]) == set(RELATIONS)
    assert (run.evidence["n"] > 0).all()
    assert "assistant" not in run.info["chat"]["before"]
    assert " --types chat" in run.info["command"]
    assert " --chat" in run.info["command"]


@pytest.mark.parametrize(
    ("settings", "error"),
    [({}, ArgumentError), ({"chat": True, "max_length": 64}, CorpusError)],
    ids=["no template", "short windows"],
)
def test_the_type_needs_the_template_and_room_for_messages(model, settings, error):
    with pytest.raises(error, match="chat"):
        hs.classify(model, types=["chat"], **settings)
