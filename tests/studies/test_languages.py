"""Runs on several languages: planted heads whose relations are known."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

import headscope as hs
from headscope.corpus.window import Window
from headscope.errors import CorpusError, HeadscopeError, RunError
from headscope.models.tokenizer import Tokenizer
from headscope.settings import Settings
from headscope.statistics.ratio import resample
from headscope.studies.languages import (
    compared,
    evidence_of,
    mean_product,
    shared_documents,
    unit_ranks,
)
from tests.helpers.treebanks import LANGUAGES, save_treebanks

Look = Callable[[Window], dict[int, int]]


def knows(deprel: str) -> Look:
    """Attention from the later of a word and its governor to the earlier."""

    def look(window: Window) -> dict[int, int]:
        words, found = window.words, {}
        for own in np.flatnonzero((words.deprel == deprel) & (words.head >= 0)):
            ends = sorted((int(words.last[own]), int(words.last[words.head[own]])))
            found[ends[1]] = ends[0]
        return found

    return look


def noun(number: int) -> Look:
    """Attention from a verb to a noun of its sentence by its place: 0 the first, −1 the nearest.

    Where there are fewer, the farthest that there is on that way.
    """

    def look(window: Window) -> dict[int, int]:
        words, found = window.words, {}
        for verb in np.flatnonzero(words.upos == "VERB"):
            before = np.arange(len(words)) < verb
            before &= (words.upos == "NOUN") & (words.sentence == words.sentence[verb])
            nouns = words.last[before].tolist()
            if nouns:
                found[int(words.last[verb])] = nouns[max(-len(nouns), min(number, len(nouns) - 1))]
        return found

    return look


def rests(window: Window) -> dict[int, int]:
    """Always to the first token."""
    return {}


def patterns(heads: Sequence[Look], share: float = 0.9) -> Callable[[Window], np.ndarray]:
    """Attention of shape layer × head × query × key: a share of it by the rule, the rest on BOS."""

    def of(window: Window) -> np.ndarray:
        found = np.zeros((1, len(heads), len(window), len(window)))
        for place, look in enumerate(heads):
            found[0, place, :, 0] = 1
            for query, key in look(window).items():
                found[0, place, query, 0] = 1 - share
                found[0, place, query, key] += share
        return found

    return of


def read(folder: Path, language: str, heads: Sequence[Look], encoder: object) -> hs.Run:
    """Run of such heads on a language of `tests.helpers.treebanks`."""
    windows = hs.windows(folder / f"{language}_pud-ud-test.conllu", encoder)
    return hs.score_patterns(patterns(heads), windows, types=["syntactic"], name="planted")


SUBJECT, OBJECT = "nsubj:head>dep", "obj:head>dep"
BASELINES = {f"noun {number}": noun(number) for number in (0, 1, 2, -1, -2, -3)}
KNOWING = {"subject": knows("nsubj"), "object": knows("obj")}
EUROPEAN = ("en", "fr")
"""Languages in which one planted head knows the subject; elsewhere it rests."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return save_treebanks(tmp_path_factory.mktemp("pud"))


@pytest.fixture(scope="module")
def runs(folder, tokenizer) -> dict[str, hs.Run]:
    return {
        language: read(
            folder,
            language,
            [
                *KNOWING.values(),
                knows("nsubj") if language in EUROPEAN else rests,
                *BASELINES.values(),
            ],
            tokenizer,
        )
        for language in LANGUAGES
    }


@pytest.fixture(scope="module")
def evidence(runs) -> pd.DataFrame:
    return evidence_of(runs)


@pytest.fixture(scope="module")
def found(runs) -> hs.StudyResult:
    return compared(runs, documents=24, failed={"de": "no such file"})


def row(found: hs.StudyResult, head: int, relation: str) -> pd.Series:
    table = found.table
    return table[(table["head"] == head) & (table["relation"] == relation)].iloc[0]


def test_a_head_that_knows_a_relation_has_the_tag_wherever_a_text_decides(found):
    # in these English and Chinese sentences the head's surrogate is never wrong: they cannot decide
    subject = row(found, 0, SUBJECT)
    assert (subject["holds_in"], subject["undecided_in"]) == ("fr;ja", "en;zh")
    assert (subject["tagged"], subject["decidable"], subject["not_in"]) == (2, 2, "")
    # the Japanese verb stands last: there alone an object comes before it
    own = row(found, 1, OBJECT)
    assert (own["holds_in"], own["decidable"], own["undecided_in"]) == ("ja", 1, "")
    two = row(found, 2, SUBJECT)
    assert (two["holds_in"], two["not_in"], two["undecided_in"]) == ("fr", "ja;zh", "en")


@pytest.mark.parametrize("baseline", BASELINES)
def test_baselines_of_place_have_no_tag_in_any_word_order(found, baseline):
    head = len(KNOWING) + 1 + list(BASELINES).index(baseline)
    own = found.table[found.table["head"] == head]
    assert len(own) >= 3
    assert not own["tagged"].any(), own[["relation", "holds_in", "lift"]]


def test_the_mean_lift_is_that_of_the_languages_that_decide(found, evidence):
    decided = evidence[evidence["decidable"]]
    for each in found.table.itertuples():
        same = (decided["head"] == each.head) & (decided["relation"] == each.relation)
        assert each.lift == pytest.approx(decided.loc[same, "lift"].mean())
        assert each.ci_low <= each.lift + 1e-9
        assert each.lift <= each.ci_high + 1e-9


def test_a_text_read_twice_gives_the_interval_of_one_if_its_documents_are_the_same(runs):
    twice = {"en": runs["en"], "fr": runs["en"]}
    head = len(KNOWING) + 1 + list(BASELINES).index("noun -1")
    one, other = (row(compared(twice, documents=n), head, SUBJECT) for n in (24, None))
    tally = runs["en"].tally
    index = tally.relations.index(f"syntactic/{SUBJECT}")
    excess = (tally.target - tally.control)[:, index, 0, head]
    queries = tally.queries[:, index]
    draws = resample(int((queries > 0).sum()), np.random.default_rng([0, 0]))
    ratios = (draws @ excess[queries > 0]) / (draws @ queries[queries > 0])
    low, high = np.quantile(ratios, (0.025, 0.975))
    assert (one["ci_low"], one["ci_high"]) == pytest.approx((low, high))
    # two texts that are independent
    width = (other["ci_high"] - other["ci_low"]) / (high - low)
    assert width == pytest.approx(2**-0.5, rel=0.15)


def test_the_result_lists_heads_with_tags_and_languages_that_failed(found):
    shown = found.terminal_table.set_index(["head", "label"])["tagged"]
    assert shown.to_dict() == {(0, SUBJECT): 2, (2, SUBJECT): 1, (1, OBJECT): 1}
    assert "the same 24 documents in each" in found.title
    assert found.notes == ["de failed: no such file"]


def test_heads_agree_between_languages_as_far_as_their_lifts_rank_alike(found, evidence):
    one = row(found, 0, SUBJECT)
    rows = evidence[evidence["relation"] == SUBJECT]
    lifts = rows.pivot(index="head", columns="language", values="lift")
    pairs = [spearmanr(lifts[a], lifts[b])[0] for a, b in combinations(lifts.columns, 2)]
    assert one["correlation"] == pytest.approx(np.mean(pairs))
    assert one["correlation_low"] < one["correlation"] < one["correlation_high"]
    # one layer explains nothing
    assert one["correlation_by_chance"] == pytest.approx(0, abs=1e-9)


def test_the_correlation_by_chance_is_that_of_heads_shuffled_within_layers():
    rng = np.random.default_rng(3)
    lifts = np.repeat(np.arange(3.0), 8) + rng.random((4, 24)) * 2
    ranks = unit_ranks(lifts)
    expected = mean_product(ranks.reshape(4, 3, 8).mean(-1).repeat(8, axis=-1))
    orders = np.argsort(rng.random((2000, 4, 3, 8)), axis=-1)
    shuffled = np.take_along_axis(ranks.reshape(1, 4, 3, 8), orders, axis=-1)
    assert mean_product(shuffled.reshape(2000, 4, 24)).mean() == pytest.approx(expected, abs=0.01)
    assert expected > 0.3


def test_a_head_with_a_tag_everywhere_has_it_more_often_than_its_layer_by_chance(found):
    everywhere, in_two = (row(found, head, SUBJECT) for head in (0, 2))
    # 9 heads, of which two have the tag in French, and one in Japanese
    chances = [2 / 9, 1 / 9]
    assert everywhere["by_chance"] == in_two["by_chance"] == pytest.approx(sum(chances))
    assert everywhere["p_value"] == pytest.approx(np.prod(chances))
    assert in_two["p_value"] > 10 * everywhere["p_value"]
    baseline = row(found, len(KNOWING) + 1, SUBJECT)
    assert (baseline["tagged"], baseline["p_value"]) == (0, pytest.approx(1))


def test_texts_that_decide_nothing_are_an_error(folder, tokenizer):
    with pytest.raises(RunError, match="relation"):
        compared({"ar": read(folder, "ar", [noun(-1)], tokenizer)})


SMALL = {"max_tokens": 3_000, "examples": False, "languages": ["en", "ja", "zh"]}


@pytest.fixture(scope="module")
def made(folder, gpt2_folder, tmp_path_factory) -> Path:
    out = tmp_path_factory.mktemp("languages") / "out"
    hs.languages(str(gpt2_folder), folder, out=out, **SMALL)
    return out


def loaded(out: Path) -> dict[str, hs.Run]:
    cells = json.loads((out / "sweep.json").read_text())["cells"]
    return {Path(cell["corpus"][0]).name[:2]: hs.load(out / cell["folder"]) for cell in cells}


def test_all_languages_read_the_same_documents(made):
    runs = loaded(made)
    assert list(runs) == ["en", "ja", "zh"]
    documents = {run.info["settings"]["documents"] for run in runs.values()}
    assert len(documents) == 1
    count = documents.pop()
    assert 0 < count < 24
    # the language with the most tokens decides: these characters are three bytes each
    read = {language: run.info["text_read"]["tokens"] for language, run in runs.items()}
    assert max(read.values()) <= SMALL["max_tokens"] < max(read.values()) * (count + 1) / count
    assert all(not run.info["settings"]["challenge"] for run in runs.values())


def test_texts_that_are_not_parallel_are_read_each_to_its_own_end(folder, tokenizer, tmp_path):
    encoder, settings = Tokenizer(tokenizer, name="t"), Settings(max_tokens=100_000)
    text = {name: [folder / f"{name}_pud-ud-test.conllu"] for name in ("en", "ja")}
    assert shared_documents(text, encoder, settings, 1024) == 24
    assert shared_documents(text, encoder, Settings(documents=5), 1024) == 5
    other = tmp_path / "zh_x-ud-test.conllu"
    own = (folder / "zh_pud-ud-test.conllu").read_text(encoding="utf-8")
    other.write_text(own.replace("# newdoc id = n", "# newdoc id = w"), encoding="utf-8")
    assert shared_documents({**text, "zh": [other]}, encoder, settings, 1024) is None
    # no document of one of them fits
    assert shared_documents(text, encoder, Settings(max_tokens=20), 1024) is None


def test_what_cannot_be_compared_is_refused_before_anything_is_read(folder, gpt2_folder, tmp_path):
    model, out = str(gpt2_folder), tmp_path / "out"
    with pytest.raises(HeadscopeError, match="two"):
        hs.languages(model, folder, languages=["ja"], out=out)
    with pytest.raises(HeadscopeError, match="semantic"):
        hs.languages(model, folder, types=["syntactic", "semantic"], out=out)
    with pytest.raises(CorpusError, match="corpus"):
        hs.languages(model, tmp_path / "none", out=out)
    broken = tmp_path / "de_pud-ud-test.conllu"
    broken.write_text("1\tHaus\n\n", encoding="utf-8")
    with pytest.raises(CorpusError, match=r"de_pud-ud-test\.conllu:1:"):
        hs.languages(model, [folder, broken], languages=["en", "de"], out=out)
    assert not out.exists()
