"""Baselines against plain loops over the words of a text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.align import window_of_tokens
from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.relations.baselines import (
    BASELINES,
    CLASS_COUNT,
    EARLIER,
    FALLING_BACK,
    NUMBER_OF,
    PHRASE_BASELINES,
    UNION_BASELINES,
    picks,
)
from headscope.relations.controls import words_of_its_class
from headscope.relations.hard_queries import ChosenBaseline, baseline_picks, is_hard
from headscope.relations.pairs import pairs
from headscope.relations.parts import MATCHED_CONTROL, with_parts
from headscope.relations.window_pairs import WindowPairs
from headscope.relations.word_rows import CLASSES, UPOS
from tests.relations.examples import KEYS, KEYS_TEXT, REED_TEXT, REED_TOKENS

OF_TWO = {form.format(name): name for name in CLASSES for form in FALLING_BACK}
RELATIONS = {relation.id: relation for relation in relations_of(["all"])}


ANCHORS = {"adposition": "ADP", "conjunction": "CCONJ", "mark": "PUNCT"}


def slow_phrase(window: Window, q: int, baseline: str) -> int | None:
    """The word that a rule about words before a mark picks for word q."""
    upos = window.words.upos.tolist()
    name = next(c for c in sorted(CLASSES, key=len, reverse=True) if c in baseline)
    if baseline.endswith("-a-run"):
        step = -1 if "opens" in baseline else 1
        members = [word in CLASSES[name] for word in upos] + [False]
        edges = [k for k in range(q) if members[k] and (k + step < 0 or not members[k + step])]
        return edges[-1] if edges else None
    of_class = [k for k in range(q) if upos[k] in CLASSES[name]]
    marks = [k for k in range(q) if upos[k] == ANCHORS[baseline.rpartition("-")[2]]]
    before = [k for k in of_class if marks and k < marks[-1]]
    return before[-1] if before else None


def slow(window: Window, q: int, baseline: str) -> int | None:
    """The word that a rule picks for word q, by going back word by word."""
    if baseline in PHRASE_BASELINES:
        return slow_phrase(window, q, baseline)
    words = window.words
    earlier = [k for k in range(q) if words.last[k] < words.last[q]]
    inside = [k for k in earlier if words.sentence[k] == words.sentence[q]]

    def of(name: str, among: list[int]) -> list[int]:
        return [k for k in among if words.upos[k] in CLASSES[name]]

    def last(found: list[int], place: int = 1) -> int | None:
        return found[-place] if len(found) >= place else None

    def capital(k: int) -> bool:
        return window.strings[words.first[k]].strip()[:1].isupper()

    def form(k: int) -> str:
        return "".join(window.strings[words.first[k] : words.last[k] + 1]).strip()

    features = {
        "class": lambda k: words.upos[k],
        "two-classes": lambda k: (words.upos[k - 1] if k else "", words.upos[k]),
        "length": lambda k: len(form(k)),
        "length-and-class": lambda k: (len(form(k)), words.upos[k]),
        "ending": lambda k: form(k)[-3:],
        "two-letter-ending": lambda k: form(k)[-2:],
        "first-letter": lambda k: form(k)[:1],
        "first-two-letters": lambda k: form(k)[:2],
        "first-three-letters": lambda k: form(k)[:3],
    }

    if baseline.endswith("-words-back"):
        return last(list(range(q)), int(baseline.split("-")[0]))
    if baseline == "same-class":
        return last([k for k in earlier if words.upos[k] == words.upos[q]])
    if baseline == "same-lemma":
        return last([k for k in earlier if words.lemma[k] == words.lemma[q]])
    if baseline == "first-same-lemma":
        return next((k for k in earlier if words.lemma[k] == words.lemma[q]), None)
    if baseline == "other-class":
        return last([k for k in earlier if words.upos[k] != words.upos[q]])
    if baseline == "last-of-sentence-before":
        return last([k for k in earlier if words.sentence[k] < words.sentence[q]])
    if baseline == "after-punctuation":
        mark = last(of("PUNCT", earlier))
        return None if mark is None or mark + 1 >= q else mark + 1
    if baseline.startswith("after-same-"):
        feature = features[baseline.removeprefix("after-same-")]
        same = last([k for k in earlier if feature(k) == feature(q)])
        return None if same is None or same + 1 >= q else same + 1
    if baseline == "most-frequent-capital":
        forms = [form(k) for k in earlier if capital(k)]
        most = max(map(forms.count, forms), default=0)
        return last([k for k in earlier if capital(k) and forms.count(form(k)) == most])
    if baseline == "number-in-digits":
        return last([k for k in earlier if form(k).isdigit()])
    if baseline == "capitalised":
        return last([k for k in earlier if capital(k)])
    if baseline == "nearest-mention":
        return last([k for k in earlier if words.first[k] in window.mentions.first])
    if baseline in OF_TWO:
        found = of(OF_TWO[baseline], inside)
        place = 1 if baseline.startswith("next-to-first") else -2
        return found[place] if len(found) > 1 else found[0] if found else None
    form, name = baseline.split("-", 1)
    among = inside if name.endswith("-in-sentence") else earlier
    found = of(name.removesuffix("-in-sentence"), among)
    if form == "first":
        return found[0] if found else None
    return last(found, 2 if form == "second" else 1)


@pytest.mark.parametrize(
    ("tokens", "document"), [(KEYS, KEYS_TEXT), (REED_TOKENS, REED_TEXT)], ids=["keys", "reed"]
)
def test_every_baseline_picks_what_a_plain_loop_picks(tokens, document):
    window = window_of_tokens(tokens, document)
    words, found = window.words, picks(window)
    compared = 0
    for number, baseline in enumerate(EARLIER):
        if baseline in ("own", *UNION_BASELINES) or baseline.startswith("offset-"):
            continue
        for q in range(len(words)):
            expected = slow(window, q, baseline)
            # what followed a near copy begins with what follows the copy's token
            token = words.first if baseline.startswith("after-same-") else words.last
            place = -1 if expected is None else token[expected]
            assert found[number, words.last[q]] == place, (baseline, q)
            compared += place >= 0
    assert compared > 300
    between = np.setdiff1d(np.arange(len(window)), words.last)
    assert (found[65:, between] == -1).all()
    for d in (1, 5, 64):
        row = found[BASELINES.index(f"offset-{d}")].tolist()
        assert row == [q - d if q >= d else -1 for q in range(len(window))]


def slow_union(window: Window, q: int, baseline: str, classes: list[str]) -> int:
    """The token that a union of classes picks for word q: the nearer one on the sides allowed."""
    words = window.words
    of_class = [
        k
        for k in range(len(words))
        if words.upos[k] in classes
        and ("in-sentence" not in baseline or words.sentence[k] == words.sentence[q])
    ]
    earlier = [] if baseline.startswith("later-") else [k for k in of_class if k < q][-1:]
    is_ahead = baseline.startswith("later-") or baseline.endswith("on-either-side")
    later = [k for k in of_class if k > q][:1] if is_ahead else []
    tokens = [int(words.last[k]) for k in (*earlier, *later)]
    query = int(words.last[q])
    return min(tokens, key=lambda token: abs(token - query), default=-1)


@pytest.mark.parametrize("size", [2, 3])
def test_a_union_picks_the_nearest_word_of_the_most_frequent_classes_of_targets(size):
    window = replace(window_of_tokens(KEYS, KEYS_TEXT), attention_kind=BIDIRECTIONAL)
    classes = ("PRON", "SCONJ", "VERB", "DET")
    last = window.words.last
    relation = RELATIONS["syntactic/mark:head>dep"]
    found = baseline_picks(relation, WindowPairs(window), last, classes)
    name = f"nearest-of-{size}-target-classes"
    for baseline in (name, f"{name}-in-sentence", f"later-{name}", f"{name}-on-either-side"):
        expected = [slow_union(window, q, baseline, [*classes[:size]]) for q in range(len(last))]
        assert found[NUMBER_OF[baseline]].tolist() == expected, baseline
        assert max(expected) > 0


def test_distractors_are_other_words_of_the_targets_class_nearer_and_farther():
    window = window_of_tokens(KEYS, KEYS_TEXT)
    # said ← Maria (3): no name lies between; Anna (1) is farther
    targets = pairs(np.array([20]), np.array([3]))
    drawn = words_of_its_class(window, targets, np.random.default_rng(0))
    assert list(zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)) == [(20, 1)]
    # here ← told (2): find (8) is nearer, no verb farther
    targets = pairs(np.array([17]), np.array([2]))
    drawn = words_of_its_class(window, targets, np.random.default_rng(0))
    assert list(zip(drawn.query.tolist(), drawn.key.tolist(), strict=True)) == [(17, 8)]


def test_a_query_is_hard_when_the_baseline_picks_another_key():
    pick = np.array([-1, -1, 0, 0, 3, -1])
    targets = pairs(np.array([2, 3, 4, 4, 5]), np.array([0, 1, 2, 3, 1]))
    assert is_hard(targets, pick).tolist() == [False, True, False, False, False]


def test_words_of_the_targets_classes_and_the_distractor_compete_with_the_target():
    window = window_of_tokens(KEYS, KEYS_TEXT)
    relation = RELATIONS["syntactic/ccomp:dep>head"]  # find → told, where "that" lies nearer
    verbs = np.isin(np.arange(CLASS_COUNT), UPOS.index("VERB"))
    for baseline, hard in (("nearest-SCONJ", True), ("nearest-VERB", False)):
        chosen = ChosenBaseline(np.full(CLASS_COUNT, BASELINES.index(baseline)), verbs)
        parts = with_parts([relation], {relation.id: chosen})
        by_name = {part.name.rpartition("/")[2]: part for part in parts[1:]}
        assert set(by_name) == {MATCHED_CONTROL, "hard", "easy"}
        found = WindowPairs(window)
        targets = found.targets(by_name["hard"])
        assert (8 in targets.query) is hard
        others = by_name["hard"].candidates_in(found)
        words = {window.strings[key].strip() for key in others.key}
        assert ("that" in words) is hard
        assert not {*targets.key} & {*others.key}
