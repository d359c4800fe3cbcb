"""What is another word, and what divides a text: by hand, on sentences with and without tags."""

from __future__ import annotations

from pathlib import Path

import pytest

from headscope.corpus.align import window_of_tokens
from headscope.corpus.conllu import read_conllu
from headscope.corpus.text import read_text
from headscope.relations import relations_of
from headscope.relations.delimiter import kinds_of

NAMES = """\
1	Margit	Margit	PROPN	_	_	3	nsubj	_	Entity=(e1-person
2	Solheim	Solheim	PROPN	_	_	1	flat	_	Entity=e1)
3	wrote	write	VERB	_	_	0	root	_	_
4	.	.	PUNCT	_	_	3	punct	_	_

1	Solheim	Solheim	PROPN	_	_	2	nsubj	_	Entity=(e1-person)
2	won	win	VERB	_	_	0	root	_	_
3	.	.	PUNCT	_	_	2	punct	_	_

1	The	the	DET	_	_	2	det	_	Entity=(e1-person
2	author	author	NOUN	_	_	3	nsubj	_	Entity=e1)
3	thanked	thank	VERB	_	_	0	root	_	_
4	the	the	DET	_	_	5	det	_	Entity=(e2-group
5	jury	jury	NOUN	_	_	3	obj	_	Entity=e2)
6	.	.	PUNCT	_	_	3	punct	_	_
"""
NAMES_TOKENS = [
    "<bos>",
    *"Margit Solheim wrote . Solheim won . The author thanked the jury .".split(),
]

TAGGED = """\
1	Do	do	AUX	_	_	3	aux	_	SpaceAfter=No
2	n't	not	PART	_	_	3	advmod	_	_
3	eat	eat	VERB	_	_	0	root	_	_
4	5	5	NUM	_	_	5	nummod	_	SpaceAfter=No
5	%	%	SYM	_	_	3	obj	_	_
6	&	and	CCONJ	_	_	8	cc	_	_
7	#	#	SYM	_	_	8	dep	_	SpaceAfter=No
8	1	1	NUM	_	_	5	conj	_	_
9	*	*	SYM	_	_	3	dep	_	_
10	half	half	NOUN	_	_	12	compound	_	SpaceAfter=No
11	-	-	PUNCT	_	_	10	punct	_	SpaceAfter=No
12	way	way	NOUN	_	_	3	obl	_	_
13	-	-	PUNCT	_	_	3	punct	_	_
14	Mr.	Mr.	PROPN	_	_	3	vocative	_	SpaceAfter=No
15	.	.	PUNCT	_	_	3	punct	_	_
"""
TOKENS = ["<bos>", "Do", "n", "'", "t", " eat", " 5", "%", " &", " #", "1", " *", " half", "-",
          "way", " -", " Mr", ".", "."]  # fmt: skip
PLAIN = "Don't eat 5% & #1 * half-way - 'Mr' 3.5, now."
PLAIN_TOKENS = ["<bos>", "Don", "'", "t", " eat", " 5", "%", " &", " #", "1", " *", " half", "-",
                "way", " -", " '", "Mr", "'", " 3", ".", "5", ",", " now", "."]  # fmt: skip


def tagged(text: str):
    (document,) = read_conllu(Path("example.conllu"), text)
    return document


def targets(name: str, window) -> dict[int, list[int]]:
    (relation,) = (each for each in relations_of(["all"]) if each.id == name)
    found = relation.pairs(window)
    return {int(q): found.key[found.query == q].tolist() for q in found.queries}


def test_a_name_and_its_part_are_not_another_word():
    window = window_of_tokens(NAMES_TOKENS, tagged(NAMES))
    # "Solheim" at 5 has no antecedent; "author" at 9 has both
    assert targets("coreference/nominal", window) == {9: [1, 2, 5]}


@pytest.mark.parametrize(
    ("document", "tokens", "marks"),
    [
        (tagged(TAGGED), TOKENS, [15, 18]),
        (read_text("p", PLAIN), PLAIN_TOKENS, [14, 15, 17, 21, 23]),
    ],
    ids=["tagged", "plain"],
)
def test_only_marks_between_words_divide_a_text(document, tokens, marks):
    window = window_of_tokens(tokens, document)
    assert [i for i, own in enumerate(kinds_of(window)) if own] == marks
    assert targets("delimiter/punctuation", window)[len(tokens) - 1] == marks[:-1]


@pytest.mark.parametrize("symbol", list("%&#*"))
def test_a_symbol_is_no_delimiter_where_nothing_is_known_of_words(symbol):
    window = window_of_tokens(["<bos>", "a", symbol, "b", ".", "c"])
    assert targets("delimiter/punctuation", window) == {5: [4]}
