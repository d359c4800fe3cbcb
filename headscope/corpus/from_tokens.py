"""Windows of tokens that are given as text, without the tokenizer that made them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from numpy import ndarray
from pydantic import PlainValidator

from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import PatternError
from headscope.options import checked

_MARKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})  # how vocabularies write blanks


def _tokens(value: Any) -> tuple[str, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, str | Mapping)
    tokens = tuple(value) if is_list else ()
    if not tokens or not all(isinstance(token, str) for token in tokens):
        raise ValueError("should be a list of tokens as text, not of their ids")
    return tokens


@checked
def window_of_tokens(
    tokens: Annotated[Sequence[str], PlainValidator(_tokens)],
    document: Document | None = None,
    *,
    bos: bool = True,
) -> Window:
    """A window of tokens that are given as text; the first stands at position 0.

    Text of the document behind the last token is left out. Bare tokens of the form `[bos, r, r]`
    count as repeated random tokens.

    Args:
        tokens: the tokens as text.
        document: the annotated text that they spell, from `headscope.read_corpus`.
        bos: whether the first of them is a beginning-of-text token, or whatever else stands before
            the text. Otherwise it spells the text's beginning, and its word, at the place where
            heads rest, is no word of the window.

    Raises:
        PatternError: the tokens do not spell the document's text.

    >>> window_of_tokens(["<s>", "a", "b", "a", "b"]).copy_length
    2
    """
    strings = tuple(str(token).translate(_MARKS) for token in tokens)
    numbers = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    ids = np.array([numbers[string] for string in strings], np.int64)
    if document is None:
        n = _copy_length(ids)
        stimulus = "repeat" if n else "text"
        return Window("tokens", ids, strings, copy_length=n, stimulus=stimulus)
    places = list(_spell_out(strings[1:] if bos else strings, document))
    offsets = np.array(places[0 if bos else 1 :], np.int64).reshape(-1, 2)
    tokenized = TokenizedDocument(document, ids[1:], strings[1:], offsets)
    (window,) = cut_windows(
        tokenized,
        int(ids[0]),
        strings[0],
        max_length=len(strings),
        cuts=Cuts(),
        stimulus=document.stimulus,
    )
    return window


def _copy_length(ids: ndarray) -> int:
    n, odd = divmod(len(ids) - 1, 2)
    return n if n and not odd and np.array_equal(ids[1 : n + 1], ids[n + 1 :]) else 0


def _spell_out(strings: Sequence[str], document: Document) -> Iterator[tuple[int, int]]:
    """Spans of the tokens in the document's text; blanks may differ."""
    text, position = document.text, 0
    for number, string in enumerate(strings, start=1):
        start = None
        for char in string:
            if char.isspace():
                continue
            while position < len(text) and text[position].isspace():
                position += 1
            if position == len(text) or text[position] != char:
                remainder = (
                    repr(text[position : position + 12]) if position < len(text) else "its end"
                )
                raise PatternError(
                    f"{document.name}: token {number} is {string!r}, but the text goes on "
                    f"with {remainder}"
                )
            start = position if start is None else start
            position += 1
        yield (position, position) if start is None else (start, position)
