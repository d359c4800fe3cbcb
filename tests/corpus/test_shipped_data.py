"""Data that ship: texts, checksums, the generator's corpus, atlases and published scores."""

from __future__ import annotations

import hashlib
import lzma
import re
from dataclasses import replace

import pandas as pd
import pytest

from data.corpora.make import controlled_corpus
from headscope.attention_kind import KINDS
from headscope.corpus.read import read_corpus
from headscope.corpus.shipped import data_folder, mini_folder, synthetic_corpora
from headscope.relations import head_types, relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import load
from headscope.runs.atlas import SUFFIX, atlas_names
from headscope.statistics.judge_heads import THRESHOLDS
from headscope.studies.verify import (
    SHIPPED,
    published_metrics,
    read_scores,
    scores_that_ship,
)

GUM = ("vlog/GUM_vlog_pizzeria", "court/GUM_court_loan", "bio/GUM_bio_byron")


@pytest.mark.parametrize(
    "path",
    [
        *synthetic_corpora(),
        *(data_folder() / "gum" / f"{name}.conllu.xz" for name in GUM),
        data_folder() / "challenge" / "sentences.conllu.xz",
    ],
    ids=lambda path: path.stem,
)
def test_the_words_spell_the_text(path):
    documents, raw = read_corpus(path), path.read_bytes()
    text = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode("utf-8")
    sentences = re.findall(r"^# text = (.*?) *$", text, flags=re.MULTILINE)
    assert len(sentences) == sum(document.sentences for document in documents)
    remaining = iter(sentences)
    for document in documents:
        assert all(document.text[w.start : w.end] == w.form for w in document.words)
        place = 0
        for _ in range(document.sentences):
            sentence = next(remaining)
            place = document.text.index(sentence, place) + len(sentence)


def test_the_readme_states_the_checksum_of_every_file():
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    files = [
        *synthetic_corpora(),
        *data_folder().glob("*.csv"),
        *data_folder().glob("*/documents.csv"),
        data_folder() / "challenge" / "sentences.conllu.xz",
    ]
    files += [*data_folder().glob("*/*.npz"), data_folder() / "long_words.txt"]
    files += [path for path in mini_folder().iterdir() if path.suffix in (".safetensors", ".json")]
    assert len(files) > 6
    for path in files:
        assert path.name in readme
        assert hashlib.sha256(path.read_bytes()).hexdigest() in readme, path


def test_the_controlled_corpus_is_what_its_generator_writes_and_depends_on_its_seed():
    shipped = (data_folder() / "corpora" / "controlled.conllu").read_text(encoding="utf-8")
    assert controlled_corpus() == shipped
    assert controlled_corpus(2, seed=12) != controlled_corpus(2)


def test_every_atlas_that_ships_is_judged_by_the_installed_rules():
    installed = [
        (relation.id, replace(relation.thresholds, source="", meaning=""))
        for kind in KINDS.values()
        for relation in relations_of([ALL], kind)
    ]
    table = pd.read_csv(data_folder() / "atlas" / "atlases.csv")
    assert len(atlas_names()) == len(table)
    for row in table.itertuples():
        file = data_folder() / "atlas" / row.file
        assert file.name.endswith(SUFFIX)
        assert hashlib.sha256(file.read_bytes()).hexdigest() == row.sha256
        run = load(file)
        assert run.info["thresholds"] == THRESHOLDS
        for name, rule in run.thresholds.items():
            bare = replace(rule, source="", meaning="")
            assert name.partition("/")[0] not in head_types() or (name, bare) in installed


COMPARED = published_metrics()


@pytest.fixture(scope="module")
def shipped() -> pd.DataFrame:
    return scores_that_ship()


def test_the_induction_heads_of_gpt2_are_those_of_transformerlens_notebook(shipped):
    rows = shipped[shipped["metric"] == "induction_random_repeat_len100"]
    strong = rows[rows["value"] >= 0.8][["layer", "head"]]
    assert set(map(tuple, strong.to_numpy())) == {(5, 1), (5, 5), (6, 9), (7, 2), (7, 10)}


def test_ranked_metrics_have_a_score_for_each_head_and_a_known_relation(shipped):
    known = {relation.id for relation in relations_of(["all"])} | {"entropy", "mean_distance"}
    assert set(COMPARED["relation"]) <= known
    ranked = shipped[shipped["metric"].isin(COMPARED["metric"])]
    for _, table in ranked.groupby(["model", "revision", "metric"]):
        count = table["layer"].nunique() * (table["head"].max() + 1)
        assert len(table.drop_duplicates(["layer", "head"])) == len(table) == count


def test_the_readme_counts_the_published_scores(shipped):
    readme = (data_folder() / "README.md").read_text(encoding="utf-8")
    assert f"{shipped['model'].nunique()} models'" in readme
    assert f"{len(shipped):,} of {shipped['metric'].nunique()} metrics" in readme
    assert shipped["source"].notna().all()
    assert len(shipped) == len(read_scores(data_folder() / SHIPPED))


NEURONPEDIA = ["prev_token_score", "self_attention_score", "induction_score", "pattern_entropy"]
NEURONPEDIA += ["qk_distance"]
HYBRID = "Qwen/Qwen3.5-"


def test_neuronpedia_s_metrics_of_35_models_ship(shipped):
    """The heads of three models by their published configurations."""
    of_model = shipped[shipped["metric"].isin(NEURONPEDIA)].groupby("model")
    assert of_model.ngroups == 35
    assert of_model["metric"].nunique().eq(len(NEURONPEDIA)).all()
    heads = of_model.size() // len(NEURONPEDIA)
    assert heads["google/gemma-3-270m"] == 18 * 4
    assert heads["meta-llama/Llama-3.1-8B"] == 32 * 32
    assert heads["Qwen/Qwen3.5-2B-Base"] == 6 * 8
    for name, rows in of_model:
        layers = sorted(set(rows["layer"]))
        step = 4 if name.startswith(HYBRID) else 1  # every fourth layer has softmax attention
        assert layers == list(range(step - 1, layers[-1] + 1, step))
