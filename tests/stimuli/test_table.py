"""The table of stimuli: a row decides how its windows are built, read, and kept for examples."""

from __future__ import annotations

import numpy as np
import pytest

from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.measure.examples import windows_to_reread
from headscope.measure.plan import round_of
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.relations import check_relations, relations_of
from headscope.relations.controls import other_keys
from headscope.relations.pairs import no_pairs
from headscope.relations.relation import MIN_QUERIES, Relation, TagThresholds, targets_of
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
    if STIMULI[name].rounds is Rounds.DOCUMENTS:
        assert {window.document for window in windows} == set(range(config.documents))


@pytest.mark.parametrize(
    ("rounds", "before_text"), [(Rounds.DOCUMENTS, 0), (Rounds.DOCUMENTS, 8), (Rounds.FIRST, 0)]
)
def test_a_new_row_is_built_read_in_its_rounds_and_kept_for_examples(
    monkeypatch, config, rounds, before_text
):
    def build(config: StimulusConfig) -> list[Window]:
        return [
            Window(str(i), np.arange(3), ("a",) * 3, stimulus="echo", document=i)
            for i in range(config.documents)
        ]

    row = Stimulus(
        name="echo", build=build, rounds=rounds, before_text=before_text, example_windows=3
    )
    monkeypatch.setitem(STIMULI, "echo", row)
    windows = build_stimuli({"echo"}, config)
    assert len(windows) == 40
    # a round has 16 documents, and some of the first may come before all text
    first = [0] * before_text + [1] * (16 - before_text)
    divided = rounds is Rounds.DOCUMENTS
    expected_rounds = [*first, *([2] * 16), *([3] * 8)] if divided else [1] * 40
    assert [round_of(window) for window in windows] == expected_rounds
    assert [window.document for window in windows_to_reread(windows)] == [0, 20, 39]
    shares = {"echo": [before_text / 40, 0.4, 0.8, 1.0]} if divided else {}
    assert StoppingRule([], {}, 8_000, windows).rounds == {"text": [0.0, 1.0], **shares}


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


@pytest.mark.parametrize("name", [name for name, row in STIMULI.items() if row.before_text])
def test_what_is_read_before_the_text_has_the_queries_that_a_tag_asks_for(name, config):
    """Else a stimulus that ends there would leave its relations without a verdict."""
    row = STIMULI[name]
    windows = [each for each in row.build(config) if round_of(each) == 0]
    assert {window.document for window in windows} == set(range(row.before_text))
    relations = [each for each in relations_of(["all"]) if each.stimuli == (name,)]
    assert relations
    for relation in relations:
        queries = {
            (number, query)
            for number, window in enumerate(windows)
            for query in targets_of(relation, window).query.tolist()
        }
        assert len(queries) >= MIN_QUERIES, relation.id
