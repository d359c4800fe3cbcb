"""The `fused` engine: the framework's own attention kernel, and rows of scores beside it.

transformers hands every layer's queries and keys, after rotary embedding, to a registered function.
The kernel returns the layer's output and the log-sum-exp of every row; scores minus that are
log-probabilities. They are made a few rows at a time and are gone when the next come, so that no
pattern is ever kept, and exponentials are taken only of the cells that a relation asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface

from headscope.engine import Block, OnLayer, Rows, stream_patterns
from headscope.errors import ModelError
from headscope.projections import projections

NAME = "headscope"
BLOCK_CELLS = 2**20
"""Cells of a block, all heads together, unless 16 rows have more: 4 MB stay in a cache."""
LEAST_ROWS = 16
CHECKED_TOKENS = 48
TOLERANCE = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far a probability may be from that of the model's own eager attention. Scores of several
hundreds are rounded by more: such a model is read by its own softmax instead."""
_UNKNOWN = ("softcap", "s_aux", "position_bias", "head_mask")
"""Arguments by which a model asks for more than softmax(q·k·scale) over earlier positions."""

_Heads = Float[Tensor, "batch _ position width"]


class Scores(NamedTuple):
    """What a row of scores is made of: queries, keys, their scale, and each row's log-sum-exp."""

    query: _Heads
    key: _Heads
    scale: float
    normaliser: Float[Tensor, "batch head position"]


_Take = Callable[[int, Scores], None]


class FusedEngine:
    """A Hugging Face model whose attention is plain causal softmax attention.

    Raises:
        ModelError: it is not: the message says what is different.
    """

    name = "fused"
    logarithms = True

    def __init__(self, network: Any, heads: int, layers: int) -> None:
        self.network = network
        self.heads = heads
        self.layers = layers
        network.set_attn_implementation(NAME)
        _check(self)

    def layout(self, windows: int, length: int) -> list[Block]:
        """Blocks of at most about a million cells."""
        room = BLOCK_CELLS // (self.heads * length)
        at_once = room // length
        if at_once:
            starts = range(0, windows, at_once)
            return [Block(slice(w, min(w + at_once, windows)), slice(0, length)) for w in starts]
        rows = max(LEAST_ROWS, room)
        return [
            Block(slice(w, w + 1), slice(q, min(q + rows, length)))
            for w in range(windows)
            for q in range(0, length, rows)
        ]

    @torch.inference_mode()
    def run(
        self, tokens: Int[Tensor, "window position"], blocks: list[Block], on_layer: OnLayer,
        layers: int | None = None,
    ) -> None:  # fmt: skip
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = (layers or self.layers) - 1

        def take(layer: int, scores: Scores) -> None:
            on_layer(layer, (log_probabilities(scores, block) for block in blocks))
            if layer == last:
                raise _LastLayerError

        with _reading(take), _stopped():
            self.network.base_model(tokens, use_cache=False)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        return [m for layer in attention_layers(self.network) for m in projections(layer)]


class _LastLayerError(Exception):
    """Everything that was asked for has been read."""


_reader: _Take | None = None


@contextmanager
def _reading(take: _Take) -> Iterator[None]:
    global _reader
    _reader = take
    try:
        yield
    finally:
        _reader = None


@contextmanager
def _stopped() -> Iterator[None]:
    try:
        yield
    except _LastLayerError:
        return


def attention(
    module: nn.Module, query: _Heads, key: _Heads, value: _Heads, mask: Tensor | None, *,
    scaling: float | None = None, **more: Any,
) -> tuple[Float[Tensor, "batch position head width"], None]:  # fmt: skip
    """Causal attention for transformers, with a look at what the reader asks for.

    Raises:
        ModelError: the model asks for another kind of attention.
    """
    asked = [name for name in _UNKNOWN if more.get(name) is not None]
    window = more.get("sliding_window")
    if window is not None and window < query.shape[2]:
        asked.append(f"sliding_window of {window}")
    if mask is not None or asked or not getattr(module, "is_causal", True):
        what = ", ".join(asked) or ("a mask" if mask is not None else "attention that looks ahead")
        raise ModelError(f"the fused engine does not know {what}")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    output, normaliser = _kernel(query, key, value, scale)
    if _reader is not None:
        layer: Any = module.layer_idx
        _reader(layer, Scores(query, key, scale, normaliser))
    return output.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)


def _kernel(
    query: _Heads, key: _Heads, value: _Heads, scale: float
) -> tuple[_Heads, Float[Tensor, "batch head position"]]:
    """The attention's output, and the log-sum-exp of every row of scores."""
    if query.device.type == "cpu":
        output, normaliser = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
            query, key, value, 0.0, True, scale=scale
        )
        return output, normaliser
    groups = query.shape[1] // key.shape[1]
    if groups > 1:
        key, value = (x.repeat_interleave(groups, 1) for x in (key, value))
    if query.device.type == "cuda":
        if query.dtype in (torch.float16, torch.bfloat16):
            flash = torch.ops.aten._scaled_dot_product_flash_attention(
                query, key, value, 0.0, True, scale=scale
            )
            return flash[0], flash[1]
        output, normaliser, *_ = torch.ops.aten._scaled_dot_product_efficient_attention(
            query, key, value, None, True, 0.0, True, scale=scale
        )
        return output, normaliser[..., : query.shape[2]]  # the kernel pads its rows
    output = nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=scale
    )
    return output, blockwise_normaliser(query, key, scale)


def blockwise_normaliser(
    query: _Heads, key: _Heads, scale: float, rows: int = 128
) -> Float[Tensor, "batch head position"]:
    """The log-sum-exp of every row of causal scores, some rows at a time, by any device."""
    windows, _, length, _ = query.shape
    parts = [slice(start, min(start + rows, length)) for start in range(0, length, rows)]
    blocks = [Block(slice(0, windows), part) for part in parts]
    sums = [_scores(query, key, scale, block).logsumexp(-1) for block in blocks]
    return torch.cat(sums, -1)


def log_probabilities(scores: Scores, block: Block) -> Rows:
    """The logarithms of a block's attention, −∞ at later positions; in single precision."""
    rows = scores.normaliser[block.windows, :, block.queries, None]
    return _scores(scores.query, scores.key, scores.scale, block).sub_(rows)


def _scores(query: _Heads, key: _Heads, scale: float, block: Block) -> Rows:
    """Grouped query heads meet their key head by shape: it is not copied for each of them."""
    query = query[block.windows, :, block.queries].float() * scale
    key = key[block.windows, :, : block.keys].float()
    windows, heads, queries, width = query.shape
    grouped = query.reshape(windows, key.shape[1], -1, width)
    scores = (grouped @ key.transpose(-1, -2)).view(windows, heads, queries, block.keys)
    scores[..., block.queries] += _later(queries, scores.device)
    return scores


@lru_cache(maxsize=4)
def _later(queries: int, device: torch.device) -> Float[Tensor, "query query"]:
    """−∞ where a key comes after its query, else 0."""
    return torch.full((queries, queries), -torch.inf, device=device).triu(1)


def attention_layers(network: Any) -> list[nn.Module]:
    """The modules that hold a layer's attention, in the order of the layers."""
    found = [m for m in network.modules() if hasattr(m, "layer_idx") and hasattr(m, "is_causal")]
    return sorted(found, key=lambda module: module.layer_idx)


def _check(engine: FusedEngine) -> None:
    """Compare a short text's patterns with those of the model's own eager attention."""
    network, seen = engine.network, dict[int, Tensor]()
    embedding = network.get_input_embeddings().weight
    tokens = torch.arange(CHECKED_TOKENS, device=embedding.device)[None] % len(embedding)
    stream_patterns(engine, tokens, seen.__setitem__)
    network.set_attn_implementation("eager")
    try:
        with torch.inference_mode():
            own = network.base_model(tokens, use_cache=False, output_attentions=True).attentions
    finally:
        network.set_attn_implementation(NAME)
    if sorted(seen) != list(range(engine.layers)) or own is None or len(own) != engine.layers:
        raise ModelError("its layers do not pass through transformers' attention interface")
    # the layers of a large model may lie on several devices
    worst = max(float((seen[i].cpu() - own[i].cpu()).abs().max()) for i in seen)
    if not worst <= TOLERANCE.get(embedding.dtype, 5e-2):
        raise ModelError(f"its eager attention differs from softmax(q·k) by {worst:.2g}")
    if len(engine.matrices()) != 4 * engine.layers:
        raise ModelError("its attention matrices are not where they are looked for")
