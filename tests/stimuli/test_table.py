"""Stimuli: how the windows of each are built, read in rounds, and kept for examples."""

from __future__ import annotations

import numpy as np
import pytest

from headscope import relations
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.measure.examples import chosen_windows
from headscope.measure.plan import round_of
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import all_stimuli, relations_of
from headscope.relations.head_type import HeadType
from headscope.relations.relation import MIN_QUERIES, targets_of
from headscope.statistics.early_stopping import StoppingRule
from headscope.stimuli.stimulus import Stimulus, StimulusConfig


@pytest.fixture(scope="module")
def config() -> StimulusConfig:
    backend = load_tokenizer("mini", mini_folder())
    tokenizer = Tokenizer(backend, name="mini")
    return StimulusConfig(tokenizer, len(backend), max_length=128, seed=0, documents=40)


@pytest.mark.parametrize("name", [name for name, row in all_stimuli().items() if row.build])
def test_windows_of_a_stimulus_fit_the_model_and_begin_with_queries_enough_for_a_tag(name, config):
    """Else a stimulus that ends before the text would leave its relations without a verdict."""
    row = all_stimuli()[name]
    windows = row.windows(config)
    assert {window.stimulus for window in windows} == {name}
    assert max(map(len, windows)) <= config.max_length
    assert {window.document for window in windows} == set(range(config.documents))
    first = [window for window in windows if round_of(window) == 0]
    assert {window.document for window in first} == set(range(row.before_text))
    for relation in relations_of(["all"]):
        if relation.stimuli == (name,) and row.before_text:
            queries = sum(len(targets_of(relation, window).queries) for window in first)
            assert queries >= MIN_QUERIES, relation.id


@pytest.mark.parametrize("before_text", [0, 8])
def test_a_new_stimulus_is_read_in_its_rounds_and_kept_for_examples(
    monkeypatch, config, before_text
):
    def build(config: StimulusConfig) -> list[Window]:
        return [
            Window(str(i), np.arange(3), ("a",) * 3, document=i) for i in range(config.documents)
        ]

    row = Stimulus(name="echo", build=build, before_text=before_text, example_windows=3)
    head_type = HeadType(name="echo", letter="E", relations=(), stimuli=(row,))
    monkeypatch.setitem(relations._registered, "echo", head_type)
    windows = row.windows(config)
    assert {window.stimulus for window in windows} == {"echo"}
    # a round has 16 documents, and some of the first may come before all text
    first = [0] * before_text + [1] * (16 - before_text)
    assert [round_of(window) for window in windows] == [*first, *([2] * 16), *([3] * 8)]
    assert [window.document for window in chosen_windows(windows)] == [0, 20, 39]
    shares = [before_text / 40, 0.4, 0.8, 1.0]
    assert StoppingRule([], {}, 8_000, windows).rounds == {"text": [0.0, 1.0], "echo": shares}
