"""A tag keeps its specific label only where the head tells that from the others of its kind."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.document import DEPRELS, own_label
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import Window
from headscope.measure.tally import Tally
from headscope.relations.effects import no_tokens
from headscope.relations.relation import Label, Relation, Threshold
from headscope.relations.types.syntactic import LABEL_TREE, label_of
from headscope.statistics.estimates import weigh
from headscope.statistics.general_labels import (
    distinct_tags,
    general_labels,
    tag_names,
    with_shown_relations,
)
from headscope.statistics.relation_sums import TallySums, lift_difference

PATHS = {
    "det": ("phrase",),
    "aux": ("phrase", "verbal"),
    "cop": ("phrase", "verbal"),
    "obj": ("arg",),
}
RELATIONS = [
    Relation("t", name, no_tokens, no_tokens, Threshold(0.1, "", ""), label=Label(name, path))
    for name, path in PATHS.items()
]


def labels(tags: str, *, spread: float = 0.05, blocks: int = 16, **lifts: float) -> list[str]:
    """The general labels of one head's tags: its lifts vary from block to block by `spread`."""
    rng = np.random.default_rng(0)
    tally = Tally.zeros(tuple(relation.id for relation in RELATIONS), 1, 1)
    for place, name in enumerate(PATHS):
        if name in lifts:
            noise = rng.normal(0, spread, blocks)
            tally.queries[:blocks, place] = 20
            tally.target[:blocks, place, 0, 0] = 20 * (lifts[name] + noise - noise.mean())
    evidence = weigh(tally, RELATIONS, seed=0)
    evidence["tagged"] = evidence["relation"].isin(tags.split())
    general = general_labels(evidence, RELATIONS, tally)
    assert (general[~evidence["tagged"]] == "").all()
    return list(general[evidence["tagged"]])


@pytest.mark.parametrize(
    ("tags", "lifts", "general"),
    [
        # twice the lift of every other label is specific
        ("det", {"det": 0.4, "aux": 0.15, "cop": 0.0}, [""]),
        ("det", {"det": 0.4}, [""]),
        # labels that the head does not tell apart, of which the stronger need not have the tag
        ("det", {"det": 0.4, "aux": 0.3}, ["phrase (det, aux)"]),
        ("det", {"det": 0.4, "aux": 0.9}, ["phrase (aux, det)"]),
        # the lowest label above all members
        ("aux cop", {"aux": 0.4, "cop": 0.4, "det": 0.1}, ["verbal (aux, cop)"] * 2),
        ("aux cop", {"aux": 0.4, "cop": 0.4, "det": 0.3}, ["phrase (aux, cop, det)"] * 2),
        # two tags of one family share a label however far apart
        ("det aux", {"det": 0.9, "aux": 0.2}, ["phrase (det, aux)"] * 2),
        # labels of another family change nothing
        ("det obj", {"det": 0.4, "obj": 0.4}, ["", ""]),
    ],
)
def test_a_tag_keeps_a_label_that_the_head_tells_apart_and_else_has_the_one_above(
    tags, lifts, general
):
    assert labels(tags, **lifts) == general


def test_a_lift_that_documents_do_not_bear_out_is_neither_apart_nor_a_member():
    # half as much, and the interval of the difference includes 0
    assert labels("det", det=0.4, aux=0.19, spread=0.35, blocks=9) == ["phrase (det, aux)"]
    # the interval includes 0
    assert labels("det", det=0.4, aux=0.05, spread=0.3, blocks=9) == [""]


def test_a_difference_is_surer_where_documents_differ_in_both_alike():
    tally = Tally.zeros(("t/det", "t/aux"), 1, 1)
    common = np.random.default_rng(0).normal(0, 0.2, 16)
    tally.queries[:16] = 10
    tally.target[:16, 0, 0, 0], tally.target[:16, 1, 0, 0] = (
        10 * (0.5 + common),
        10 * (0.2 + common),
    )
    first, second = (TallySums(tally).of(relation) for relation in RELATIONS[:2])
    assert first is not None
    assert second is not None
    difference = lift_difference(first, second, 0)
    assert (difference.low[0], difference.high[0]) == pytest.approx((0.3, 0.3))
    # of equal blocks it is the t interval of the mean difference
    tally.target[:16, 1, 0, 0] = 10 * (0.2 - common)
    difference = lift_difference(first, second, 0)
    half_width = (difference.high[0] - difference.low[0]) / 2
    expected = 2.131449546 * np.std(2 * common, ddof=1) / 4  # t at .975, 15 degrees of freedom
    assert half_width == pytest.approx(expected)


def test_documents_that_hold_one_of_two_labels_count_in_their_difference():
    tally = Tally.zeros(("t/det", "t/aux"), 1, 1)
    tally.queries[:4, 0] = tally.queries[4:9, 1] = 10
    one, other = np.array([0.2, 0.4, 0.5, 0.9]), np.array([0.1, 0.1, 0.3, 0.2, 0.3])
    tally.target[:4, 0, 0, 0], tally.target[4:9, 1, 0, 0] = 10 * one, 10 * other
    first, second = (TallySums(tally).of(relation) for relation in RELATIONS[:2])
    difference = lift_difference(first, second, 0)
    variance = one.var() / 4 + other.var() / 5
    half_width = 2.306004135 * np.sqrt(variance * 9 / 8)  # t at .975, 8 degrees of freedom
    assert difference.high[0] - 0.3 == pytest.approx(half_width)
    assert 0.3 - difference.low[0] == pytest.approx(half_width)


def test_every_dependency_has_one_place_in_the_tree():
    members = [name for names in LABEL_TREE.values() for name in names.split()]
    assert sorted(members) == sorted(DEPRELS)
    assert label_of("nsubj:pass", "head>dep").general == ("argument:head>dep", "subject:head>dep")


FUNCTION_WORDS = ("det", "case", "amod", "nummod", "nmod:poss", "aux", "aux:pass", "cop", "mark")


def governors(window: Window, shares: dict[str, float]) -> np.ndarray:
    """A head that gives a word's governor the share of its label, and else rests on [CLS]."""
    words, pattern = window.words, np.zeros((len(window),) * 2, np.float32)
    for word in np.flatnonzero(words.head >= 0):
        governor = words.head[word]
        span = slice(words.first[governor], words.last[governor] + 1)
        share = shares.get(own_label(str(words.deprel[word])), 0.0)
        pattern[words.last[word], span] = share / (span.stop - span.start)
    pattern[:, 0] += 1 - pattern.sum(1)
    return pattern


def test_planted_heads_of_one_label_keep_it_and_heads_of_the_phrase_have_the_general_one():
    from transformers import AutoTokenizer

    planted = (
        {"det": 0.6},
        dict.fromkeys(FUNCTION_WORDS, 0.3),
        dict.fromkeys(FUNCTION_WORDS, 0.3) | {"det": 0.45},
        {"cop": 0.5, "aux": 0.5, "aux:pass": 0.5},
        {"det": 0.5, "conj": 0.5},
    )
    tokenizer = AutoTokenizer.from_pretrained(str(mini_folder()))
    windows = hs.windows(None, tokenizer, max_tokens=8_000, attention_kind="bidirectional")
    run = hs.score_patterns(
        lambda window: np.stack([[governors(window, shares) for shares in planted]]),
        windows,
        types=["syntactic"],
        progress=False,
    )
    tags = run.evidence[run.evidence["tagged"]]
    names = [sorted(set(tag_names(rows))) for _, rows in tags.groupby("head")]
    assert names == [
        ["syntactic/det:dep>head"],
        ["syntactic/phrase-head:dep>head"],
        ["syntactic/phrase-head:dep>head"],
        ["syntactic/auxiliary:dep>head"],
        ["syntactic/conj:dep>head", "syntactic/det:dep>head"],
    ]
    assert (tags["head"] == 1).sum() > 3, "several labels have one name"
    assert len(distinct_tags(tags[tags["head"] == 1])) == 1
    shown = with_shown_relations(run.heads, run.evidence)["relation"]
    assert shown.iloc[1] == "phrase-head:dep>head"
    assert "syntactic/phrase-head:dep>head" in run.why("L0H1").splitlines()[0]
    assert run.why("L0H1").splitlines()[0].count("syntactic") == 1
