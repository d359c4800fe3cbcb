"""A head of a model or of a run on any text."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch

from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.heads import head_name, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import Model
from headscope.options import Device, Head, Revision, Source, Text, checked
from headscope.runs.reopen_model import model_of
from headscope.runs.resolve import ModelOrRun, run_named, the_model
from headscope.views.attention_view import AttentionView


@checked
def show(
    model: ModelOrRun,
    head: Head,
    text: Text,
    *,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> AttentionView:
    """The attention pattern of one head on a text.

    Raises:
        ModelError: the model cannot be loaded.
        RunError: it has no such head.
        HeadscopeError: the text is empty, or longer than the model's context.
    """
    parse_head(head)
    check_unicode(text)
    run = run_named(model, revision=revision, source=source)
    if run is not None:
        loaded = model_of(run, source=source, device=device)
    else:
        loaded = the_model(model, revision=revision, device=device)
    layer, number = parse_head(head)
    shown_name = head_name(layer, number)
    loaded.check_head(layer, number)
    window = text_window(loaded, text)
    patterns: list[torch.Tensor] = []

    def take(at: int, pattern: torch.Tensor) -> None:
        if at == layer:
            patterns.append(pattern[0, number].float().cpu())

    ids = torch.from_numpy(window.tokens)[None].to(loaded.device)
    stream_patterns(loaded.engine, ids, take, layer + 1)
    return AttentionView(
        f"{Path(loaded.name).name} {shown_name}", window.strings, patterns[0].numpy()
    )


def text_window(model: Model, text: str) -> Window:
    """A text as a model reads it: the beginning-of-text token before it, an encoder's end after it.

    Raises:
        HeadscopeError: the text is empty, or longer than the model's context.
    """
    tokenizer = model.tokenizer
    tokens = tokenizer.encode(Document("text", text, ())).tokens
    if not len(tokens):
        raise HeadscopeError("the text is empty: there is nothing to attend to")
    template = tokenizer.template
    around = tokenizer.frame.closing_tokens + (0 if template is None else len(template))
    if len(tokens) + 1 + around > model.context:
        raise HeadscopeError(
            f"the text has {len(tokens)} tokens; with its beginning {model.name} reads "
            f"{model.context} at most"
        )
    strings = (tokenizer.bos_string, *tokenizer.spell(tokens.tolist()))
    window = Window("text", np.append(tokenizer.bos, tokens), strings)
    return tokenizer.frame.close(window) if template is None else template.put_around(window)


def check_unicode(text: str) -> None:
    """Refuse what cannot be encoded: an argument that is not UTF-8 comes with surrogates.

    Raises:
        HeadscopeError: it holds half of a character.
    """
    if text.encode("utf-8", "replace").decode() != text:
        raise HeadscopeError("the text is not Unicode: it holds half of a character")
