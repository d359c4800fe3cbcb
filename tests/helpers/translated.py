"""Sentence pairs made by hand, and entries of a dictionary in other documents."""

from __future__ import annotations

from headscope.corpus.document import Word
from headscope.relations.types.alignment import Sentence, SentencePair


def sentence(document: str, *words: str) -> Sentence:
    """A sentence of words such as `dogs/dog/NOUN/1`; the last is the depth in the tree."""
    spans, start = [], 0
    for word in words:
        form, lemma, upos, _ = word.split("/")
        spans.append(Word(form, start, start + len(form), 0, lemma, upos))
        start += len(form) + 1
    depth = tuple(int(word[-1]) for word in words)
    return Sentence(document, " ".join(word.form for word in spans), tuple(spans), depth)


def entries(*words: str, documents: int = 5, upos: str = "NOUN") -> list[SentencePair]:
    """Sentences of one word such as `dog/Hund`, each in several documents."""
    pairs = []
    for word in words:
        for number in range(documents):
            source, target = (
                sentence(f"{word} {number}", f"{form}/{form}/{upos}/0") for form in word.split("/")
            )
            pairs.append((source, target))
    return pairs


ANNA: SentencePair = (
    sentence(
        "anna",
        "Anna/Anna/PROPN/1",
        "showed/show/VERB/0",
        "Maria/Maria/PROPN/1",
        "an/a/DET/2",
        "old/old/ADJ/2",
        "dog/dog/NOUN/1",
        "and/and/CCONJ/3",
        "a/a/DET/3",
        "small/small/ADJ/3",
        "cat/cat/NOUN/2",
        "././PUNCT/1",
    ),
    sentence(
        "anna",
        "Einen/ein/DET/2",
        "alten/alt/ADJ/2",
        "Hund/Hund/NOUN/1",
        "und/und/CCONJ/3",
        "eine/ein/DET/3",
        "kleine/klein/ADJ/3",
        "Katze/Katze/NOUN/2",
        "zeigte/zeigen/VERB/0",
        "Anna/Anna/PROPN/1",
        "Maria/Maria/PROPN/1",
        "././PUNCT/1",
    ),
)
"""A sentence and its translation in another order."""
