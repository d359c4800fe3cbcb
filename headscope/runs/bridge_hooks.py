"""Heads of a run as TransformerLens takes them: layers and numbers, and hooks that ablate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.measure.study_windows import text_windows
from headscope.models.load import open_model
from headscope.models.model import Model
from headscope.runs.listing import selected_heads
from headscope.runs.resolve import model_of, text_of
from headscope.statistics.result import Result

HeadOutputs = Float[Tensor, "batch position head width"]
Hook = tuple[str, Callable[..., HeadOutputs]]
"""The name of a hook point, and what is called there."""
Corpora = str | Path | Sequence[str | Path] | None
MEAN_TOKENS = 1_024
"""Tokens of text over which a head's mean output is taken."""


def ablation_hooks(
    run: Result, heads: str, method: str, *, corpus: Corpora, bridge: Any, device: str
) -> list[Hook]:
    """Forward hooks of a TransformerBridge that ablate heads; see `headscope.run.Run.hooks`."""
    by_layer: dict[int, list[int]] = {}
    for layer, head in selected_heads(run, heads):
        by_layer.setdefault(layer, []).append(head)
    values: dict[int, Tensor] = {layer: torch.zeros(()) for layer in by_layer}
    if method == "mean":
        corpora = text_of(run, corpus)
        model = _lens_model(run, bridge, device)
        windows = text_windows(model, corpora, max_tokens=MEAN_TOKENS)
        means = mean_outputs(model, windows, list(by_layer))
        values = {layer: means[layer][by_layer[layer]] for layer in by_layer}
    return [
        (_hook_name(layer), _set_to(numbers, values[layer])) for layer, numbers in by_layer.items()
    ]


@torch.inference_mode()
def mean_outputs(
    model: Model, windows: Sequence[Window], layers: Sequence[int]
) -> dict[int, Float[Tensor, "head width"]]:
    """The mean of each head's z over the tokens of windows, their first left out, by layer."""
    sums: dict[int, Tensor] = {}
    count = 0

    def add(layer: int) -> Callable[..., None]:
        def hook(z: HeadOutputs, hook: Any) -> None:
            sums[layer] = sums.get(layer, 0) + z[0, 1:].double().sum(0)

        return hook

    hooks = [(_hook_name(layer), add(layer)) for layer in layers]
    for window in windows:
        ids = torch.from_numpy(window.tokens)[None].to(model.device)
        model.bridge.run_with_hooks(ids, fwd_hooks=hooks, return_type=None)
        count += len(window) - 1
    return {layer: (total / count).float() for layer, total in sums.items()}


def _lens_model(run: Result, bridge: Any, device: str) -> Model:
    """The run's model as a bridge, or the one that was given if it has the same heads."""
    if bridge is None:
        return model_of(run, engine="lens", device=device)
    model = open_model(bridge, engine="lens")
    shape = run.info["model"]
    if (model.layers, model.heads) != (shape["layers"], shape["heads"]):
        raise ModelError(
            f"{model.name} has {model.layers} × {model.heads} heads, and the run's model "
            f"{shape['layers']} × {shape['heads']}: this is another model"
        )
    return model


def _hook_name(layer: int) -> str:
    """Name of the hook point of a bridge at each head's output before W_O."""
    return f"blocks.{layer}.attn.hook_z"


def _set_to(numbers: list[int], values: Float[Tensor, ...]) -> Callable[..., HeadOutputs]:
    def ablate(z: HeadOutputs, hook: Any = None) -> HeadOutputs:
        changed = z.clone()
        changed[:, :, numbers] = values.to(z)
        return changed

    return ablate
