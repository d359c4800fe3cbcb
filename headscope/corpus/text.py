"""Plain text: words and sentences without annotation."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import regex

from headscope.corpus.document import Document, Word
from headscope.errors import CorpusError

# format characters such as a zero-width joiner or a soft hyphen are part of a word; U+200B divides
_RUN = r"[\p{L}\p{N}_][[\p{L}\p{N}_\p{M}\p{Cf}]--[\u200B]]*+"
_WORD = regex.compile(rf"{_RUN}(?:['’]{_RUN})*|(?![\s\x1c-\x1f\p{{Cf}}])\X", regex.VERSION1)
# a sentence ends after . ! ? and closing quotes, or at an empty line; each run of marks is tried
# once and whole, or a line of a million dots would be tried from each of them
_SENTENCE_END = re.compile(r"(?<![.!?…])[.!?…]++[\"'”’)\]]*+(?=\s)|\n\s*\n")

LONGEST = 200_000
"""Characters of one document. A longer text is several: the words and tokens of a document are in
memory together, and are found before its first window is read."""


def read_texts(name: str, text: str, *, source: str = "") -> Iterator[Document]:
    """The documents of a plain text: one, or several called `name.1`, `name.2` when it is long.

    Raises:
        CorpusError: there is no word in the text.

    >>> long = "Word for word. " * 20_000
    >>> [(document.name, len(document.text)) for document in read_texts("book", long)]
    [('book.1', 200000), ('book.2', 100000)]
    """
    if len(text) <= LONGEST:
        yield read_text(name, text, source=source)
        return
    count, start = 0, 0
    while start < len(text):
        end = _piece_end(text, start)
        # pieces without a word are left out
        if _WORD.search(text, start, end):
            count += 1
            piece = read_text(f"{name}.{count}", text[start:end], source=source)
            yield replace(piece, original=source or name)
        start = end
    _check_words(count, source or name)


def _check_words(count: int, name: str) -> None:
    if count == 0:
        raise CorpusError(f"{name}: no word in this text")


def _piece_end(text: str, start: int) -> int:
    """After an empty line if there is one, else a line, else a blank, else anywhere."""
    end = start + LONGEST
    if end >= len(text):
        return len(text)
    for mark in ("\n\n", "\n", " "):
        position = text.rfind(mark, start + 1, end)
        if position > 0:
            return position + len(mark)
    return end


def read_text(name: str, text: str, *, source: str = "") -> Document:
    """A document whose words have no syntax and no mentions.

    A run of letters and digits with their combining marks is a word (with an apostrophe inside:
    "don't"); every other visible character is one. Sentences end after `. ! ?` before a space, or
    at an empty line: rough, and used only to choose where long documents are cut.

    Raises:
        CorpusError: there is no word in the text.

    >>> document = read_text("ring", "Don't look! It's gone.")
    >>> [(word.form, word.sentence) for word in document.words]
    [("Don't", 0), ('look', 0), ('!', 0), ("It's", 1), ('gone', 1), ('.', 1)]
    """
    # ends and words are found apart, and run through side by side
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    words: list[Word] = []
    sentence = 0
    passed = 0
    for match in _WORD.finditer(text):
        while passed < len(ends) and ends[passed] <= match.start():
            passed += 1
            # two ends with no word between them are one
            sentence = words[-1].sentence + 1 if words else 0
        words.append(Word(match.group(), match.start(), match.end(), sentence))
    _check_words(len(words), source or name)
    return Document(name, text, tuple(words), source=source)
