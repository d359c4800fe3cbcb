"""A stimulus: one kind of windows that a run reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, runtime_checkable

from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document
from headscope.corpus.window import ChatTemplate, Frame, Window
from headscope.errors import ModelError

MAX_DOCUMENTS = 64
"""Documents of a synthetic stimulus; each is a block of its own when means are resampled."""
MIN_DOCUMENTS = 8
"""Fewest documents that give an interval of a mean."""
LEAST_TEXT = 16
"""Tokens of text that a chat template must leave of a window."""
TOKENS_PER_DOCUMENT = 300


@runtime_checkable
class TextTokenizer(Protocol):
    """A tokenizer of text with offsets; see `headscope.models.tokenizer.Tokenizer`."""

    bos: int
    bos_string: str
    frame: Frame
    template: ChatTemplate | None

    def encode(self, document: Document) -> TokenizedDocument: ...
    def spell(self, tokens: Sequence[int]) -> list[str]: ...
    def ordinary_tokens(self, vocabulary_size: int) -> Int[ndarray, " token"]: ...


@dataclass(frozen=True, eq=False)
class StimulusConfig:
    """The model's side of a stimulus, and its size."""

    tokenizer: TextTokenizer
    vocabulary_size: int
    max_length: int
    """Longest window in tokens."""
    seed: int
    documents: int = MAX_DOCUMENTS
    """Documents of each synthetic stimulus."""
    corpora: Sequence[str | Path] = ()
    """Corpora of the run."""
    haystack: Sequence[str] = ()
    """Lengths of haystacks in tokens, or the file that holds them; none unless requested."""
    context: int = 0
    """Longest haystack in tokens."""


@dataclass(frozen=True, kw_only=True)
class Stimulus:
    """One kind of windows that runs, relations, studies and examples read."""

    name: str
    """Value of `Window.stimulus` in its windows."""
    title: str = ""
    """Name on the page about the method; empty for one that no relation is read on."""
    build: Callable[[StimulusConfig], Iterable[Window | Document]] | None = None
    """Function that yields its windows, or documents that are cut into windows, in the order in
    which they are read. None if they come from a corpus, or depend on what effects ask."""
    before_text: int = 0
    """Documents that are read before the text, with at least 50 queries. If no head comes near a
    tag on them, no more are read."""
    needs: str = ""
    """Message to users who name its head type with corpora that it has no windows of; empty if it
    needs no corpus."""
    any_language: bool = False
    """True if it suits a model of any language: it holds no English of ours."""
    study_documents: int = 24
    """Documents that a study of single queries reads of it."""
    example_windows: int = 4
    """Windows that a run keeps to cut examples out of."""
    picture: str = ""
    """Words for the part of it that a head's small picture shows; empty without a picture.
    `{side}` is the picture's side in tokens, `{half}` half of it, `{start}` one less than half."""

    def windows(self, config: StimulusConfig) -> list[Window]:
        """Windows, documents cut to windows and numbered in their order; none from a corpus."""
        windows: list[Window] = []
        if self.build is None:
            return windows
        for number, item in enumerate(self.build(config)):
            if isinstance(item, Document):
                length = config.max_length
                windows += cut_document(item, config.tokenizer, self.name, length, number=number)
            else:
                windows.append(replace(item, stimulus=self.name))
        return windows


def cut_document(
    document: Document,
    tokenizer: TextTokenizer,
    stimulus: str,
    max_length: int,
    *,
    number: int,
    cuts: Cuts | None = None,
) -> Iterator[Window]:
    """The windows of one document, closed as the tokenizer's model expects."""
    frame = tokenizer.frame
    # a conversation has its template already
    template = None if document.turns else tokenizer.template
    # a chat template and closing tokens take room of each window
    around = frame.closing_tokens
    if template is not None:
        around += len(template.before.tokens) + len(template.after.tokens)
    if template is not None and max_length - around < LEAST_TEXT:
        raise ModelError(
            f"the chat template takes {around} tokens of each window, and a window has "
            f"{max_length}; --max-length {around + 8 * LEAST_TEXT} leaves room for text"
        )
    windows = cut_windows(
        tokenizer.encode(document),
        tokenizer.bos,
        tokenizer.bos_string,
        max_length=max_length - around,
        cuts=Cuts() if cuts is None else cuts,
        stimulus=stimulus,
        number=number,
    )
    if template is not None:
        windows = map(template.put_around, windows)
    return (frame.close(window) for window in windows)


def documents_beside(max_tokens: int) -> int:
    """Documents of each synthetic stimulus beside so many tokens of text: fewer beside a short
    one.
    """
    return min(MAX_DOCUMENTS, max(2 * MIN_DOCUMENTS, max_tokens // TOKENS_PER_DOCUMENT))
