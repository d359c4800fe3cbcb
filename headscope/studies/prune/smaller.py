"""A model with fewer heads as a model of its own: smaller matrices, the same loss as masked."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Bool, Float
from numpy import ndarray
from rich.console import RenderableType
from rich.text import Text
from torch import Tensor
from transformers import AutoModelForCausalLM

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, ModelError
from headscope.models.batching import batch_tokens_on
from headscope.models.engines.capture import NAME
from headscope.models.layout.model_layout import Q_PROJ
from headscope.models.layout.modules import attention_modules
from headscope.models.layout.projections import find_projections
from headscope.models.load import Model
from headscope.models.loss import loss, network_loss, network_of
from headscope.models.model_kinds import refuse_encoder
from headscope.models.weights import quiet_logging
from headscope.runs.write import check_writable, new_folder
from headscope.studies.prune.pruning_curve import masked_loss

TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far the smaller model's loss may be from that of the masked one, in nats per token."""


@dataclass(frozen=True, eq=False)
class SmallerModel:
    """A model with fewer heads, as it was written."""

    folder: Path
    kept: Bool[ndarray, "layer head"]
    loss: float
    """Of the smaller model, in nats per token."""
    before: float
    """Of the untouched one, on the same text."""
    parameters: int
    parameters_before: int


def check_saving(keep: float, folder: Path) -> None:
    """Refuse a share or a folder that no smaller model can have, before a model is loaded.

    Raises:
        HeadscopeError: no such share, the folder holds something, or cannot be written.
    """
    if not 0 < keep <= 1:
        raise HeadscopeError(f"--keep {keep:g}: the share of heads to keep is above 0, at most 1")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise HeadscopeError(f"{folder} is there already; --save names a new or empty folder")
    check_writable(folder)


def check_smaller(model: Model, keep: float, folder: Path) -> None:
    """Refuse what cannot be done, before anything is measured.

    Raises:
        ModelError: the layout fixes the width of a head by the number of heads.
        HeadscopeError: see `check_saving`.
    """
    check_saving(keep, folder)
    refuse_encoder(model, "study prune")
    for attention in attention_modules(network_of(model)):
        form = find_projections(attention)
        if form != Q_PROJ or not all(hasattr(attention, name) for name in ("head_dim", _OUTPUT)):
            fixed = form is not None and form.fixed_width
            raise ModelError(
                f"{model.name}: a smaller model cannot be saved in the layout of "
                f"{model.architecture}: {_FIXED if fixed else _UNKNOWN}. Llama-like layouts can "
                "(head_dim, q_proj, k_proj, v_proj, o_proj); the curve needs none of it without "
                "--save and --keep"
            )


_OUTPUT = "o_proj"
_FIXED = (
    "there the width of a head is d_model / heads by definition, so that fewer heads would have "
    "to be wider"
)
_UNKNOWN = "it is not known which rows of its matrices belong to which head"


def save_smaller(
    model: Model,
    importance: Float[ndarray, "layer head"],
    keep: float,
    folder: Path,
    *,
    windows: Sequence[Window],
) -> SmallerModel:
    """Write a Hugging Face model with only the most important heads of every layer.

    Every layer keeps equally many, because the configuration has one number for all. Grouped
    query heads go as equally many of every group or as whole groups with their key/value head,
    whichever comes nearer to the share, then whichever keeps the more importance.

    Args:
        model: a loaded model with a Llama-like layout.
        importance: of each head; see `headscope.studies.prune.head_importance`.
        keep: share of heads to keep, above 0.
        folder: a new or empty folder, written whole or not at all; transformers and headscope
            load it by its name.
        windows: text on which the smaller and the masked model are compared before anything is
            written.

    Raises:
        ModelError: the layout does not allow it, or the smaller model's loss is another.
        HeadscopeError: no such share, or the folder cannot be written.
    """
    check_smaller(model, keep, folder)
    network = network_of(model)
    kept_heads = choose(importance, keep, groups=model.key_value_heads)
    small = _build(model, network, kept_heads)
    size = batch_tokens_on(model.device)
    small_loss = network_loss(small, windows, batch_tokens=size).mean
    expected = masked_loss(model, windows, kept_heads).mean
    if not abs(small_loss - expected) <= TOLERANCE.get(network.dtype, 1e-4):
        raise ModelError(
            f"{model.name}: with its heads cut out its loss is {small_loss:.5f}, with the same "
            f"heads masked {expected:.5f}: this layout keeps something else by head; nothing was "
            "written"
        )
    with new_folder(folder) as new:
        with quiet_logging():
            small.save_pretrained(new)
        model.tokenizer.save(new)
    parameters, before = (sum(w.numel() for w in part.parameters()) for part in (small, network))
    return SmallerModel(
        folder, kept_heads, small_loss, loss(model, windows).mean, parameters, before
    )


def choose(
    importance: Float[ndarray, "layer head"], keep: float, *, groups: int
) -> Bool[ndarray, "layer head"]:
    """The heads to keep: equally many of every layer, and a regular number of every group.

    Args:
        importance: of each head.
        keep: share of heads, above 0; at least one head or group stays.
        groups: key/value heads; neighbouring query heads share one.
    """
    grouped = rearrange(importance, "layer (group member) -> layer group member", group=groups)
    size = grouped.shape[2]
    some = max(1, round(keep * size))
    group_count = max(1, round(keep * groups))
    of_every_group = _highest(grouped, some)
    whole_groups = np.repeat(_highest(grouped.sum(2), group_count)[:, :, None], size, axis=2)

    def nearness(mask: Bool[ndarray, "layer group member"]) -> tuple[float, float]:
        return -abs(float(mask.mean()) - keep), float(grouped[mask].sum())

    best = max((of_every_group, whole_groups), key=nearness)
    return rearrange(best, "layer group member -> layer (group member)").copy()


def _highest(values: Float[ndarray, "*_ item"], count: int) -> Bool[ndarray, "*_ item"]:
    """Marks the `count` highest of each row; of equal ones the first."""
    order = np.argsort(-values, axis=-1, kind="stable")[..., :count]
    mask = np.zeros(values.shape, bool)
    np.put_along_axis(mask, order, True, -1)
    return mask


def _build(model: Model, network: Any, kept_heads: Bool[ndarray, "layer head"]) -> Any:
    """The smaller network, in memory.

    Raises:
        ModelError: the layout's own code makes other shapes of the changed configuration.
    """
    # a key/value head stays if a query head of its group does
    key_heads: Bool[ndarray, "layer group"] = np.logical_or.reduce(
        rearrange(
            kept_heads, "layer (group member) -> layer group member", group=model.key_value_heads
        ),
        axis=2,
    )
    config = deepcopy(network.config)
    attentions: list[Any] = list(attention_modules(network))
    config.head_dim = attentions[0].head_dim
    config.num_attention_heads = int(kept_heads[0].sum())
    config.num_key_value_heads = int(key_heads[0].sum())
    state = dict(network.state_dict())
    names = {module: name for name, module in network.named_modules()}
    for layer, attention in enumerate(attentions):
        of_query, of_key = torch.from_numpy(kept_heads[layer]), torch.from_numpy(key_heads[layer])
        for part, heads in zip(
            (*Q_PROJ.modules, _OUTPUT), (of_query, of_key, of_key, of_query), strict=True
        ):
            prefix = f"{names[attention]}.{part}"
            axis = 1 if part == _OUTPUT else 0
            state[f"{prefix}.weight"] = _cut(state[f"{prefix}.weight"], heads, axis)
            if axis == 0 and f"{prefix}.bias" in state:
                state[f"{prefix}.bias"] = _cut(state[f"{prefix}.bias"], heads, 0)
    small = AutoModelForCausalLM.from_config(config, attn_implementation=NAME)
    small.to(device=network.device, dtype=network.dtype).eval()
    try:
        small.load_state_dict(state)
    except RuntimeError as error:
        reason = str(error).strip().splitlines()[-1].strip()
        raise ModelError(
            f"{model.name}: {model.architecture} does not take fewer heads of the same width: "
            f"{reason}"
        ) from error
    return small


def _cut(weight: Float[Tensor, ...], heads: Bool[Tensor, " head"], axis: int) -> Tensor:
    """Only what belongs to these heads, along an axis on which heads stand one after another."""
    width = weight.shape[axis] // len(heads)
    rows = heads.repeat_interleave(width).nonzero()[:, 0].to(weight.device)
    return weight.index_select(axis, rows)


def smaller_lines(smaller: SmallerModel) -> RenderableType:
    """Line with the number of heads kept, how much smaller the model is, and its loss."""
    layers, heads = smaller.kept.shape
    kept_heads = int(smaller.kept[0].sum())
    return Text(
        f"\n{kept_heads} of {heads} heads kept in each of {layers} layers; "
        f"{smaller.parameters:,} of {smaller.parameters_before:,} parameters; "
        f"loss {smaller.loss:.4f}, was {smaller.before:.4f}"
    )
