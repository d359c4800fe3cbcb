"""Norms and directions of what each head writes into the residual stream, on text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float
from matplotlib.figure import Figure
from numpy import ndarray
from torch import Tensor

from headscope.arguments import either, takes
from headscope.corpus.window import Window
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.readable import readable
from headscope.measure.study_windows import MAX_LENGTH, MAX_TOKENS, text_windows, token_count
from headscope.models.batching import batch_tokens_on, in_batches, padded_tokens
from headscope.models.layout.projections import output_matrix
from headscope.models.loss import Advance
from headscope.models.rerun import Rerunner, TokenRows
from headscope.runs.reopen_model import model_or_run
from headscope.runs.resolve import A_MODEL, A_RUN
from headscope.views.study import StudyResult

MASSIVE, MASSIVE_TIMES = 100.0, 1000.0
"""Least size of a massive activation, by itself and over the median of its token's entries."""
CONSTANT = 1e-9
"""Share of its squared length below which a write's variance is rounding."""


@takes(model=either(A_RUN, A_MODEL))
def writes(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = True,
) -> StudyResult:
    """Measure the size and the spread of what each head adds to the residual stream on text.

    The table is that of `head_writes`; for a run also with each head's `primary` type.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when None.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all.

    Raises:
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: the text cannot be read.
    """
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress, "reading writes") as bar:
        loaded, run = model_or_run(model, device=device, longest=MAX_LENGTH)
        windows = text_windows(loaded, corpus, max_tokens=max_tokens, seed=seed)
        advance = Steps(bar, token_count(windows)).advance
        heads = head_writes(Rerunner(loaded), windows, advance)
    if run is not None:
        heads = heads.merge(run.heads[["layer", "head", "primary"]], how="left")
    return StudyResult(
        title=f"{loaded.name}: writes of {len(heads)} heads to the residual stream",
        table=heads,
        draw=_figure,
    )


def _figure(result: StudyResult) -> Figure:
    """Layers × heads, coloured by each head's share of its layer's writes."""
    values = result.table.pivot(index="layer", columns="head", values="share").to_numpy(float)
    layers, width = values.shape
    figure = Figure(figsize=(2 + 0.32 * width, 1.6 + 0.3 * layers), layout="constrained")
    axes = figure.subplots()
    image = axes.imshow(values, cmap="Blues", vmin=0, aspect="auto")
    figure.colorbar(image, ax=axes, label="share of its layer's writes")
    axes.set_xlabel("head")
    axes.set_ylabel("layer")
    return figure


def head_writes(
    rerunner: Rerunner, windows: Sequence[Window], advance: Advance = lambda tokens: None
) -> pd.DataFrame:
    """Sizes and directions of what the heads of a model write.

    Args:
        rerunner: the model.
        windows: what it reads.
        advance: told the tokens of each batch when they are done.

    Returns:
        A row per head: `layer`, `head`, `z_norm` (mean ‖z‖ before W_O), `write_norm` (mean
        ‖z W_O^h‖ after it), `share` (of the sum of its layer's write norms), `steady` (‖mean
        write‖ / mean ‖write‖: 1 for a head that writes the same everywhere, towards 0 for one
        whose writes point everywhere), `nearest` and `cosine` (the head of its layer whose mean
        write points most alike), `participation` (participation ratio of the writes, (tr C)² /
        tr C² of their covariance C over tokens, in [1, d_head]: directions that they vary along;
        NaN for a head whose writes do not vary), `massive_share` (of the writes' squared length,
        the part on the residual stream's massive dimensions, in [0, 1]; NaN where it has none). The
        first token of a window is left out, except
        in the search for massive dimensions: those of an entry, at any block's input, above
        `MASSIVE` and `MASSIVE_TIMES` the median of its token's entries (Sun et al. 2024, arXiv
        2402.17762, section 2).
    """
    outputs = rerunner.outputs.values()
    matrices = [_output(output, rerunner.model.heads) for output in outputs]
    layers, heads, _, width = len(matrices), *matrices[0].shape
    z_norm, norm = np.zeros((layers, heads)), np.zeros((layers, heads))
    mean, tokens_read = np.zeros((layers, heads, width)), 0
    z_width = matrices[0].shape[1]
    z_sum, z_products = (
        torch.zeros(layers, heads, *shape, dtype=torch.float64)
        for shape in ((z_width,), (z_width, z_width))
    )
    massive = np.zeros(width, bool)
    by_length = sorted(windows, key=len, reverse=True)
    for batch in in_batches(by_length, batch_tokens_on(rerunner.model.device)):
        tokens = padded_tokens(batch).to(rerunner.model.device)
        lengths = torch.tensor([len(window) for window in batch])
        nothing = torch.zeros(0, dtype=torch.long)
        clean = rerunner.clean(TokenRows(tokens, lengths, nothing, nothing))
        position = torch.arange(tokens.shape[1])
        real = ((position > 0) & (position < lengths[:, None])).to(tokens.device)
        tokens_read += int(real.sum())
        seen = (position < lengths[:, None]).to(tokens.device)
        for stream in clean.inputs:
            massive |= _massive(stream[seen].float()).cpu().numpy()
        for layer, z in enumerate(clean.z.values()):
            z_real = z[real].float()
            written = torch.einsum("phd,hdm->phm", z_real, matrices[layer])
            z_sum[layer] += z_real.double().sum(0).cpu()
            z_products[layer] += torch.einsum("phd,phe->hde", z_real, z_real).double().cpu()
            z_norm[layer] += z_real.norm(dim=-1).sum(0).double().cpu().numpy()
            norm[layer] += written.norm(dim=-1).sum(0).double().cpu().numpy()
            mean[layer] += written.sum(0).double().cpu().numpy()
        advance(int(lengths.sum()))
    means = z_norm / tokens_read, norm / tokens_read, mean / tokens_read
    table = _table(tuple(rerunner.outputs), *means)
    spreads = _spreads(matrices, z_sum / tokens_read, z_products / tokens_read, massive)
    return table.assign(**spreads)


def _massive(states: Float[Tensor, "token d_model"]) -> Bool[Tensor, " d_model"]:
    """The dimensions with a massive activation at any of the tokens."""
    size = states.abs()
    threshold = (MASSIVE_TIMES * size.median(-1, keepdim=True).values).clamp_min(MASSIVE)
    is_massive: Tensor = (size > threshold).any(0)
    return is_massive


def _spreads(
    matrices: Sequence[Tensor],
    mean: Float[Tensor, "layer head d_value"],
    products: Float[Tensor, "layer head d_value d_value"],
    massive: Bool[ndarray, " d_model"],
) -> dict[str, ndarray]:
    """`participation` and `massive_share`, from moments of z and W_O."""
    participation, share = [], []
    for matrix, centre, second in zip(matrices, mean, products, strict=True):
        output = matrix.double().cpu()
        gram = output @ output.transpose(-1, -2)
        spread = (second - centre[:, :, None] * centre[:, None, :]) @ gram
        trace = spread.diagonal(dim1=-2, dim2=-1).sum(-1)
        total = (second * gram).sum((-2, -1))
        constant = trace <= CONSTANT * total
        square = (spread @ spread).diagonal(dim1=-2, dim2=-1).sum(-1)
        participation.append((trace.square() / square).masked_fill(constant, torch.nan))
        on_massive = output[..., torch.from_numpy(massive)]
        part = (second * (on_massive @ on_massive.transpose(-1, -2))).sum((-2, -1))
        share.append(part / total if massive.any() else torch.full_like(total, torch.nan))
    return {
        "participation": torch.cat(participation).numpy(),
        "massive_share": torch.cat(share).numpy(),
    }


def _table(
    numbers: tuple[int, ...],
    z_norm: Float[ndarray, "layer head"],
    norm: Float[ndarray, "layer head"],
    mean: Float[ndarray, "layer head model"],
) -> pd.DataFrame:
    """The rows of `head_writes`, from means over tokens, by the numbers of the layers."""
    heads = norm.shape[1]
    unit = mean / np.maximum(np.linalg.norm(mean, axis=-1, keepdims=True), 1e-30)
    cosines = np.einsum("lhm,lgm->lhg", unit, unit)
    others = cosines - 2 * np.eye(heads)
    return pd.DataFrame(
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


def _output(projection: torch.nn.Module, heads: int) -> Float[Tensor, "head width model"]:
    """W_O by head, as z meets it from the left."""
    matrix = output_matrix(projection).float()
    return matrix.reshape(heads, -1, matrix.shape[-1])
