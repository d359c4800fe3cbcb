"""Checks that run a loaded model and recompute what its layers give. A check is a row of a table:
a function from what was caught in one layer to its largest difference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.engines.fused import FusedEngine
from headscope.models.layout.modules import attention_modules
from headscope.models.load import Model
from headscope.studies.anatomy.anatomy_result import AnatomyCheck
from headscope.studies.anatomy.reference import attention_like

LENGTH, BATCH, SEED = 24, 2, 0
"""A short text is enough: every position is one more vector that must agree."""
TOLERANCE = 1e-5
"""Relative to the largest entry: float32 sums of a few thousand products, in another order."""


RECOMPUTED = "attention output = the reference's"


@dataclass(frozen=True)
class Layer:
    """Tensors caught in a layer, with the weights that it should have used."""

    z: Float[Tensor, "batch position head d_head"]
    """Each head's mix of values, before W_O (`blocks.N.attn.hook_z`)."""
    output: Float[Tensor, "batch position d_model"]
    """What the attention block adds to the residual stream (`blocks.N.attn.hook_out`)."""
    w_o: Float[Tensor, "head d_head d_model"]
    b_o: Float[Tensor, " d_model"]


def output_is_the_sum_of_heads(layer: Layer) -> float:
    """The distance of the output from Σ_h z_h W_O^h + b_O, relative to its largest entry.

    Each head adds to the residual stream on its own: Elhage et al. 2021, "Attention heads are
    independent and additive".
    """
    heads = torch.einsum("bphd,hdm->bphm", layer.z, layer.w_o)
    return _relative(heads.sum(2) + layer.b_o, layer.output)


CHECKS: dict[str, Callable[[Layer], float]] = {
    "attention output = Σ_h z_h W_O^h + b_O": output_is_the_sum_of_heads,
}


@torch.no_grad()
def check_reference(model: Model) -> list[AnatomyCheck]:
    """Recompute every layer's attention from its own input by the `reference` beside this.

    Args:
        model: loaded by the fused engine, whose layers are transformers' own.

    Raises:
        ModelError: the layout is none that the reference knows, or another engine runs it.
    """
    if not isinstance(model.engine, FusedEngine):
        raise ModelError(f"{model.name}: the reference recomputes what the fused engine runs")
    network = model.engine.network
    layers = attention_modules(network)
    references = [attention_like(layer, network.config) for layer in layers]
    caught: list[tuple[Tensor, Tensor]] = []

    def keep(layer: Any, inputs: Any, keywords: dict[str, Any], output: Any) -> None:
        caught.append(((inputs or (keywords["hidden_states"],))[0].clone(), output[0].clone()))

    handles = [layer.register_forward_hook(keep, with_kwargs=True) for layer in layers]
    try:
        network.base_model(_random_tokens(model), use_cache=False)
    finally:
        for handle in handles:
            handle.remove()
    checks = []
    for index, (reference, (layer_input, output)) in enumerate(
        zip(references, caught, strict=True)
    ):
        reproduced = reference(
            layer_input, layer_input, layer_input, return_pattern=True
        ).output  # by hand, no kernel
        checks.append(AnatomyCheck(RECOMPUTED, index, _relative(reproduced, output), TOLERANCE))
    return checks


@torch.no_grad()
def check_layers(model: Model) -> list[AnatomyCheck]:
    """Run a short random text through the model and make every check on every layer.

    Raises:
        ModelError: a layer's hooks give no heads, or it shows no W_O.
    """
    layers = _catch(model)
    return [
        AnatomyCheck(name, index, measure(layer), TOLERANCE)
        for name, measure in CHECKS.items()
        for index, layer in enumerate(layers)
    ]


def _catch(model: Model) -> list[Layer]:
    """The layers as they were on one batch of random tokens."""
    caught: dict[tuple[int, str], Tensor] = {}

    def keeper(layer: int, name: str) -> Callable[..., None]:
        def keep(value: Tensor, hook: Any) -> None:
            caught[layer, name] = value.detach().clone()

        return keep

    hooks = [
        (f"blocks.{layer}.attn.{name}", keeper(layer, name))
        for layer in range(model.layers)
        for name in ("hook_z", "hook_out")
    ]
    model.bridge.run_with_hooks(
        _random_tokens(model), fwd_hooks=hooks, return_type=None, use_cache=False
    )
    return [_layer(model, layer, caught) for layer in range(model.layers)]


def _random_tokens(model: Model) -> Tensor:
    ordinary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    length = min(LENGTH, model.context)
    tokens = np.random.default_rng(SEED).choice(np.asarray(ordinary), size=(BATCH, length))
    return torch.as_tensor(tokens, device=model.device)


def _layer(model: Model, index: int, caught: dict[tuple[int, str], Tensor]) -> Layer:
    attention = model.bridge.blocks[index].attn
    z = caught.get((index, "hook_z"))
    output = caught.get((index, "hook_out"))
    w_o = getattr(attention, "W_O", None)
    if z is None or output is None or w_o is None or z.ndim != 4 or w_o.ndim != 3:
        raise ModelError(
            f"{model.name}: layer {index} shows no heads before W_O, or no W_O by head; "
            "checks need blocks.N.attn.hook_z and W_O from TransformerLens"
        )
    b_o = attention.b_O if attention.b_O is not None else torch.zeros_like(output[0, 0])
    return Layer(z.float(), output.float(), w_o.float(), b_o.float())


def _relative(computed: Tensor, expected: Tensor) -> float:
    """The largest difference over the largest entry; 0 where there is none, even of zeros."""
    apart, size = float((computed - expected).abs().max()), float(expected.abs().max())
    if apart == 0:
        return 0.0
    return apart / size if size else inf
