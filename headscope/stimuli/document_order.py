"""The order in which documents are read: files, folders and corpora take turns."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np

from headscope.corpus.document import Document
from headscope.corpus.read import corpus_files, read_documents
from headscope.corpus.shipped import corpus_place, listed
from headscope.corpus.window import Window
from headscope.errors import CorpusError

_Item = TypeVar("_Item")
FILES_AT_ONCE = 16
"""Files of code that are read side by side: many are long, and a few alone would be the text."""


def ordered_documents(
    files: list[Path], opened: list[Path], unread: list[str], seed: int
) -> Iterator[Document]:
    """The documents of files in an order drawn by the seed, a file of each folder in turn."""
    folders: dict[Path, list[Path]] = {}
    for i in np.random.default_rng(seed).permutation(len(files)):
        folders.setdefault(files[i].parent, []).append(files[i])
    for one_of_each in zip_longest(*folders.values()):
        for file in filter(None, one_of_each):
            opened.append(file)
            yield from read_documents([file], unread)


def interleave(streams: Iterable[Iterator[Document]]) -> Iterator[Document]:
    """A document of each stream in turn, until all are at their end."""
    unfinished = list(streams)
    while unfinished:
        yield from _round(unfinished)


def interleave_some(streams: Iterable[tuple[Iterator[Window], bool]]) -> Iterator[Window]:
    """Streams one after the other; of those that are marked several at a time, a window each."""
    opened: list[Iterator[Window]] = []
    for stream, is_marked in streams:
        if not is_marked:
            yield from stream
            continue
        opened.append(stream)
        while len(opened) >= FILES_AT_ONCE:
            yield from _round(opened)
    while opened:
        yield from _round(opened)


def _round(opened: list[Iterator[_Item]]) -> Iterator[_Item]:
    for stream in list(opened):
        item = next(stream, None)
        if item is None:
            opened.remove(stream)
        else:
            yield item


def readable(
    corpus: str | Path | Sequence[str | Path] | None, *, seed: int = 0
) -> list[str | Path]:
    """The corpora as a list, checked before a model is loaded for them.

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
