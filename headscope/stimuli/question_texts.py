"""Texts that end in a question: each a document, with arrows from where its answer is due."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from headscope.corpus.document import Document, Word
from headscope.corpus.gold_links import arrow
from headscope.corpus.window import Window
from headscope.stimuli.stimulus import MAX_DOCUMENTS, TextTokenizer, cut_document

_WORD = re.compile(r"\w+|[^\w\s]")


class QuestionText(NamedTuple):
    """A text that ends in a question."""

    text: str
    """Up to where the answer is due."""
    answer: str
    """A word of the text."""
    candidates: Mapping[str, Collection[str]]
    """By kind of arrow the words of the text among which the answer is looked for."""
    starts: Mapping[str, int] | None = None
    """First characters of these words; of each where it stands last in the text when None."""


def question_document(
    name: str,
    question: QuestionText,
    *,
    upos: Callable[[str, int], str],
    stimulus: str,
    sentence_end: str = ".",
) -> Document:
    """A text and its answer, with an arrow of each kind from its last word to the answer in it.

    The answer follows its question, so that it is known what is due there.

    Args:
        name: of the document.
        question: the text.
        upos: the part of speech of a word, by its form and first character.
        stimulus: the name of its windows' stimulus.
        sentence_end: a word that ends a sentence.
    """
    text, end = f"{question.text} {question.answer}.", len(question.text)
    words, sentence = [], 0
    for match in _WORD.finditer(text):
        form = match.group()
        words.append(Word(form, *match.span(), sentence, form, upos(form, match.start())))
        sentence += form == sentence_end
    starts = question.starts or {word.form: word.start for word in words if word.end < end}
    query = max(word.start for word in words if word.end <= end)
    links = [
        arrow(kind, query, [starts[question.answer]], [starts[form] for form in forms])
        for kind, forms in question.candidates.items()
    ]
    return Document(
        name,
        text,
        tuple(words),
        source=stimulus,
        arrows=tuple(link for link in links if link is not None),
        stimulus=stimulus,
    )


def question_windows(
    documents_of: Callable[..., Iterable[Document]],
    tokenizer: TextTokenizer,
    *,
    max_length: int,
    seed: int,
    count: int = MAX_DOCUMENTS,
) -> list[Window]:
    """Windows of texts with a question each; a document is one block.

    Texts that are longer than a window are left out.

    Args:
        documents_of: the texts of one document, by its number and `seed`, each by itself: in one
            text the last word of a question, and what followed it, would stand before the next.
        tokenizer: the model's.
        max_length: longest window in tokens.
        seed: seeds the texts.
        count: documents.
    """
    windows: list[Window] = []
    for number in range(count):
        for text in documents_of(number, seed=seed):
            cut = list(cut_document(text, tokenizer, text.stimulus, max_length, number=number))
            windows += cut if len(cut) == 1 else []
    return windows
