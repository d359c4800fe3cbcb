"""A user's text as the window that a model reads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from headscope.corpus.align import Cuts, cut_windows
from headscope.corpus.document import Document
from headscope.corpus.text import read_text
from headscope.corpus.window import Window
from headscope.errors import CorpusError, HeadscopeError
from headscope.models.model import Model


def text_window(model: Model, text: str, generated: int = 0) -> Window:
    """A text as a model reads it: the beginning-of-text token before it, an encoder's end after it.

    In a chat template it is a user's message, and the assistant's turn begins after it.

    Its words are those of plain text, without annotation; special tokens are left out.

    Raises:
        HeadscopeError: the text is empty, or longer than the model's context less `generated`.
    """
    tokenizer = model.tokenizer
    tokenizer.check_length(text, model.context)
    # reading a corpus refuses a text of blanks, which a model can read
    try:
        document = read_text("text", text)
    except CorpusError:
        document = Document("text", text, ())
    tokenized = tokenizer.encode_prompt(document)
    count = len(tokenized.tokens)
    if not count:
        raise HeadscopeError("the text is empty: there is nothing to attend to")
    # what stands around the text takes room too
    template = tokenizer.template
    around = tokenizer.frame.closing_tokens
    if template is not None:
        around += len(template.before.tokens) + len(template.answer.tokens)
    others = 1 + around + generated
    if count + others > model.context:
        raise HeadscopeError(
            f"the text has {count:,} tokens; with {others:,} more {model.name} reads "
            f"{model.context:,} at most"
        )
    # words where the text has any; a text of marks alone has none
    if tokenized.document.words:
        (window,) = cut_windows(
            tokenized, tokenizer.bos, tokenizer.bos_string, max_length=1 + count, cuts=Cuts()
        )
    else:
        strings = (tokenizer.bos_string, *tokenized.strings)
        window = Window("text", np.append(tokenizer.bos, tokenized.tokens), strings)
    if template is None:
        return tokenizer.frame.close(window)
    return template.put_around(window, asks=True)


def special_notes(model: Model, texts: Iterable[str]) -> tuple[str, ...]:
    """A note on the special tokens in prompts, if they have some."""
    count = sum(map(model.tokenizer.count_special, texts))
    if not count:
        return ()
    return (f"special tokens in the text: {count}; with plain they are read as plain text",)


def check_unicode(text: str) -> None:
    """Refuse what cannot be encoded: an argument that is not UTF-8 comes with surrogates.

    Raises:
        HeadscopeError: it holds half of a character.
    """
    if text.encode("utf-8", "replace").decode() != text:
        raise HeadscopeError("the text is not Unicode: it contains half of a character")
