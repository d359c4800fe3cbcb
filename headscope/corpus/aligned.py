"""Aligned corpora: sentences of two languages, and which words of them translate each other.

Three files lie side by side: `NAME.src.txt` and `NAME.tgt.txt` with a sentence in each line, words
between blanks, and `NAME.align` with the pairs of words in each line, `0-0 1-2`, counted from 0
(Pharaoh's format). Where words have parts of speech the sentences stand in `NAME.src.conllu` and
`NAME.tgt.conllu` instead. An empty line of `NAME.align` between empty lines of text, or the next
`newdoc` of CoNLL-U, begins another document.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.document import Document, Word
from headscope.corpus.read import read_documents, read_text_file
from headscope.errors import CorpusError

LINKS = ".align"
SOURCE, TARGET, BOTH = ".src", ".tgt", "both"
"""Sides of an aligned corpus that a model reads: a file of such a suffix, or each sentence with its
translation."""
KINDS = (".conllu", ".txt")
_LINK = re.compile(r"(\d{1,6})-(\d{1,6})")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True)
class AlignedFiles:
    """The three files of an aligned corpus."""

    source: Path
    target: Path
    links: Path

    @property
    def paths(self) -> tuple[Path, Path, Path]:
        """All of them."""
        return self.source, self.target, self.links


@dataclass(frozen=True, eq=False)
class Translation:
    """A sentence and its translation."""

    source: Document
    target: Document
    links: Int[ndarray, "link 2"]
    """Words of the source and of the target, by their numbers."""
    document: int
    """Number of the document that it belongs to, in its file."""


def aligned_files(path: str | Path) -> list[AlignedFiles]:
    """The aligned files of a folder, or those that belong to one `.align` file; none of others.

    Raises:
        CorpusError: the text of a side is missing.
    """
    path = Path(path)
    if path.suffix == LINKS:
        paths = [path]
    else:  # `os.path` takes what can be no path, such as too long a name, for no folder
        paths = sorted(path.rglob(f"*{LINKS}")) if os.path.isdir(path) else []  # noqa: PTH112
    return [AlignedFiles(_side(links, SOURCE), _side(links, TARGET), links) for links in paths]


def side_of(corpora: Sequence[str | Path], side: str) -> list[str | Path]:
    """The corpora that are read of one side: of aligned ones its files, others as they are."""
    if side not in (SOURCE, TARGET):
        return list(corpora)
    sides: list[str | Path] = []
    for corpus in corpora:
        aligned = aligned_files(corpus)
        sides += [files.source if side == SOURCE else files.target for files in aligned] or [corpus]
    return sides


def read_translations(files: AlignedFiles) -> Iterator[Translation]:
    """The sentences of aligned files, in order.

    Raises:
        CorpusError: with file and line, where a side has more sentences than the other, or a pair
            of words is none.
    """
    lines = read_text_file(files.links).split("\n")
    if lines and not lines[-1]:
        lines.pop()
    sides = [_sentences(files.source), _sentences(files.target)]
    number, numbered_lines = 0, iter(enumerate(lines, 1))
    before: tuple[int, int] | None = None
    for source, target in zip_longest(*sides):
        line, text = _next_line(numbered_lines, files.links)
        if source is None or target is None:
            short = files.source if source is None else files.target
            raise CorpusError(f"{short}: fewer sentences than on the other side")
        number += before is not None and (line != before[0] + 1 or source[1] != before[1])
        before = line, source[1]
        links = _links(text, f"{files.links}:{line}", len(source[0].words), len(target[0].words))
        yield Translation(source[0], target[0], links, number)
    if (
        surplus_line := next(
            (line_number for line_number, text in numbered_lines if text.strip()), None
        )
    ) is not None:
        raise CorpusError(f"{files.links}:{surplus_line}: more lines than sentences")


def sentences_of(document: Document) -> Iterator[Document]:
    """Each sentence of a document as a document of its own, with its words and their heads."""
    words = document.words
    starts = [i for i, w in enumerate(words) if not i or w.sentence != words[i - 1].sentence]
    for first, end in zip(starts, [*starts[1:], len(words)], strict=True):
        start, stop = words[first].start, max(word.end for word in words[first:end])
        sentence_words = tuple(
            replace(
                word,
                start=word.start - start,
                end=word.end - start,
                sentence=0,
                head=word.head - first if first <= word.head < end else -1,
            )
            for word in words[first:end]
        )
        name = f"{document.name}.{words[first].sentence + 1}"
        yield Document(name, document.text[start:stop], sentence_words, source=document.source)


def _side(links: Path, side: str) -> Path:
    stem = links.name.removesuffix(LINKS)
    places = [links.with_name(f"{stem}{side}{kind}") for kind in KINDS]
    text_file = next((candidate for candidate in places if candidate.is_file()), None)
    if text_file is None:
        raise CorpusError(
            f"{links}: the sentences that it aligns are missing: {places[1].name}, or "
            f"{places[0].name}, beside it"
        )
    return text_file


def _sentences(path: Path) -> Iterator[tuple[Document, int]]:
    """The sentences of a side, each with the number of its document."""
    if path.suffix == ".conllu":
        for number, document in enumerate(read_documents([path])):
            for sentence in sentences_of(document):
                yield sentence, number
        return
    for line, text in enumerate(read_text_file(path).split("\n"), 1):
        words = [Word(m.group(), m.start(), m.end(), 0) for m in _WORD.finditer(text)]
        if words:
            yield Document(f"{path.stem}.{line}", text, tuple(words), source=str(path)), 0


def _next_line(numbered_lines: Iterator[tuple[int, str]], path: Path) -> tuple[int, str]:
    """The next line that is not empty, with its number."""
    for line, text in numbered_lines:
        if text.strip():
            return line, text
    raise CorpusError(f"{path}: fewer lines than sentences; one without pairs is written as -")


def _links(text: str, where: str, source: int, target: int) -> Int[ndarray, "link 2"]:
    if text.strip() == "-":
        return np.empty((0, 2), np.int64)
    links = []
    for part in text.split():
        match = _LINK.fullmatch(part)
        if match is None:
            raise CorpusError(f"{where}: {part!r:.40} is no pair of words such as 0-1")
        link = int(match[1]), int(match[2])
        if link[0] >= source or link[1] >= target:
            raise CorpusError(
                f"{where}: {part} names a word that is not there; the sentences have {source} and "
                f"{target} words"
            )
        links.append(link)
    return np.array(sorted(set(links)), np.int64)
