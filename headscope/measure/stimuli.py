"""What a run reads: documents cut into windows, up to a number of tokens, and random repeats."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict, Unpack, runtime_checkable

from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.code.excerpts import excerpts, is_code, without_excerpted
from headscope.corpus.code.made import made_code
from headscope.corpus.document import Document
from headscope.corpus.languages import foreign_notes
from headscope.corpus.naming import names_within
from headscope.corpus.read import corpus_files, file_sha256, read_documents
from headscope.corpus.shipped import built_corpora, corpus_place
from headscope.corpus.synthetic import repeat_windows
from headscope.corpus.window import CAUSAL, EXCERPT, Frame, Window
from headscope.corpus.word_pairs import pair_documents, shipped_pairs
from headscope.errors import CorpusError
from headscope.measure.deal import few_documents
from headscope.measure.tally import BLOCKS, MIN_BLOCKS
from headscope.measure.turns import documents_of, some_in_turn, take_turns

MOST_DOCUMENTS = BLOCKS
"""Of each synthetic stimulus."""
PAIR_TOKENS = 300
"""Of one document of word pairs, about."""


@runtime_checkable
class Encoder(Protocol):
    """What is asked of a tokenizer; see `headscope.models.tokenizer.Tokenizer`."""

    bos: int
    bos_string: str

    def encode(self, document: Document) -> TokenizedDocument: ...
    def spell(self, tokens: Sequence[int]) -> list[str]: ...


class Most(TypedDict):
    """How much of a text is read: tokens, to the end of a window, and documents."""

    max_tokens: int
    max_documents: NotRequired[int | None]


class TextWindows:
    """Windows of natural text, up to `max_tokens` tokens or `max_documents` documents.

    The files of a folder are read in an order drawn by the seed, its subfolders in turn a file
    each, so that a short run sees all kinds of text; several corpora take turns, one document
    each. A file that would not be needed is not read, and no more than a document of each corpus
    is in memory.
    """

    def __init__(
        self,
        corpora: Sequence[str | Path],
        encoder: Encoder,
        *,
        max_length: int,
        seed: int,
        **most: Unpack[Most],
    ) -> None:
        self.max_documents = most.get("max_documents")
        self.tokens = 0
        """Tokens of the windows so far, the beginning-of-text tokens included."""
        self.encoder, self.max_tokens, self.max_length = encoder, most["max_tokens"], max_length
        self._opened: list[Path] = []
        self._cuts, self._skipped = Cuts(), 0
        self._passed_over: list[str] = []
        """What is wrong with the files of code that are passed over."""
        self.documents = 0
        """Documents that the windows so far are of; a long text in pieces is one."""
        self._pieces: dict[str, int] = {}
        self._numbers = 0
        self._beyond = False
        """Whether what comes is for contested queries alone."""
        # a path that does not exist is found now, not when its turn comes
        corpora = [corpus_place(corpus) for corpus in corpora]
        files = _files(corpora)
        self.paths = names_within(corpora, files)
        """All files of the corpora by their names in these, whether they will be needed or not."""
        self._sha256: dict[Path, str] = {}
        self._coming = self._windows(
            take_turns([documents_of(f, self._opened, self._passed_over, seed) for f in files])
        )

    def __iter__(self) -> Iterator[Window]:
        """The windows, once.

        Raises:
            CorpusError: with file and line, for a file that cannot be read.
        """
        while self.tokens < self.max_tokens:
            window = next(self._coming, None)
            if window is None:
                if not self.tokens and self._passed_over:
                    raise CorpusError(f"{self._passed_over[0]}; there is nothing else to read")
                return
            if self.max_documents is not None and window.document >= self.max_documents:
                return
            self.documents = max(self.documents, window.document + 1)
            self.tokens += len(window)
            yield window

    def further(self) -> Iterator[Window]:
        """What comes after the last window, for contested queries alone; it does not count here.

        Nothing as long as the text itself is not read to its end: it would lose these windows.
        """
        if self.tokens >= self.max_tokens:
            self._beyond = True
            for window in self._coming:
                own = window.stimulus == EXCERPT
                yield window if own else replace(window, stimulus="further")

    def _windows(self, documents: Iterable[Document]) -> Iterator[Window]:
        streams = ((self._of_document(each), is_code(each)) for each in documents)
        yield from some_in_turn(streams)

    def _of_document(self, document: Document) -> Iterator[Window]:
        self._skipped += document.skipped_mentions
        number = self._number(document)
        beside: Iterator[Window] = iter(())
        if self._beyond and is_code(document):
            rare = (self._cut(e, Cuts(), EXCERPT, number) for e in excerpts(document))
            beside, document = chain.from_iterable(rare), without_excerpted(document)
        self._numbers = max(self._numbers, number + 1)
        for window in chain(beside, self._cut(document, self._cuts, "text", number)):
            yield frame_of(self.encoder).close(window)

    def _cut(self, document: Document, cuts: Cuts, stimulus: str, number: int) -> Iterator[Window]:
        return cut_windows(
            self.encoder.encode(document),
            self.encoder.bos,
            self.encoder.bos_string,
            max_length=self.max_length - frame_of(self.encoder).room,
            cuts=cuts,
            stimulus=stimulus,
            number=number,
        )

    def _number(self, document: Document) -> int:
        """The document's number; all pieces of one text have that of the first."""
        if not document.whole:
            return self._numbers
        return self._pieces.setdefault(document.whole, self._numbers)

    @property
    def files(self) -> dict[str, str]:
        """The sha256 of each corpus file that was read, by its name in its corpus."""
        opened = set(self._opened)  # more may be opened meanwhile
        for path in opened:
            if path not in self._sha256:
                self._sha256[path] = file_sha256(path)
        return {name: self._sha256[path] for name, path in self.paths.items() if path in opened}

    @property
    def notes(self) -> list[str]:
        """What the reader of the results should know about the windows so far."""
        beside = (*foreign_notes(self.paths.values()), *few_documents(self.documents))
        return [*_notes(self._cuts, self._skipped), *_unread(self._passed_over), *beside]


def synthetic_documents(max_tokens: int) -> int:
    """Documents of each synthetic stimulus beside so much text.

    As many as two halves need that agree: 64 hold 128 sentences of each relation between words.
    Beside a short text fewer, so that they do not become the run, but as many as two halves take
    that each say how sure they are.

    >>> [synthetic_documents(tokens) for tokens in (1_000, 8_000, 40_000)]
    [16, 26, 64]
    """
    return min(MOST_DOCUMENTS, max(2 * MIN_BLOCKS, max_tokens // PAIR_TOKENS))


def plan_repeats(
    vocabulary: Int[ndarray, " token"],
    encoder: Encoder,
    *,
    max_length: int,
    seed: int,
    count: int = MOST_DOCUMENTS,
) -> list[Window]:
    """Windows of repeated random tokens, each a block of its own."""
    frame = frame_of(encoder)
    how = {"count": count, "seed": seed, "max_length": max_length - frame.room}
    found = repeat_windows(vocabulary, encoder.bos, encoder.spell, **how)
    return [frame.close(window) for window in found]


def plan_built(encoder: Encoder, max_length: int, *, code: bool = False) -> Iterator[Window]:
    """Windows of what was made so that simple rules are wrong in it: sentences, or modules too."""
    sentences = read_documents(corpus_files(built_corpora()))
    return _framed(chain(made_code() if code else (), sentences), encoder, "built", max_length)


def plan_pairs(
    encoder: Encoder, *, max_length: int, seed: int, count: int = MOST_DOCUMENTS
) -> list[Window]:
    """Windows of sentences with related words, each document a block of its own."""
    documents = pair_documents(shipped_pairs(), count=count, seed=seed)
    return list(_framed(documents, encoder, "pairs", max_length))


def frame_of(encoder: Encoder) -> Frame:
    """What its model's windows have beside a beginning-of-text token; else a causal model's."""
    found: Frame = getattr(encoder, "frame", CAUSAL)
    return found


def _framed(
    documents: Iterable[Document], encoder: Encoder, stimulus: str, max_length: int
) -> Iterator[Window]:
    """Windows of a stimulus, each document with its number."""
    frame = frame_of(encoder)
    for number, document in enumerate(documents):
        for window in cut_windows(
            encoder.encode(document),
            encoder.bos,
            encoder.bos_string,
            max_length=max_length - frame.room,
            cuts=Cuts(),
            stimulus=stimulus,
            number=number,
        ):
            yield frame.close(window)


def _files(corpora: Sequence[str | Path]) -> list[list[Path]]:
    return [corpus_files([corpus]) for corpus in corpora]


def _unread(left_out: Sequence[str]) -> list[str]:
    first = f"(first {left_out[0]})" if left_out else ""
    return [f"{len(left_out)} files of code passed over {first}"] if left_out else []


def _notes(cuts: Cuts, skipped: int) -> list[str]:
    notes = []
    if skipped:
        notes.append(f"{skipped} discontinuous mentions left out")
    if cuts.sentences_cut:
        notes.append(
            f"{cuts.sentences_cut} sentences longer than a window were cut between words "
            f"(first in {cuts.first})"
        )
    if cuts.words_lost:
        notes.append(f"{cuts.words_lost} words of which the tokenizer keeps no character left out")
    return notes
