"""The table of stimuli: a row decides how its windows are built, read, and kept for examples."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.measure.examples import windows_to_reread
from headscope.measure.schedule import round_of
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import check_relations
from headscope.relations.controls import other_keys
from headscope.relations.pairs import no_pairs
from headscope.relations.relation import Relation, TagThresholds
from headscope.statistics.early_stopping import StoppingRule
from headscope.stimuli import STIMULI, build_stimuli
from headscope.stimuli.stimulus import Rounds, Stimulus, StimulusConfig


@pytest.fixture(scope="module")
def config() -> StimulusConfig:
    backend = load_tokenizer("mini", mini_folder())
    tokenizer = Tokenizer(backend, name="mini")
    return StimulusConfig(tokenizer, len(backend), max_length=128, seed=0, documents=40)


@pytest.mark.parametrize("name", [name for name, row in STIMULI.items() if row.build])
def test_windows_are_named_after_their_row_and_fit_the_model(name, config):
    windows = list(STIMULI[name].build(config))
    assert {window.stimulus for window in windows} == {name}
    assert max(map(len, windows)) <= config.max_length
    if STIMULI[name].rounds in (Rounds.DOCUMENTS, Rounds.FEW):
        assert {window.document for window in windows} == set(range(config.documents))


@pytest.mark.parametrize("rounds", [Rounds.DOCUMENTS, Rounds.FEW, Rounds.FIRST])
def test_a_new_row_is_built_read_in_its_rounds_and_kept_for_examples(monkeypatch, config, rounds):
    def build(config: StimulusConfig) -> list[Window]:
        return [
            Window(str(i), np.arange(3), ("a",) * 3, stimulus="echo", document=i)
            for i in range(config.documents)
        ]

    row = Stimulus(name="echo", build=build, rounds=rounds, example_windows=3)
    monkeypatch.setitem(STIMULI, "echo", row)
    windows = build_stimuli({"echo"}, config)
    assert len(windows) == 40
    # a round has 16 documents, and half of the first may come before all text
    expected_rounds = {
        Rounds.DOCUMENTS: [1] * 16 + [2] * 16 + [3] * 8,
        Rounds.FEW: [0] * 8 + [1] * 8 + [2] * 16 + [3] * 8,
        Rounds.FIRST: [1] * 40,
    }
    assert [round_of(window) for window in windows] == expected_rounds[rounds]
    assert [window.document for window in windows_to_reread(windows)] == [0, 20, 39]
    expected_shares = {
        Rounds.DOCUMENTS: {"echo": [0.0, 0.4, 0.8, 1.0]},
        Rounds.FEW: {"echo": [0.2, 0.4, 0.8, 1.0]},
        Rounds.FIRST: {},
    }
    assert StoppingRule([], {}, 8_000, windows).rounds == {
        "text": [0.0, 1.0], **expected_shares[rounds]
    }  # fmt: skip


def test_a_relation_may_ask_for_the_stimuli_that_are_for_relations_and_no_others():
    def asking(stimulus: str) -> list[Relation]:
        rule = TagThresholds(0.1, "ours", "looks nowhere")
        nowhere = lambda window: no_pairs()  # noqa: E731
        return [Relation("nowhere", "at-all", nowhere, other_keys, rule, (stimulus,))]

    for name, row in STIMULI.items():
        if row.for_relations:
            assert check_relations(asking(name))
    for name in ("built", "prompts", "further", "poems"):
        with pytest.raises(HeadscopeError, match="text, repeat, pairs, facts, words"):
            check_relations(asking(name))
