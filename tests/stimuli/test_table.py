"""Stimuli: windows of each fit the model and begin with queries enough for a tag."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headscope.corpus.shipped import mini_folder, shipped_corpora
from headscope.measure.rounds import round_of
from headscope.models.tokenizer import load_tokenizer
from headscope.relations import all_stimuli, relations_of
from headscope.relations.relation import MIN_QUERIES, targets_of
from headscope.relations.types.topic import TOPICS
from headscope.stimuli.stimulus import StimulusConfig
from tests.helpers.prose import mini_tokenizer
from tests.helpers.treebanks import save_treebanks


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> StimulusConfig:
    size = len(load_tokenizer("mini", mini_folder()))
    folder = save_treebanks(
        tmp_path_factory.mktemp("parallel"), ("en", "fr"), documents=160, sentences=2
    )
    return StimulusConfig(
        mini_tokenizer(), size, 128, seed=0, documents=40, corpora=sorted(folder.iterdir())
    )


ASKED_FOR = "haystack", "conversations"
"""Stimuli of `--haystack` and `--chat`, which have tests of their own."""
BUILT = [name for name, row in all_stimuli().items() if row.build and name not in ASKED_FOR]


@pytest.mark.parametrize("name", BUILT)
def test_windows_of_a_stimulus_fit_the_model_and_begin_with_queries_enough_for_a_tag(name, config):
    """A stimulus that ends before the text must not leave its relations without a verdict."""
    row = all_stimuli()[name]
    if name == "topics":
        config = replace(config, corpora=shipped_corpora())
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


def test_topics_are_of_treebanks_and_code_that_does_not_parse_is_passed_over(config, tmp_path):
    (tmp_path / "broken.py").write_text("def f(:")
    (tmp_path / "broken.txt").write_bytes(b"\xff")
    corpora = (shipped_corpora(), [tmp_path / "broken.txt", *shipped_corpora(), tmp_path])
    alone, among = (
        [window.name for window in TOPICS.windows(replace(config, corpora=paths))]
        for paths in corpora
    )
    assert alone == among


@pytest.mark.parametrize(("documents", "has_topics"), [(7, False), (8, True)])
def test_topics_need_eight_documents(documents, has_topics, config, tmp_path):
    save_treebanks(tmp_path, ("en",), documents=documents, sentences=12)
    assert bool(TOPICS.windows(replace(config, corpora=[tmp_path]))) == has_topics
