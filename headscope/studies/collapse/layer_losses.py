"""The loss of a model as it is, and under one change of its layers after another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.measure.text_loss import (
    network_of,
    rise,
    text_batches,
    text_loss,
    token_count,
)
from headscope.models.load import Model

ALL, UNTOUCHED = "all", "untouched"
COLUMNS = ["layer", "how", "loss", "rise", "ci_low", "ci_high"]

Change = Callable[[Any, set[int]], AbstractContextManager[None]]
"""A context within which these layers of a Hugging Face network are changed."""


def layer_losses(
    model: Model,
    changes: Mapping[str, Change],
    corpus: str | Path | Sequence[str | Path],
    *,
    max_tokens: int,
    seed: int,
    progress: Callable[[int, int], None],
) -> pd.DataFrame:
    """The loss on text under each change, in one layer after the other and then in all.

    Args:
        model: a model that runs under the fused engine.
        changes: each way to change layers, by its name.
        corpus: files or folders of text; what ships with headscope when empty.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.

    Returns:
        First the untouched model, then a row per layer (and `all`) × change: `layer`, `how`, the
        `loss` in nats per token, its `rise` over the untouched model, and the rise's 95 % interval
        `ci_low`, `ci_high` by bootstrap over windows (NaN where there is none).

    Raises:
        ModelError: the model runs under another engine.
        CorpusError: the text cannot be read.
    """
    network = network_of(model)
    text = text_batches(model, corpus, max_tokens=max_tokens, seed=seed)
    targets = {str(layer): {layer} for layer in model.attention_layers}
    targets[ALL] = set(model.attention_layers)
    done, total = 0, token_count(text) * (1 + len(targets) * len(changes))

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, total)

    base = text_loss(network, text, advance)
    rows = [("", UNTOUCHED, base.mean, 0.0, float("nan"), float("nan"))]
    for name, layers in targets.items():
        for how, changed in changes.items():
            with changed(network, layers):
                loss = text_loss(network, text, advance)
            rows.append((name, how, loss.mean, *rise(loss, base, seed=seed)))
    return pd.DataFrame(rows, columns=COLUMNS)
