"""A head of a model or of a run on any text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from headscope.arguments import either, takes
from headscope.corpus.document import Document
from headscope.errors import HeadscopeError, RunError
from headscope.heads import head_name, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.runs.named import A_MODEL, A_RUN, run_named, the_model
from headscope.runs.reload import model_of
from headscope.views.attention_view import AttentionView


@takes(model=either(A_RUN, A_MODEL))
def show(
    model: Any,
    head: str,
    text: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    source: Any = None,
) -> AttentionView:
    """The attention pattern of one head on a text.

    Args:
        model: a model's name as for `classify`, a run or its folder, or a loaded model.
        head: `L5H1` or `5.1`.
        text: any text; the beginning-of-text token is put before it, and an encoder's separator
            after it.
        revision: branch, tag or commit on the hub, for a name; a run has its own.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.
        source: the run's model, or where it is now if it is not where it was.

    Raises:
        ModelError: the model cannot be loaded.
        RunError: it has no such head.
        HeadscopeError: the text is empty, or longer than the model's context.
    """
    layer, number = parse_head(head)
    if not _is_unicode(text):
        raise HeadscopeError("the text is not Unicode: it holds half of a character")
    run = run_named(model, revision=revision, source=source)
    if run is not None:
        loaded = model_of(run, source=source, device=device)
    else:
        loaded = the_model(model, revision=revision, device=device)
    if layer >= loaded.layers or number >= loaded.heads:
        last = head_name(loaded.layers - 1, loaded.heads - 1)
        raise RunError(f"no head {head_name(layer, number)} in {loaded.name}; they go up to {last}")
    tokens = loaded.tokenizer.encode(Document("text", text, ())).tokens
    if not len(tokens):
        raise HeadscopeError("the text is empty: there is nothing to attend to")
    frame = loaded.tokenizer.frame
    if len(tokens) + 1 + frame.room > loaded.context:
        raise HeadscopeError(
            f"the text has {len(tokens)} tokens; with its beginning {loaded.name} reads "
            f"{loaded.context} at most"
        )
    ids = [loaded.tokenizer.bos, *tokens.tolist(), *([] if frame.end is None else [frame.end])]
    kept: list[torch.Tensor] = []

    def take(at: int, pattern: torch.Tensor) -> None:
        if at == layer:
            kept.append(pattern[0, number].float().cpu())

    stream_patterns(loaded.engine, torch.tensor([ids]).to(loaded.device), take, layer + 1)
    strings = (loaded.tokenizer.bos_string, *loaded.tokenizer.spell(ids[1:]))
    name = Path(loaded.name).name
    return AttentionView(f"{name} {head_name(layer, number)}", strings, kept[0].numpy())


def _is_unicode(text: str) -> bool:
    """Whether a text can be encoded: an argument that is not UTF-8 comes with surrogates."""
    return text.encode("utf-8", "replace").decode() == text
