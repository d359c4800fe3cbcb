"""A chain of mentions is followed by who knows the entity, and by no habit of words."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.conllu import read_conllu
from headscope.corpus.from_tokens import window_of_tokens
from headscope.corpus.shipped import mini_folder
from headscope.corpus.window import MentionTable, Window
from headscope.models.tokenizer import load_tokenizer
from headscope.relations.coreference import nearest_mention, pronoun, same_word_or_nearest
from tests.relations.examples import TOM_TEXT, TOM_TOKENS

Rule = Callable[[MentionTable, np.ndarray], np.ndarray]


def orelse(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.where(first.any(1)[:, None], first, second)


def lemma(m: MentionTable) -> np.ndarray:
    return m.lemma[:, None] == m.lemma[None]


# what a mention may look at of those before it; the nearest of them is looked at
HABITS: dict[str, Rule] = {
    "nearest mention": lambda m, before: before,
    "nearest that agrees": lambda m, before: before & m.agrees,
    "same word": lambda m, before: before & lemma(m),
    "same word or agrees": lambda m, before: orelse(before & lemma(m), before & m.agrees),
    "a word in common or agrees": lambda m, before: orelse(before & m.shared, before & m.agrees),
    "the entity": lambda m, before: before & (m.entity[:, None] == m.entity[None]),
}


@cache
def prose() -> tuple[Window, ...]:
    tokenizer = load_tokenizer("mini", mini_folder())
    return tuple(hs.windows(None, tokenizer, max_tokens=16_000))


def pattern(window: Window, rule: Rule) -> np.ndarray:
    """Each mention looks at the nearest earlier one of a rule; what else there is rests."""
    rows = np.zeros((len(window), len(window)), np.float32)
    rows[:, 0] = 1
    m = window.mentions
    for query, keys in enumerate(rule(m, m.last[None, :] < m.first[:, None])):
        for key in np.flatnonzero(keys)[-1:]:
            rows[m.last[query]] = np.arange(len(window)) == m.last[key]
    return rows


def test_no_habit_earns_the_chain_and_a_head_that_knows_the_entity_does():
    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, rule) for rule in HABITS.values()])[None]

    evidence = hs.score_patterns(patterns, prose(), types=["coreference"]).evidence
    of_chain = evidence[evidence["relation"] == "chain"].set_index("head")
    assert (of_chain["contested_n"] >= 100).all()
    said = dict(zip(HABITS, of_chain["verdict"].loc[: len(HABITS)], strict=True))
    assert said.pop("the entity") == "tagged"
    assert set(said.values()) == {"no"}
    # and what a habit is right of is not little
    assert of_chain["hit_rate"].iloc[list(HABITS).index("same word or agrees")] > 0.5


def test_the_simple_rules_of_reference_ask_for_agreement():
    window = window_of_tokens(TOM_TOKENS, TOM_TEXT)
    # "he" at 4 → Bob, who is nearest; "him" repeats "he", and "his" repeats "him"
    assert same_word_or_nearest(window).tolist() == [-1, -1, 1, -1, 2, 4, 5, 6]
    assert nearest_mention(window, rule=pronoun).tolist() == [-1, -1, -1, -1, 2, 2, 2, 2]


ROWS = {
    "Ann": ("PROPN", "Number=Sing"),
    "men": ("NOUN", "Number=Plur"),
    "he": ("PRON", "Case=Nom|Gender=Masc|Number=Sing|Person=3"),
    "she": ("PRON", ""),  # by the list of pronouns
    "they": ("PRON", ""),
    "I": ("PRON", "Number=Sing|Person=1"),
    "who": ("PRON", "PronType=Rel"),
    "it": ("PRON", "PronType=Prs"),
}


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("Ann", "he", True),  # no name has a gender
        ("Ann", "she", True),
        ("Ann", "they", False),
        ("men", "they", True),
        ("men", "he", False),
        ("he", "she", False),
        ("he", "it", False),
        ("Ann", "I", False),  # a name stands for a third person
        ("I", "he", False),
        ("who", "they", True),
        ("who", "I", True),
    ],
)
def test_mentions_agree_unless_number_gender_or_person_contradict(one, other, agree):
    lines = [
        f"{i}\t{form}\t{form}\t{ROWS[form][0]}\t_\t{ROWS[form][1] or '_'}\t0\troot\t_\tEntity=(e{i})"
        for i, form in enumerate((one, other), 1)
    ]
    (document,) = read_conllu(Path("a.conllu"), "\n".join([*lines, "", ""]))
    agrees = window_of_tokens(["<bos>", one, other], document).mentions.agrees
    assert agrees.tolist() == [[True, agree], [agree, True]]


def test_two_people_are_they():
    rows = [
        "1\tTom\tTom\tPROPN\t_\tNumber=Sing\t0\troot\t_\tEntity=(e1",
        "2\tand\tand\tCCONJ\t_\t_\t3\tcc\t_\t_",
        "3\tAnn\tAnn\tPROPN\t_\tNumber=Sing\t1\tconj\t_\tEntity=e1)",
        "4\tthey\tthey\tPRON\t_\t_\t1\tdep\t_\tEntity=(e1)",
        "5\the\the\tPRON\t_\t_\t1\tdep\t_\tEntity=(e2)",
    ]
    (document,) = read_conllu(Path("a.conllu"), "\n".join([*rows, "", ""]))
    window = window_of_tokens(["<bos>", "Tom", "and", "Ann", "they", "he"], document)
    assert window.mentions.agrees[0].tolist() == [True, True, False]
    assert window.cut(5).mentions.agrees.shape == (2, 2)
    assert window.mentions.between(4, 6).agrees.tolist() == [[True, False], [False, True]]
