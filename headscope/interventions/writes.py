"""What each head writes into the residual stream, before and after W_O, on text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.batches import batches
from headscope.corpus.window import Window
from headscope.interventions.rerun import Rerunner, Rows
from headscope.measurer import batch_tokens_on


def writes(
    rerunner: Rerunner, windows: Sequence[Window]
) -> tuple[pd.DataFrame, Float[ndarray, "layer head head"]]:
    """How much and where to the heads of a model write.

    Returns:
        A row per head: `layer`, `head`, `z_norm` (mean ‖z‖ before W_O), `write_norm` (mean
        ‖z W_O^h‖ after it), `share` (of the sum of its layer's write norms), `steady` (‖mean
        write‖ / mean ‖write‖: 1 for a head that writes the same everywhere, towards 0 for one
        whose writes point everywhere), `nearest` and `cosine` (the head of its layer whose mean
        write points most alike); and the cosines between mean writes, by layer. The first token
        of a window is left out.
    """
    matrices = [_output(output, rerunner.model.heads) for output in rerunner.outputs]
    layers, heads, _, width = len(matrices), *matrices[0].shape
    z_norm, norm = np.zeros((layers, heads)), np.zeros((layers, heads))
    mean, tokens_read = np.zeros((layers, heads, width)), 0
    blocks, size = np.zeros(len(windows), np.int64), batch_tokens_on(rerunner.model.device)
    for batch in batches(windows, blocks, set(), tokens=size):
        tokens = batch.tokens().to(rerunner.model.device)
        lengths = torch.tensor([len(window) for window in batch.windows])
        nothing = torch.zeros(0, dtype=torch.long)
        clean = rerunner.clean(Rows(tokens, lengths, nothing, nothing))
        place = torch.arange(tokens.shape[1])
        real = ((place > 0) & (place < lengths[:, None])).to(tokens.device)
        tokens_read += int(real.sum())
        for layer, z in enumerate(clean.z):
            own = z[real].float()
            written = torch.einsum("phd,hdm->phm", own, matrices[layer])
            z_norm[layer] += own.norm(dim=-1).sum(0).double().cpu().numpy()
            norm[layer] += written.norm(dim=-1).sum(0).double().cpu().numpy()
            mean[layer] += written.sum(0).double().cpu().numpy()
    unit = mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-30)
    cosines = np.einsum("lhm,lgm->lhg", unit, unit)
    others = cosines - 2 * np.eye(heads)
    layer_of, head_of = np.divmod(np.arange(layers * heads), heads)
    table = pd.DataFrame(
        {
            "layer": layer_of,
            "head": head_of,
            "z_norm": z_norm.ravel() / tokens_read,
            "write_norm": norm.ravel() / tokens_read,
            "share": (norm / norm.sum(1, keepdims=True)).ravel(),
            "steady": (np.linalg.norm(mean, axis=-1) / np.maximum(norm, 1e-30)).ravel(),
            "nearest": others.argmax(-1).ravel(),
            "cosine": others.max(-1).ravel(),
        }
    )
    return table, cosines


def _output(projection: torch.nn.Module, heads: int) -> Float[Tensor, "head width model"]:
    """W_O by head, as z meets it from the left."""
    stored: Any = projection.weight
    weight: Tensor = stored.detach().float()
    # GPT-2's Conv1D keeps the transpose of what a linear map keeps
    matrix = weight if type(projection).__name__ == "Conv1D" else weight.T
    return matrix.reshape(heads, -1, matrix.shape[-1])
