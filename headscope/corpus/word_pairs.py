"""Pairs of related words, from a list that ships with headscope."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from headscope.corpus.shipped import data_folder
from headscope.errors import CorpusError

RELATIONS = ("synonym", "antonym", "hypernym", "category", "part-whole")
COLUMNS = ["first", "second", "relation", "upos"]
WORD_CLASSES = ("NOUN", "VERB", "ADJ")


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
    return read_pairs(data_folder() / "word_pairs.csv")


def read_pairs(path: Path) -> Lexicon:
    """Read a file of pairs with the columns `first,second,relation,upos`.

    Raises:
        CorpusError: the file has other columns, or a relation or word class is unknown.
    """
    with path.open(encoding="utf-8", newline="") as file:
        rows = csv.DictReader(file)
        if rows.fieldnames != COLUMNS:
            raise CorpusError(f"{path}: columns {rows.fieldnames}, expected {','.join(COLUMNS)}")
        pairs = []
        for row in rows:
            if row["relation"] not in RELATIONS or row["upos"] not in WORD_CLASSES:
                raise CorpusError(
                    f"{path}:{rows.line_num}: {row['relation']!r} of {row['upos']!r}; relations "
                    f"are {', '.join(RELATIONS)}, word classes {', '.join(WORD_CLASSES)}"
                )
            pairs.append(WordPair(**row))
    related: dict[str, dict[str, set[str]]] = {name: {} for name in RELATIONS}
    for pair in pairs:
        table = related[pair.relation]
        table.setdefault(pair.first.lower(), set()).add(pair.second.lower())
        table.setdefault(pair.second.lower(), set()).add(pair.first.lower())
    return Lexicon(tuple(pairs), related)
