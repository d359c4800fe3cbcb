"""Natural text: documents cut into windows, up to a number of tokens.

Files, folders and corpora take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import Path
from typing import TypeVar

import numpy as np

from headscope.corpus.align import Cuts
from headscope.corpus.document import Document
from headscope.corpus.language import Language
from headscope.corpus.python_files import is_code
from headscope.corpus.read import corpus_files, file_sha256, read_documents, unread_note
from headscope.corpus.shipped import corpus_place, listed, named_corpora, names_within
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.stimuli.stimulus import (
    MIN_DOCUMENTS,
    Stimulus,
    TextTokenizer,
    cut_document,
)

TEXT = Stimulus(
    name="text",
    title="text",
    any_language=True,
    example_windows=16,
    picture="the first {side} tokens of texts",
)
"""Natural text of a corpus."""
MOST_WORDS_LOST = 0.2
"""Largest share of words without a token; text that has more is refused."""
ENOUGH_WORDS = 1000
"""Words after which that share is checked before the text ends."""
FILES_AT_ONCE = 16
"""Files of code that are read side by side: many are long, and a few alone would be the text."""
_Item = TypeVar("_Item")


class TextWindows:
    """Windows of natural text, up to `max_tokens` tokens or `max_documents` documents.

    The files of a folder are read in an order drawn by the seed, its subfolders in turn a file
    each; several corpora take turns, one document each. A file that is not needed is not read.
    """

    def __init__(
        self,
        corpora: Sequence[str | Path],
        tokenizer: TextTokenizer,
        *,
        max_tokens: int,
        max_length: int,
        seed: int,
        max_documents: int | None = None,
        continue_window: Callable[[Window], Window] | None = None,
        language: str | None = None,
    ) -> None:
        self.max_documents = max_documents
        self._continue_window = continue_window
        self.tokens = 0
        """Tokens of the windows so far, the beginning-of-text tokens included."""
        self.tokenizer, self.max_length = tokenizer, max_length
        self.max_tokens = max_tokens
        self._opened_files: list[Path] = []
        self._cuts, self._skipped_mentions, self._zero_mentions = Cuts(), 0, 0
        self._skipped_comments: list[str] = []
        self._is_annotated = False
        self.language = Language(language)
        """The language that the user states, or that of the documents so far."""
        self._unread_files: list[str] = []
        self.documents = 0
        """Documents that the windows so far are of; a long text in pieces is one."""
        self._piece_documents: dict[str, int] = {}
        self._next_document = 0
        # files are listed before any of them is opened
        corpora = [corpus_place(corpus) for corpus in corpora]
        files = [corpus_files([corpus]) for corpus in corpora]
        self._unread_notes = _unread_notes(corpora, files)
        self.paths = names_within(corpora, files)
        """All files of the corpora by their names in these, whether they will be needed or not."""
        self._sha256: dict[Path, str] = {}
        self._stream = self._windows(
            interleave(
                ordered_documents(f, self._opened_files, self._unread_files, seed) for f in files
            )
        )

    def __iter__(self) -> Iterator[Window]:
        """The windows, once.

        Raises:
            CorpusError: a file that cannot be read, with its line, and text of which the tokenizer
                loses too many words.
        """
        while self.tokens < self.max_tokens:
            window = next(self._stream, None)
            if window is None:
                if not self.tokens and self._unread_files:
                    raise CorpusError(f"{self._unread_files[0]}; there is nothing else to read")
                break
            if self.max_documents is not None and window.document >= self.max_documents:
                break
            # text in another script would be read to its end before anybody is told
            if self._cuts.words >= ENOUGH_WORDS:
                self._check_lost_words()
            self.documents = max(self.documents, window.document + 1)
            self.tokens += len(window)
            yield window
        self._check_lost_words()

    def _windows(self, documents: Iterable[Document]) -> Iterator[Window]:
        streams = ((self._of_document(document), is_code(document)) for document in documents)
        yield from interleave_some(streams)

    def _of_document(self, document: Document) -> Iterator[Window]:
        # counted for the notes
        self._skipped_mentions += document.skipped_mentions
        self._zero_mentions += document.zero_mentions
        if document.skipped_comments:
            self._skipped_comments.append(document.skipped_comments)
        self.language.add(document)
        is_annotated = is_code(document) or any(w.upos or w.deprel for w in document.words)
        self._is_annotated |= is_annotated and not self._continue_window
        # all pieces of a text have one number, as blocks are of whole documents
        number = self._number(document)
        self._next_document = max(self._next_document, number + 1)
        if self._continue_window:  # a line break at the end of a file is no part of a prompt
            document = replace(document, text=document.text.rstrip())
        windows = cut_document(
            document,
            self.tokenizer,
            TEXT.name,
            self.max_length,
            number=number,
            cuts=self._cuts,
        )
        yield from map(self._continue_window, windows) if self._continue_window else windows

    def _number(self, document: Document) -> int:
        """The document's number; all pieces of one text have that of the first."""
        if not document.original:
            return self._next_document
        return self._piece_documents.setdefault(document.original, self._next_document)

    @property
    def files(self) -> dict[str, str]:
        """The sha256 of each corpus file that was read, by its name in its corpus."""
        for path in self._opened_files:
            if path not in self._sha256:
                self._sha256[path] = file_sha256(path)
        files: dict[str, str] = {}
        for name, path in self.paths.items():
            if path in self._sha256:
                files[name] = self._sha256[path]
        return files

    @property
    def notes(self) -> list[str]:
        """Notes on the windows so far, for the reader of the results."""
        # what was left out or cut does not show in the numbers
        cuts, unread = self._cuts, self._unread_files
        notes = []
        if self._skipped_mentions:
            notes.append(f"{self._skipped_mentions} discontinuous mentions left out")
        if self._zero_mentions:
            notes.append(f"{self._zero_mentions} mentions of empty nodes alone left out")
        if cuts.sentences_cut:
            notes.append(
                f"{cuts.sentences_cut} sentences longer than a window were cut between words "
                f"(first in {cuts.first})"
            )
        if cuts.words_lost:
            notes.append(f"{self._lost_words()}, and these are left out")
        notes += [f"{at}: comments without a sentence skipped" for at in self._skipped_comments]
        if unread:
            notes.append(f"{len(unread)} files of code passed over (first {unread[0]})")
        notes += self._unread_notes
        if self.documents and not self._is_annotated:
            notes.append(NO_ANNOTATION)
        return notes

    def _check_lost_words(self) -> None:
        if self._cuts.words_lost > MOST_WORDS_LOST * self._cuts.words:
            raise CorpusError(
                f"{self._lost_words()}, more than {MOST_WORDS_LOST:.0%}; take a model whose "
                "tokenizer has the script of this text, or other text"
            )

    def _lost_words(self) -> str:
        lost, words = self._cuts.words_lost, self._cuts.words
        share = 100 * lost / words
        return f"the tokenizer keeps no character of {lost:,} of {words:,} words ({share:.1f} %)"


def _unread_notes(corpora: Sequence[str | Path], files: Sequence[Sequence[Path]]) -> list[str]:
    """A note for each folder of the user with files that are not read."""
    shipped = set(named_corpora().values())
    notes = []
    for corpus, corpus_paths in zip(map(Path, corpora), files, strict=True):
        if corpus.is_dir() and corpus not in shipped:
            notes.append(unread_note(corpus, corpus_paths))
    return [note for note in notes if note]


NO_ANNOTATION = (
    "this text has no annotation: heads that look by part of speech, syntax or coreference cannot "
    "be found; use a .conllu file"
)


def few_documents(documents: int, blocks: int) -> list[str]:
    """A note where there are too few documents, or even too few stretches of them, for intervals.

    Args:
        documents: documents of text that were read.
        blocks: blocks in which their queries lie.
    """
    if not 0 < documents < MIN_DOCUMENTS:
        return []
    count = "1 document was" if documents == 1 else f"{documents} documents were"
    if blocks < MIN_DOCUMENTS:
        return [
            f"{count} read, which give {blocks} blocks; an interval needs {MIN_DOCUMENTS}: no head "
            "is tagged"
        ]
    return [
        f"{count} read, fewer than {MIN_DOCUMENTS}: intervals rest on {blocks} blocks, which are "
        "stretches of this text, and do not extend to other texts"
    ]


def ordered_documents(
    files: list[Path], opened: list[Path], unread: list[str], seed: int
) -> Iterator[Document]:
    """The documents of files in an order drawn by the seed, a file of each folder in turn."""
    # a folder of many files must not fill the budget of tokens before the others are read
    rng = np.random.default_rng(seed)
    folders: dict[Path, list[Path]] = {}
    for number in rng.permutation(len(files)):
        file = files[number]
        folders.setdefault(file.parent, []).append(file)
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

    The document that comes first with this seed is read, which finds what is not text, or not what
    its suffix says. Later documents are read when their turn comes.

    Raises:
        CorpusError: one of them cannot be read.

    >>> readable(["ring.pdf"])
    Traceback (most recent call last):
    headscope.errors.CorpusError: ring.pdf: no such corpus file or folder
    """
    # one document of each corpus is read in less time than a model is loaded
    corpora = listed(corpus)
    for name in corpora:
        files = corpus_files([corpus_place(name)])
        left_out: list[str] = []
        if next(ordered_documents(files, [], left_out, seed), None) is None and left_out:
            raise CorpusError(f"{left_out[0]}; there is nothing else to read")
    return corpora
