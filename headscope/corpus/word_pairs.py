"""Pairs of related words, from a list that ships with headscope."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

from headscope.corpus.shipped import data_folder

RELATIONS = ("synonym", "antonym", "hypernym", "category", "part-whole")


class WordPair(NamedTuple):
    """A row of `word_pairs.csv`: two lemmas of one part of speech."""

    first: str
    second: str
    relation: str
    upos: str


@dataclass(frozen=True)
class Lexicon:
    """All pairs, and for each relation which lemmas each lemma is related to, either way."""

    pairs: tuple[WordPair, ...]
    related: dict[str, dict[str, set[str]]]

    def any_relation(self, lemma: str) -> set[str]:
        """Lemmas that are related to this one in any way, itself among them."""
        return {lemma}.union(*(table.get(lemma, set()) for table in self.related.values()))


@cache
def shipped_pairs() -> Lexicon:
    """The pairs that ship with headscope.

    >>> sorted(shipped_pairs().related["antonym"]["hot"])
    ['cold']
    """
    with (data_folder() / "word_pairs.csv").open(encoding="utf-8", newline="") as file:
        pairs = tuple(WordPair(**row) for row in csv.DictReader(file))
    related: dict[str, dict[str, set[str]]] = {name: {} for name in RELATIONS}
    for pair in pairs:
        table = related[pair.relation]
        table.setdefault(pair.first.lower(), set()).add(pair.second.lower())
        table.setdefault(pair.second.lower(), set()).add(pair.first.lower())
    return Lexicon(pairs, related)
