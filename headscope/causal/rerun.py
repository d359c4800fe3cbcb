"""One clean run of a model, and reruns with an intervention from the first layer that it changes.

The residual stream below an intervention does not change, so that it is kept from the clean run and
only the layers from the first changed one on run again. A clean run looks at all positions of its
rows (`clean`), at those from one on (`clean_from`), at the tokens that predict its places
(`at_places`), or at the last tokens of prompts (`at_last`); only these positions run again.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from headscope.causal.intervention import AttentionRead, HeadOutputs, Intervention, by_head
from headscope.causal.kept_keys import KeptPrefix, TokensOnKeys
from headscope.causal.loss import (
    check_logits,
    chunked_losses,
    divergence,
    last_stream,
    log_probabilities,
    network_of,
)
from headscope.errors import ModelError
from headscope.models.engines.attention import AttentionCall, CleanKeys
from headscope.models.engines.engine import StoppedError
from headscope.models.families import refuse_encoder, refuse_mixed_heads
from headscope.models.layout.projections import block_input, layer_list, outputs_by_layer
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of

KEPT_TOLERANCE = 1e-3
"""Largest difference of states whose earlier positions are kept, as a share of their length."""
ROUNDING = 1e-2
"""Nats by which the prediction of an untouched token that runs again alone may diverge; half
precision rounds so much."""
UNEMBED_ROWS = 256
"""Predictions that are unembedded at once: 256 rows of 50,000 logits are 50 MB."""
TOKENS_AT_ONCE = 1_024
"""Tokens of prompts that run together."""


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
    """A token at a position is predicted from those before it."""
    labels: Int[Tensor, " place"] | None = None
    """The tokens to predict, where they are not those of the rows: masked ones."""
    numbers: Int[Tensor, "row position"] | None = None
    """Position of each token in its text; None if the rows begin with it."""

    @property
    def start(self) -> int:
        """Position of the first column; earlier ones are kept from a clean run."""
        return 0 if self.numbers is None else int(self.numbers[0, 0])

    def after_first(self) -> Bool[Tensor, "row position"]:
        """Mask of the tokens of each row, without padding and the first."""
        position = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        lengths = self.lengths.to(position.device)
        return (position > 0) & (position < lengths[:, None])


@dataclass(frozen=True, eq=False)
class CleanRun:
    """Values of one untouched run: each block's input, and each head's z.

    `inputs` are by the places of the blocks, `z` by the layers' numbers: of a hybrid only some
    layers have a z.
    """

    rows: TokenRows
    inputs: Sequence[Float[Tensor, "row position model"]]
    z: Mapping[int, HeadOutputs]
    states: Float[Tensor, "place d_model"]
    """Residual stream that is unembedded for each place; the last state of a plain encoder."""
    earlier: KeptPrefix | TokensOnKeys | None = None
    """Keys and values that they attend on besides their own; another attention takes its place."""

    def at_rows(self, numbers: Int[Tensor, " item"]) -> CleanRun:
        """The run of some rows, one of which can be taken several times and changed separately.

        Each row has one place, in order; none attends on a prefix.
        """
        assert not isinstance(self.earlier, KeptPrefix), "a prefix is that of all rows"
        rows = TokenRows(
            tokens=self.rows.tokens[numbers],
            lengths=self.rows.lengths[numbers],
            row=torch.arange(len(numbers)),
            position=self.rows.position[numbers],
            numbers=None if self.rows.numbers is None else self.rows.numbers[numbers],
        )
        return CleanRun(
            rows=rows,
            inputs=[stream[numbers] for stream in self.inputs],
            z={layer: z[numbers] for layer, z in self.z.items()},
            states=self.states[numbers],
            earlier=None if self.earlier is None else self.earlier.at_rows(numbers),
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
        # logits of a decoder are computed from its last state, so that only networks are taken in
        # which that gives the model's own
        self.network: Any = network_of(model) if predicts else plain_network_of(model)
        self.score = Score.of(model) if score is None else score
        if self.score is Score.MASKED:
            check_logits(model.name, self.network)
        layers = model.layers + len(model.others)
        self.blocks = layer_list(self.network, layers)
        outputs = outputs_by_layer(self.network)
        self.outputs = {layer: outputs[layer] for layer in model.attention_layers}
        """W_O by the numbers of the layers that have heads."""
        # a network that takes no positions cannot be told that its tokens are later ones
        parameters = inspect.signature(self.network.base_model.forward).parameters
        self._takes_positions = "position_ids" in parameters
        self._returns_tuple = self._block_returns_tuple()
        self._keeps_prefix: bool | None = None
        """Whether reruns of later positions give the model's states; None before the first."""

    @torch.inference_mode()
    def clean(self, rows: TokenRows, earlier: KeptPrefix | TokensOnKeys | None = None) -> CleanRun:
        """The run without a further change.

        Args:
            rows: tokens, and the places that are scored.
            earlier: keys and values that the rows attend on besides their own.
        """
        on_keys = nullcontext() if earlier is None else earlier.applied(self.model)
        with on_keys, self._storing() as (inputs, z):
            states = self.place_states(rows)
        return CleanRun(rows, inputs, z, states, earlier)

    @torch.inference_mode()
    def clean_from(self, rows: TokenRows, start: int) -> tuple[CleanRun, CleanRun]:
        """The clean run, and its positions from `start` on as a run whose reruns keep the others.

        Both are the same if the model's states would not be, as with caps of scores.
        """
        # the keys and values of earlier positions are kept, if the model can be called without them
        if start < 1 or not self._takes_positions or self._keeps_prefix is False:
            run = self.clean(rows)
            return run, run
        calls: dict[int, AttentionCall] = {}
        reader = AttentionRead(self.outputs, lambda call: calls.update({call.layer: call}))
        with reader.applied(self.model):
            run = self.clean(rows)
        # only later positions run again
        is_later = slice(start, None)
        tokens = rows.tokens[:, is_later]
        numbers = torch.arange(start, start + tokens.shape[1], device=tokens.device)
        later_rows = rows._replace(
            tokens=tokens,
            lengths=rows.lengths - start,
            position=rows.position - start,
            numbers=numbers.expand(len(tokens), -1),
        )
        later = replace(
            run,
            rows=later_rows,
            inputs=[stream[:, is_later] for stream in run.inputs],
            z={layer: z[:, is_later] for layer, z in run.z.items()},
            earlier=KeptPrefix.of(calls, start),
        )
        # the first rerun shows whether the model gives the same states from kept keys
        if self._keeps_prefix is None:
            states = self.states(later, None, first=0)
            apart = float((states - run.states).norm() / run.states.norm())
            self._keeps_prefix = apart <= KEPT_TOLERANCE
        return run, later if self._keeps_prefix else run

    @torch.inference_mode()
    def at_places(self, rows: TokenRows) -> CleanRun:
        """The clean run of the tokens that predict the places, each as a row of its own.

        Args:
            rows: of a causal model, those that `check_tokens_alone` accepts; the places of one row
                follow each other.
        """
        keys: list[dict[int, CleanKeys]] = [{} for _ in rows.tokens]
        lengths = rows.lengths.tolist()

        # a token that runs alone reads the keys and values of the tokens before it from this run
        def store(call: AttentionCall) -> None:
            for row, length in enumerate(lengths):
                keys[row][call.layer] = CleanKeys.of(call, row, length)

        with AttentionRead(self.outputs, store).applied(self.model):
            run = self.clean(rows)
        # the token before a place predicts it
        position = rows.position - 1
        at = rows.row, position
        return CleanRun(
            rows=single_tokens(rows.tokens[at], position),
            inputs=[stream[at][:, None] for stream in run.inputs],
            z={layer: z[at][:, None] for layer, z in run.z.items()},
            states=run.states,
            earlier=TokensOnKeys(keys, rows.row, position),
        )

    @torch.inference_mode()
    def at_last(self, prompts: Sequence[Int[Tensor, " position"]]) -> CleanRun:
        """The clean run of the last token of each prompt, as a row of its own; see `at_places`."""
        runs = []
        order: list[int] = []
        keys: list[Mapping[int, CleanKeys]] = []
        # prompts run whole once; afterwards their last tokens alone
        for batch in _prompt_batches([len(prompt) for prompt in prompts]):
            of_batch = [prompts[number] for number in batch]
            tokens = nn.utils.rnn.pad_sequence(of_batch, batch_first=True)
            lengths = torch.tensor([len(prompt) for prompt in of_batch])
            places = torch.arange(len(batch))
            run = self.at_places(TokenRows(tokens.to(self.model.device), lengths, places, lengths))
            assert isinstance(run.earlier, TokensOnKeys)
            runs.append(run)
            order += batch
            keys += run.earlier.keys
        # all batches as one run, in the order of the prompts
        position = torch.tensor([len(prompts[number]) - 1 for number in order])
        every = CleanRun(
            rows=single_tokens(torch.cat([run.rows.tokens[:, 0] for run in runs]), position),
            inputs=[
                torch.cat(streams) for streams in zip(*(run.inputs for run in runs), strict=True)
            ],
            z={layer: torch.cat([run.z[layer] for run in runs]) for layer in self.outputs},
            states=torch.cat([run.states for run in runs]),
            earlier=TokensOnKeys(keys, torch.arange(len(order)), position),
        )
        return every.at_rows(torch.tensor(order).argsort())

    @torch.inference_mode()
    def check_tokens_alone(self) -> None:
        """Refuse a model whose tokens cannot run alone on the keys of those before them.

        Raises:
            ModelError: it is an encoder, or has layers that mix tokens in another way than by
                attention, as hybrids have.
        """
        refuse_encoder(self.model, "what runs single tokens again")
        tokens = torch.arange(1, 33, device=self.model.device) % self.model.vocabulary_size
        position = torch.arange(1, 33, 3)
        rows = TokenRows(tokens[None], torch.tensor([32]), position * 0, position)
        run = self.at_places(rows)
        # reruns without a change must predict what the window's own run does
        before = log_probabilities(self.network, run.states)
        after = log_probabilities(self.network, self.states(run, None, first=0))
        difference = float(divergence(before, after).nan_to_num(torch.inf).max())
        if not difference <= ROUNDING:
            raise ModelError(
                f"{self.model.name}: a token run alone on the keys of those before it gives "
                f"another result (by {difference:.2g}): this model mixes tokens by more than "
                "attention"
            )

    @torch.inference_mode()
    def states(
        self, clean: CleanRun, intervention: Intervention | None, *, first: int | None = None
    ) -> Float[Tensor, "place d_model"]:
        """Stream that is unembedded for each place, with an intervention; see `CleanRun.states`.

        Args:
            clean: the untouched run.
            intervention: a change of the model; None for none.
            first: layer from which it runs again. Default: the first that changes.
        """
        with self._rerun(clean, intervention, first):
            return self.place_states(clean.rows)

    @torch.inference_mode()
    def changed(self, clean: CleanRun, intervention: Intervention) -> CleanRun:
        """A run with an intervention, from whose layers others can go on; z is the clean one."""
        with self._rerun(clean, intervention, first=0), self._storing() as (inputs, _):
            states = self.place_states(clean.rows)
        return replace(clean, inputs=inputs, states=states)

    @contextmanager
    def _storing(self) -> Iterator[tuple[list[Tensor], dict[int, HeadOutputs]]]:
        """Store each block's input, and each layer's z before W_O, while the model runs."""
        inputs: list[Tensor] = []
        z: dict[int, Tensor] = {}

        def store_input(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            inputs.append(block_input(arguments, keywords))

        with ExitStack() as hooks:
            # hooks before the modules see what these read, whatever their code does with it
            for block in self.blocks:
                hooks.enter_context(block.register_forward_pre_hook(store_input, with_kwargs=True))
            for layer, output in self.outputs.items():

                def store_z(_: nn.Module, x: tuple[Tensor, ...], layer: int = layer) -> None:
                    z[layer] = by_head(x[0], self.model.heads)

                hooks.enter_context(output.register_forward_pre_hook(store_z))
            yield inputs, z

    @torch.inference_mode()
    def scores(
        self,
        run: CleanRun,
        intervention: Intervention | None = None,
        *,
        untouched: CleanRun | None = None,
    ) -> Float[Tensor, " place"]:
        """The score of each place with an intervention; see `Score`.

        Args:
            run: the run that is scored, or changed further.
            intervention: a change of the model; None for none.
            untouched: the run from whose states `Score.STATE` measures distances. Default: `run`.
        """
        states = run.states if intervention is None else self.states(run, intervention)
        rows = run.rows
        if self.score is Score.STATE:
            origin = (run if untouched is None else untouched).states
            distance = (origin - states).norm(dim=-1)
            share: Tensor = distance / origin.norm(dim=-1)
            return -share
        labels = rows.tokens[rows.row, rows.position] if rows.labels is None else rows.labels
        losses = list(chunked_losses(self.network, states, labels))
        return -torch.cat(losses) if losses else states.new_zeros(0)

    @torch.inference_mode()
    def distributions(
        self, clean: CleanRun, intervention: Intervention | None
    ) -> Float[Tensor, "position vocabulary"]:
        """The log-probability of every token of the vocabulary after each token of one row.

        Args:
            clean: the untouched run of one row.
            intervention: a change of the model; None leaves it as it is.
        """
        with self._rerun(clean, intervention):
            (stream,) = last_stream(self.network, clean.rows.tokens)
        parts = torch.split(stream, UNEMBED_ROWS)
        return torch.cat([log_probabilities(self.network, part) for part in parts])

    @contextmanager
    def _rerun(
        self, clean: CleanRun, intervention: Intervention | None, first: int | None = None
    ) -> Iterator[None]:
        """Blocks below the intervention pass on the input of the first block that is run again."""
        layers = () if intervention is None else intervention.layers
        if first is None:
            first = min(layers, default=len(self.blocks) - 1)
        change = nullcontext() if intervention is None else intervention.applied(self.model)
        on_keys = nullcontext() if clean.earlier is None else clean.earlier.applied(self.model)
        with self.handing_on(first, clean.inputs[first]), on_keys, change:
            yield

    @contextmanager
    def handing_on(
        self, first: int, stream: Float[Tensor, "row position d_model"]
    ) -> Iterator[None]:
        """Blocks before the first hand on this stream, its input, within this context."""
        with ExitStack() as within:
            output = (stream, None) if self._returns_tuple else stream
            blocks: Any = self.blocks[:first]
            for block in blocks:
                block.forward = lambda *inputs, **keywords: output
                within.callback(delattr, block, "forward")
            yield

    def place_states(self, rows: TokenRows) -> Float[Tensor, "place d_model"]:
        """Stream that is unembedded for each place, or its last state."""
        if self.score is Score.NEXT:
            options: dict[str, Any] = {}
            # a network of which attention alone uses positions takes none
            if rows.numbers is not None and self._takes_positions:
                options["position_ids"] = rows.numbers
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


def single_tokens(tokens: Int[Tensor, " item"], position: Int[Tensor, " item"]) -> TokenRows:
    """Tokens at some positions of their texts, each a row whose place is the one after it."""
    number = torch.arange(len(tokens), device=tokens.device)
    ones = torch.ones_like(number)
    numbers = position.to(tokens.device)[:, None]
    return TokenRows(tokens[:, None], ones, number, ones, numbers=numbers)


def _prompt_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of prompts that run together: the shortest first, so that padding is little."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        padded = (len(batch) + 1) * lengths[number]
        if batch and padded > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
