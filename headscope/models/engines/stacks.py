"""The attention of a model with an encoder and a decoder: three stacks, each read by itself.

The encoder reads a source and the decoder a target that is given (teacher forcing). The stacks are
the encoder's own attention, the decoder's own, and that from the target to the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.heads import CROSS, DECODER, ENCODER
from headscope.models.engines.engine import OnLayer, Read, Tile
from headscope.models.engines.interface import NAME, reading
from headscope.models.engines.modules import EAGER, attend_by
from headscope.models.engines.probe import TOLERANCE
from headscope.models.engines.rows import Scores, log_probabilities
from headscope.models.layout import Layout
from headscope.models.matrices import attention_matrices

PROBE = (24, 17)
"""Tokens of the source and the target on which an engine is checked."""


class Sides(NamedTuple):
    """What the encoder and the decoder read; the source's padding is below 0."""

    source: Int[Tensor, "window source"]
    target: Int[Tensor, "window target"]


TakeStack = Callable[[str, int, Scores], None]
"""Called with a stack, a layer of it, and what its rows of scores are made of."""


class EncoderDecoder:
    """A Hugging Face model with an encoder and a decoder, as its stacks share it.

    Raises:
        ModelError: its attention is not softmax(q·k), or not where it is looked for.
    """

    name = "fused"
    logarithms = True
    sinks = False

    def __init__(self, network: Any, stated: Layout) -> None:
        self.network = network
        self.stated = stated
        self.layers = stated.layers
        self.heads = stated.heads
        self._modules = _stack_modules(network)
        for letter, count in zip(stated.stacks.letters, stated.stacks.layers, strict=True):
            if len(self._modules[letter]) != count:
                raise ModelError(
                    f"its configuration says {count} layers of stack {letter}, and it has "
                    f"{len(self._modules[letter])}"
                )
        order = [(s, i, m) for s, own in self._modules.items() for i, m in enumerate(own)]
        for number, (_, _, module) in enumerate(order):
            setattr(module, "layer_idx", number)  # noqa: B010 (an encoder's layers have none)
        self._places = [(letter, layer) for letter, layer, _ in order]
        sides, own = self._probe()
        attend_by(network, NAME)
        self._check(sides, own)
        self.matrices()

    def layout(self, windows: int, length: int) -> list[Tile]:
        """None: each stack has its own."""
        raise ModelError(_BY_STACK)

    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Read],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """None: each stack has its own."""
        raise ModelError(_BY_STACK)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer of all stacks, in place."""
        modules = [module for own in self._modules.values() for module in own]
        return [matrix for m in modules for matrix in attention_matrices(m, self.stated)]

    @torch.inference_mode()
    def read(self, sides: Sides, take: TakeStack, *, decodes: bool = True) -> None:
        """Run a source, and a target after it, and hand on what each layer's rows are made of.

        Args:
            sides: what is read.
            take: called at each layer; what it raises ends the run.
            decodes: whether the decoder is asked at all.
        """
        seen = sides.source >= 0
        mask = None if bool(seen.all()) else seen.long()
        with reading(lambda number, scores: take(*self._places[number], scores)):
            encoder, decoder = self.network.get_encoder(), self.network.get_decoder()
            states = encoder(sides.source.clamp_min(0), attention_mask=mask).last_hidden_state
            if decodes:
                decoder(
                    sides.target,
                    encoder_hidden_states=states,
                    encoder_attention_mask=mask,
                    use_cache=False,
                )

    def _probe(self) -> tuple[Sides, dict[str, Sequence[Tensor]]]:
        """Each stack's patterns on two short texts by the model's own eager attention."""
        attend_by(self.network, EAGER)
        embedding = self.network.get_input_embeddings().weight
        lengths = [min(length, self.stated.context or length) for length in PROBE]
        source, target = (
            torch.arange(length, device=embedding.device)[None] % len(embedding)
            for length in lengths
        )
        try:
            with torch.inference_mode():
                found = self.network(
                    source, decoder_input_ids=target, output_attentions=True, use_cache=False
                )
        except Exception as error:  # a model's own code may fail in any way
            reason = str(error).strip().split("\n")[0] or type(error).__name__
            raise ModelError(f"the model fails on a short text: {reason}") from error
        own = {
            ENCODER: found.encoder_attentions,
            DECODER: found.decoder_attentions,
            CROSS: found.cross_attentions,
        }
        return Sides(source, target), {letter: each or () for letter, each in own.items()}

    def _check(self, sides: Sides, own: dict[str, Sequence[Tensor]]) -> None:
        seen: dict[tuple[str, int], Tensor] = {}

        def take(letter: str, layer: int, scores: Scores) -> None:
            seen[letter, layer] = whole_pattern(scores).cpu()

        self.read(sides, take)
        dtype = self.network.get_input_embeddings().weight.dtype
        for letter, patterns in own.items():
            if len(patterns) != len(self._modules[letter]):
                raise ModelError(f"{len(patterns)} patterns come from its stack {letter}")
            for layer, pattern in enumerate(patterns):
                expected, found = pattern.float().cpu(), seen[letter, layer]
                if found.shape != expected.shape:
                    raise ModelError(f"{letter}{layer} has the shape {tuple(expected.shape)}")
                worst = float((found - expected).abs().nan_to_num(nan=torch.inf).max())
                if worst > TOLERANCE.get(dtype, 5e-2):
                    raise ModelError(
                        f"its eager attention differs from softmax(q·k) by {worst:.2g}"
                    )


_BY_STACK = "a model with an encoder and a decoder is read stack by stack"


def whole_pattern(scores: Scores) -> Float[Tensor, "window head query key"]:
    """All of a layer's attention, in single precision."""
    windows, _, queries, _ = scores.query.shape
    tile = Tile(slice(0, windows), slice(0, queries), scores.key.shape[2])
    found: Tensor = log_probabilities(scores, tile).exp().float()
    return found


def placed(
    scores: Scores,
    query_at: Int[Tensor, "window position"],
    key_at: Int[Tensor, "window position"],
) -> Scores:
    """The same rows in a window of other places; where it says −1 nothing looks or is looked at.

    Args:
        scores: of queries and keys that each have places of their own.
        query_at: which query stands at each place of the window.
        key_at: which key does.
    """
    looks, seen = query_at >= 0, key_at >= 0
    query_at, key_at = query_at.clamp_min(0), key_at.clamp_min(0)
    bias = scores.beside.bias
    if bias is None:
        raise ModelError("plain causal attention stands where it is")
    sums = scores.normaliser
    bias = bias.expand(len(query_at), *bias.shape[1:])
    rows = bias.gather(2, query_at[:, None, :, None].expand(-1, bias.shape[1], -1, bias.shape[3]))
    cells = rows.gather(3, key_at[:, None, None].expand(-1, bias.shape[1], rows.shape[2], -1))
    hidden = ~(looks[:, None, :, None] & seen[:, None, None])
    return scores._replace(
        query=_taken(scores.query, query_at, looks),
        key=_taken(scores.key, key_at, seen),
        normaliser=sums.gather(2, query_at[:, None].expand(-1, sums.shape[1], -1)) * looks[:, None],
        beside=scores.beside._replace(bias=cells.masked_fill(hidden, -torch.inf)),
    )


def _taken(
    values: Float[Tensor, "window _ own width"],
    places: Int[Tensor, "window position"],
    there: Bool[Tensor, "window position"],
) -> Float[Tensor, "window _ position width"]:
    index = places[:, None, :, None].expand(-1, values.shape[1], -1, values.shape[3])
    return values.gather(2, index) * there[:, None, :, None].to(values.dtype)


def _stack_modules(network: Any) -> dict[str, list[nn.Module]]:
    """The attention modules of each stack, in the order of the layers."""
    inside = set(network.get_encoder().modules())
    found: dict[str, list[nn.Module]] = {ENCODER: [], DECODER: [], CROSS: []}
    for module in network.modules():
        if hasattr(module, "layer_idx") and hasattr(module, "is_causal"):
            own = ENCODER if module in inside else DECODER if module.is_causal else CROSS
            found[own].append(module)
    return found
