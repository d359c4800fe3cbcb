"""Keys and values of one clean run, on which single tokens of it can be run again.

What a causal model computes at a token depends on earlier tokens through their keys and values
alone. A token that is changed is thus run again by itself, and costs a token instead of a window.
"""

from __future__ import annotations

import inspect
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.engines.log_attention import ScoreTerms
from headscope.models.engines.override import AttentionCall


class CleanKeys(NamedTuple):
    """A layer's keys and values in the clean run of one window."""

    key: Float[Tensor, "group position width"]
    value: Float[Tensor, "group position _"]
    scale: float
    terms: ScoreTerms

    @classmethod
    def of(cls, call: AttentionCall, row: int = 0, length: int | None = None) -> CleanKeys:
        """Keys and values of a layer on one window of a batch, without padding after its end."""
        terms, unpadded = call.score_terms, slice(0, length)
        if terms.bias is not None:
            rows = terms.bias[row : row + 1] if len(terms.bias) > 1 else terms.bias
            terms = terms._replace(bias=rows[:, :, unpadded, unpadded])
        return cls(call.key[row, :, unpadded], call.value[row, :, unpadded], call.scale, terms)


def position_option(network: Any, position: Int[Tensor, " item"]) -> dict[str, Tensor]:
    """The option by which a network is told where tokens that run by themselves stand.

    Empty where it takes none, as where attention alone knows of places.
    """
    parameters = inspect.signature(network.base_model.forward).parameters
    return {"position_ids": position[:, None]} if "position_ids" in parameters else {}


def mixes_otherwise(name: str, difference: str) -> ModelError:
    """The error of a model whose token, run again untouched by itself, is not what it was.

    Args:
        name: of the model.
        difference: what is another, and by how much.
    """
    return ModelError(
        f"{name}: a token run by itself on the keys of those before it {difference}: this model "
        "mixes tokens by more than attention"
    )


def read_again(
    clean: CleanKeys,
    query: Float[Tensor, "item head width"],
    key: Float[Tensor, "item group width"],
    value: Float[Tensor, "item group _"],
    position: Int[Tensor, " item"],
) -> tuple[Float[Tensor, "item head position"], Float[Tensor, "item head _"]]:
    """Attention of single tokens on the keys before them, and what their heads read: z.

    Args:
        clean: of the window.
        query: of each token as it now is.
        key: its own key as it now is, which takes the place of the clean run's.
        value: its own value likewise.
        position: its place in the window.
    """
    rows = torch.arange(len(position), device=query.device)
    attention = _rows(clean, query.float(), key.float(), position)
    groups = attention.shape[1] // clean.value.shape[0]
    values = clean.value.float()
    by_group = attention.view(len(position), -1, groups, attention.shape[-1])
    read = torch.einsum("ngcl,glv->ngcv", by_group, values)
    # a query's own key and value are those of its changed stream
    change = value.float() - values[:, position].transpose(0, 1)
    read += by_group[rows, :, :, position][..., None] * change[:, :, None]
    return attention, read.flatten(1, 2)


def _rows(
    clean: CleanKeys, query: Tensor, changed_key: Tensor, position: Tensor
) -> Float[Tensor, "item head position"]:
    """Attention of each query over the clean run's keys, but for its own key as it now is."""
    terms, groups = clean.terms, query.shape[1] // clean.key.shape[0]
    query = query * clean.scale
    by_group = query.reshape(len(position), -1, groups, query.shape[-1])
    scores = torch.einsum("ngcd,gld->ngcl", by_group, clean.key.float()).flatten(1, 2)
    rows = torch.arange(len(position), device=position.device)
    scores[rows, :, position] = (by_group * changed_key[:, :, None]).sum(-1).flatten(1)
    if terms.cap is not None:
        scores = torch.tanh(scores / terms.cap) * terms.cap
    if terms.bias is None:
        future = torch.arange(scores.shape[-1], device=position.device) > position[:, None]
        scores = scores.masked_fill(future[:, None], -torch.inf)
    else:
        scores = scores + terms.bias[0][:, position].transpose(0, 1).to(scores.dtype)
    normaliser = scores.logsumexp(-1)
    if terms.sink is not None:
        normaliser = torch.logaddexp(normaliser, terms.sink.to(normaliser))
    return (scores - normaliser[..., None]).exp()
