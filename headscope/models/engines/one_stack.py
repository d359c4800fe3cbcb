"""One stack of a model with an encoder and a decoder, as an engine whose windows are square.

A window of the encoder is a source, one of the decoder a target. A window across is the source and
behind it the target, so that every key comes before its query; the source's own queries are empty
rows. Where the model's texts begin with no token of their own, position 0 stands for nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.attention_kind import BIDIRECTIONAL, CROSS, AttentionKind
from headscope.corpus.window import NOTHING, PADDING, START
from headscope.models.engines.engine import OnLayer, Request, StoppedError, Tile
from headscope.models.engines.fused import stopped, tiles_of
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.models.engines.stacks import EncoderDecoder, Sides, move_rows

Tokens = Int[Tensor, "window position"]
MoveRows = Callable[[Scores], Scores]
"""Brings a layer's rows to their places in the window."""


class OneStack:
    """The engine of one stack.

    Args:
        shared: the model.
        attention_kind: of the stack.
        start: the token that a target begins with.
        end: the token that closes a source.
    """

    name = "fused"
    logarithms = True
    sinks = False

    def __init__(
        self, shared: EncoderDecoder, attention_kind: AttentionKind, *, start: int, end: int
    ) -> None:
        self.shared, self.attention_kind = shared, attention_kind
        self.start, self.end = start, end
        self.dimensions = shared.dimensions.of_stack(attention_kind)
        self.layers, self.heads = self.dimensions.layers, self.dimensions.heads
        self.windows: frozenset[int] = frozenset()

    def layout(self, windows: int, length: int) -> list[Tile]:
        """Tiles of at most about a million cells."""
        return tiles_of(windows, length, heads=self.heads, attention_kind=self.attention_kind)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Those of all stacks: the twin has learned nothing anywhere."""
        return self.shared.matrices()

    def run(
        self,
        tokens: Tokens,
        tiles: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run tokens and hand on each layer's log-probabilities; see `Engine.run`."""
        last = (layers or self.layers) - 1
        sides, move = self._sides(tokens)

        def take(attention_kind: AttentionKind, layer: int, scores: Scores) -> None:
            if attention_kind != self.attention_kind:
                return
            moved = move(scores)
            on_layer(layer, (log_probabilities(moved, request) for request in tiles))
            if layer == last and not on:
                raise StoppedError

        with stopped():
            self.shared.read(sides, take, decodes=self.attention_kind != BIDIRECTIONAL)

    def _sides(self, tokens: Tokens) -> tuple[Sides, MoveRows]:
        """Texts that are read for such windows, and the move of their rows into them."""
        if self.attention_kind == BIDIRECTIONAL:
            return _source_alone(tokens)
        if self.attention_kind == CROSS:
            return _across(tokens, self.start)
        return _same_source(tokens, self.end), lambda scores: scores


def _source_alone(tokens: Tokens) -> tuple[Sides, MoveRows]:
    empty = tokens[:, :0].clamp_min(0)
    if not bool((tokens[:, 0] == NOTHING).any()):
        return Sides(tokens, empty), lambda scores: scores
    at = (torch.arange(tokens.shape[1], device=tokens.device) - 1).expand_as(tokens)
    return Sides(tokens[:, 1:], empty), lambda scores: move_rows(scores, at, at)


def _across(tokens: Tokens, start: int) -> tuple[Sides, MoveRows]:
    """A window's source up to the place where the decoder starts, and its target from there on."""
    position = torch.arange(tokens.shape[1], device=tokens.device).expand_as(tokens)
    starts = (tokens == START).int().argmax(1, keepdim=True)
    ends = (tokens != PADDING).sum(1, keepdim=True)
    empty = (tokens[:, :1] == NOTHING).long()
    key_at = torch.where(position < starts, position - empty, -1)
    query_at = torch.where((position >= starts) & (position < ends), position - starts, -1)
    source = _by_place(tokens, key_at, PADDING)
    target = _by_place(tokens, query_at, start)
    sides = Sides(source, torch.where(target < 0, start, target))
    return sides, lambda scores: move_rows(scores, query_at, key_at)


def _by_place(tokens: Tokens, positions: Tokens, padding: int) -> Int[Tensor, "window _"]:
    """Tokens by the places that they are given, the others left out."""
    width = int(positions.max()) + 1
    placed_tokens = tokens.new_full((len(tokens), width), padding)
    window, position = (positions >= 0).nonzero(as_tuple=True)
    placed_tokens[window, positions[window, position]] = tokens[window, position]
    return placed_tokens


def _same_source(tokens: Tokens, end: int) -> Sides:
    """Windows of a target whose source is the same text, without its beginning and closed.

    A window is padded with the token that it begins with.
    """
    padded = (tokens == tokens[:, :1]).flip(1).int().cumprod(1).flip(1).bool()
    source = torch.cat([tokens[:, 1:], tokens.new_full((len(tokens), 1), PADDING)], 1)
    source[:, :-1] = source[:, :-1].masked_fill(padded[:, 1:], PADDING)
    length = (source != PADDING).sum(1)
    source[torch.arange(len(source), device=source.device), length] = end
    return Sides(source, tokens)
