"""A model on a task: how well it does untouched, and with heads replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.causal.gradients import frozen_weights, smoothed
from headscope.causal.head_set import (
    Head,
    TokenSums,
    at_positions,
    heads_by_layer,
    mean_outputs,
    output_norms,
)
from headscope.causal.intervention import HeadOutputs, HeadsSet, OutputChange
from headscope.causal.loss import at_labels, log_probabilities
from headscope.causal.rerun import CleanRun, Rerunner
from headscope.causal.task_prompts import PromptBatch, TaskPrompts, aligned_at_end
from headscope.errors import ModelError

Metric = Literal["difference", "log-probability", "accuracy"]
Method = Literal["mean", "position", "zero", "resample"]
KEPT_BYTES = 2**30
"""Bytes of clean runs that are kept; with more prompts each batch is run again for each change."""
Replacements = Mapping[int, Float[Tensor, "..."]]
"""Values that heads are set to, by layer, in any shape that fits `row position head width`."""


@dataclass(frozen=True, eq=False)
class CleanBatch:
    """The untouched run of one batch, and what heads are replaced by in it."""

    batch: PromptBatch
    run: CleanRun
    later: CleanRun
    """The run from the first position that the corrupt prompts change; `run` without these."""
    replacements: Replacements

    def later_values(self, layer: int) -> HeadOutputs:
        """Replacements of a layer's heads at the positions of `later`."""
        values = self.replacements[layer]
        return values if values.shape[1] == 1 else values[:, self.later.rows.start :]


class TaskRunner:
    """A causal model on the prompts of a task.

    Args:
        rerunner: the model.
        prompts: of the task.
        metric: `difference`, log-probability of the answer minus that of the wrong one, in nats;
            `log-probability` of the answer, in nats; or `accuracy`, the share of prompts at which
            the answer is more likely than the wrong one, or without a wrong one at which each of
            its tokens is the most likely.
        method: replaces a head's output by its `mean` over all tokens of the prompts, by its mean
            at each `position` (from the end), by `zero`, or by its output on the corrupt prompt
            (`resample`), aligned at the end.

    Raises:
        ModelError: the model's own log-probabilities are not finite.
    """

    def __init__(
        self, rerunner: Rerunner, prompts: TaskPrompts, *, metric: Metric, method: Method
    ) -> None:
        self.rerunner = rerunner
        self.prompts = prompts
        self.metric = metric
        self.method = method
        self._batches = list(prompts.batches(rerunner.model.device))
        self._means: Replacements = {}
        if method in ("mean", "position"):
            # means are over all prompts, so that they are taken before any head is replaced
            rows = [batch.rows for batch in self._batches]
            self._means = mean_outputs(rerunner, rows, by_position=method == "position")
        self._floors: dict[int, CleanRun] = {}
        self._gradients: dict[tuple[int, bool], dict[int, Tensor]] = {}
        self._kept: list[CleanBatch] = []
        # of each layer the input, and the heads' outputs on the prompts and in their place
        network = rerunner.network
        tokens = sum(batch.rows.tokens.numel() for batch in self._batches)
        numbers = 2 * len(rerunner.blocks) + 4 * len(rerunner.outputs)
        width = network.get_input_embeddings().weight.shape[1]
        if tokens * int(width) * numbers * int(network.dtype.itemsize) <= KEPT_BYTES:
            self._kept = [self._clean_batch(batch) for batch in self._batches]
        self.clean = self.of_states(lambda clean: clean.run.states)
        """The metric of each prompt by the untouched model."""
        # half precision may overflow, and then every effect would be NaN
        if not np.isfinite(self.clean).all():
            raise ModelError(f"{rerunner.model.name}: its log-probabilities are not finite")

    @property
    def heads(self) -> list[Head]:
        """All heads of the model, layer by layer."""
        model = self.rerunner.model
        return [(layer, head) for layer in model.attention_layers for head in range(model.heads)]

    @property
    def clean_batches(self) -> Iterable[CleanBatch]:
        """The clean runs of all batches, run again if they are too large to be kept."""
        return self._kept or map(self._clean_batch, self._batches)

    def without(
        self, heads: Collection[Head], half: int | None = None
    ) -> Float[ndarray, " prompt"]:
        """The metric of each prompt with some heads replaced together.

        Args:
            heads: those that are replaced.
            half: of the prompts that run; NaN at the others.
        """
        by_layer = heads_by_layer(heads)

        def states(clean: CleanBatch) -> Tensor:
            if not by_layer:
                return clean.run.states
            values = {}
            for layer, members in by_layer.items():
                values[layer] = clean.later_values(layer)[..., members, :]
            return self.rerunner.states(clean.later, HeadsSet(by_layer, values))

        return self.of_states(states, half)

    def only(self, heads: Collection[Head], half: int | None = None) -> Float[ndarray, " prompt"]:
        """The metric of each prompt with all heads replaced but these.

        Below the first of these heads all such runs are the same, so that they begin there.
        """
        kept_heads = set(heads)
        # up to the first layer with a kept head, the run is the one with all heads replaced
        first = min((layer for layer, _ in kept_heads), default=0)
        replaced = heads_by_layer([h for h in self.heads if h not in kept_heads and h[0] >= first])

        def states(clean: CleanBatch) -> Tensor:
            values = {}
            for layer, members in replaced.items():
                values[layer] = clean.later_values(layer)[..., members, :]
            floor = self._floor(clean)
            return self.rerunner.states(floor, HeadsSet(replaced, values), first=first)

        return self.of_states(states, half)

    def _floor(self, clean: CleanBatch) -> CleanRun:
        """The run of a batch with all heads replaced."""
        cached = self._floors.get(id(clean))
        if cached is not None:
            return cached
        by_layer = heads_by_layer(self.heads)
        values = {layer: clean.later_values(layer) for layer in by_layer}
        floor = self.rerunner.changed(clean.later, HeadsSet(by_layer, values))
        if self._kept:
            self._floors[id(clean)] = floor
        return floor

    def of_states(
        self,
        states: Callable[[CleanBatch], Float[Tensor, "place d_model"]],
        half: int | None = None,
    ) -> Float[ndarray, " prompt"]:
        """The metric of all prompts of a half, or of both, by the last states of each batch."""
        # log-probabilities of both answers, and tokens of the answer that are not the most likely
        answer, wrong, misses = np.zeros((3, self.prompts.count))
        for clean in self.clean_batches:
            batch = clean.batch
            if half not in (None, batch.half):
                continue
            of_places = states(clean)
            with torch.inference_mode():
                logs = log_probabilities(self.rerunner.network, of_places)
                of_label = at_labels(logs, batch.label).double().cpu().numpy()
                is_top = (logs.argmax(-1) == batch.label).cpu().numpy()
            # an answer of several tokens has several places
            is_answer = batch.sign > 0
            prompts = batch.prompt[is_answer]
            np.add.at(answer, prompts, of_label[is_answer])
            np.add.at(misses, prompts, ~is_top[is_answer])
            np.add.at(wrong, batch.prompt[~is_answer], of_label[~is_answer])

        metric = answer - wrong
        if self.metric == "log-probability":
            metric = answer
        elif self.metric == "accuracy":
            is_right = answer > wrong if self.prompts.compares else misses == 0
            metric = is_right.astype(float)
        return metric if half is None else np.where(self.prompts.halves == half, metric, np.nan)

    def gradients(
        self, clean: CleanBatch, *, smooth: bool = False
    ) -> dict[int, Float[Tensor, "row position head width"]]:
        """Gradient of the sum of the metric over a batch's places by each head's z.

        For `accuracy` the gradient is that of the log-probabilities.

        Args:
            clean: the batch.
            smooth: hold the scales of norms, and halve what passes gates; see `smoothed`.
        """
        # heads, cuts and paths all multiply the same gradients
        cached = self._gradients.get((id(clean), smooth))
        if cached is not None:
            return cached
        network = self.rerunner.network
        z: dict[int, Tensor] = {}
        # every z is a leaf or a node of the graph, so that one backward pass gives the gradient by
        # each
        leaves = HeadsTaken(dict(clean.run.z), z)
        holding = smoothed(network) if smooth else nullcontext()
        with (
            frozen_weights(network),
            torch.enable_grad(),
            holding,
            leaves.applied(self.rerunner.model),
        ):
            states = self.rerunner.place_states(clean.batch.rows)
            # prompts of a batch do not see each other, so that the gradient of their sum is that of
            # each
            total = self.total(clean.batch, states)
            gradients = torch.autograd.grad(total, list(z.values()))
        heads = self.rerunner.model.heads
        by_layer = {}
        for layer, gradient in zip(z, gradients, strict=True):
            by_layer[layer] = gradient.view(*gradient.shape[:2], heads, -1).detach()
        if self._kept:
            self._gradients[id(clean), smooth] = by_layer
        return by_layer

    def attributions(self, *, smooth: bool = False) -> Float[ndarray, "prompt position head"]:
        """First-order estimate of the effect of replacing each head alone, at each position.

        Gradient of the metric by a head's output, times the change of this output (attribution
        patching, Nanda 2023); summed over positions it is the estimate for the head.

        Args:
            smooth: see `gradients`.
        """
        # prompts of other lengths are padded with 0, which no sum notices
        width = max(len(one.tokens) for one in self.prompts.continuations)
        effects = np.zeros((self.prompts.count, width, len(self.heads)))
        for clean in self.clean_batches:
            gradients = self.gradients(clean, smooth=smooth)
            parts = []
            for layer, gradient in gradients.items():
                change = clean.replacements[layer] - clean.run.z[layer]
                parts.append((gradient * change.to(gradient)).sum(-1))
            of_batch = torch.cat(parts, -1).double().cpu().numpy()
            length = of_batch.shape[1]
            np.add.at(effects[:, :length], clean.batch.prompt_of_row, of_batch)
        return effects

    def total(
        self, batch: PromptBatch, states: Float[Tensor, "place d_model"]
    ) -> Float[Tensor, ""]:
        """The sum of the metric over a batch's prompts, which can be differentiated."""
        # a difference subtracts what belongs to the wrong answer
        weights = batch.sign
        if self.metric == "log-probability":
            weights = (batch.sign > 0).astype(np.int64)
        logs = log_probabilities(self.rerunner.network, states)
        of_label = at_labels(logs, batch.label)
        total: Tensor = (of_label * torch.from_numpy(weights).to(of_label)).sum()
        return total

    def changes(
        self, read: Callable[[CleanRun], Float[Tensor, "row position ..."]]
    ) -> list[Float[Tensor, "row position ..."]]:
        """Change of some activation if it is replaced by the runner's method, for each batch."""
        batches = [clean.batch for clean in self.clean_batches]
        values = [read(clean.run) for clean in self.clean_batches]
        means = None
        # a mean is that of all prompts, so that all batches are read before one is changed
        if self.method in ("mean", "position"):
            sums = TokenSums(by_position=self.method == "position")
            for batch, value in zip(batches, values, strict=True):
                sums.add(batch.rows, value)
            means = sums.means()
        changes = []
        for batch, value in zip(batches, values, strict=True):
            corrupt = self._corrupt_run(batch)
            other = None if corrupt is None else read(corrupt)
            changes.append(self._in_place_of(value, batch, means, other).to(value) - value)
        return changes

    def output_norms(self) -> dict[Head, float]:
        """Mean norm of each head's output z W_O over the prompts' tokens, without the first."""
        return output_norms(self.rerunner, (clean.run for clean in self.clean_batches))

    @torch.inference_mode()
    def above_chance(self) -> Float[ndarray, " prompt"]:
        """Lead of the untouched model over one that does not know the answers, by prompt.

        A difference is compared with 0, the accuracy of two answers with one half, that of one
        answer with 0. A log-probability is that of the answer's first token minus the mean over
        the first tokens of other answers; if all prompts have the same answer, minus that of a
        uniform guess.
        """
        if self.metric == "difference":
            return self.clean
        if self.metric == "accuracy":
            return self.clean - (0.5 if self.prompts.compares else 0.0)

        first_token = {
            one.prompt: one.labels[0] for one in self.prompts.continuations if one.sign > 0
        }
        tokens = sorted(set(first_token.values()))
        uniform = -np.log(self.rerunner.model.vocabulary_size)
        above = np.zeros(self.prompts.count)
        for clean in self.clean_batches:
            # the first place of each prompt's answer
            answers = np.flatnonzero(clean.batch.sign > 0)
            prompts, first = np.unique(clean.batch.prompt[answers], return_index=True)
            states = clean.run.states[torch.from_numpy(answers[first]).to(clean.run.states.device)]
            logs = log_probabilities(self.rerunner.network, states)
            of_prompts = logs[:, tokens].double().cpu().numpy()
            for prompt, row in zip(prompts, of_prompts, strict=True):
                is_right = np.array(tokens) == first_token[prompt]
                others = row[~is_right]
                # a model that knows what answers look like, and not which is right, prefers none
                expected = others.mean() if len(others) else uniform
                above[prompt] = row[is_right].item() - expected
        return above

    def _clean_batch(self, batch: PromptBatch) -> CleanBatch:
        start = batch.start if self.method == "resample" else 0
        run, later = self.rerunner.clean_from(batch.rows, start)
        corrupt = self._corrupt_run(batch)
        replacements = {}
        for layer, z in run.z.items():
            other = None if corrupt is None else corrupt.z[layer]
            replacements[layer] = self._in_place_of(z, batch, self._means.get(layer), other)
        return CleanBatch(batch, run, later, replacements)

    def _corrupt_run(self, batch: PromptBatch) -> CleanRun | None:
        """The run of a batch's corrupt prompts; None if the method takes nothing from them."""
        if self.method != "resample":
            return None
        assert batch.corrupt is not None, "resample needs a corrupt prompt in each row"
        return self.rerunner.clean(batch.corrupt)

    def _in_place_of(
        self,
        value: Float[Tensor, "row position ..."],
        batch: PromptBatch,
        means: Float[Tensor, "offset ..."] | None,
        other: Float[Tensor, "corrupt_row corrupt_position ..."] | None,
    ) -> Float[Tensor, ...]:
        """The replacement of an activation, in a shape that fits it.

        Args:
            value: the activation on a batch.
            batch: its prompts.
            means: the activation's means over all batches, for the methods that take them.
            other: the activation on the corrupt prompts, which is moved to the positions of the
                prompts, for the method that takes it.
        """
        if means is not None:
            return at_positions(means, batch.rows)
        if other is None or batch.corrupt is None:
            return torch.zeros_like(value[:1, :1])
        return aligned_at_end(other, batch.corrupt.lengths, value, batch.rows.lengths)


@dataclass(frozen=True, eq=False)
class HeadsTaken(OutputChange):
    """Every head's z as it is, as a leaf or a node of which a gradient can be taken."""

    of_layers: Mapping[int, HeadOutputs]
    z: dict[int, Tensor]
    """Filled with each layer's z while the model runs."""

    @property
    def layers(self) -> frozenset[int]:
        """All layers with heads."""
        return frozenset(self.of_layers)

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The z itself."""
        if not z.requires_grad:
            z = z.detach().requires_grad_()
        self.z[layer] = z
        return z
