"""One stack of a model with an encoder and a decoder, as an engine whose windows are square.

A window of the encoder is a source, one of the decoder a target. A window across is the source and
behind it the target, so that every key comes before its query; the source's own queries are empty
rows. Where the model's texts begin with no token of their own, position 0 stands for nothing.

`with_stacks` makes a model of three that are read one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import torch
from jaxtyping import Float, Int
from torch import Tensor

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, CROSS, AttentionKind
from headscope.corpus.aligned import BOTH, SOURCE, TARGET
from headscope.corpus.window import NOTHING, PADDING, START, Frame
from headscope.errors import ModelError
from headscope.models.engines.engine import OnLayer, Request, StoppedError, Tile
from headscope.models.engines.fused import stopped, tiles_of
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.models.engines.stacks import EncoderDecoder, Sides, move_rows
from headscope.models.tokenizer import Tokenizer

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


M = TypeVar("M")
NO_TOKEN = "∅"
"""What position 0 is shown as where no token stands."""


def decoder_start(name: str, network: Any, backend: Any, bos: str | None) -> str:
    """The token that a model's decoder begins with, as text.

    Args:
        name: of the model, for messages.
        network: the model.
        backend: its tokenizer, as transformers loads it.
        bos: text of the token that was named by the user, if any.

    Raises:
        ModelError: its configuration names none.
    """
    if bos is not None:
        return bos
    config, generation = network.config, getattr(network, "generation_config", None)
    for key in ("decoder_start_token_id", "pad_token_id"):  # T5's decoder begins with its padding
        for source in (config, generation):
            token = getattr(source, key, None)
            if isinstance(token, int):
                return str(backend.convert_ids_to_tokens(token))
    raise ModelError(
        f"{name}: its configuration does not say with which token its decoder begins; add "
        "decoder_start_token_id, or name the token with --bos"
    )


def with_stacks(model: M, backend: Any) -> M:
    """The model, with its encoder, decoder and cross-attention each as a model of its own.

    Args:
        model: a `headscope.models.load.Model` whose engine reads stacks.
        backend: its tokenizer, as transformers loads it.

    Raises:
        ModelError: its texts end with no token.
    """
    loaded: Any = model
    shared: EncoderDecoder = loaded.engine
    tokenizer: Tokenizer = loaded.tokenizer
    opens, end = _specials(loaded.name, shared.network, backend)
    text = str(backend.convert_ids_to_tokens(end))
    source = tokenizer.framed(
        NOTHING if opens is None else opens,
        NO_TOKEN if opens is None else str(backend.convert_ids_to_tokens(opens)),
        Frame(end, text, BIDIRECTIONAL),
    )
    parts = []
    for kind, side in ((BIDIRECTIONAL, SOURCE), (CAUSAL, TARGET), (CROSS, BOTH)):
        engine = OneStack(shared, kind, start=tokenizer.bos, end=end)
        parts.append(
            replace(
                loaded,
                engine=engine,
                tokenizer=tokenizer if kind == CAUSAL else source,
                layers=engine.layers,
                attention_kind=kind,
                side=side,
                target=tokenizer if kind == CROSS else None,
            )
        )
    complete: M = replace(loaded, parts=tuple(parts))
    return complete


def _specials(name: str, network: Any, backend: Any) -> tuple[int | None, int]:
    """The token that a source begins with, if any, and the one that closes it.

    As the tokenizer frames a text; one that puts nothing around it closes with its end of text.
    """
    plain = backend("a", add_special_tokens=False)["input_ids"]
    encoded = backend("a")["input_ids"]
    opens = encoded[0] if encoded[:1] != plain[:1] else None
    end = encoded[-1] if encoded[-1:] != plain[-1:] else None
    for source in (network.config, backend):
        if end is None:
            end = getattr(source, "eos_token_id", None)
    if not isinstance(end, int):
        raise ModelError(
            f"{name}: neither its tokenizer nor its configuration says which token closes a text "
            "(eos_token_id)"
        )
    return opens, end
