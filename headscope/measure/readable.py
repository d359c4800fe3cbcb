"""Corpora that cannot be read, refused before a model is loaded for them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headscope.corpus.read import corpus_files
from headscope.corpus.shipped import corpus_place, listed
from headscope.errors import CorpusError
from headscope.stimuli.document_order import ordered_documents


def readable(
    corpus: str | Path | Sequence[str | Path] | None, *, seed: int = 0
) -> list[str | Path]:
    """The corpora as a list, each of which can be read as far as can be said at once.

    All files are there and may be opened, and the document that comes first with this seed is read:
    what is no text, or not what its suffix says, is found. Later documents are read when their
    turn comes.

    Raises:
        CorpusError: one of them cannot be read.

    >>> readable(["ring.pdf"])
    Traceback (most recent call last):
    headscope.errors.CorpusError: ring.pdf: no such corpus file or folder
    """
    corpora = listed(corpus)
    for name in corpora:
        files = corpus_files([corpus_place(name)])
        for file in files:
            if not os.access(file, os.R_OK):
                raise CorpusError(f"{file}: cannot be read: permission denied")
        left_out: list[str] = []
        if next(ordered_documents(files, [], left_out, seed), None) is None and left_out:
            raise CorpusError(f"{left_out[0]}; there is nothing else to read")
    return corpora
