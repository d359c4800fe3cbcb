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

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, CROSS, AttentionKind
from headscope.errors import ModelError, first_line
from headscope.models.engines.adapters import EAGER, attend_by
from headscope.models.engines.capture import NAME, capturing
from headscope.models.engines.engine import OnLayer, Request, Tile
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.models.engines.probe import TOLERANCE, check_numbers
from headscope.models.layout.dimensions import AttentionDimensions
from headscope.models.layout.projections import attention_weight_views

PROBE = (24, 17)
"""Tokens of the source and the target on which an engine is checked."""


class Sides(NamedTuple):
    """Texts that the encoder and the decoder read; the source's padding is below 0."""

    source: Int[Tensor, "window source"]
    target: Int[Tensor, "window target"]


OnStackScores = Callable[[AttentionKind, int, Scores], None]
"""Called with a stack's kind, a layer of it, and what its rows of scores are made of."""


class EncoderDecoder:
    """A Hugging Face model with an encoder and a decoder, as its stacks share it.

    Raises:
        ModelError: its attention is not softmax(q·k), or not where it is looked for.
    """

    name = "fused"
    logarithms = True
    attention_kind = CAUSAL
    """The decoder's own."""
    sinks = False

    def __init__(self, network: Any, dimensions: AttentionDimensions) -> None:
        self.network = network
        self.dimensions = dimensions
        self.layers = dimensions.layers
        self.heads = dimensions.heads
        self._modules = _stack_modules(network)
        for kind, count in zip(dimensions.attention_kinds, dimensions.stack_layers, strict=True):
            if len(self._modules[kind]) != count:
                raise ModelError(
                    f"its configuration says {count} layers of stack {kind.letter}, and it has "
                    f"{len(self._modules[kind])}"
                )
        order = [(s, i, m) for s, eager in self._modules.items() for i, m in enumerate(eager)]
        for number, (_, _, module) in enumerate(order):
            setattr(module, "layer_idx", number)  # noqa: B010 (an encoder's layers have none)
        self._numbers = [(kind, layer) for kind, layer, _ in order]
        sides, eager = self._probe()
        attend_by(network, NAME)
        self._check(sides, eager)
        self.matrices()

    def layout(self, windows: int, length: int) -> list[Tile]:
        """None: each stack has its own."""
        raise ModelError(_BY_STACK)

    def run(
        self,
        tokens: Int[Tensor, "window position"],
        tiles: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """None: each stack has its own."""
        raise ModelError(_BY_STACK)

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer of all stacks, in place."""
        modules = [module for stack in self._modules.values() for module in stack]
        return [matrix for m in modules for matrix in attention_weight_views(m, self.dimensions)]

    @torch.inference_mode()
    def read(self, sides: Sides, take: OnStackScores, *, decodes: bool = True) -> None:
        """Run a source, and a target after it, and hand on what each layer's rows are made of.

        Args:
            sides: what is read.
            take: called at each layer; what it raises ends the run.
            decodes: whether the decoder is asked at all.
        """
        visible = sides.source >= 0
        mask = None if bool(visible.all()) else visible.long()
        with capturing(lambda number, scores: take(*self._numbers[number], scores)):
            encoder, decoder = self.network.get_encoder(), self.network.get_decoder()
            states = encoder(sides.source.clamp_min(0), attention_mask=mask).last_hidden_state
            if decodes:
                decoder(
                    sides.target,
                    encoder_hidden_states=states,
                    encoder_attention_mask=mask,
                    use_cache=False,
                )

    def _probe(self) -> tuple[Sides, dict[AttentionKind, Sequence[Tensor]]]:
        """Each stack's patterns on two short texts by the model's own eager attention."""
        attend_by(self.network, EAGER)
        embedding = self.network.get_input_embeddings().weight
        lengths = [min(length, self.dimensions.context or length) for length in PROBE]
        source, target = (
            torch.arange(length, device=embedding.device)[None] % len(embedding)
            for length in lengths
        )
        try:
            with torch.inference_mode():
                output = self.network(
                    source, decoder_input_ids=target, output_attentions=True, use_cache=False
                )
        except Exception as error:  # a model's own code may fail in any way
            reason = first_line(error)
            raise ModelError(f"the model fails on a short text: {reason}") from error
        patterns = {
            BIDIRECTIONAL: output.encoder_attentions,
            CAUSAL: output.decoder_attentions,
            CROSS: output.cross_attentions,
        }
        return Sides(source, target), {kind: stack or () for kind, stack in patterns.items()}

    def _check(self, sides: Sides, eager: dict[AttentionKind, Sequence[Tensor]]) -> None:
        computed_patterns: dict[tuple[AttentionKind, int], Tensor] = {}

        def take(kind: AttentionKind, layer: int, scores: Scores) -> None:
            computed_patterns[kind, layer] = whole_pattern(scores).cpu()

        self.read(sides, take)
        dtype = self.network.get_input_embeddings().weight.dtype
        for kind, patterns in eager.items():
            if len(patterns) != len(self._modules[kind]):
                raise ModelError(f"{len(patterns)} patterns come from its stack {kind.letter}")
            for layer, pattern in enumerate(patterns):
                expected, computed = pattern.float().cpu(), computed_patterns[kind, layer]
                name = f"{kind.letter}{layer}"
                if computed.shape != expected.shape:
                    raise ModelError(f"{name} has the shape {tuple(expected.shape)}")
                check_numbers(f"layer {name}", pattern)
                worst = float((computed - expected).abs().nan_to_num(nan=torch.inf).max())
                if worst > TOLERANCE.get(dtype, 5e-2):
                    raise ModelError(
                        f"its eager attention differs from softmax(q·k) by {worst:.2g}"
                    )


_BY_STACK = "a model with an encoder and a decoder is read stack by stack"


def whole_pattern(scores: Scores) -> Float[Tensor, "window head query key"]:
    """All of a layer's attention, in single precision."""
    windows, _, queries, _ = scores.query.shape
    tile = Tile(slice(0, windows), slice(0, queries), scores.key.shape[2])
    pattern: Tensor = log_probabilities(scores, tile).exp().float()
    return pattern


def move_rows(
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
    has_query, has_key = query_at >= 0, key_at >= 0
    query_at, key_at = query_at.clamp_min(0), key_at.clamp_min(0)
    bias = scores.terms.bias
    if bias is None:
        raise ModelError("plain causal attention stands where it is")
    sums = scores.normaliser
    bias = bias.expand(len(query_at), *bias.shape[1:])
    rows = bias.gather(2, query_at[:, None, :, None].expand(-1, bias.shape[1], -1, bias.shape[3]))
    cells = rows.gather(3, key_at[:, None, None].expand(-1, bias.shape[1], rows.shape[2], -1))
    hidden = ~(has_query[:, None, :, None] & has_key[:, None, None])
    return scores._replace(
        query=_gather(scores.query, query_at, has_query),
        key=_gather(scores.key, key_at, has_key),
        normaliser=sums.gather(2, query_at[:, None].expand(-1, sums.shape[1], -1))
        * has_query[:, None],
        terms=scores.terms._replace(bias=cells.masked_fill(hidden, -torch.inf)),
    )


def _gather(
    values: Float[Tensor, "window _ own width"],
    positions: Int[Tensor, "window position"],
    present: Bool[Tensor, "window position"],
) -> Float[Tensor, "window _ position width"]:
    index = positions[:, None, :, None].expand(-1, values.shape[1], -1, values.shape[3])
    return values.gather(2, index) * present[:, None, :, None].to(values.dtype)


def _stack_modules(network: Any) -> dict[AttentionKind, list[nn.Module]]:
    """The attention modules of each stack, in the order of the layers."""
    inside = set(network.get_encoder().modules())
    modules: dict[AttentionKind, list[nn.Module]] = {BIDIRECTIONAL: [], CAUSAL: [], CROSS: []}
    for module in network.modules():
        if hasattr(module, "layer_idx") and hasattr(module, "is_causal"):
            own_text = CAUSAL if module.is_causal else CROSS
            modules[BIDIRECTIONAL if module in inside else own_text].append(module)
    return modules
