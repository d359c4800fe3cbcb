"""Mentions that agree, and the baselines of reference that ask for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.conllu import read_conllu
from headscope.relations.types.coreference import nearest_mention, pronoun, same_word_or_nearest
from tests.relations.examples import TOM_TEXT, TOM_TOKENS


def test_the_baselines_of_reference_ask_for_agreement():
    window = window_of_tokens(TOM_TOKENS, TOM_TEXT)
    # "he" at 4 → Bob, who is nearest; "him" repeats "he", and "his" repeats "him"
    assert same_word_or_nearest(window).tolist() == [-1, -1, 1, -1, 2, 4, 5, 6]
    assert nearest_mention(window, rule=pronoun).tolist() == [-1, -1, -1, -1, 2, 2, 2, 2]


ROWS = {
    "Ann": ("PROPN", "Number=Sing"),
    "men": ("NOUN", "Number=Plur"),
    "he": ("PRON", "Case=Nom|Gender=Masc|Number=Sing|Person=3"),
    "she": ("PRON", "Gender=Fem|Number=Sing|Person=3"),
    "they": ("PRON", "Number=Plur|Person=3"),
    "I": ("PRON", "Number=Sing|Person=1"),
    "who": ("PRON", "PronType=Rel"),
    "it": ("PRON", "Gender=Neut|PronType=Prs"),
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
        f"{i}\t{form}\t{form}\t{ROWS[form][0]}\t_\t{ROWS[form][1] or '_'}"
        f"\t0\troot\t_\tEntity=(e{i})"
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
        "4\tthey\tthey\tPRON\t_\tNumber=Plur\t1\tdep\t_\tEntity=(e1)",
        "5\the\the\tPRON\t_\tNumber=Sing\t1\tdep\t_\tEntity=(e2)",
    ]
    (document,) = read_conllu(Path("a.conllu"), "\n".join([*rows, "", ""]))
    window = window_of_tokens(["<bos>", "Tom", "and", "Ann", "they", "he"], document)
    assert window.mentions.agrees[0].tolist() == [True, True, False]
    assert window.cut(5).mentions.agrees.shape == (2, 2)
    assert window.mentions.between(4, 6).agrees.tolist() == [[True, False], [False, True]]
