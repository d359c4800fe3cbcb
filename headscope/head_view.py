"""A head of a model or of a run on any text."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

from headscope.corpus.document import Document
from headscope.engine import stream_patterns
from headscope.errors import HeadscopeError, RunError
from headscope.folder import is_run
from headscope.heads import head_name, parse_head
from headscope.models import Model, load_model
from headscope.run import Run
from headscope.store import load
from headscope.view import AttentionView


def show(model: str | Model, head: str, text: str) -> AttentionView:
    """The attention pattern of one head on a text.

    Args:
        model: a model's name as for `classify`, a run folder, or a loaded model.
        head: `L5H1` or `5.1`.
        text: any text; the beginning-of-text token is put before it.

    Raises:
        ModelError: the model cannot be loaded.
        RunError: it has no such head.
        HeadscopeError: the text is empty, or longer than the model's context.
    """
    layer, number = parse_head(head)
    if not _is_unicode(text):
        raise HeadscopeError("the text is not Unicode: it holds half of a character")
    loaded = _load(model) if isinstance(model, str) else model
    if layer >= loaded.layers or number >= loaded.heads:
        last = head_name(loaded.layers - 1, loaded.heads - 1)
        raise RunError(f"no head {head_name(layer, number)} in {loaded.name}; they go up to {last}")
    tokens = loaded.tokenizer.encode(Document("text", text, ())).tokens
    if not len(tokens):
        raise HeadscopeError("the text is empty: there is nothing to attend to")
    if len(tokens) + 1 > loaded.context:
        raise HeadscopeError(
            f"the text has {len(tokens)} tokens; with its beginning {loaded.name} reads "
            f"{loaded.context} at most"
        )
    ids = [loaded.tokenizer.bos, *tokens.tolist()]
    kept: list[torch.Tensor] = []

    def take(at: int, pattern: torch.Tensor) -> None:
        if at == layer:
            kept.append(pattern[0, number].float().cpu())

    stream_patterns(loaded.engine, torch.tensor([ids]).to(loaded.device), take, layer + 1)
    strings = (loaded.tokenizer.bos_string, *loaded.tokenizer.spell(ids[1:]))
    name = Path(loaded.name).name
    return AttentionView(f"{name} {head_name(layer, number)}", strings, kept[0].numpy())


def model_of(run: Run, *, engine: str = "auto") -> Model:
    """The model of a run, loaded again for an engine as `load_model` knows them.

    Raises:
        RunError: the run was made from given patterns.
        ModelError: the model cannot be loaded.
    """
    facts = run.info["model"]
    if "weights_sha256" not in facts:
        raise RunError("this run was made from given patterns; it has no model to show")
    return load_model(
        facts["name"],
        revision=facts["revision"] or None,
        bos=run.info["bos"],
        dtype=facts["dtype"],
        engine=engine,
    )


def _is_unicode(text: str) -> bool:
    """Whether a text can be encoded: an argument that is not UTF-8 comes with surrogates."""
    return text.encode("utf-8", "replace").decode() == text


def _load(name: str) -> Model:
    folder = Path(name)
    with suppress(RuntimeError):  # a home that nobody has: load_model says so
        folder = folder.expanduser()
    return model_of(load(folder)) if is_run(folder) else load_model(name)
