"""Windows of sentences with their translations, for heads that look from a target at its source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Unpack

import numpy as np

from headscope.corpus.across import joined
from headscope.corpus.align import Cuts, cut_windows
from headscope.corpus.aligned import (
    AlignedFiles,
    Translation,
    aligned_files,
    read_translations,
    sentences_of,
)
from headscope.corpus.document import Document
from headscope.corpus.naming import names_within
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import corpus_place
from headscope.corpus.window import Window
from headscope.measure.stimuli import Encoder, Most, TextWindows, frame_of

SAME = (
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
        most: how much is read, both sides together.
    """

    def __init__(
        self,
        corpora: Sequence[str | Path],
        encoder: Encoder,
        decoder: Encoder,
        *,
        max_length: int,
        **most: Unpack[Most],
    ) -> None:
        super().__init__((), encoder, max_length=max_length, seed=0, **most)
        self.decoder = decoder
        places = [corpus_place(corpus) for corpus in corpora]
        aligned = [aligned_files(place) for place in places]
        self.aligned = any(aligned)
        # beside aligned text no other says anything of translation
        chosen = [
            (place, own or corpus_files([place]))
            for place, own in zip(places, aligned, strict=True)
            if own or not self.aligned
        ]
        files = [[path for each in own for path in _paths(each)] for _, own in chosen]
        inside = [place if Path(place).is_dir() else Path(place).parent for place, _ in chosen]
        self.paths = names_within(inside, files)
        self._left_out = 0
        self._coming = self._of([each for _, own in chosen for each in own])

    def further(self) -> Iterator[Window]:
        """Nothing: what is read is read for all relations."""
        return iter(())

    @property
    def notes(self) -> list[str]:
        """What the reader of the results should know about the windows so far."""
        found = super().notes
        if self._left_out:
            found.append(
                f"{self._left_out} sentences left out, longer than {self.max_length} tokens on a "
                "side"
            )
        return found if self.aligned else [*found, SAME]

    def _of(self, files: Sequence[AlignedFiles | Path]) -> Iterator[Window]:
        for own in files:
            self._opened += _paths(own)
            first = self._numbers
            for translation in _translations(own):
                self._numbers = max(self._numbers, first + translation.document + 1)
                window = self._joined(translation, first + translation.document)
                if window is None:
                    self._left_out += 1
                else:
                    yield window

    def _joined(self, translation: Translation, number: int) -> Window | None:
        """One window; None where a side is too long."""
        sides = (self.encoder, translation.source), (self.decoder, translation.target)
        found = []
        for encoder, document in sides:
            frame = frame_of(encoder)
            own = [
                frame.close(window)
                for window in cut_windows(
                    encoder.encode(document),
                    encoder.bos,
                    encoder.bos_string,
                    max_length=self.max_length - frame.room,
                    cuts=Cuts(),
                    number=number,
                )
            ]
            if len(own) != 1 or len(own[0].words) != len(document.words):
                return None
            found.append(own[0])
        return joined(found[0], found[1], translation.links)


def _paths(files: AlignedFiles | Path) -> list[Path]:
    return list(files.paths) if isinstance(files, AlignedFiles) else [files]


def _translations(files: AlignedFiles | Path) -> Iterator[Translation]:
    if isinstance(files, AlignedFiles):
        yield from read_translations(files)
        return
    for number, document in enumerate(read_documents([files])):
        for sentence in sentences_of(document):
            yield _itself(sentence, number)


def _itself(sentence: Document, number: int) -> Translation:
    places = np.arange(len(sentence.words))
    return Translation(sentence, sentence, np.stack([places, places], 1), number)
