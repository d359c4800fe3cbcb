"""Windows of sentences with their translations, for heads that look from a target at its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Unpack

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import CROSS
from headscope.corpus.aligned import (
    AlignedFiles,
    Translation,
    aligned_files,
    read_translations,
    sentences_of,
)
from headscope.corpus.document import Document
from headscope.corpus.overlong import overlong_words
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import corpus_place, names_within
from headscope.corpus.window import START, Window, WordTable
from headscope.stimuli.stimulus import TextTokenizer, cut_document, longest_word
from headscope.stimuli.text import TEXT, ReadLimits, TextWindows

NO_LINKS = np.empty((0, 2), np.int64)

NOT_ALIGNED = (
    "no aligned text was given: heads across read every sentence with itself as its source, which "
    "cannot tell a translation from the same place; give a folder with an .align file (--corpus)"
)


class TranslationWindows(TextWindows):
    """A window for each sentence with its translation, up to `max_tokens` tokens.

    Of text that is not aligned a sentence is its own translation, each word that of itself.

    Args:
        corpora: aligned corpora, or text.
        encoder: the encoder's tokenizer.
        decoder: the decoder's.
        max_length: tokens of one side.
        limits: how much is read, both sides together.
    """

    def __init__(
        self,
        corpora: Sequence[str | Path],
        encoder: TextTokenizer,
        decoder: TextTokenizer,
        *,
        max_length: int,
        **limits: Unpack[ReadLimits],
    ) -> None:
        super().__init__((), encoder, max_length=max_length, seed=0, **limits)
        self.decoder = decoder
        roots = [corpus_place(corpus) for corpus in corpora]
        aligned = [aligned_files(root) for root in roots]
        self.aligned = any(aligned)
        # beside aligned text no other says anything of translation
        sources = [
            (root, pairs or corpus_files([root]))
            for root, pairs in zip(roots, aligned, strict=True)
            if pairs or not self.aligned
        ]
        files = [[path for text in texts for path in _paths(text)] for _, texts in sources]
        folders = [root if Path(root).is_dir() else Path(root).parent for root, _ in sources]
        self.paths = names_within(folders, files)
        self._left_out = 0
        self._stream = self._windows_of([text for _, texts in sources for text in texts])

    def remaining(self) -> Iterator[Window]:
        """No windows: all text is read for all relations."""
        return iter(())

    @property
    def notes(self) -> list[str]:
        """Notes on the windows so far, for the reader of the results."""
        notes = super().notes
        if self._left_out:
            notes.append(
                f"{self._left_out} sentences left out, longer than {self.max_length} tokens on a "
                "side"
            )
        return notes if self.aligned else [*notes, NOT_ALIGNED]

    def _windows_of(self, texts: Sequence[AlignedFiles | Path]) -> Iterator[Window]:
        for text in texts:
            self._opened_files += _paths(text)
            first = self._next_document
            for translation in _translations(text):
                number = first + translation.document
                self._next_document = max(self._next_document, number + 1)
                window = self._joined(translation, number)
                if window is None:
                    self._left_out += 1
                else:
                    yield window

    def _joined(self, translation: Translation, number: int) -> Window | None:
        """One window; None where a side is too long."""
        source = self._side(self.tokenizer, translation.source, number)
        target = self._side(self.decoder, translation.target, number)
        if source is None or target is None:
            return None
        return joined_window(source, target, translation.links)

    def _side(self, tokenizer: TextTokenizer, document: Document, number: int) -> Window | None:
        if overlong_words(document, longest_word(tokenizer, document, self.max_length)):
            return None
        windows = list(cut_document(document, tokenizer, TEXT.name, self.max_length, number=number))
        if len(windows) != 1 or len(windows[0].words) != len(document.words):
            return None
        return windows[0]


def joined_window(
    source: Window, target: Window, links: Int[ndarray, "link 2"] = NO_LINKS
) -> Window:
    """A source and its target as one window: the target behind it looks at the source's tokens.

    Args:
        source: as an encoder reads it.
        target: as a decoder reads it; its first token is where that begins.
        links: words that translate each other, as rows of the two tables of words.

    >>> one = Window("w", np.array([5, 6, 1]), ("a", "b", "</s>"))
    >>> both = joined_window(one, Window("w", np.array([9, 7]), ("<s>", "c")))
    >>> both.source, both.strings
    (3, ('a', 'b', '</s>', '<s>', 'c'))
    """
    start = len(source)
    return replace(
        source,
        tokens=np.concatenate([source.tokens, [START], target.tokens[1:]]),
        strings=(*source.strings, *target.strings),
        words=_joined_words(source.words, target.words, start),
        attention_kind=CROSS,
        ends=0,
        source=start,
        links=links + np.array([0, len(source.words)]),
    )


def _joined_words(source: WordTable, target: WordTable, start: int) -> WordTable:
    """Both tables, the target's words behind the source's."""
    last = int(source.sentence.max(initial=-1))
    moved = replace(
        target,
        first=target.first + start,
        last=target.last + start,
        sentence=target.sentence + last + 1,
        head=np.where(target.head >= 0, target.head + len(source), -1),
    )
    names = [column.name for column in fields(WordTable)]
    return WordTable(
        **{name: np.concatenate([getattr(source, name), getattr(moved, name)]) for name in names}
    )


def _paths(files: AlignedFiles | Path) -> list[Path]:
    return list(files.paths) if isinstance(files, AlignedFiles) else [files]


def _translations(files: AlignedFiles | Path) -> Iterator[Translation]:
    if isinstance(files, AlignedFiles):
        yield from read_translations(files)
        return
    for number, document in enumerate(read_documents([files])):
        for sentence in sentences_of(document):
            yield _identity(sentence, number)


def _identity(sentence: Document, number: int) -> Translation:
    rows = np.arange(len(sentence.words))
    return Translation(sentence, sentence, np.stack([rows, rows], 1), number)
