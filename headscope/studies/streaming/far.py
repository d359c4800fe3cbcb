"""Attention of each key/value head beyond the keys of a window, in the model as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.models.engines.engine import Vectors
from headscope.models.engines.kernels import softmax_attend
from headscope.models.engines.log_attention import Scores
from headscope.models.layout.modules import attention_by_layer
from headscope.models.layout.projections import output_matrix, output_projection
from headscope.models.load import Model
from headscope.models.loss import Advance
from headscope.models.stream import LayerAttention, stream_attention
from headscope.studies.streaming.streaming_heads import SinkWindow, attend_within


@dataclass(frozen=True, eq=False)
class Far:
    """Means over the queries that have keys beyond the window; a row per layer that is read."""

    mass: Float[ndarray, "layer key_value"]
    """Attention beyond the window, the mean over the query heads that share them, in [0, 1]."""
    change: Float[ndarray, "layer key_value"]
    """By how much of the residual stream's length its output would change: the mean over queries
    of ‖Σ_h (z_h − z'_h) W_O^h‖ ÷ ‖x‖, h the query heads of the group, z' their mixes of the
    window's values alone, and x what enters the layer; 0 for a head that would write the same."""
    visible_keys: Int[ndarray, " layer"]
    """Keys that a query of the layer sees at most."""


def far_of(
    model: Model,
    windows: Sequence[Window],
    sink_window: SinkWindow,
    advance: Advance = lambda tokens: None,
) -> Far:
    """Measure what streaming each key/value head would change at once, in no other head.

    Args:
        model: a model that runs under the fused engine.
        windows: longer than what streaming heads keep.
        sink_window: the keys that a streaming head keeps.
        advance: called with the tokens of each window when they are done.
    """
    engine: Any = model.engine
    modules, shared = attention_by_layer(engine.network), model.key_value_heads
    rows = {layer: row for row, layer in enumerate(model.attention_layers)}
    mass, change = np.zeros((2, model.layers, shared))
    visible_keys = np.zeros(model.layers, int)
    queries = sum(len(window) - sink_window.reach for window in windows)

    def add(attention: LayerAttention) -> None:
        (scores,) = attention.rows
        if attention.block_input is None:
            raise ModelError(f"{model.name}: no list of layers that hold its attention")
        output, streamed, beyond = _outputs(scores, sink_window)
        row = rows[attention.layer]
        mass[row] += beyond.sum(-1).view(shared, -1).mean(1).double().cpu().numpy()
        projection = output_projection(modules[attention.layer])
        written = _write_norm((output - streamed)[0, :, sink_window.reach :], projection, shared)
        length = attention.block_input[0, sink_window.reach :].float().norm(dim=-1)
        change[row] += (written / length).sum(-1).double().cpu().numpy()
        visible_keys[row] = max(visible_keys[row], _visible_keys(scores))

    for window in windows:
        stream_attention(model, [window], lambda _: [Vectors()], add)
        advance(len(window))
    return Far(mass / queries, change / queries, visible_keys)


def _outputs(
    scores: Scores, sink_window: SinkWindow
) -> tuple[Tensor, Tensor, Float[Tensor, "head query"]]:
    """Heads' outputs as they are and as if every head streamed, and the mass beyond the window."""
    if scores.value is None:
        raise ModelError("no values to mix")
    layer = (scores.query, scores.key, scores.value, scores.scale, scores.terms)
    output, normaliser = softmax_attend(*layer)
    streamed, sums = attend_within(*layer, sink_window)
    far_mass = (1 - (sums - normaliser).exp()).clamp(0, 1)
    return output, streamed, far_mass[0, :, sink_window.reach :]


def _write_norm(
    difference: Float[Tensor, "head query d_head"], output: Any, shared: int
) -> Float[Tensor, "key_value query"]:
    """The length of what each group of heads writes of z."""
    heads = rearrange(
        difference, "(group head) query width -> group query (head width)", group=shared
    )
    matrices = rearrange(output_matrix(output), "(group z) model -> group z model", group=shared)
    writes: Tensor = heads.to(matrices.dtype) @ matrices
    length: Tensor = torch.linalg.vector_norm(writes.float(), dim=-1)
    return length


def _visible_keys(scores: Scores) -> int:
    """Keys that a query sees at most: fewer than there are where the layer has a window itself."""
    bias = scores.terms.bias
    return scores.key.shape[2] if bias is None else int((bias > -torch.inf).sum(-1).max())
