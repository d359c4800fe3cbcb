"""Baselines fitted on texts whose answer is known."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.align import window_of_tokens
from headscope.corpus.document import Document, Word
from headscope.corpus.window import Window
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.precision_check import TOKENS
from headscope.measure.text import prepare_text
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.baselines import CLASS_COUNT, NUMBER_OF
from headscope.relations.hard_queries import ChosenBaseline
from headscope.relations.parts import MATCHED_CONTROL
from headscope.relations.reference_baselines import ReferenceBaseline
from headscope.relations.relation import targets_of
from headscope.relations.word_rows import UPOS
from headscope.settings import Settings
from headscope.statistics.estimates import MixtureBound
from tests.helpers.prose import gum_windows, mini_tokenizer
from tests.helpers.shared import pud, shared_data
from tests.oracles.baseline_heads import BaselineHead, looking
from tests.oracles.window_features import Rows, WindowFeatures, mixed

OBJECT = [relation for relation in relations_of(["all"]) if relation.id == "syntactic/obj:dep>head"]


def window(number: int, *, far: bool, stimulus: str = "text") -> Window:
    """A sentence of two verbs and an object: of the nearer one, or of the farther one."""
    classes = ["VERB", "ADV", "VERB", "ADV", "NOUN"]
    words = tuple(
        Word(
            f"w{i}",
            3 * i,
            3 * i + 2,
            0,
            upos=upos,
            head=(0 if far else 2) if i == 4 else -1,
            deprel="obj" if i == 4 else "dep",
        )
        for i, upos in enumerate(classes)
    )
    document = Document(f"d{number}", " ".join(w.form for w in words), words)
    found = window_of_tokens(["<bos>", *(w.form for w in words)], document)
    return replace(found, document=number, stimulus=stimulus)


def texts(far: list[bool]) -> list[Window]:
    return [window(number, far=each) for number, each in enumerate(far)]


def test_the_best_baseline_and_what_it_gets_right():
    found = fit_baselines(texts([False] * 30 + [True] * 10), OBJECT)
    (rates,) = found.rates.values()
    assert rates["baseline_rate"] == pytest.approx(0.75)
    # where it is wrong "the second nearest verb" is right, and only there
    assert rates["baselines"] == [[1.0, 0.0], [0.0, 1.0]]
    assert rates["hard_queries"] == 10


def test_one_baseline_is_chosen_on_the_whole_text_that_fits_it_best():
    # even documents have near verbs, odd ones far: more of these
    found = fit_baselines(texts([number % 5 != 0 for number in range(40)]), OBJECT)
    (rates,) = found.rates.values()
    assert rates["baseline_rate"] == 0.8
    (part,) = [p for p in found.summed(OBJECT) if p.name == "obj:dep>head/hard"]
    near, far = window(0, far=False), window(1, far=True)
    assert (len(targets_of(part, near)), len(targets_of(part, far))) == (1, 0)


def fixed(name: str, frontier: np.ndarray | None = None) -> dict[str, ReferenceBaseline]:
    verbs = np.isin(np.arange(CLASS_COUNT), UPOS.index("VERB"))
    choice = ChosenBaseline(np.full(CLASS_COUNT, NUMBER_OF[name]), verbs, ("VERB",))
    row = ReferenceBaseline(choice, name, queries=100, rate=0.7, frontier=frontier)
    return {OBJECT[0].id: row}


@pytest.mark.parametrize("far", [0.1, 0.9])
def test_a_fixed_baseline_is_that_of_any_text_and_its_rate_is_measured_there(far):
    windows = texts([number < 200 * far for number in range(200)])
    found = fit_baselines(windows, OBJECT, fixed=fixed("nearest-VERB"))
    (rates,) = found.rates.values()
    assert rates["baseline"] == "nearest-VERB"
    assert rates["baseline_rate"] == pytest.approx(1 - far)
    assert rates["reference_rate"] == 0.7
    # both rates are 20 points or more away; on the far text the second nearest verb is right at 80
    # points more
    assert len(found.notes) == 1 + (far > 0.5)


@pytest.mark.parametrize(
    ("far", "queries", "differs"),
    [(40, 100, False), (41, 100, True), (19, 100, True), (70, 99, False)],
)
def test_rates_of_the_reference_count_only_for_text_that_they_fit(far, queries, differs):
    frontier = np.array([[1.0, 0.3], [0.0, 0.95]])
    windows = texts([number < far for number in range(queries)])
    found = fit_baselines(windows, OBJECT, fixed=fixed("nearest-VERB", frontier))
    corners = found.rates[OBJECT[0].id]["baselines"]
    # "the second nearest verb" is right at every hard query, and nothing is at the easy ones too
    assert (corners[0] == [1.0, 0.0]) is differs
    assert any(OBJECT[0].id in note for note in found.notes) is differs


@pytest.mark.parametrize("reference", [0.2, 0.95])
def test_the_reference_is_the_bar_unless_the_text_is_significantly_above(reference):
    # "the second nearest verb" is right at every one of the 20 hard queries
    windows = texts([number < 20 for number in range(60)])
    frontier = np.array([[1.0, 0.0], [0.0, reference]])
    found = fit_baselines(windows, OBJECT, fixed=fixed("nearest-VERB", frontier))
    corners = found.rates[OBJECT[0].id]["baselines"]
    # the probability of 20 right ones of 20 is 2.5 % at this rate
    lowest = 0.025 ** (1 / 20)
    assert corners == [[1.0, 0.0], [0.0, pytest.approx(max(reference, lowest))]]


def nearest_verb_of_the_sentence(window: Window, q: int) -> int:
    """The nearest verb of the sentence, or else the nearest word of the targets' classes."""
    words = window.words
    earlier = [k for k in range(q) if words.last[k] < words.last[q]]
    verbs = [
        k for k in earlier if words.upos[k] == "VERB" and words.sentence[k] == words.sentence[q]
    ]
    any_of = [k for k in earlier if words.upos[k] in ("NOUN", "PROPN", "VERB", "ADJ")]
    found = verbs or any_of
    return int(words.last[found[-1]]) if found else -1


def test_the_bar_is_above_a_chain_of_two_rules():
    (relation,) = [r for r in relations_of(["syntactic"]) if r.id == "syntactic/obl:dep>head"]
    windows = gum_windows(12_000)
    is_candidate = np.isin(UPOS, ("NOUN", "PROPN", "VERB", "ADJ"))
    chosen = ChosenBaseline(
        np.full(CLASS_COUNT, NUMBER_OF["6-words-back"]),
        np.append(is_candidate, False),
        ("VERB", "ADJ", "NOUN", "PROPN"),
    )
    row = ReferenceBaseline(chosen, "6-words-back", queries=100, rate=0.5)
    found = fit_baselines(windows, [relation], fixed={relation.id: row})
    rates = {}
    for part in found.summed([relation])[1:]:
        side = part.name.rpartition("/")[2]
        right = asked = 0
        for window in windows if side in ("easy", "hard") else ():
            targets = targets_of(part, window)
            for query in targets.queries.tolist():
                q = int(np.searchsorted(window.words.last, query))
                keys = targets.key[targets.query == query].tolist()
                right += nearest_verb_of_the_sentence(window, q) in keys
                asked += 1
        rates[side] = right / max(asked, 1)
    bound = MixtureBound(found.rates[relation.id]["baselines"])
    assert bound.at(np.array([rates["easy"]]))[0] >= rates["hard"] - 1e-6


(ADVERB,) = (r for r in relations_of(["syntactic"]) if r.id == "syntactic/advmod:dep>head")
_FADING, _NEAREST = "every {}, near ones more", "nearest {}"


def one_by_distance(features: WindowFeatures) -> Rows:
    """Every word of the sentence, with a weight of one by its distance."""
    distance = features.position[:, None] - features.position[None, :]
    is_key = features.earlier & (features.sentences_back == 0)
    return features.rows(is_key / np.maximum(distance, 1))


def mostly_word_before(kind: str) -> BaselineHead:
    word, other = looking(_NEAREST, "word"), looking(_NEAREST, kind)
    name = f"{word.name} more than {other.name}"
    return BaselineHead(name, attention=mixed((0.6, word.attention), (0.4, other.attention)))


NEAR_HEADS = (
    looking(_FADING, "word", " of the sentence"),
    looking(_FADING, "word", " of the clause"),
    BaselineHead("one by distance", attention=one_by_distance),
    mostly_word_before("VERB"),
    mostly_word_before("VERB|ADJ"),
)


def evidence_of(heads: tuple[BaselineHead, ...], windows: list[Window]) -> pd.DataFrame:
    """Evidence on adverbs and their heads, first of some heads and then of one that knows."""

    def patterns(window: Window) -> np.ndarray:
        features = WindowFeatures(window)
        lazy = [head.attention(features) for head in heads]
        targets = targets_of(ADVERB, window)
        knows = lazy[0].copy()
        knows[targets.query] = 0
        knows[targets.query, targets.key] = 1
        knows /= knows.sum(1, keepdims=True)
        return np.stack([*lazy, knows])[None].astype(np.float32)

    run = hs.score_patterns(patterns, windows, relations=[ADVERB], progress=False)
    return run.evidence.sort_values("head")


def german(number: int, head: str) -> Window:
    """Two German clauses that end with an adverb, whose head is one of these words."""
    tagged = (
        "Wir/PRON hoffen/VERB sehr/ADP ,/PUNCT dass/SCONJ Forscher/NOUN liefern/VERB und/CCONJ "
        "neue/DET Belege/NOUN dafür/ADV"
    )
    forms, classes = zip(*(word.split("/") for word in tagged.split()), strict=True)
    start, words = 0, []
    for form, upos in zip(forms, classes, strict=True):
        is_adverb = upos == "ADV"
        words.append(
            Word(
                form,
                start,
                start + len(form),
                0,
                upos=upos,
                head=forms.index(head) if is_adverb else -1,
                deprel="advmod" if is_adverb else "dep",
            )
        )
        start += len(form) + 1
    document = Document(f"d{number}", " ".join(forms), tuple(words))
    return replace(window_of_tokens(["<bos>", *forms], document), document=number)


def test_the_bar_is_above_heads_that_look_at_near_words():
    # a noun of a verb's clause is a target too seldom to compete, and stands before the adverb
    heads = ["Belege"] * 20 + ["hoffen"] * 20 + ["liefern"] * 400
    windows = [german(i, head) for i, head in enumerate(heads)]
    evidence = evidence_of(NEAR_HEADS, windows)
    *lazy, knows = evidence.itertuples()
    assert knows.hard_n == 40
    assert knows.hard_rate == 1
    assert knows.hard_low > knows.hard_baseline_rate + 0.1
    for head in lazy:
        # it is right at half of the queries, with some attention elsewhere
        assert 0.3 < head.hard_rate <= 0.5
        assert head.hard_baseline_rate >= 0.5


@shared_data
@pytest.mark.parametrize("language", ["de", "fr"])
def test_heads_that_look_at_near_words_earn_no_tag_in_other_languages(language):
    windows = hs.windows(pud(language), mini_tokenizer(), max_length=128, max_tokens=48_000)
    evidence = evidence_of(NEAR_HEADS, windows)
    assert not evidence["tagged"].iloc[:-1].any()
    assert evidence["hard_rate"].iloc[-1] > 0.9


def test_the_challenge_set_counts_for_hard_and_easy_queries_alone():
    challenge = [window(100 + i, far=i % 2 == 0, stimulus="challenge") for i in range(20)]
    found = fit_baselines(texts([False] * 30 + [True] * 10), OBJECT, challenge)
    (rates,) = found.rates.values()
    assert (rates["baseline_rate"], rates["hard_queries"]) == (0.75, 20)
    parts = {part.name.rpartition("/")[2]: part for part in found.summed(OBJECT)[1:]}
    assert set(parts) == {MATCHED_CONTROL, "hard", "easy"}
    assert targets_of(parts["hard"], challenge[0]).query.tolist() == [5]
    assert targets_of(parts["easy"], challenge[0]).query.tolist() == []


def test_the_challenge_set_is_left_out_if_no_relation_with_a_baseline_has_a_query():
    model = load_model("mini")
    text = prepare_text(model, OBJECT, ["gold"], Settings(max_tokens=500))
    plain = [replace(each, words=each.words.between(0, 0, 0)) for each in texts([False, True])]
    assert text.challenge
    assert text.needed_by(fit_baselines(texts([False]), OBJECT)).others == text.others
    assert text.needed_by(fit_baselines(plain, OBJECT, text.challenge)).others == text.synthetic


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ([TOKENS, 5], [TOKENS]),
        ([TOKENS - 1, 5, 5], [TOKENS - 1, 5]),
        ([TOKENS + 1, 5], [TOKENS + 1]),
        ([5, 5], [5, 5]),
    ],
)
def test_the_beginning_ends_with_the_window_that_completes_its_tokens(lengths, expected):
    text = prepare_text(load_model("mini"), OBJECT, ["gold"], Settings(max_tokens=500))
    windows = [Window(f"d#{n}", np.arange(n), ("a",) * n) for n in lengths]
    assert [len(window) for window in replace(text, first=windows).beginning] == expected


def test_a_text_without_an_easy_query_has_a_frontier():
    found = fit_baselines(texts([True] * 10), OBJECT, fixed=fixed("nearest-VERB"))
    assert found.rates[OBJECT[0].id]["baselines"] == [[0.0, 1.0]]


def test_the_target_must_have_more_attention_than_words_that_are_no_candidates():
    windows = texts([number % 2 == 0 for number in range(120)])

    def patterns(window: Window) -> np.ndarray:
        targets = targets_of(OBJECT[0], window)
        rows = np.zeros((2, len(window), len(window)), np.float32)
        rows[:, :, 0] = 1
        for head, share in enumerate((0.4, 0.6)):
            rows[head, targets.query, 0] = 0
            rows[head, targets.query, targets.query] = 1 - share
            rows[head, targets.query, targets.key] = share
        return rows[None]

    run = hs.score_patterns(patterns, windows, relations=OBJECT, progress=False)
    evidence = run.evidence.sort_values("head")
    assert evidence["hard_rate"].tolist() == [1, 1]
    assert evidence["top_rate"].tolist() == [0, 1]
    assert not evidence["tagged"].iloc[0]
    # without a challenge set the text's own queries are all
    assert (evidence["text_hard_n"] == evidence["hard_n"]).all()
    assert (evidence["text_verdict"] == evidence["verdict"]).all()
