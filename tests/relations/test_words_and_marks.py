"""Other words and marks that divide a text: by hand, on sentences with and without tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.conllu import read_conllu
from headscope.corpus.text import read_text
from headscope.relations import relations_of
from headscope.relations.types.delimiter import kinds_of

NAMES = """\
1	Margit	Margit	PROPN	_	_	3	nsubj	_	Entity=(e1-person
2	Solheim	Solheim	PROPN	_	_	1	flat	_	Entity=e1)
3	wrote	write	VERB	_	_	0	root	_	_

1	Solheim	Solheim	PROPN	_	_	2	nsubj	_	Entity=(e1-person)
2	won	win	VERB	_	_	0	root	_	_

1	Authors	author	NOUN	_	_	2	nsubj	_	Entity=(e1-person)
2	agree	agree	VERB	_	_	0	root	_	_
"""
NAMES_TOKENS = ["<bos>", *"Margit Solheim wrote Solheim won Authors agree".split()]

TAGGED = """\
1	Do	do	AUX	_	_	0	root	_	SpaceAfter=No
2	n't	not	PART	_	_	1	advmod	_	_
3	5	5	NUM	_	_	4	nummod	_	SpaceAfter=No
4	%	%	SYM	_	_	1	obj	_	_
5	half	half	NOUN	_	_	7	compound	_	SpaceAfter=No
6	-	-	PUNCT	_	_	5	punct	_	SpaceAfter=No
7	way	way	NOUN	_	_	1	obl	_	_
8	-	-	PUNCT	_	_	1	punct	_	_
9	Mr.	Mr.	PROPN	_	_	1	vocative	_	SpaceAfter=No
10	.	.	PUNCT	_	_	1	punct	_	_
"""
TOKENS = ["<bos>", "Do", "n", "'", "t", " 5", "%", " half", "-", "way", " -", " Mr", ".", "."]
PLAIN = "Don't eat 5% & #1 * half-way - 'Mr' 3.5, now."
PLAIN_TOKENS = [
    "<bos>",
    "Don",
    "'",
    "t",
    " eat",
    " 5",
    "%",
    " &",
    " #",
    "1",
    " *",
    " half",
    "-",
    "way",
    " -",
    " '",
    "Mr",
    "'",
    " 3",
    ".",
    "5",
    ",",
    " now",
    ".",
]


def tagged(text: str):
    (document,) = read_conllu(Path("example.conllu"), text)
    return document


def targets(name: str, window) -> dict[int, list[int]]:
    (relation,) = (each for each in relations_of(["all"]) if each.id == name)
    found = relation.pairs(window)
    return {int(q): found.key[found.query == q].tolist() for q in found.queries}


def test_a_name_and_its_part_are_not_another_word():
    window = window_of_tokens(NAMES_TOKENS, tagged(NAMES))
    # "Solheim" at 4 has no antecedent; "Authors" at 6 has both
    assert targets("coreference/nominal", window) == {6: [1, 2, 4]}


@pytest.mark.parametrize(
    ("document", "tokens", "marks"),
    [
        (tagged(TAGGED), TOKENS, [10, 13]),
        (read_text("p", PLAIN), PLAIN_TOKENS, [14, 15, 17, 21, 23]),
    ],
    ids=["tagged", "plain"],
)
def test_only_marks_between_words_divide_a_text(document, tokens, marks):
    window = window_of_tokens(tokens, document)
    assert [i for i, own in enumerate(kinds_of(window)) if own] == marks
    assert targets("delimiter/punctuation", window)[len(tokens) - 1] == marks[:-1]
