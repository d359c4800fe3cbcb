"""What each head writes into the residual stream, before and after W_O, on text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.arguments import either, takes
from headscope.corpus.window import Window
from headscope.measure.backend import batch_tokens_on
from headscope.measure.batches import batches
from headscope.measure.text_loss import MAX_LENGTH, MAX_TOKENS, text_batches
from headscope.runs.named import A_MODEL, A_RUN
from headscope.runs.reload import model_or_run
from headscope.studies.ablate.rerun import Rerunner, Rows
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Writes(Study):
    """How much and where to the heads of a model write on text; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """See `head_writes`; of a run also each head's `primary`."""
    cosines: Float[ndarray, "layer head head"]
    """Between the mean writes of the heads of a layer."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per head."""
        return self.heads

    def figure(self) -> Figure:
        """Layers × heads: each head's share of what its layer's heads write."""
        from headscope.studies.ablate.view import writes_figure

        return writes_figure(self.heads)

    def __repr__(self) -> str:
        return f"<headscope writes of {self.model}: {len(self.heads)} heads>"


@takes(model=either(A_RUN, A_MODEL))
def writes(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    device: str = "auto",
) -> Writes:
    """How much, and into which directions, each head writes into the residual stream on text.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when empty.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: the text cannot be read.
    """
    loaded, run = model_or_run(model, device=device, longest=MAX_LENGTH)
    text = text_batches(loaded, corpus, max_tokens=max_tokens, seed=seed)
    heads, cosines = head_writes(Rerunner(loaded), [w for batch in text for w in batch.windows])
    if run is not None:
        heads = heads.merge(run.heads[["layer", "head", "primary"]], how="left")
    return Writes(loaded.name, heads, cosines)


def head_writes(
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
    outputs = rerunner.outputs.values()
    matrices = [_output(output, rerunner.model.heads) for output in outputs]
    layers, heads, _, width = len(matrices), *matrices[0].shape
    z_norm, norm = np.zeros((layers, heads)), np.zeros((layers, heads))
    mean, tokens_read = np.zeros((layers, heads, width)), 0
    blocks, size = np.zeros(len(windows), np.int64), batch_tokens_on(rerunner.model.device)
    for batch in batches(windows, blocks, {}, tokens=size):
        tokens = batch.tokens().to(rerunner.model.device)
        lengths = torch.tensor([len(window) for window in batch.windows])
        nothing = torch.zeros(0, dtype=torch.long)
        clean = rerunner.clean(Rows(tokens, lengths, nothing, nothing))
        place = torch.arange(tokens.shape[1])
        real = ((place > 0) & (place < lengths[:, None])).to(tokens.device)
        tokens_read += int(real.sum())
        for layer, z in enumerate(clean.z.values()):
            own = z[real].float()
            written = torch.einsum("phd,hdm->phm", own, matrices[layer])
            z_norm[layer] += own.norm(dim=-1).sum(0).double().cpu().numpy()
            norm[layer] += written.norm(dim=-1).sum(0).double().cpu().numpy()
            mean[layer] += written.sum(0).double().cpu().numpy()
    means = z_norm / tokens_read, norm / tokens_read, mean / tokens_read
    return _table(tuple(rerunner.outputs), *means)


def _table(
    numbers: tuple[int, ...],
    z_norm: Float[ndarray, "layer head"],
    norm: Float[ndarray, "layer head"],
    mean: Float[ndarray, "layer head model"],
) -> tuple[pd.DataFrame, Float[ndarray, "layer head head"]]:
    """The rows of `head_writes`, from means over tokens, by the numbers of the layers."""
    heads = norm.shape[1]
    unit = mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-30)
    cosines = np.einsum("lhm,lgm->lhg", unit, unit)
    others = cosines - 2 * np.eye(heads)
    table = pd.DataFrame(
        {
            "layer": np.repeat(numbers, heads),
            "head": np.tile(np.arange(heads), len(numbers)),
            "z_norm": z_norm.ravel(),
            "write_norm": norm.ravel(),
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
