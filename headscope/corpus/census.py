"""Census of a corpus: counts per relation, and how far simple rules get on it.

Everything is counted in words, so that it does not depend on a tokenizer.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from headscope.corpus.document import Document, Mention, own_label
from headscope.corpus.read import read_corpus

_AGREE = re.compile(r"\((\w+)-\w+-(\w+)")


@dataclass
class Census:
    """Counts over a corpus. Pronouns are those with an earlier mention by a noun or name."""

    documents: int = 0
    sentences: int = 0
    words: int = 0
    mentions: int = 0
    links: Counter[str] = field(default_factory=Counter)
    """Queries of each relation, e.g. `obj:dep>head`."""
    offsets: dict[str, Counter[int]] = field(default_factory=dict)
    """For each relation, how often its key lies this many words back."""
    nearest_noun: Counter[str] = field(default_factory=Counter)
    """For each relation, how often the nearest earlier noun or name is its key."""
    pronouns: int = 0
    contested: int = 0
    """Pronouns for which another earlier entity agrees in number and gender."""
    nearest_wrong: int = 0
    """Pronouns whose nearest earlier mention by a noun or name is another entity."""

    def best_offset(self, relation: str) -> float:
        """Share of the relation's queries that the best fixed offset gets right, in [0, 1]."""
        return self.offsets[relation].most_common(1)[0][1] / self.links[relation]


def census(path: Path) -> Census:
    """Count what a CoNLL-U corpus holds."""
    counts = Census()
    agreements = _agreements(path)
    for document in read_corpus(path):
        counts.documents += 1
        counts.sentences += document.sentences
        counts.words += len(document.words)
        counts.mentions += len(document.mentions)
        _count_links(counts, document)
        _count_pronouns(counts, document, agreements.get(document.name, {}))
    return counts


def _count_links(counts: Census, document: Document) -> None:
    nouns = [i for i, word in enumerate(document.words) if word.upos in ("NOUN", "PROPN")]
    for i, word in enumerate(document.words):
        if word.head < 0:
            continue
        direction = "head>dep" if word.head > i else "dep>head"
        query, key = max(i, word.head), min(i, word.head)
        relation = f"{own_label(word.deprel)}:{direction}"
        counts.links[relation] += 1
        counts.offsets.setdefault(relation, Counter())[query - key] += 1
        counts.nearest_noun[relation] += key == max((n for n in nouns if n < query), default=-1)


def _count_pronouns(counts: Census, document: Document, agree: dict[str, str]) -> None:
    nominal: list[Mention] = []
    for mention in sorted(document.mentions, key=lambda m: m.head):
        if document.words[mention.head].upos != "PRON":
            nominal.append(mention)
            continue
        if "PronType=Prs" not in document.words[mention.head].feats:
            continue
        earlier = [m for m in nominal if m.last < mention.first]
        if not any(m.entity == mention.entity for m in earlier):
            continue
        counts.pronouns += 1
        others = {m.entity for m in earlier} - {mention.entity}
        counts.contested += any(agree.get(e) == agree.get(mention.entity) for e in others)
        counts.nearest_wrong += earlier[-1].entity != mention.entity


def _agreements(path: Path) -> dict[str, dict[str, str]]:
    """Per document, the agreement class in the third field of each entity's first bracket."""
    by_document: dict[str, dict[str, str]] = {}
    for part in _documents(path.read_text(encoding="utf-8")):
        name, _, body = part.partition("\n")
        by_document[name.strip()] = dict(_AGREE.findall(body))
    return by_document


def _documents(text: str) -> Iterable[str]:
    return re.split(r"^# newdoc id = ", text, flags=re.MULTILINE)[1:]
