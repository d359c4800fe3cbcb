"""Runs on several languages side by side, of heads of which it is known what they do."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from scipy.stats import spearmanr

import headscope as hs
from headscope.errors import HeadscopeError, RunError
from headscope.measure.bootstrap import resample
from headscope.studies.sweep.languages.across import held_labels, label_counts
from headscope.studies.sweep.languages.languages_view import languages_lines
from headscope.studies.sweep.languages.lift_agreement import mean_correlation, shuffle
from headscope.studies.sweep.languages.tag_agreement import share_of_tags, shared_numbers
from tests.helpers.treebank_heads import knows, noun, read, rests, words_back
from tests.helpers.treebanks import LANGUAGES, save_treebanks

SUBJECT, OBJECT = "nsubj:head>dep", "obj:head>dep"
HABITS = {
    f"noun {number}": noun(number) for number in (0, 1, 2, -1, -2, -3)
} | {f"{count} back": words_back(count) for count in (1, 2, 3, 4, 5)}  # fmt: skip
KNOWING = {"subject": knows("nsubj"), "object": knows("obj")}
EUROPEAN = ("en", "fr")
"""Where one planted head knows the subject; elsewhere it rests."""


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
                *HABITS.values(),
            ],
            tokenizer,
        )
        for language in LANGUAGES
    }


@pytest.fixture(scope="module")
def found(runs) -> hs.Languages:
    return hs.Languages.of(runs, parallel=24)


def row(found: hs.Languages, head: int, relation: str) -> pd.Series:
    rows = found.heads[(found.heads["head"] == head) & (found.heads["relation"] == relation)]
    return rows.iloc[0]


def test_what_is_known_in_every_language_is_held_wherever_a_text_can_tell(found):
    own = row(found, 0, SUBJECT)
    assert own["holds_in"] == "en;fr;ja;zh"
    assert (own["tagged"], own["decidable"], own["not_in"]) == (4, 4, "")
    # the Japanese verb stands last: there alone an object comes before it
    own = row(found, 1, OBJECT)
    assert (own["holds_in"], own["decidable"], own["asked"]) == ("ja", 1, 1)


def test_an_arabic_verb_is_the_nearest_of_all_and_decides_nothing(found):
    own = found.relations[found.relations["language"] == "ar"].set_index("relation")
    assert own.loc["nsubj:dep>head", "n"] > 100
    assert own.loc["nsubj:dep>head", "baseline"] == "nearest-VERB"
    assert not own["decidable"].any()
    assert not found.heads["holds_in"].str.contains("ar").any()


def test_a_head_of_two_languages_is_named_with_those_that_it_lacks(found):
    own = row(found, 2, SUBJECT)
    assert (own["holds_in"], own["not_in"]) == ("en;fr", "ja;zh")
    assert own["lowest_lift"] == pytest.approx(0, abs=0.01)
    assert own["highest_lift"] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize("habit", HABITS)
def test_habits_of_place_hold_nothing_in_any_word_order(found, habit):
    head = len(KNOWING) + 1 + list(HABITS).index(habit)
    own = found.heads[found.heads["head"] == head]
    assert len(own) >= 3
    assert not own["tagged"].any(), own[["relation", "holds_in", "lift"]]


def test_some_habits_are_often_right_so_that_their_refusal_says_something(found):
    first, nearest = (
        found.evidence[
            (found.evidence["head"] == len(KNOWING) + 1 + list(HABITS).index(habit))
            & (found.evidence["relation"] == SUBJECT)
        ].set_index("language")
        for habit in ("noun 0", "noun -1")
    )
    assert first.loc["zh", "hit_rate"] > 0.6
    assert nearest.loc["en", "hit_rate"] > 0.6


def test_the_mean_lift_is_that_of_the_languages_that_can_tell(found):
    own = found.evidence[found.evidence["decidable"]]
    for each in found.heads.itertuples():
        same = (own["head"] == each.head) & (own["relation"] == each.relation)
        assert each.lift == pytest.approx(own.loc[same, "lift"].mean())
        assert each.ci_low <= each.lift + 1e-9
        assert each.lift <= each.ci_high + 1e-9


def test_one_text_read_twice_is_no_surer_than_once_if_its_documents_are_the_same(runs):
    twice = {"en": runs["en"], "fr": runs["en"]}
    together = hs.Languages.of(twice, parallel=24)
    apart = hs.Languages.of(twice, parallel=None)
    head = len(KNOWING) + 1 + list(HABITS).index("noun -1")
    one, other = row(together, head, SUBJECT), row(apart, head, SUBJECT)
    tally = runs["en"].tally
    index = tally.relations.index(f"syntactic/{SUBJECT}")
    excess = (tally.target - tally.control)[:, index, 0, head]
    queries = tally.queries[:, index]
    draws = resample(int((queries > 0).sum()), np.random.default_rng([0, 0]))
    ratios = (draws @ excess[queries > 0]) / (draws @ queries[queries > 0])
    low, high = np.quantile(ratios, (0.025, 0.975))
    assert (one["ci_low"], one["ci_high"]) == pytest.approx((low, high))
    # two texts of which one says nothing of the other
    width = (other["ci_high"] - other["ci_low"]) / (high - low)
    assert width == pytest.approx(2**-0.5, rel=0.15)


def test_of_few_documents_blocks_are_stretches_and_are_not_resampled_together(runs):
    twice = {"en": runs["en"], "fr": runs["en"]}
    few, apart = (hs.Languages.of(twice, parallel=count).heads for count in (7, None))
    pd.testing.assert_frame_equal(few, apart)
    together = hs.Languages.of(twice, parallel=8).heads
    assert not together["ci_low"].equals(apart["ci_low"])


def test_the_terminal_names_languages_heads_and_what_cannot_be_told(found):
    console = Console(width=120, record=True)
    console.print(languages_lines(found))
    said = console.export_text()
    assert "the same 24 documents in every language" in said
    correlation, line, shared = (each for each in said.splitlines() if each.startswith(SUBJECT))
    assert line.split() == [SUBJECT, "4", "of", "4", "–", "2", "2", "1", "1"]
    assert correlation.split()[1] == "4"
    # six tags: of one head in four languages, of the other in two; 12 + 2 of 12 + 6 pairs keep them
    assert shared.split()[1:3] == ["6", "0.78"]
    line = next(each for each in said.splitlines() if each.startswith("L0H2"))
    titles = next(each for each in said.splitlines() if each.startswith("head "))
    assert titles.split()[-5:] == ["ar", "en", "fr", "ja", "zh"]
    # an Arabic verb has no subject before it: that language does not ask
    marks = {code: line[titles.index(f" {code}") + 1 :][:1] for code in LANGUAGES}
    assert marks == {"ar": " ", "en": "●", "fr": "●", "ja": "×", "zh": "×"}
    assert "7 are held, 0 refused narrowly, 2 refused and 0 not decidable by the text" in said


def test_heads_agree_between_languages_as_far_as_their_lifts_rank_alike(found):
    one = found.agreement.set_index("relation").loc[SUBJECT]
    rows = found.evidence[found.evidence["relation"] == SUBJECT]
    lifts = rows.pivot(index="head", columns="language", values="lift")
    pairs = [spearmanr(lifts[a], lifts[b])[0] for a, b in combinations(lifts.columns, 2)]
    assert one["languages"] == len(lifts.columns) == 4
    assert one["correlation"] == pytest.approx(np.mean(pairs))
    assert one["ci_low"] < one["correlation"] < one["ci_high"]
    assert abs(one["shuffled"]) < 0.1
    assert one["p_value"] == pytest.approx(0.001)


def test_a_head_that_holds_a_tag_everywhere_holds_it_more_often_than_its_layer_by_chance(found):
    everywhere, in_two = (row(found, head, SUBJECT) for head in (0, 2))
    # 14 heads, of which two hold it in English and French, and one in Japanese and Chinese
    chances = [2 / 14, 2 / 14, 1 / 14, 1 / 14]
    assert everywhere["by_chance"] == in_two["by_chance"] == pytest.approx(sum(chances))
    assert everywhere["p_value"] == pytest.approx(np.prod(chances))
    assert in_two["p_value"] > 20 * everywhere["p_value"]
    habit = row(found, len(KNOWING) + 1, SUBJECT)
    assert (habit["tagged"], habit["p_value"]) == (0, 1)


def tags_of(tagged: np.ndarray, layer: np.ndarray, verdict: np.ndarray | None = None):
    """Rows of one relation: tags [language head], and the verdicts of the rest."""
    verdict = np.full(tagged.shape, "no", object) if verdict is None else verdict
    rows = [
        (layer[head], head, f"l{language}", tagged[language, head], verdict[language, head])
        for language, head in np.ndindex(*tagged.shape)
    ]
    names = ["layer", "head", "language", "tagged", "verdict"]
    return pd.DataFrame(rows, columns=names).assign(id="syntactic/obj")


def test_tags_of_one_head_are_kept_and_tags_dealt_out_within_a_layer_are_not():
    layer = np.repeat(np.arange(6), 4)
    alike, dealt = np.zeros((2, 8, 24), bool)
    alike[:, 5] = True
    dealt[np.arange(8), 4 + np.arange(8) % 4] = True
    same = shared_numbers(tags_of(alike, layer), seed=0)
    apart = shared_numbers(tags_of(dealt, layer), seed=0)
    assert (same["tags"], same["shared"], same["shared_low"], same["shared_high"]) == (8, 1, 1, 1)
    assert same["shared_p"] == pytest.approx(0.001)
    # each of eight tags is kept by one of the seven other languages
    assert apart["shared"] == pytest.approx(1 / 7)
    assert apart["shared_p"] > 0.5
    for numbers in (same, apart):  # a quarter of the layer's heads holds it
        assert numbers["shared_shuffled"] == pytest.approx(0.25, abs=0.02)


def test_a_language_that_cannot_tell_or_refuses_narrowly_keeps_nothing_and_loses_nothing():
    tagged = np.array([[True, False], [True, False], [False, False], [False, False]])
    verdict = np.full(tagged.shape, "no", object)
    layer = np.zeros(2, int)
    assert shared_numbers(tags_of(tagged, layer, verdict), seed=0)["shared"] == pytest.approx(2 / 6)
    verdict[2:, 0] = "narrowly refused", "not identifiable"
    assert shared_numbers(tags_of(tagged, layer, verdict), seed=0)["shared"] == 1
    verdict[1:, 0] = "not identifiable"
    alone = shared_numbers(tags_of(tagged & [[True], [False]] * 2, layer, verdict), seed=0)
    assert np.isnan(alone["shared"])


def test_the_interval_of_what_is_kept_never_pairs_a_language_with_itself():
    rng = np.random.default_rng(5)
    tagged = rng.random((4, 10)) < 0.4
    decided = tagged | (rng.random((4, 10)) < 0.8)
    weights = np.array([2.0, 0.0, 1.0, 1.0])
    pairs = [(a, b) for a, b in np.ndindex(4, 4) if a != b]
    both = sum(weights[a] * weights[b] * (tagged[a] & tagged[b]).sum() for a, b in pairs)
    of = sum(weights[a] * weights[b] * (tagged[a] & decided[b]).sum() for a, b in pairs)
    assert share_of_tags(tagged, decided, weights[None])[0] == pytest.approx(both / of)


def spoken(language: str, *rows: tuple[str, str, str]) -> pd.DataFrame:
    """Evidence of one head in a language: relations with their verdicts and general labels."""
    table = pd.DataFrame(rows, columns=["relation", "verdict", "general"])
    return table.assign(
        layer=0,
        head=0,
        type="syntactic",
        language=language,
        tagged=table["verdict"] == "tagged",
        decidable=table["verdict"] != "-",
    )


def test_a_head_counts_once_in_a_language_for_a_general_label():
    both = "phrase-head:dep>head (det, case)"
    evidence = pd.concat(
        [
            spoken("de", ("det", "tagged", both), ("case", "tagged", both)),
            spoken("en", ("det", "no", ""), ("case", "tagged", "")),
            spoken("fi", ("det", "-", ""), ("case", "no", "")),
            spoken("zh", ("det", "-", ""), ("case", "-", "")),
        ],
        ignore_index=True,
    )
    counts = label_counts(evidence)
    general = counts.loc["syntactic", "phrase-head:dep>head"]
    assert general.fillna(-1).to_dict() == {"de": 1, "en": 0, "fi": 0, "zh": -1}
    assert counts.loc["syntactic", "case"].fillna(-1).to_dict() == {
        "de": 0, "en": 1, "fi": 0, "zh": -1,
    }  # fmt: skip
    assert len(counts) == 2


def test_what_a_general_label_stands_for_is_one_row_and_its_languages_are_those_of_any_member():
    columns = ["relation", "general", "tagged", "lift", "holds_in", "narrow_in", "not_in",
               "undecided_in"]  # fmt: skip
    rows = [
        ("obj", "", 1, 0.5, "en", "", "de;fi", ""),
        ("det", "phrase-head", 2, 0.4, "de;en", "fi", "", "zh"),
        ("case", "phrase-head", 2, 0.3, "en;fi", "", "de", "zh"),
        ("amod", "phrase-head", 0, 0.2, "", "", "de;en;fi;zh", ""),
    ]
    heads = pd.DataFrame(rows, columns=columns).assign(layer=0, head=0, type="syntactic")
    heads = heads.assign(decidable=0, asked=4)
    held = held_labels(heads).set_index("relation")
    assert held.index.tolist() == ["phrase-head", "obj"]
    general = held.loc["phrase-head"]
    assert [general[name] for name in columns[4:]] == ["de;en;fi", "", "", "zh"]
    assert (general["tagged"], general["decidable"], general["member"]) == (3, 3, "det")
    assert general["lift"] == 0.4


def layered(seed: int, *, alike: bool) -> np.ndarray:
    """Lifts [language head] of three layers that differ, with heads alike or not within them."""
    rng = np.random.default_rng(seed)
    within = rng.random((1 if alike else 4, 24)) / 2
    return np.broadcast_to(np.repeat(np.arange(3.0), 8) + within, (4, 24))


@pytest.mark.parametrize("alike", [True, False])
def test_layers_that_differ_agree_by_themselves_and_shuffling_within_them_shows_it(alike):
    lifts = layered(3, alike=alike)
    layer, rng = np.repeat(np.arange(3), 8), np.random.default_rng(0)
    seen = float(mean_correlation(lifts))
    shuffled = [float(mean_correlation(shuffle(lifts, layer, rng))) for _ in range(300)]
    assert min(shuffled) > 0.6
    assert (seen > max(shuffled)) == alike


def test_the_figure_has_a_row_for_each_head_that_holds_a_relation(found):
    axes = found.figure().axes[0]
    assert [each.get_text() for each in axes.get_xticklabels()] == list(LANGUAGES)
    rows = [each.get_text() for each in axes.get_yticklabels()]
    assert rows == [f"L0H0 {SUBJECT}", f"L0H2 {SUBJECT}", f"L0H1 {OBJECT}"]
    dots = {(int(x), int(y)) for x, y in zip(*axes.lines[0].get_data(), strict=True)}
    assert dots == {(1, 0), (2, 0), (3, 0), (4, 0), (1, 1), (2, 1), (3, 2)}


def test_where_nothing_is_held_what_comes_nearest_is_drawn(folder, tokenizer):
    runs = {name: read(folder, name, [noun(-1), rests], tokenizer) for name in ("en", "zh")}
    found = hs.Languages.of(runs)
    assert not (found.heads["tagged"] > 0).any()
    assert len(found.figure().axes[0].get_yticklabels()) == len(found.heads)
    console = Console(width=120, record=True)
    console.print(languages_lines(found))
    assert "no head holds a relation" in console.export_text()


def test_texts_that_decide_nothing_draw_nothing(folder, tokenizer):
    found = hs.Languages.of({"ar": read(folder, "ar", [noun(-1)], tokenizer)})
    assert found.heads.empty
    with pytest.raises(HeadscopeError, match="nothing to draw"):
        found.figure()


def test_other_models_and_runs_without_sums_are_refused(runs, folder, tokenizer, tmp_path):
    other = read(folder, "zh", [noun(-1)], tokenizer)
    with pytest.raises(RunError, match="different shapes: en of 1 × 14 heads; zh of 1 × 1 heads"):
        hs.Languages.of({"en": runs["en"], "zh": other})
    bare = hs.load(other.save(tmp_path / "run"))
    with pytest.raises(RunError, match="zh was loaded without its sums"):
        hs.Languages.of({"zh": bare})
    with pytest.raises(RunError, match="no language could be read: it broke"):
        hs.Languages.of({}, failed={"de": "it broke"})
