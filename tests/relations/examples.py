"""Small texts for every kind of relation, with the keys that each query should look at, by hand."""

from __future__ import annotations

from pathlib import Path

from headscope.corpus.conllu import read_conllu
from headscope.corpus.document import Document
from headscope.relations.types.alignment import prompts
from headscope.relations.types.topic import with_arrows
from headscope.stimuli.facts import fact_documents
from tests.helpers.texts import SENTENCES
from tests.helpers.translated import ANNA, entries
from tests.relations.type_file import Example, type_files

# 0     1    2    3     4    5   6     7   8    9   10  11 12
KEYS = (
    "<bos> Anna told Maria that she could n't find the old k eys "
    '. " They were here , " said Maria .'
).split()
# 13 14 15 16  17   18 19 20 21   22

REED = """\
1	Dr.	Dr.	NOUN	_	_	2	compound	_	Entity=(e1-person
2	Reed	Reed	PROPN	_	_	3	nsubj	_	Entity=e1)
3	saw	see	VERB	_	_	0	root	_	_
4	a	a	DET	_	_	5	det	_	Entity=(e2-animal
5	dog	dog	NOUN	_	_	3	obj	_	Entity=e2)|SpaceAfter=No
6	.	.	PUNCT	_	_	3	punct	_	_

1	The	the	DET	_	_	2	det	_	Entity=(e1-person
2	surgeon	surgeon	NOUN	_	_	3	nsubj	_	Entity=e1)
3	ran	run	VERB	_	_	0	root	_	SpaceAfter=No
4	.	.	PUNCT	_	_	3	punct	_	_
"""
REED_TOKENS = ["<bos>", "Dr.", "Reed", "saw", "a", "dog", ".", "The", "surgeon", "ran", "."]

TOM = """\
1	Tom	Tom	PROPN	_	Number=Sing	3	nsubj	_	Entity=(e1)
2	Bob	Bob	PROPN	_	Number=Sing	3	vocative	_	Entity=(e2)
3	saw	see	VERB	_	_	0	root	_	_
4	he	he	PRON	_	Number=Sing|Person=3|PronType=Prs	3	obj	_	Entity=(e1)
5	him	he	PRON	_	_	3	obj	_	Entity=(e2)
6	his	he	PRON	_	_	3	obj	_	Entity=(e1)
7	himself	himself	PRON	_	_	3	obj	_	Entity=(e2)
"""
TOM_TOKENS = ["<bos>", "Tom", "Bob", "saw", "he", "him", "his", "himself"]

RELATED = """\
1	Young	young	ADJ	_	_	2	amod	_	_
2	dogs	dog	NOUN	_	_	3	nsubj	_	_
3	liked	like	VERB	_	_	0	root	_	_
4	hot	hot	ADJ	_	_	5	amod	_	_
5	wheels	wheel	NOUN	_	_	3	obj	_	_
6	and	and	CCONJ	_	_	8	cc	_	_
7	cold	cold	ADJ	_	_	8	amod	_	_
8	cats	cat	NOUN	_	_	5	conj	_	SpaceAfter=No
9	.	.	PUNCT	_	_	3	punct	_	_

1	Large	large	ADJ	_	_	2	amod	_	_
2	cars	car	NOUN	_	_	3	nsubj	_	_
3	ran	run	VERB	_	_	0	root	_	SpaceAfter=No
4	.	.	PUNCT	_	_	3	punct	_	_

1	A	a	DET	_	_	3	det	_	_
2	big	big	ADJ	_	_	3	amod	_	_
3	vehicle	vehicle	NOUN	_	_	4	nsubj	_	_
4	hated	hate	VERB	_	_	0	root	_	_
5	hot	hot	ADJ	_	_	6	amod	_	_
6	days	day	NOUN	_	_	4	obj	_	_
7	like	like	ADP	_	_	8	case	_	_
8	Sunday	Sunday	PROPN	_	_	6	nmod	_	_
"""
# two sentences lie between "hot" and "cold" or "cold" and "hot": too far
RELATED_TOKENS = (
    "<bos> Young dogs liked hot whe els and cold cats . Large cars ran . A big vehicle "
    "hated hot days like Sunday"
).split()

# "left" is of two units before, "when" opens a divided one, "sang" has no satellite
DISCOURSE = """\
1	Tom	Tom	PROPN	_	_	2	nsubj	_	Discourse=context-background:1->2
2	slept	sleep	VERB	_	_	0	root	_	SpaceAfter=No
3	.	.	PUNCT	_	_	2	punct	_	_

1	Ann	Ann	PROPN	_	_	3	nsubj	_	Discourse=ROOT:2
2	also	also	ADV	_	_	3	advmod	_	_
3	left	leave	VERB	_	_	0	root	_	_
4	when	when	SCONJ	_	_	6	mark	_	Discourse=context-circumstance:3->2:0:_
5	she	she	PRON	_	_	6	nsubj	_	_
6	saw	see	VERB	_	_	3	advcl	_	_
7	because	because	SCONJ	_	_	9	mark	_	Discourse=causal-cause:4->2:1:_;causal-cause:4->3
8	it	it	PRON	_	_	9	nsubj	_	_
9	rained	rain	VERB	_	_	3	advcl	_	_
10	outside	outside	ADV	_	_	6	advmod	_	Discourse=same-unit_m:5->3
11	and	and	CCONJ	_	_	12	cc	_	Discourse=joint-list_m:6->2
12	sang	sing	VERB	_	_	3	conj	_	SpaceAfter=No
13	.	.	PUNCT	_	_	3	punct	_	_

1	Nobody	nobody	PRON	_	_	2	nsubj	_	Discourse=causal-result:7->5
2	came	come	VERB	_	_	0	root	_	SpaceAfter=No
3	.	.	PUNCT	_	_	2	punct	_	_
"""  # noqa: E501
DISCOURSE_TOKENS = (
    "<bos> Tom slept . Ann also left when she sa w because it rained outside and sang . "
    "Nobody came ."
).split()

LONG_WORD = ["<bos>", "in", "com", "pre", "hension"]

# "Ruth, who lives in Madrid, works in Berlin. George works in Boston, but lives in Moscow. Alice
# works in Tokyo and lives in Rome. The city where Ruth has a home is"
FACTS_TEXT = next(fact_documents(0, seed=0))
FACTS = ["<bos>", *(word.form for word in FACTS_TEXT.words)]

# "zeigte" has no other verb to be compared with, and does not count
TRANSLATED_TEXT = prompts(
    [ANNA, *entries("old/alt", "dog/Hund", "small/klein", "cat/Katze", "show/zeigen")]
)[0]
TRANSLATED = ["<bos>", *TRANSLATED_TEXT.text.split()]

WORDS = ["<bos>", *["ab", "cd", "ef", "gh", "ij", "kl", "m"] * 2]

LETTERS = ["<bos>", *"abcdefghij"]
REPEAT = ["<bos>", *"abcd", *"abcd"]
LONG_REPEAT = ["<bos>", *"abcdefghijkl", *"abcdefghijkl"]
AGAIN = ["<bos>", *"abcadba"]
LINES = ["<bos>", "a", "b", "\n", "c", "d"]


def document(text: str) -> Document:
    (found,) = read_conllu(Path("example.conllu"), text)
    return found


_WORDS = ("abcd", "efgh", "ijklm") * 2
_ROWS = "".join(f"{i}\t{w}\t{w}\tX\t_\t_\t0\troot\t_\t_\n" for i, w in enumerate(_WORDS, 1))
WORDS_TEXT = document(_ROWS)
LONG_WORD_TEXT = document("1\tincomprehension\tincomprehension\tNOUN\t_\t_\t0\troot\t_\t_\n")
KEYS_TEXT, REED_TEXT, RELATED_TEXT = document(SENTENCES), document(REED), document(RELATED)
TOM_TEXT, DISCOURSE_TEXT = document(TOM), document(DISCOURSE)
_NOUNS = ("cat", "dog", "cat", "run", "dog", "cat")
_ROWS = "".join(f"{i}\t{w}\t{w}\tNOUN\t_\t_\t0\troot\t_\t_\n" for i, w in enumerate(_NOUNS, 1))
ABOUT_CATS = with_arrows(document(_ROWS), "cat")


def _back(tokens: list[str], offset: int, last: int | None = None) -> dict[int, list[int]]:
    """Queries from the first whose key is past the first token; with offset 0 the token at
    position 1 has no other key to be compared with, and does not count."""
    return {q: [q - offset] for q in range(max(2, offset + 1), (last or len(tokens) - 1) + 1)}


EXAMPLES = [
    *(Example(f"positional/offset-{d}", LETTERS, _back(LETTERS, d)) for d in range(9)),
    Example("positional/offset-1-random", LONG_REPEAT, _back(LONG_REPEAT, 1, last=12)),
    Example("positional/offset-4-random", LONG_REPEAT, _back(LONG_REPEAT, 4, last=12)),
    Example(
        "positional/local",
        LETTERS,
        {q: [q - 4, q - 3, q - 2, q - 1] for q in range(6, len(LETTERS))},
    ),
    *(
        Example(f"far/offset-{d}", ["<bos>", *map(str, range(40))], {q: [q - d] for q in queries})
        for d, queries in ((9, range(10, 41)), (32, range(33, 41)))
    ),
    # the query at 1 has no earlier key to be compared with
    Example("sink/first-token", KEYS, {q: [0] for q in range(2, 23)}, KEYS_TEXT),
    Example(
        "delimiter/punctuation",
        KEYS,
        {14: [13]}
        | {q: [13, 14] for q in range(15, 19)}
        | {19: [13, 14, 18]}
        | {q: [13, 14, 18, 19] for q in range(20, 23)},
        KEYS_TEXT,
    ),
    Example("delimiter/sentence-end", KEYS, {q: [13] for q in range(14, 23)}, KEYS_TEXT),
    Example(
        "delimiter/quote-bracket",
        KEYS,
        {q: [14] for q in range(15, 20)} | {q: [14, 19] for q in range(20, 23)},
        KEYS_TEXT,
    ),
    Example(
        "lexical/nearest-VERB",
        KEYS,
        {q: [2] for q in range(3, 9)}
        | {q: [8] for q in (9, 10, *range(12, 21))}
        | {21: [20], 22: [20]},
        KEYS_TEXT,
    ),
    Example(
        "lexical/same-class",
        KEYS,
        {3: [1], 8: [2], 14: [13], 15: [5], 16: [6], 18: [14], 19: [18], 20: [8], 21: [3]}
        | {22: [19]},
        KEYS_TEXT,
    ),
    Example("lexical/duplicate", KEYS, {21: [3]}, KEYS_TEXT),
    Example("lexical/in-word", KEYS, {12: [11]}, KEYS_TEXT),
    Example("lexical/first-piece", LONG_WORD, {3: [1], 4: [1]}, LONG_WORD_TEXT),
    Example("delimiter/newline", LINES, {4: [3], 5: [3]}),
    Example("induction/repeat", REPEAT, {5: [2], 6: [3], 7: [4], 8: [5]}),
    Example("duplicate-token/repeat", REPEAT, {5: [1], 6: [2], 7: [3], 8: [4]}),
    Example("induction/natural", AGAIN, {4: [2], 6: [3], 7: [2, 5]}),
    # "told" has no word before it but its subject, and so no distractor: it does not count
    Example("syntactic/nsubj:head>dep", KEYS, {8: [5], 17: [15]}, KEYS_TEXT),
    Example("syntactic/nsubj:dep>head", KEYS, {21: [20]}, KEYS_TEXT),
    Example("syntactic/obj:dep>head", KEYS, {12: [8]}, KEYS_TEXT),
    Example("syntactic/amod:head>dep", KEYS, {12: [10]}, KEYS_TEXT),
    Example("syntactic/det:head>dep", KEYS, {12: [9]}, KEYS_TEXT),
    Example("syntactic/aux:head>dep", KEYS, {8: [6]}, KEYS_TEXT),
    Example("syntactic/iobj:dep>head", KEYS, {3: [2]}, KEYS_TEXT),
    Example("syntactic/ccomp:dep>head", KEYS, {8: [2]}, KEYS_TEXT),
    Example("syntactic/parataxis:dep>head", KEYS, {20: [17]}, KEYS_TEXT),
    # "They" has no distractor in the plural, and does not count
    Example("coreference/pronoun", KEYS, {5: [1]}, KEYS_TEXT),
    Example("coreference/chain", TOM_TOKENS, {4: [1], 5: [2], 6: [1, 4], 7: [2, 5]}, TOM_TEXT),
    Example("coreference/same-word", KEYS, {21: [3]}, KEYS_TEXT),
    Example("coreference/nominal", REED_TOKENS, {8: [2]}, REED_TEXT),
    Example("semantic/antonym", RELATED_TOKENS, {8: [4]}, RELATED_TEXT),
    Example("semantic/category", RELATED_TOKENS, {9: [2]}, RELATED_TEXT),
    Example("semantic/part-whole", RELATED_TOKENS, {12: [5, 6]}, RELATED_TEXT),
    Example("semantic/hypernym", RELATED_TOKENS, {17: [12]}, RELATED_TEXT),
    Example("semantic/synonym", RELATED_TOKENS, {16: [11]}, RELATED_TEXT),
    Example("concept-induction/next-word", WORDS, {9: [4], 11: [7], 14: [9]}, WORDS_TEXT),
    Example("retrieval/value", FACTS, {38: [6]}, FACTS_TEXT),
    # the query at 2 has no other noun to be compared with
    Example("topic/topic-word", ["<bos>", *_NOUNS], {4: [1, 3], 5: [1, 3]}, ABOUT_CATS),
    Example(
        "alignment/translation",
        TRANSLATED,
        {14: [5], 15: [6], 18: [9], 19: [10]},
        TRANSLATED_TEXT,
    ),
    Example("discourse/causal", DISCOURSE_TOKENS, {11: [6, 9, 10], 19: [9, 10]}, DISCOURSE_TEXT),
    Example("discourse/other", DISCOURSE_TOKENS, {7: [6]}, DISCOURSE_TEXT),
    *(example for file in type_files() for example in file.EXAMPLES),
]
