"""Plain text: words and sentences without annotation."""

from __future__ import annotations

import re

from headscope.corpus.document import Document, Word
from headscope.errors import CorpusError

_WORD = re.compile(r"\w+(?:['’]\w+)*|[^\w\s]")
# a sentence ends after . ! ? and closing quotes, or at an empty line
_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?=\s)|\n\s*\n")


def read_text(name: str, text: str, *, source: str = "") -> Document:
    """A document whose words have no syntax and no mentions.

    A run of letters and digits is a word (with an apostrophe inside: "don't"); every other
    visible character is one. Sentences end after `. ! ?` before a space, or at an empty line:
    rough, and used only to choose where long documents are cut.

    Raises:
        CorpusError: there is no word in the text.
    """
    ends = [match.end() for match in _SENTENCE_END.finditer(text)]
    words: list[Word] = []
    sentence, passed = 0, 0
    for match in _WORD.finditer(text):
        while passed < len(ends) and ends[passed] <= match.start():
            passed += 1
            # two ends with no word between them are one
            sentence = words[-1].sentence + 1 if words else 0
        words.append(Word(match.group(), match.start(), match.end(), sentence))
    if not words:
        raise CorpusError(f"{source or name}: no word in this text")
    return Document(name, text, tuple(words), source=source)
