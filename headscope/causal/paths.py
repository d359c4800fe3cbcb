"""Who feeds a head: direct paths from senders into the query, the key or the value of one head.

A sender is the embedding, an earlier head or an earlier MLP. The stream that the receiver reads is
the clean one, less what the sender wrote, plus what takes its place. The receiver's layer reads
this stream by its own code, so that norms, biases, rotary positions and norms of queries and keys
are the model's, computed again; one of query, key and value is taken from there, and the other two
from the clean run. All else is frozen up to the receiver's output z. Of grouped query heads the
receiver alone sees the changed key or value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor, nn

from headscope.causal.direct_paths import TOLERANCE, find_paths
from headscope.causal.head_set import Head
from headscope.causal.intervention import RowHeadsSet
from headscope.causal.loss import last_stream
from headscope.causal.rerun import CleanRun
from headscope.causal.task_prompts import PromptBatch
from headscope.causal.task_runner import CleanBatch, TaskRunner
from headscope.errors import ModelError
from headscope.heads import head_name
from headscope.models.engines.attention import AttentionCall, Output, overridden
from headscope.models.engines.engine import StoppedError
from headscope.models.engines.scores import ScoreTerms, pattern
from headscope.models.layout.projections import output_matrix

Via = Literal["query", "key", "value"]
VIAS: tuple[Via, ...] = ("query", "key", "value")
TOKENS_AT_ONCE = 8_192
"""Tokens of changed streams that the receiver's layer reads at once."""
WORTH_A_RUN = 4
"""Part of the positions, one in so many, that is run again alone."""
Stream = Float[Tensor, "row position d_model"]


@dataclass(frozen=True)
class Sender:
    """A part of the model that writes into the residual stream."""

    kind: Literal["embedding", "head", "mlp"]
    layer: int | None = None
    head: int | None = None

    def __str__(self) -> str:
        """The printed name.

        >>> [str(sender) for sender in (EMBEDDING, Sender("head", 16, 0), Sender("mlp", 12))]
        ['embedding', 'L16H0', 'MLP12']
        """
        if self.layer is None:
            return self.kind
        return f"MLP{self.layer}" if self.head is None else head_name(self.layer, self.head)


EMBEDDING = Sender("embedding")
"""Input of the first block: scaled as the model scales it, with learned positions."""


@dataclass(frozen=True, eq=False)
class _Inputs:
    """Queries, keys and values of one head, after rotary embedding."""

    query: Float[Tensor, "row 1 position width"]
    key: Float[Tensor, "row 1 position width"]
    value: Float[Tensor, "row 1 position d_value"]

    @classmethod
    def of(cls, call: AttentionCall, head: int) -> _Inputs:
        """The inputs of one head, whose key and value are its group's."""
        per_key = call.query.shape[1] // call.key.shape[1]
        per_value = call.query.shape[1] // call.value.shape[1]
        return cls(
            query=call.query[:, head, None],
            key=call.key[:, head // per_key, None],
            value=call.value[:, head // per_value, None],
        )

    def rows(self, part: slice) -> _Inputs:
        """The same for some rows."""
        return _Inputs(self.query[part], self.key[part], self.value[part])


@dataclass(frozen=True, eq=False)
class _Receiver:
    """The receiver in the clean run of a batch."""

    inputs: _Inputs
    scale: float
    terms: ScoreTerms
    pattern: Float[Tensor, "row 1 query key"]

    def pattern_with(
        self, *, query: Tensor | None = None, key: Tensor | None = None
    ) -> Float[Tensor, "row 1 query key"]:
        """The head's pattern with other queries or keys."""
        query = self.inputs.query if query is None else query
        key = self.inputs.key if key is None else key
        return pattern(query, key, self.scale, self.terms)

    def change(
        self, via: Via, changed: _Inputs, where: Bool[Tensor, "row position"]
    ) -> Float[Tensor, "row position d_value"]:
        """Change of its z if one of its inputs is another one at some positions."""
        unchanged: Tensor = getattr(self.inputs, via)
        other: Tensor = getattr(changed, via)
        is_changed = where[:, None, :, None]
        mixed = torch.where(is_changed, other, unchanged)
        if via == "value":
            # z is linear in the values
            change = self.pattern @ (mixed - unchanged).float()
        else:
            attention = self.pattern_with(**{via: mixed})
            change = (attention - self.pattern) @ self.inputs.value.float()
        return change[:, 0]

    @torch.inference_mode()
    def estimates(
        self,
        changed: Iterable[_Inputs],
        where: Bool[Tensor, "role row position"],
        gradient: Float[Tensor, "row position d_value"],
    ) -> dict[Via, Float[Tensor, "row sender role"]]:
        """Gradient by z times the change of z, for the changed inputs of each sender."""
        # nats of a unit of attention of each query to each key, and of each entry of a value
        value = self.inputs.value[:, 0].float()
        of_cells = einsum(gradient, value, "row query width, row key width -> row query key")
        of_values = einsum(
            self.pattern[:, 0], gradient, "row query key, row query width -> row key width"
        )

        def effects(attention: Tensor) -> Float[Tensor, "row query"]:
            return ((attention - self.pattern)[:, 0] * of_cells).sum(-1)

        by_via: dict[Via, list[Tensor]] = {via: [] for via in VIAS}
        for inputs in changed:
            # no query has a part in what others read, and values add up: roles are sums
            at_query = effects(self.pattern_with(query=inputs.query))
            by_via["query"].append(_by_role(at_query, where))
            at_key = ((inputs.value[:, 0].float() - value) * of_values).sum(-1)
            by_via["value"].append(_by_role(at_key, where))
            # keys share the attention of each query
            of_roles = []
            for positions in where:
                key = torch.where(positions[:, None, :, None], inputs.key, self.inputs.key)
                of_roles.append(effects(self.pattern_with(key=key)).sum(-1))
            by_via["key"].append(torch.stack(of_roles, -1))
        return {via: torch.stack(of_senders, 1) for via, of_senders in by_via.items()}


class PathReader:
    """Direct paths into single heads, on the prompts of a task.

    What takes the place of a sender's output is what the runner's method puts there: the output on
    the corrupt prompt, its mean, or zero.

    Args:
        runner: the model on the task.

    Raises:
        ModelError: a block adds more than what its attention and one other module write.
    """

    def __init__(self, runner: TaskRunner) -> None:
        self.runner = runner
        self.rerunner = runner.rerunner
        model = self.rerunner.model
        try:
            modules = find_paths(self.rerunner.network, model.heads)
        except ModelError as error:
            raise ModelError(
                f"{model.name}: which parts feed its heads cannot be computed ({error})"
            ) from error
        self._post_norms = modules.post_norms
        self._later_runs: dict[tuple[PromptBatch, int], CleanRun] = {}

    def senders(self, receiver: Head) -> list[Sender]:
        """All parts that write into the stream that a head reads, from the first on."""
        layer, head = receiver
        self.rerunner.model.check_head(layer, head)
        senders = [EMBEDDING]
        for earlier in range(layer):
            senders += [Sender("head", earlier, n) for n in range(self.rerunner.model.heads)]
            senders.append(Sender("mlp", earlier))
        return senders

    def estimates(
        self, receiver: Head, *, at: Bool[ndarray, "role prompt place"] | None = None
    ) -> dict[Via, Float[ndarray, "prompt sender role"]]:
        """Linear estimates of what each path does to the metric of each prompt.

        The change of the receiver's output z is exact; the gradient of the metric by z stands for
        what follows. It underestimates receivers whose effect saturates.

        Args:
            receiver: a layer and a head.
            at: positions of each role, at which the receiver's query, key or value reads the
                changed stream; positions of a prompt begin at its first token. Default: one role
                of all positions.

        Returns:
            Of each input, the metric with the path changed minus the clean one, for each of
            `senders`.

        Raises:
            ModelError: the receiver's z is not its attention times its values.
        """
        senders = self.senders(receiver)
        roles = 1 if at is None else len(at)
        shape = self.runner.prompts.count, len(senders), roles
        effects = {via: np.zeros(shape) for via in VIAS}
        layer, head = receiver
        for clean, others in zip(self.runner.clean_batches, self._other_changes, strict=True):
            where = clean.batch.masks(at)
            changed = self._changed_inputs(receiver, senders, clean, others)
            gradient = self.runner.gradients(clean)[layer]
            of_head = gradient[:, :, head].float()
            of_batch = self._receiver(receiver, clean.run).estimates(changed, where, of_head)
            for via in VIAS:
                by_row = of_batch[via].double().cpu().numpy()
                np.add.at(effects[via], clean.batch.prompt_of_row, by_row)
        return effects

    @torch.inference_mode()
    def exact(
        self,
        receiver: Head,
        via: Via,
        senders: Sequence[Sender],
        *,
        at: Bool[ndarray, "prompt place"] | None = None,
    ) -> Float[ndarray, "prompt sender"]:
        """Effect of each path on the metric of each prompt, by a run with it changed.

        Args:
            receiver: a layer and a head.
            via: the input of the receiver that the path goes into.
            senders: one path is changed for each.
            at: positions at which this input reads the changed stream; None for all.

        Returns:
            The metric with the path changed minus the clean one.

        Raises:
            ModelError: as of `estimates`.
        """
        # the receiver's z in each batch with one path changed, for each sender
        layer, head = receiver
        z_of_batch: dict[PromptBatch, Float[Tensor, "sender row position d_value"]] = {}
        for clean, others in zip(self.runner.clean_batches, self._other_changes, strict=True):
            (where,) = clean.batch.masks(None if at is None else at[None])
            clean_z = clean.run.z[layer][:, :, head]
            reads = self._receiver(receiver, clean.run)
            z_of_senders = []
            for changed in self._changed_inputs(receiver, senders, clean, others):
                z_of_senders.append(clean_z + reads.change(via, changed, where).to(clean_z))
            z_of_batch[clean.batch] = torch.stack(z_of_senders)

        effects = np.zeros((self.runner.prompts.count, len(senders)))
        for number in range(len(senders)):

            def states(clean: CleanBatch, number: int = number) -> Tensor:
                z = z_of_batch[clean.batch][number]
                # positions before the first changed one are as in the clean run, and are not run
                # again
                is_changed = (z != clean.run.z[layer][:, :, head]).any(-1).any(0)
                positions = is_changed.nonzero()[:, 0].tolist()
                if not positions:
                    return clean.run.states
                later = self._later(clean, positions[0])
                # a run with the receiver set to this z shows what follows from the path alone
                z = z[:, later.rows.start :]
                return self.rerunner.states(later, RowHeadsSet(layer, [head] * len(z), z))

            effects[:, number] = self.runner.of_states(states) - self.runner.clean
        return effects

    def _later(self, clean: CleanBatch, first: int) -> CleanRun:
        """A clean run whose reruns begin at some position or before."""
        # a row that does not change may be scored before the others do
        first = min(first, int(clean.run.rows.position.min()) - 1)
        positions = clean.later.rows.tokens.shape[1]
        remaining = clean.run.rows.tokens.shape[1] - first
        # the keys and values of earlier positions cost a run, which many paths into the last
        # query share
        if remaining * WORTH_A_RUN > positions:
            return clean.later
        case = clean.batch, first
        if case not in self._later_runs:
            _, later = self.rerunner.clean_from(clean.run.rows, first)
            inputs = [stream[:, later.rows.start :] for stream in clean.run.inputs]
            self._later_runs[case] = replace(later, inputs=inputs, z={})
        return self._later_runs[case]

    @torch.inference_mode()
    def _receiver(self, receiver: Head, run: CleanRun) -> _Receiver:
        """The receiver in a clean run.

        Raises:
            ModelError: its z is not its attention times its values.
        """
        layer, head = receiver
        call = self._read(layer, run.inputs[layer], run.rows.tokens)
        inputs = _Inputs.of(call, head)
        # a bias and a sink of each head are those of the receiver
        terms = call.score_terms
        if terms.bias is not None and terms.bias.shape[1] > 1:
            terms = terms._replace(bias=terms.bias[:, head, None])
        if terms.sink is not None:
            terms = terms._replace(sink=terms.sink[head, None])
        attention = pattern(inputs.query, inputs.key, call.scale, terms)
        z = (attention @ inputs.value.float())[:, 0]
        clean_z = run.z[layer][:, :, head].float()
        # what stands between attention and W_O, such as a gate, would be passed over
        apart = float((z - clean_z).norm() / clean_z.norm().clamp_min(1e-30))
        if not apart <= TOLERANCE.get(run.z[layer].dtype, 8e-2):
            raise ModelError(
                f"{self.rerunner.model.name}: {head_name(layer, head)} writes something else than "
                "its attention times its values, so that the paths into it cannot be computed"
            )
        return _Receiver(inputs, call.scale, terms, attention)

    def _changed_inputs(
        self,
        receiver: Head,
        senders: Sequence[Sender],
        clean: CleanBatch,
        others: Mapping[Sender, Stream],
    ) -> Iterator[_Inputs]:
        """The receiver's inputs on the stream that each sender changes."""
        layer, head = receiver
        stream, tokens = clean.run.inputs[layer], clean.run.rows.tokens
        rows = len(tokens)
        # streams of many senders would not fit into memory together
        at_once = max(1, TOKENS_AT_ONCE // tokens.numel())
        for start in range(0, len(senders), at_once):
            part = senders[start : start + at_once]
            streams = []
            for sender in part:
                # change of the stream if the sender's output takes its replacement
                if sender.layer is None or sender.head is None:
                    change = others[sender]
                else:
                    change = self._head_change((sender.layer, sender.head), clean)
                streams.append(stream + change.to(stream))
            call = self._read(layer, torch.cat(streams), tokens.repeat(len(part), 1))
            inputs = _Inputs.of(call, head)
            for first in range(0, len(part) * rows, rows):
                yield inputs.rows(slice(first, first + rows))

    def _read(self, layer: int, stream: Stream, tokens: Tensor) -> AttentionCall:
        """The queries, keys and values of a layer that reads a stream."""
        calls: list[AttentionCall] = []

        def take(call: AttentionCall) -> Output:
            calls.append(call)
            raise StoppedError

        def read(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
            if arguments:
                return (stream, *arguments[1:]), keywords
            return arguments, {**keywords, "hidden_states": stream}

        # earlier blocks hand on the stream untouched, and the pass ends once the layer has its
        # queries, keys and values; the layer's own code makes these, because norms and rotary
        # positions differ between layouts
        block = self.rerunner.blocks[layer]
        with ExitStack() as within:
            within.enter_context(self.rerunner.handing_on(layer, stream))
            within.enter_context(block.register_forward_pre_hook(read, with_kwargs=True))
            within.enter_context(overridden(self.rerunner.network, take))
            within.enter_context(suppress(StoppedError))
            last_stream(self.rerunner.network, tokens)
        return calls[0]

    def _head_change(self, sender: Head, clean: CleanBatch) -> Stream:
        """Change of what a head writes if its z takes its replacement."""
        layer, head = sender
        z = clean.run.z[layer]
        change = clean.replacements[layer][..., head, :].to(z) - z[:, :, head]
        change[self._unchanged(clean.batch)] = 0
        width = z.shape[-1]
        matrix = output_matrix(self.rerunner.outputs[layer])
        written = change @ matrix[head * width : (head + 1) * width].to(z)
        norm = self._post_norms[layer]
        if norm is None:
            return written
        # a norm behind W_O is computed again, with the other heads as they are
        by_all = self.rerunner.outputs[layer](z.flatten(2))
        return _normed(norm.module, by_all + written) - _normed(norm.module, by_all)

    @cached_property
    @torch.inference_mode()
    def _other_changes(self) -> list[dict[Sender, Stream]]:
        """Change of what the embedding and the MLPs write in each batch, if replaced."""
        layers = len(self.rerunner.blocks) - 1
        senders = [EMBEDDING, *(Sender("mlp", layer) for layer in range(layers))]
        changes = self.runner.changes(self._writes)
        of_senders = []
        for clean, change in zip(self.runner.clean_batches, changes, strict=True):
            change[self._unchanged(clean.batch)] = 0
            of_senders.append(dict(zip(senders, change.unbind(2), strict=True)))
        return of_senders

    def _writes(self, run: CleanRun) -> Float[Tensor, "row position sender d_model"]:
        """Outputs of the embedding and the MLPs of all layers but the last."""
        writes = [run.inputs[0]]
        for layer, stream in enumerate(run.inputs[:-1]):
            by_attention = self.rerunner.outputs[layer](run.z[layer].flatten(2))
            norm = self._post_norms[layer]
            if norm is not None:
                by_attention = _normed(norm.module, by_attention)
            writes.append(run.inputs[layer + 1] - stream - by_attention)
        return torch.stack(writes, 2)

    def _unchanged(self, batch: PromptBatch) -> Bool[Tensor, "row position"]:
        """Mask of the tokens that the corrupt prompt cannot change, not even by rounding.

        They are those before the first that differs, in rows of the same length as their corrupt
        rows: other rows are aligned at their ends.
        """
        rows = batch.rows
        corrupt = batch.corrupt
        same = torch.zeros_like(rows.tokens, dtype=torch.bool)
        if self.runner.method == "resample" and corrupt is not None:
            width = min(rows.tokens.shape[1], corrupt.tokens.shape[1])
            is_equal = rows.tokens[:, :width] == corrupt.tokens[:, :width]
            has_same_length = rows.lengths == corrupt.lengths
            same[:, :width] = is_equal & has_same_length[:, None]
        return same.cumprod(1).bool()


def _normed(norm: nn.Module, values: Stream) -> Stream:
    """The output of a norm, some of which give more than one thing."""
    output: Any = norm(values)
    normed: Stream = output[0] if isinstance(output, tuple) else output
    return normed


def _by_role(
    effects: Float[Tensor, "row position"], where: Bool[Tensor, "role row position"]
) -> Float[Tensor, "row role"]:
    """Sums over the positions of each role."""
    weights = where.to(effects)
    return einsum(effects, weights, "row position, role row position -> row role")
