"""Facts of three people, and what one of them has asked for in other words: small needles."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from headscope.corpus.arrows import arrow
from headscope.corpus.controlled import lexicon
from headscope.corpus.controlled.prompts import retrievals
from headscope.corpus.document import Document, Word

STIMULUS, KIND = "facts", "value"
"""What windows of such texts are called, and the arrows from a question to its answer."""
IN_DOCUMENT = 6
"""Texts of one document: so many that 16 documents, the first round of reading, hold more than the
50 queries at which a simple rule is wrong that a tag asks for."""

_WORD = re.compile(r"\w+|[^\w\s]")


def fact_documents(document: int, *, seed: int) -> Iterator[Document]:
    """The texts of one document, each a text by itself: else the last word of one question, and
    what followed it, would stand before the next.

    The answer follows its question, so that it is known what is due there.

    >>> first = next(fact_documents(0, seed=0))
    >>> first.text
    'Ruth lives in Madrid. George lives in Moscow. Alice lives in Rome. The city where Ruth has a \
home is Madrid.'
    >>> first.text[first.arrows[0].right[0] :][:6]
    'Madrid'
    """
    rng = np.random.default_rng([seed, document])
    for number in range(document * IN_DOCUMENT, (document + 1) * IN_DOCUMENT):
        (prompt,) = retrievals(rng, number)
        values, asked = {*prompt.right, *prompt.wrong}, len(prompt.text)
        text = f"{prompt.text} {prompt.right[0]}."
        words, sentence = [], 0
        for match in _WORD.finditer(text):
            form = match.group()
            words.append(Word(form, *match.span(), sentence, form, _upos(form, values)))
            sentence += form == "."
        said = {word.form: word.start for word in words if word.end < asked}
        query = max(word.start for word in words if word.end <= asked)
        goal, places = said[prompt.right[0]], [said[value] for value in values]
        found = arrow(KIND, query, [goal], places)
        yield Document(
            f"facts_{number:03d}",
            text,
            tuple(words),
            source="facts",
            arrows=() if found is None else (found,),
            stimulus=STIMULUS,
        )


def _upos(form: str, values: set[str]) -> str:
    """Values are the only nouns, so that the first or the second noun is the first or second."""
    if form in values:
        return "NOUN"
    return "PROPN" if form in _NAMES else "X" if form.isalpha() else "PUNCT"


_NAMES = frozenset({*lexicon.WOMEN, *lexicon.MEN})
