"""Attention of transformers' models, computed by torch's kernels, read, or replaced.

transformers hands every layer's queries and keys, after rotary embedding, to a function that is
registered by a name. The kernels return a layer's output and the log-sum-exp of every row of
scores. What no kernel computes is computed some rows at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
import transformers
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.engine import Rows, Tile
from headscope.models.engines.scores import (
    PLAIN,
    Heads,
    Keys,
    RowSums,
    Scores,
    ScoreTerms,
    SeenValues,
    Values,
    capped,
    pattern,
    softmax_rows,
    tile_scores,
)
from headscope.models.layout.projections import attention_modules

NAME = "headscope"
"""Name by which transformers knows `attention`."""
ROWS = 128
"""Rows of scores that exist at once if a device has no kernel."""
ALIGNED = 8
"""Numbers of which CUDA's kernels want a multiple in the last axis."""
WIDEST_FLASH = 256
"""Numbers of a head that CUDA's flash kernel takes at most."""
_UNKNOWN = ("head_mask", "indices", "block_indices", "position_bias", "sinks")
"""Arguments by which a model asks for other terms than masks, caps and sinks."""

Output = Float[Tensor, "batch position head _"]
OnScores = Callable[[int, Scores], None]
"""Called with a layer and what its rows of scores are made of."""


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """Arguments with which transformers calls a layer's attention."""

    module: nn.Module
    query: Heads
    key: Keys
    value: SeenValues
    mask: Tensor | None
    scaling: float | None
    options: dict[str, Any]
    on_scores: OnScores | None = None
    """Called with the layer's scores if its own attention is computed."""

    @property
    def layer(self) -> int:
        """The layer's number in the model."""
        layer: Any = self.module.layer_idx
        return int(layer)

    @property
    def scale(self) -> float:
        """The factor of the scores; one over the root of a query's width if none is named."""
        return self.query.shape[-1] ** -0.5 if self.scaling is None else self.scaling

    @cached_property
    def score_terms(self) -> ScoreTerms:
        """Mask, bias, cap and sink of the layer's scores.

        Raises:
            ModelError: the model asks for something else.
        """
        query, options = self.query, self.options
        unknown = [name for name in _UNKNOWN if options.get(name) is not None]
        window = options.get("sliding_window")
        if self.mask is None and window is not None and window < query.shape[2]:
            unknown.append(f"a sliding_window of {window} without a mask")
        if unknown:
            raise ModelError(f"the fused engine does not support {', '.join(unknown)}")
        sees_future = not getattr(self.module, "is_causal", True)
        bias = self._bias(sees_future)
        return ScoreTerms(bias, options.get("softcap"), options.get("s_aux"), sees_future)

    @property
    def visible(self) -> Bool[Tensor, "_ _ query key"]:
        """Keys that each query may see; one table for all windows and heads where those are 1."""
        if self.score_terms.bias is not None:
            return self.score_terms.bias > -torch.inf
        length = self.query.shape[2]
        return torch.ones(1, 1, length, length, dtype=torch.bool, device=self.query.device).tril()

    def pattern(self) -> Rows:
        """The layer's own patterns; rows sum to 1, or to what a learned sink leaves."""
        return pattern(self.query, self.key, self.scale, self.score_terms)

    def output(self) -> Output:
        """The output of the layer's own attention, whose scores are handed to `on_scores`."""
        terms = self.score_terms
        output, normaliser = softmax_attend(self.query, self.key, self.value, self.scale, terms)
        if self.on_scores is not None:
            scores = Scores(
                query=self.query,
                key=self.key,
                scale=self.scale,
                normaliser=normaliser,
                terms=terms,
                value=self.value,
            )
            self.on_scores(self.layer, scores)
        return output.transpose(1, 2).contiguous()

    def _bias(self, sees_future: bool) -> Float[Tensor, "_ _ query key"] | None:
        """Numbers added to the scores, −∞ if nothing is seen; None if plain and causal."""
        mask, shape = self.mask, (1, 1, self.query.shape[2], self.key.shape[2])
        if mask is None:
            if not sees_future:
                return None
            mask = torch.ones(shape, dtype=torch.bool, device=self.query.device)
        if mask.stride(0) == 0:
            mask = mask[:1]  # every window has the same
        exact = torch.promote_types(self.query.dtype, torch.float32)
        if mask.dtype == torch.bool:
            added = torch.zeros(mask.shape, dtype=exact, device=mask.device)
            hidden = ~mask
        else:
            added = mask.to(exact)
            hidden = mask <= torch.finfo(mask.dtype).min / 2  # transformers' own −∞
        return added.masked_fill(hidden, -torch.inf)


class CleanKeys(NamedTuple):
    """A layer's keys and values in the clean run of one window."""

    key: Float[Tensor, "group position width"]
    value: Float[Tensor, "group position _"]
    scale: float
    terms: ScoreTerms

    @classmethod
    def of(cls, call: AttentionCall, row: int, length: int) -> CleanKeys:
        """Keys and values of a layer on one window of a batch, without padding after its end."""
        terms, unpadded = call.score_terms, slice(0, length)
        if terms.bias is not None:
            # a bias that all windows share has one row
            rows = terms.bias[row : row + 1] if len(terms.bias) > 1 else terms.bias
            terms = terms._replace(bias=rows[:, :, unpadded, unpadded])
        return cls(call.key[row, :, unpadded], call.value[row, :, unpadded], call.scale, terms)

    def read(
        self,
        query: Float[Tensor, "item head width"],
        key: Float[Tensor, "item group width"],
        value: Float[Tensor, "item group _"],
        position: Int[Tensor, " item"],
    ) -> tuple[Float[Tensor, "item head position"], Float[Tensor, "item head _"]]:
        """Attention of single tokens on the keys before them, and what their heads read: z.

        Args:
            query: of each token as it now is.
            key: its own key as it now is, which takes the place of the clean run's.
            value: its own value likewise.
            position: its place in the window.
        """
        item = torch.arange(len(position), device=query.device)
        attention = self._rows(query.float(), key.float(), position)
        by_group = _by_group(attention, len(self.value))
        values = self.value.float()
        read = torch.einsum("ngcl,glv->ngcv", by_group, values)
        # a query's own key and value are those of its changed stream
        on_itself = by_group[item, :, :, position]
        clean_value = values[:, position].transpose(0, 1)
        change = value.float() - clean_value
        read += on_itself[..., None] * change[:, :, None]
        return attention, read.flatten(1, 2)

    def _rows(
        self, query: Tensor, changed_key: Tensor, position: Tensor
    ) -> Float[Tensor, "item head position"]:
        """Attention of each query over the clean run's keys, but for its own key as it now is."""
        # products with the clean keys, and of each query with its own new key
        terms = self.terms
        by_group = _by_group(query * self.scale, len(self.key))
        products = torch.einsum("ngcd,gld->ngcl", by_group, self.key.float())
        with_itself = (by_group * changed_key[:, :, None]).sum(-1)
        scores = products.flatten(1, 2)
        item = torch.arange(len(position), device=position.device)
        scores[item, :, position] = with_itself.flatten(1)
        scores = capped(scores, terms.cap)
        # later keys are hidden, by position or as the model's bias has them
        if terms.bias is None:
            keys = torch.arange(scores.shape[-1], device=position.device)
            is_later = keys > position[:, None]
            scores = scores.masked_fill(is_later[:, None], -torch.inf)
        else:
            bias = terms.bias[0][:, position].transpose(0, 1)
            scores = scores + bias.to(scores.dtype)
        normaliser = scores.logsumexp(-1)
        if terms.sink is not None:
            normaliser = torch.logaddexp(normaliser, terms.sink.to(normaliser))
        return (scores - normaliser[..., None]).exp()


def _by_group(
    values: Float[Tensor, "item head _"], groups: int
) -> Float[Tensor, "item group head_of_group _"]:
    """Values of heads by the groups that share a key."""
    return values.reshape(len(values), groups, -1, values.shape[-1])


Attend = Callable[[AttentionCall], Output]
"""Called for every layer; returns what goes on to W_O, or `call.output()` to change nothing."""


@dataclass(frozen=True, eq=False)
class AttentionHooks:
    """Functions that a layer's attention calls while a network runs."""

    attend: Attend | None = None
    """Computes the layer's output in place of its own attention."""
    on_scores: OnScores | None = None
    """Called with the scores of the layer's own attention."""


NO_HOOKS = AttentionHooks()
_ATTRIBUTE = "headscope_hooks"
"""Attribute of an attention module that has hooks."""


def overridden(network: Any, attend: Attend) -> AbstractContextManager[None]:
    """Context in which a network's attention is computed by a function."""
    return _hooked(network, lambda hooks: replace(hooks, attend=attend))


def capturing(network: Any, on_scores: OnScores) -> AbstractContextManager[None]:
    """Context in which each layer's scores are handed on as they come."""
    return _hooked(network, lambda hooks: replace(hooks, on_scores=on_scores))


@contextmanager
def _hooked(network: Any, change: Callable[[AttentionHooks], AttentionHooks]) -> Iterator[None]:
    """Context in which the hooks of a network's attention modules are changed."""
    modules = attention_modules(network)
    before = [_hooks_of(module) for module in modules]
    try:
        for module, hooks in zip(modules, before, strict=True):
            setattr(module, _ATTRIBUTE, change(hooks))
        yield
    finally:
        for module, hooks in zip(modules, before, strict=True):
            # a user's model that had no hooks keeps no attribute
            if hooks is not NO_HOOKS:
                setattr(module, _ATTRIBUTE, hooks)
            elif hasattr(module, _ATTRIBUTE):
                delattr(module, _ATTRIBUTE)


def _hooks_of(module: nn.Module) -> AttentionHooks:
    hooks: AttentionHooks = getattr(module, _ATTRIBUTE, NO_HOOKS)
    return hooks


def attention(
    module: nn.Module,
    query: Heads,
    key: Keys,
    value: SeenValues,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    **options: Any,
) -> tuple[Output, None]:
    """Attention as transformers calls it. All scores of the `fused` engine pass through here.

    Under `capturing`, a layer's own attention hands its scores to the function given there. Under
    `overridden`, the function given there takes the place of the layer's own attention.
    """
    hooks = _hooks_of(module)
    call = AttentionCall(
        module=module,
        query=query,
        key=key,
        value=value,
        mask=attention_mask,
        scaling=scaling,
        options=options,
        on_scores=hooks.on_scores,
    )
    output = call.output() if hooks.attend is None else hooks.attend(call)
    return output, None


def mask_of(*, kv_length: int, local_size: int | None = None, **options: Any) -> Tensor | None:
    """No mask where every token sees all earlier ones, and a mask wherever some are hidden.

    transformers leaves the mask out for a function of attention that has none registered.
    """
    if local_size is not None and local_size >= kv_length:
        local_size = None  # a window that holds the whole text hides nothing
    to_mask = transformers.masking_utils.sdpa_mask
    mask: Tensor | None = to_mask(kv_length=kv_length, local_size=local_size, **options)
    return mask


def register() -> None:
    """Make `attention` known to transformers by `NAME`."""
    transformers.AttentionInterface.register(NAME, attention)
    transformers.AttentionMaskInterface.register(NAME, mask_of)


def softmax_attend(
    query: Heads, key: Keys, value: SeenValues, scale: float, terms: ScoreTerms = PLAIN
) -> tuple[Values, RowSums]:
    """Softmax attention's output, and each row's log-sum-exp with that of the sink.

    Args:
        query: of each head.
        key: of each head, or of each group of heads.
        value: likewise, of any width.
        scale: by which q·k is multiplied.
        terms: mask, bias, cap and sink; causal attention without any of them by default.
    """
    backward = torch.is_grad_enabled() and query.requires_grad
    # no kernel caps; and none has a derivative of the sums by which a sink scales the output
    if terms.cap is not None or (terms.sink is not None and backward):
        return by_rows(query, key, value, scale, terms)
    output, normaliser = _kernel(query, key, value, scale, terms)
    if terms.sink is None:
        return output, normaliser
    with_sink = torch.logaddexp(normaliser, terms.sink.to(normaliser)[:, None])
    share = (normaliser - with_sink).exp()
    return output * share[..., None].to(output.dtype), with_sink


def by_rows(
    query: Heads, key: Keys, value: SeenValues, scale: float, terms: ScoreTerms
) -> tuple[Values, RowSums]:
    """The same by plain products, some rows at a time, on any device; differentiable."""
    # the heads of a group share keys and values
    groups = query.shape[1] // value.shape[1]
    value = value.repeat_interleave(groups, 1) if groups > 1 else value
    windows, _, length, _ = query.shape
    width = key.shape[2] if terms.sees_future else None
    # all scores at once would be the whole pattern of every head
    outputs = []
    sums = []
    for start in range(0, length, ROWS):
        rows = slice(start, min(start + ROWS, length))
        tile = Tile(slice(0, windows), rows, width)
        scores = tile_scores(query, key, scale, terms, tile)
        pattern, normaliser = softmax_rows(scores, terms)
        visible_values = value[:, :, : tile.keys]
        outputs.append(pattern.to(value.dtype) @ visible_values)
        sums.append(normaliser)
    return torch.cat(outputs, 2), torch.cat(sums, 2)


def _kernel(
    query: Heads, key: Keys, value: SeenValues, scale: float, terms: ScoreTerms
) -> tuple[Values, RowSums]:
    width, bias = value.shape[-1], terms.bias
    # zeros behind what is narrower change no product
    widest = max(query.shape[-1], value.shape[-1])
    if query.device.type == "cuda":
        widest += -widest % ALIGNED
    padded = []
    for states in (query, key, value):
        missing = widest - states.shape[-1]
        # torch copies even what needs no padding
        padded.append(nn.functional.pad(states, (0, missing)) if missing else states)
    query, key, value = padded
    # each device has a kernel that returns the normaliser
    device = query.device.type
    if device == "cpu":
        mask = None if bias is None else bias.to(query.dtype)
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, bias is None, attn_mask=mask, scale=scale
        )
    elif device == "cuda":
        groups = query.shape[1] // key.shape[1]
        if groups > 1:
            key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
        output, normaliser = _cuda(query, key, value, scale, bias)
    else:
        plain = ScoreTerms(bias, sees_future=terms.sees_future)
        output, normaliser = by_rows(query, key, value, scale, plain)
    return output[..., :width], normaliser


def _cuda(
    query: Heads, key: Keys, value: SeenValues, scale: float, bias: Tensor | None
) -> tuple[Heads, RowSums]:
    half = query.dtype in (torch.float16, torch.bfloat16)
    if bias is None and half and query.shape[-1] <= WIDEST_FLASH:
        flash = torch.ops.aten._scaled_dot_product_flash_attention(
            query, key, value, 0.0, True, scale=scale
        )
        return flash[0], flash[1]
    mask = None
    if bias is not None:
        # a mask of every window and head, whose rows begin where the kernel can read them
        keys = bias.shape[-1]
        padded = nn.functional.pad(bias.to(query.dtype), (0, -keys % ALIGNED))
        mask = padded.expand(*query.shape[:2], -1, -1)[..., :keys]
    output, normaliser, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, True, 0.0, bias is None, scale=scale
    )
    return output, normaliser[..., : query.shape[2]]  # the kernel pads its rows
