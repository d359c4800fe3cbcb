"""Annotated text that many tests read."""

from __future__ import annotations

SENTENCES = """\
# newdoc id = keys
# text = Anna told Maria that she couldn't find the old keys.
1	Anna	Anna	PROPN	_	Number=Sing	2	nsubj	_	Entity=(e1-person)
2	told	tell	VERB	_	_	0	root	_	_
3	Maria	Maria	PROPN	_	Number=Sing	2	iobj	_	Entity=(e2-person)
4	that	that	SCONJ	_	_	8	mark	_	_
5	she	she	PRON	_	PronType=Prs	8	nsubj	_	Entity=(e1-person)
6-7	couldn't	_	_	_	_	_	_	_	_
6	could	can	AUX	_	_	8	aux	_	_
7	n't	not	PART	_	_	8	advmod	_	_
8	find	find	VERB	_	_	2	ccomp	_	_
9	the	the	DET	_	_	11	det	_	Entity=(e3-object
10	old	old	ADJ	_	_	11	amod	_	_
11	keys	key	NOUN	_	_	8	obj	_	Entity=e3)|SpaceAfter=No
12	.	.	PUNCT	_	_	2	punct	_	_

# text = "They were here," said Maria.
1	"	"	PUNCT	_	_	4	punct	_	SpaceAfter=No
2	They	they	PRON	_	Number=Plur|PronType=Prs	4	nsubj	_	Entity=(e3-object)
3	were	be	AUX	_	_	4	cop	_	_
4	here	here	ADV	_	_	0	root	_	SpaceAfter=No
5	,	,	PUNCT	_	_	4	punct	_	SpaceAfter=No
6	"	"	PUNCT	_	_	4	punct	_	_
7	said	say	VERB	_	_	4	parataxis	_	_
8	Maria	Maria	PROPN	_	_	7	nsubj	_	Entity=(e2-person)|SpaceAfter=No
9	.	.	PUNCT	_	_	4	punct	_	_

"""
