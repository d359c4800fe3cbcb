"""One clean run of a model, and reruns with an intervention from the first layer that it changes.

The residual stream below an intervention does not change, so that it is kept from the clean run and
only the layers from the first changed one on run again.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.causal.intervention import AttentionChange, HeadOutputs, Intervention, by_head
from headscope.causal.loss import check_logits, chunked_losses, last_stream, logits_of, network_of
from headscope.models.engines.attention import AttentionCall, Output, softmax_attend
from headscope.models.engines.engine import StoppedError
from headscope.models.engines.scores import ScoreTerms
from headscope.models.families import refuse_mixed_heads
from headscope.models.layout.projections import block_input, layer_list, outputs_by_layer
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of

KEPT_TOLERANCE = 1e-3
"""Largest difference of states whose earlier positions are kept, as a share of their length."""
UNEMBED_ROWS = 256
"""Predictions that are unembedded at once: 256 rows of 50,000 logits are 50 MB."""


class Score(Enum):
    """A number for each place of a text that says how well a model does there."""

    NEXT = "next"
    """The log-probability of the token there, predicted from those before it."""
    MASKED = "masked"
    """The log-probability of the token there, which is masked."""
    STATE = "state"
    """0 less the distance of the last state there from that of the untouched model, in lengths of
    the latter: what is left of an encoder without a head that fills in masked tokens."""

    @classmethod
    def of(cls, model: Model) -> Score:
        """The score that a model can be asked for."""
        if model.attention_kind.predicts_next:
            return cls.NEXT
        engine: Any = model.engine
        fills_in = engine.network.get_output_embeddings() is not None
        has_mask = model.tokenizer.mask is not None
        return cls.MASKED if fills_in and has_mask else cls.STATE


class TokenRows(NamedTuple):
    """Rows of tokens, padded on the right, and the places in them that are scored."""

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    row: Int[Tensor, " place"]
    position: Int[Tensor, " place"]
    labels: Int[Tensor, " place"] | None = None
    """The tokens to predict, where they are not those of the rows: masked ones."""
    start: int = 0
    """Position of the first column; earlier ones are kept from a clean run."""

    def after_first(self) -> Bool[Tensor, "row position"]:
        """Mask of the tokens of each row, without padding and the first."""
        position = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        lengths = self.lengths.to(position.device)
        return (position > 0) & (position < lengths[:, None])


@dataclass(frozen=True, eq=False)
class _KeyReader(AttentionChange):
    """The attention as it is; stores each layer's call."""

    numbers: frozenset[int]
    calls: dict[int, AttentionCall] = field(default_factory=dict)

    @property
    def layers(self) -> frozenset[int]:
        """The layers that are stored."""
        return self.numbers

    def attend(self, call: AttentionCall) -> Output:
        """The layer's own."""
        self.calls[call.layer] = call
        return call.output()


@dataclass(frozen=True, eq=False)
class KeptPrefix(AttentionChange):
    """Later positions that attend on the keys and values of a clean run before them."""

    keys: Mapping[int, Float[Tensor, "row group position width"]]
    """Keys before the first later position, by layer."""
    values: Mapping[int, Float[Tensor, "row group position _"]]
    terms: Mapping[int, ScoreTerms]
    """Mask and bias of the later queries."""

    @classmethod
    def of(cls, calls: Mapping[int, AttentionCall], start: int) -> KeptPrefix:
        """What each layer read in a clean run, before a position."""
        keys = {}
        values = {}
        terms = {}
        for layer, call in calls.items():
            # copies, so that the whole layer is not kept
            keys[layer] = call.key[:, :, :start].clone()
            values[layer] = call.value[:, :, :start].clone()
            bias = call.score_terms.bias
            if bias is None:
                hidden = torch.zeros(call.visible.shape, device=call.query.device)
                bias = hidden.masked_fill(~call.visible, -torch.inf)
            terms[layer] = call.score_terms._replace(bias=bias[:, :, start:])
        return cls(keys, values, terms)

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.keys)

    def attend(self, call: AttentionCall) -> Output:
        """The outputs of the later positions."""
        key = torch.cat([self.keys[call.layer].to(call.key), call.key], 2)
        value = torch.cat([self.values[call.layer].to(call.value), call.value], 2)
        output, _ = softmax_attend(call.query, key, value, call.scale, self.terms[call.layer])
        return output.transpose(1, 2).contiguous()


@dataclass(frozen=True, eq=False)
class CleanRun:
    """Values of one untouched run: each block's input, each head's z, and the scores.

    `inputs` are by the places of the blocks, `z` by the layers' numbers: of a hybrid only some
    layers have a z.
    """

    rows: TokenRows
    inputs: Sequence[Float[Tensor, "row position model"]]
    z: Mapping[int, HeadOutputs]
    states: Float[Tensor, "place d_model"]
    """Residual stream that is unembedded for each place; the last state of a plain encoder."""
    scores: Float[Tensor, " place"]
    prefix: KeptPrefix | None = None
    """Keys and values before the first column, if the rows begin later."""

    def repeated(self, count: int) -> CleanRun:
        """The run of one row as that of so many equal rows, each of which can be changed
        separately.

        Nothing is copied.
        """
        rows = TokenRows(
            tokens=self.rows.tokens.expand(count, -1),
            lengths=self.rows.lengths.expand(count),
            row=self.rows.row,
            position=self.rows.position,
        )
        z = {layer: outputs.expand(count, -1, -1, -1) for layer, outputs in self.z.items()}
        return CleanRun(
            rows=rows,
            inputs=[stream.expand(count, -1, -1) for stream in self.inputs],
            z=z,
            states=self.states,
            scores=self.scores,
        )


class Rerunner:
    """A model whose blocks can be run again from any of them.

    Args:
        model: of the fused engine.
        score: of each place. Default: `Score.of`.

    Raises:
        ModelError: its blocks are ambiguous, or it mixes its heads' outputs before W_O; or see
            `network_of`.
    """

    def __init__(self, model: Model, score: Score | None = None) -> None:
        refuse_mixed_heads(model)
        self.model = model
        # an encoder runs without the layers of its engine
        predicts = model.attention_kind.predicts_next
        self.network: Any = network_of(model) if predicts else plain_network_of(model)
        self.score = Score.of(model) if score is None else score
        if self.score is Score.MASKED:
            check_logits(model.name, self.network)
        layers = model.layers + len(model.others)
        self.blocks = layer_list(self.network, layers)
        outputs = outputs_by_layer(self.network)
        self.outputs = {layer: outputs[layer] for layer in model.attention_layers}
        """W_O by the numbers of the layers that have heads."""
        self._returns_tuple = self._block_returns_tuple()
        self._keeps_prefix: bool | None = None
        """Whether reruns of later positions give the model's states; None before the first."""

    @torch.inference_mode()
    def clean(
        self, rows: TokenRows, compared: Float[Tensor, "place d_model"] | None = None
    ) -> CleanRun:
        """The run without a further change.

        Args:
            rows: tokens, and the places that are scored.
            compared: states from which `Score.STATE` measures distances. Default: those of this
                run, which is that of the untouched model.
        """
        # the stream before each block, and each head's z before W_O
        inputs: list[Tensor] = []
        z: list[Tensor] = []

        def store_input(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            inputs.append(block_input(arguments, keywords))

        with ExitStack() as hooks:
            for block in self.blocks:
                hooks.enter_context(block.register_forward_pre_hook(store_input, with_kwargs=True))
            for output in self.outputs.values():
                hooks.enter_context(output.register_forward_pre_hook(lambda _, x: z.append(x[0])))
            states = self.place_states(rows)
        # scores of a changed run are compared with the states of the unchanged one
        compared = states if compared is None else compared
        heads = (by_head(layer_z, self.model.heads) for layer_z in z)
        by_layer = dict(zip(self.outputs, heads, strict=True))
        return CleanRun(rows, inputs, by_layer, compared, self._scores(states, rows, compared))

    @torch.inference_mode()
    def states(
        self, clean: CleanRun, intervention: Intervention, *, first: int | None = None
    ) -> Float[Tensor, "place d_model"]:
        """Stream that is unembedded for each place, with an intervention; see `CleanRun.states`.

        Args:
            clean: the untouched run.
            intervention: a change of the model.
            first: layer from which it runs again. Default: the first that changes.
        """
        with self._rerun(clean, intervention, first):
            return self.place_states(clean.rows)

    @torch.inference_mode()
    def changed(self, clean: CleanRun, intervention: Intervention) -> CleanRun:
        """A run with an intervention, from whose layers others can go on."""
        inputs: list[Tensor] = []

        def store_input(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            inputs.append(block_input(arguments, keywords))

        with ExitStack() as hooks:
            for block in self.blocks:
                hooks.enter_context(block.register_forward_pre_hook(store_input, with_kwargs=True))
            with self._rerun(clean, intervention, first=0):
                states = self.place_states(clean.rows)
        return replace(clean, inputs=inputs, states=states)

    @torch.inference_mode()
    def clean_from(self, rows: TokenRows, start: int) -> tuple[CleanRun, CleanRun]:
        """The clean run, and its positions from `start` on as a run whose reruns keep the others.

        Both are the same if the model's states would not be, as with caps of scores.
        """
        # the keys and values of earlier positions are kept, if the model can be called without them
        parameters = inspect.signature(self.network.base_model.forward).parameters
        if start < 1 or "position_ids" not in parameters or self._keeps_prefix is False:
            run = self.clean(rows)
            return run, run
        reader = _KeyReader(frozenset(self.outputs))
        with reader.applied(self.model):
            run = self.clean(rows)
        # only later positions run again
        is_later = slice(start, None)
        later_rows = rows._replace(
            tokens=rows.tokens[:, is_later],
            lengths=rows.lengths - start,
            position=rows.position - start,
            start=start,
        )
        later = replace(
            run,
            rows=later_rows,
            inputs=[stream[:, is_later] for stream in run.inputs],
            z={layer: z[:, is_later] for layer, z in run.z.items()},
            prefix=KeptPrefix.of(reader.calls, start),
        )
        # the first rerun shows whether the model gives the same states from kept keys
        if self._keeps_prefix is None:
            with self._rerun(later, None, first=0):
                states = self.place_states(later_rows)
            apart = float((states - run.states).norm() / run.states.norm())
            self._keeps_prefix = apart <= KEPT_TOLERANCE
        return run, later if self._keeps_prefix else run

    @torch.inference_mode()
    def scores(self, clean: CleanRun, intervention: Intervention) -> Float[Tensor, " place"]:
        """The score of each place with an intervention; see `Score`."""
        states = self.states(clean, intervention)
        return self._scores(states, clean.rows, clean.states)

    @torch.inference_mode()
    def distributions(
        self, clean: CleanRun, intervention: Intervention | None
    ) -> Float[Tensor, "position vocabulary"]:
        """The log-probability of every token of the vocabulary after each token of one row.

        Args:
            clean: the untouched run of one row.
            intervention: a change of the model; None leaves it as it is.
        """
        (stream,) = self.streams(clean, intervention)
        parts = []
        for part in torch.split(stream, UNEMBED_ROWS):
            logits = logits_of(self.network, part).float()
            parts.append(logits.log_softmax(-1))
        return torch.cat(parts)

    @torch.inference_mode()
    def streams(
        self, clean: CleanRun, intervention: Intervention | None
    ) -> Float[Tensor, "row position d_model"]:
        """Stream that is unembedded at every token of each row; see `distributions`."""
        with self._rerun(clean, intervention):
            return last_stream(self.network, clean.rows.tokens)

    @contextmanager
    def _rerun(
        self, clean: CleanRun, intervention: Intervention | None, first: int | None = None
    ) -> Iterator[None]:
        """Blocks below the intervention pass on the input of the first block that is run again."""
        layers = () if intervention is None else intervention.layers
        if first is None:
            first = min(layers, default=len(self.blocks) - 1)
        change = nullcontext() if intervention is None else intervention.applied(self.model)
        prefix = nullcontext() if clean.prefix is None else clean.prefix.applied(self.model)
        with self.handing_on(first, clean.inputs[first]), prefix, change:
            yield

    @contextmanager
    def handing_on(
        self, first: int, stream: Float[Tensor, "row position d_model"]
    ) -> Iterator[None]:
        """Blocks before the first hand on this stream, its input, within this context."""
        with ExitStack() as within:
            for block in self.blocks[:first]:
                within.enter_context(_skipped(block, stream, self._returns_tuple))
            yield

    def place_states(self, rows: TokenRows) -> Float[Tensor, "place d_model"]:
        """Stream that is unembedded for each place, or its last state."""
        if self.score is Score.NEXT:
            options: dict[str, Any] = {}
            if rows.start:
                width = rows.tokens.shape[1]
                numbers = torch.arange(rows.start, rows.start + width, device=rows.tokens.device)
                options["position_ids"] = numbers.expand(len(rows.tokens), -1)
            stream = last_stream(self.network, rows.tokens, **options)
            return stream[rows.row, rows.position - 1]
        # padding is seen by tokens that look ahead
        position = torch.arange(rows.tokens.shape[1], device=rows.tokens.device)
        visible = position < rows.lengths.to(position.device)[:, None]
        options = {"attention_mask": None if visible.all() else visible}
        tokens = rows.tokens.clamp_min(0)  # padding is not a token
        if self.score is Score.STATE:
            states: Tensor = self.network.base_model(tokens, **options).last_hidden_state
            return states[rows.row, rows.position]
        before: list[Tensor] = []

        def take(_: nn.Module, states: tuple[Tensor, ...]) -> None:
            before.append(states[0][rows.row, rows.position])
            raise StoppedError

        # a masked language model has layers of its own between the last state and this
        hook = self.network.get_output_embeddings().register_forward_pre_hook(take)
        try:
            with suppress(StoppedError):
                self.network(tokens, **options)
        finally:
            hook.remove()
        return before[0]

    def _scores(
        self,
        states: Float[Tensor, "place d_model"],
        rows: TokenRows,
        clean: Float[Tensor, "place d_model"],
    ) -> Float[Tensor, " place"]:
        if self.score is Score.STATE:
            distance = (clean - states).norm(dim=-1)
            share: Tensor = distance / clean.norm(dim=-1)
            return -share
        labels = rows.labels
        if labels is None:
            labels = rows.tokens[rows.row, rows.position]
        losses = list(chunked_losses(self.network, states, labels))
        return -torch.cat(losses) if losses else states.new_zeros(0)

    @torch.inference_mode()
    def _block_returns_tuple(self) -> bool:
        """Test if a block hands its stream on as the first of several things."""
        outputs: list[Any] = []
        positions = torch.arange(8, device=self.model.device)
        tokens = positions[None] % self.model.vocabulary_size
        handle = self.blocks[0].register_forward_hook(lambda *args: outputs.append(args[-1]))
        try:
            self.network.base_model(tokens)
        finally:
            handle.remove()
        return isinstance(outputs[0], tuple)


@contextmanager
def _skipped(block: Any, stream: Tensor, as_tuple: bool) -> Iterator[None]:
    """The block hands on a stream instead of computing one."""
    block.forward = lambda *inputs, **keywords: (stream, None) if as_tuple else stream
    try:
        yield
    finally:
        del block.forward
