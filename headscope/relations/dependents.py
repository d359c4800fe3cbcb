"""Dependents of Universal Dependencies, and the words that govern them, in words."""

from __future__ import annotations

# after https://universaldependencies.org/u/dep/
DEPENDENTS = {
    "acl": "adnominal clause",
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
    "fixed": "fixed-phrase word",
    "flat": "later name part",
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
    "orphan": "ellipsis orphan",
    "parataxis": "adjacent sentence",
    "vocative": "vocative",
    "xcomp": "open complement",
}
"""The dependent of each relation in words."""
_OF_NOUNS = {
    "acl",
    "acl:relcl",
    "amod",
    "appos",
    "case",
    "compound",
    "det",
    "flat",
    "nmod",
    "nmod:poss",
    "nummod",
}
_OF_ANY = {"advmod", "cc", "conj", "cop", "discourse", "fixed", "list", "mark", "orphan"}


def governor_of(deprel: str) -> str:
    """The word that usually governs a dependent, in words.

    >>> governor_of("obj"), governor_of("amod")
    ('verb', 'noun')
    """
    if deprel in _OF_NOUNS:
        return "noun"
    return "head word" if deprel in _OF_ANY else "verb"
