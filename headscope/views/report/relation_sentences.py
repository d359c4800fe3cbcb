"""Relations in words: what stands at the query, and what it looks at."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from typing import Any

from headscope.measure.example import Example
from headscope.relations import head_types

# after https://universaldependencies.org/u/dep/
_DEPENDENT = {
    "acl": "clause of a noun",
    "acl:relcl": "relative clause",
    "advcl": "adverbial clause",
    "advmod": "adverb",
    "amod": "adjective",
    "appos": "apposition",
    "aux": "auxiliary",
    "aux:pass": "passive auxiliary",
    "case": "preposition or case marker",
    "cc": "coordinating conjunction",
    "ccomp": "clausal complement",
    "compound": "compound part",
    "compound:prt": "verb particle",
    "conj": "later conjunct",
    "cop": "copula",
    "csubj": "clausal subject",
    "det": "determiner",
    "discourse": "discourse word",
    "dislocated": "dislocated word",
    "expl": "expletive",
    "fixed": "part of a fixed expression",
    "flat": "later part of a name",
    "iobj": "indirect object",
    "list": "list item",
    "mark": "subordinating word",
    "nmod": "noun modifier",
    "nmod:poss": "possessor",
    "nsubj": "subject",
    "nsubj:pass": "passive subject",
    "nummod": "number",
    "obj": "object",
    "obl": "oblique noun",
    "orphan": "orphan of an ellipsis",
    "parataxis": "sentence beside it",
    "vocative": "vocative",
    "xcomp": "open complement",
}
_OF_NOUNS = {
    "acl", "acl:relcl", "amod", "appos", "case", "compound", "det", "flat", "nmod", "nmod:poss",
    "nummod",
}  # fmt: skip
# after https://universaldependencies.org/u/pos/
_CLASSES = {
    "ADJ": "adjective",
    "ADP": "preposition",
    "ADV": "adverb",
    "AUX": "auxiliary verb",
    "CCONJ": "coordinating conjunction",
    "DET": "determiner",
    "NOUN": "noun",
    "NUM": "number",
    "PART": "particle",
    "PRON": "pronoun",
    "PROPN": "name",
    "SCONJ": "subordinating conjunction",
    "VERB": "verb",
}
_OF_ANY = {"advmod", "cc", "conj", "cop", "discourse", "fixed", "list", "mark", "orphan"}


def spoken(relation: str, meaning: str) -> str:
    """A relation's name in words; what it means, where it is no syntactic one.

    >>> spoken("syntactic/aux:pass:head>dep", "…")
    'verb → its passive auxiliary'
    >>> spoken("syntactic/obj:dep>head", "…"), spoken("sink/first-token", "the first token")
    ('object → its verb', 'the first token')
    """
    kind, _, name = relation.partition("@")[0].partition("/")
    deprel, _, direction = name.rpartition(":")
    if kind != "syntactic" or deprel not in _DEPENDENT:
        return in_words(meaning)
    governor = "noun" if deprel in _OF_NOUNS else "head word" if deprel in _OF_ANY else "verb"
    dependent = _DEPENDENT[deprel]
    if direction == "head>dep":
        return f"{governor} → its {dependent}"
    return f"{dependent} → its {governor}"


def in_words(meaning: str) -> str:
    """A relation's meaning with word classes spelled out.

    >>> in_words("the nearest earlier CCONJ")
    'the nearest earlier coordinating conjunction'
    """
    return re.sub(r"\b[A-Z]{3,5}\b", lambda tag: _CLASSES.get(tag[0], tag[0]), meaning)


def types_in_words(names: Collection[str]) -> list[dict[str, Any]]:
    """Every head type that is asked for, or by default: its letter, what it looks at."""
    return [
        {
            "name": kind.name,
            "letter": kind.letter,
            "rests": not kind.functional,
            "looks_at": kind.looks_at,
            "rivals": kind.rivals,
        }
        for kind in head_types().values()
        if (kind.relations and not kind.on_request) or kind.name in names
    ]


def instances_of(examples: Iterable[Example]) -> dict[str, list[str]]:
    """The query and a target of each relation's example with the largest mass."""
    best: dict[str, tuple[float, list[str]]] = {}
    for example in examples:
        if example.query < 0 or not example.targets:
            continue
        if example.mass > best.get(example.relation, (-1.0, []))[0]:
            words = [example.tokens[example.query], example.tokens[example.targets[-1]]]
            best[example.relation] = (example.mass, words)
    return {name: words for name, (_, words) in best.items()}
