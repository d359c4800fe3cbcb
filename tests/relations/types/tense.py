"""Tense: the verb whose tense the query repeats, not the nearest."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from headscope.corpus.conllu import read_conllu
from headscope.corpus.window import Window, WordTable
from tests.helpers.prose import annotated_prose
from tests.relations.looking import Keys, Look, same_word
from tests.relations.type_file import NOISES, Case, Example

PAST = """\
1	She	she	PRON	_	_	2	nsubj	_	_
2	walked	walk	VERB	_	Tense=Past|VerbForm=Fin	0	root	_	_
3	,	,	PUNCT	_	_	2	punct	_	_
4	sees	see	VERB	_	Tense=Pres|VerbForm=Fin	2	conj	_	_
5	cats	cat	NOUN	_	_	4	obj	_	_

1	taken	take	VERB	_	Tense=Past|VerbForm=Part	3	advcl	_	_
2	was	be	AUX	_	Tense=Past|VerbForm=Fin	3	aux	_	_
3	slept	sleep	VERB	_	Tense=Past|VerbForm=Fin	0	root	_	_
4	and	and	CCONJ	_	_	5	cc	_	_
5	talked	talk	VERB	_	Tense=Past|VerbForm=Fin	3	conj	_	_
6	and	and	CCONJ	_	_	7	cc	_	_
7	stayed	stay	VERB	_	Tense=Past|VerbForm=Fin	3	conj	_	_
8	to	to	PART	_	_	9	mark	_	_
9	rest	rest	VERB	_	VerbForm=Inf	3	advcl	_	_
"""
TOKENS = [
    "<bos>",
    "She",
    "walked",
    ",",
    "sees",
    "cats",
    "taken",
    "was",
    "slept",
    "and",
    "talked",
    "and",
    "stayed",
    "to",
    "rest",
]
(TEXT,) = read_conllu(Path("past.conllu"), PAST)
# neither the auxiliary nor the participle has the form of "slept"; the last verbs are conjuncts
EXAMPLES = [Example("tense/same-tense", TOKENS, {8: [2]}, TEXT)]


def verbs(allowed: Callable[[WordTable, int, int], bool], place: int = -1) -> Look:
    """One of the earlier verbs that a rule on the rows of query and key allows, at each verb."""

    def look(window: Window) -> Keys:
        words, found = window.words, {}
        rows = np.flatnonzero(words.upos == "VERB").tolist()
        for query in rows:
            keys = [key for key in rows if key < query and allowed(words, query, key)]
            if keys and words.last[keys[place]] < words.first[query]:
                found[int(words.last[query])] = int(words.last[keys[place]])
        return found

    return look


def has_the_tense(words: WordTable, query: int, key: int) -> bool:
    return words.tense[query] != "" and words.tense[query] == words.tense[key]


def is_linked(words: WordTable, query: int, key: int) -> bool:
    """True if one of two words governs the other, or a third word both."""
    heads = words.head[query], words.head[key]
    return heads[0] == key or heads[1] == query or (heads[0] == heads[1] >= 0)


CASE = Case(
    "tense",
    annotated_prose,
    {f"same tense, noise {noise}": (verbs(has_the_tense), noise) for noise in NOISES}
    | {
        "nearest verb": verbs(lambda words, query, key: True),
        "first verb": verbs(lambda words, query, key: True, 0),
        "nearest verb with a tense": verbs(lambda words, query, key: words.tense[key] != ""),
        "nearest verb in the past": verbs(lambda words, query, key: "Past" in words.tense[key]),
        "linked verb": verbs(is_linked),
        "linked verb of the same tense": verbs(
            lambda *row: is_linked(*row) and has_the_tense(*row)
        ),
        "same lemma": verbs(lambda words, query, key: words.lemma[query] == words.lemma[key]),
        "same word": same_word(-1),
    },
    {f"same tense, noise {noise}": {"same-tense"} for noise in NOISES},
)
