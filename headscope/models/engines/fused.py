"""The `fused` engine: the framework's own attention kernel, and rows of scores beside it.

transformers hands every layer's queries and keys, after rotary embedding, to a registered function.
The kernel returns the layer's output and the log-sum-exp of every row; scores minus that are
log-probabilities. They are made a few rows at a time and are gone when the next come, so that no
pattern is ever kept, and exponentials are taken only of the cells that a relation asks about.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from headscope.errors import ModelError
from headscope.models.engines.engine import Cells, Look, OnLayer, Picked, Rows, Tile
from headscope.models.engines.probe import Probe, check_probe
from headscope.models.layout import Layout
from headscope.models.matrices import projections

NAME = "headscope"
BLOCK_CELLS = 2**20
"""Cells of a tile, all heads together, unless 16 rows have more: 4 MB stay in a cache."""
LEAST_ROWS = 16
CELLS_AT_ONCE = 512
"""Single cells whose queries and keys are gathered at once, for the same reason."""
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

    def __init__(self, network: Any, stated: Layout, probed: Probe) -> None:
        self.network = network
        self.stated = stated
        self.heads = stated.heads
        self.layers = stated.layers
        network.set_attn_implementation(NAME)
        check_probe(self, probed, "softmax(q·k)")
        if len(self.matrices()) != 4 * self.layers:
            raise ModelError("its attention matrices are not where they are looked for")

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        room = BLOCK_CELLS // (self.heads * length)
        at_once = room // length
        if at_once:
            starts = range(0, windows, at_once)
            return [Tile(slice(w, min(w + at_once, windows)), slice(0, length)) for w in starts]
        rows = max(LEAST_ROWS, room)
        return [
            Tile(slice(w, w + 1), slice(q, min(q + rows, length)))
            for w in range(windows)
            for q in range(0, length, rows)
        ]

    @torch.inference_mode()
    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Look],
        on_layer: OnLayer,
        layers: int | None = None,
    ) -> None:
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = (layers or self.layers) - 1

        def take(layer: int, scores: Scores) -> None:
            on_layer(layer, (log_probabilities(scores, look) for look in tiles))
            if layer == last:
                raise _LastLayerError

        with _reading(take), _stopped():
            self.network.base_model(tokens, use_cache=False)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer, in place."""
        layers = attention_layers(self.network)
        return [matrix for layer in layers for matrix in projections(layer, self.stated)]


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
    module: nn.Module,
    query: _Heads,
    key: _Heads,
    value: _Heads,
    mask: Tensor | None,
    *,
    scaling: float | None = None,
    **more: Any,
) -> tuple[Float[Tensor, "batch position head width"], None]:
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


def mask_of(*, kv_length: int, local_size: int | None = None, **more: Any) -> Tensor | None:
    """No mask where every token sees all earlier ones, and a mask wherever some are hidden.

    transformers leaves the mask out for a function of attention that has none registered; with
    it windows, chunks and whatever a new layout brings reach `attention`, which refuses them.
    """
    if local_size is not None and local_size >= kv_length:
        local_size = None  # a window that holds the whole text hides nothing
    found: Tensor | None = sdpa_mask(kv_length=kv_length, local_size=local_size, **more)
    return found


AttentionMaskInterface.register(NAME, mask_of)


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
    return output, tiled_normaliser(query, key, scale)


def tiled_normaliser(
    query: _Heads, key: _Heads, scale: float, rows: int = 128
) -> Float[Tensor, "batch head position"]:
    """The log-sum-exp of every row of causal scores, some rows at a time, by any device."""
    windows, _, length, _ = query.shape
    parts = [slice(start, min(start + rows, length)) for start in range(0, length, rows)]
    tiles = [Tile(slice(0, windows), part) for part in parts]
    sums = [_scores(query, key, scale, tile).logsumexp(-1) for tile in tiles]
    return torch.cat(sums, -1)


def log_probabilities(scores: Scores, look: Look) -> Float[Tensor, ...]:
    """The logarithms of attention there, −∞ at later positions; in single precision."""
    if isinstance(look, Cells):
        return _cells(scores, look)
    if isinstance(look, Picked):
        return _picked(scores, look)
    rows = scores.normaliser[look.windows, :, look.queries, None]
    return _scores(scores.query, scores.key, scores.scale, look).sub_(rows)


def _picked(scores: Scores, look: Picked) -> Rows:
    """Rows of queries that do not follow each other."""
    device = scores.query.device
    queries = torch.from_numpy(look.queries).to(device)
    # torch's index_select would first copy all of the queries, which do not lie together
    query = scores.query[look.window][:, queries].float() * scores.scale
    key = scores.key[look.window, :, : look.keys].float()
    grouped = query.reshape(key.shape[0], -1, query.shape[-1])
    rows = (grouped @ key.transpose(-1, -2)).view(len(query), len(queries), look.keys)
    rows.sub_(scores.normaliser[look.window][:, queries, None])
    # of the keys after the first query some come too late
    first = int(look.queries[0]) + 1
    later = torch.arange(first, look.keys, device=device) > queries[:, None]
    rows[..., first:].masked_fill_(later, -torch.inf)
    return rows[None]


def _cells(scores: Scores, look: Cells) -> Float[Tensor, "cell head"]:
    """A product of one query and one key for each cell and head."""
    query, key = (x[look.window].transpose(0, 1) for x in (scores.query, scores.key))
    normaliser = scores.normaliser[look.window].T
    found = []
    for start in range(0, len(look.queries), CELLS_AT_ONCE):
        part = slice(start, start + CELLS_AT_ONCE)
        queries, keys = (
            torch.from_numpy(x[part]).to(query.device) for x in (look.queries, look.keys)
        )
        one, other = query.index_select(0, queries).float(), key.index_select(0, keys).float()
        # grouped query heads meet their key head
        count, groups, width = other.shape
        products = one.view(count, groups, -1, width) * other[:, :, None]
        dot = products.sum(-1).flatten(1)
        found.append(dot.mul_(scores.scale).sub_(normaliser.index_select(0, queries)))
    return torch.cat(found)


def _scores(query: _Heads, key: _Heads, scale: float, tile: Tile) -> Rows:
    """Grouped query heads meet their key head by shape: it is not copied for each of them."""
    query = query[tile.windows, :, tile.queries].float() * scale
    key = key[tile.windows, :, : tile.keys].float()
    windows, heads, queries, width = query.shape
    grouped = query.reshape(windows, key.shape[1], -1, width)
    scores = (grouped @ key.transpose(-1, -2)).view(windows, heads, queries, tile.keys)
    scores[..., tile.queries] += _later(queries, scores.device)
    return scores


@lru_cache(maxsize=4)
def _later(queries: int, device: torch.device) -> Float[Tensor, "query query"]:
    """−∞ where a key comes after its query, else 0."""
    return torch.full((queries, queries), -torch.inf, device=device).triu(1)


def attention_layers(network: Any) -> list[nn.Module]:
    """The modules that hold a layer's attention, in the order of the layers."""
    found = [m for m in network.modules() if hasattr(m, "layer_idx") and hasattr(m, "is_causal")]
    return sorted(found, key=lambda module: module.layer_idx)
