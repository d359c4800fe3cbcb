"""A model on a task: how well it does untouched, and with heads replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float, Int
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
from headscope.causal.loss import logits_of
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
                logs = self._log_probabilities(of_places)
                of_label = _at_labels(logs, batch.label).double().cpu().numpy()
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
        cached = self._gradients.get((id(clean), smooth))
        if cached is not None:
            return cached
        network = self.rerunner.network
        z: dict[int, Tensor] = {}
        leaves = HeadsTaken(dict(clean.run.z), z)
        holding = smoothed(network) if smooth else nullcontext()
        with (
            frozen_weights(network),
            torch.enable_grad(),
            holding,
            leaves.applied(self.rerunner.model),
        ):
            states = self.rerunner.place_states(clean.batch.rows)
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
        weights = batch.sign
        if self.metric == "log-probability":
            weights = (batch.sign > 0).astype(np.int64)
        of_label = _at_labels(self._log_probabilities(states), batch.label)
        total: Tensor = (of_label * torch.from_numpy(weights).to(of_label)).sum()
        return total

    def replaced(
        self, read: Callable[[CleanRun], Float[Tensor, "row position ..."]]
    ) -> list[Float[Tensor, "row position ..."]]:
        """What takes the place of some activation under the runner's method, for each batch."""
        rows = [clean.batch.rows for clean in self.clean_batches]
        values = [read(clean.run) for clean in self.clean_batches]
        if self.method == "zero":
            return [torch.zeros_like(value) for value in values]
        if self.method == "resample":
            aligned = []
            for clean, value in zip(self.clean_batches, values, strict=True):
                corrupt = clean.batch.corrupt
                assert corrupt is not None, "resample needs a corrupt prompt in each row"
                other = read(self.rerunner.clean(corrupt))
                lengths = clean.batch.rows.lengths
                aligned.append(aligned_at_end(other, corrupt.lengths, value, lengths))
            return aligned
        sums = TokenSums(by_position=self.method == "position")
        for row, value in zip(rows, values, strict=True):
            sums.add(row, value)
        means = []
        for row, value in zip(rows, values, strict=True):
            means.append(at_positions(sums.means(), row).expand_as(value))
        return means

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
            logs = self._log_probabilities(states)[:, tokens]
            of_prompts = logs.double().cpu().numpy()
            for prompt, row in zip(prompts, of_prompts, strict=True):
                is_right = np.array(tokens) == first_token[prompt]
                others = row[~is_right]
                expected = others.mean() if len(others) else uniform
                above[prompt] = row[is_right].item() - expected
        return above

    def _clean_batch(self, batch: PromptBatch) -> CleanBatch:
        start = batch.start if self.method == "resample" else 0
        run, later = self.rerunner.clean_from(batch.rows, start)
        if self.method in ("mean", "position"):
            replacements = {
                layer: at_positions(means, batch.rows) for layer, means in self._means.items()
            }
        elif self.method == "zero":
            replacements = {layer: z[:1, :1] * 0 for layer, z in run.z.items()}
        else:
            # outputs on the corrupt prompts, at the positions of the clean ones
            assert batch.corrupt is not None, "resample needs a corrupt prompt in each row"
            others, lengths = self.rerunner.clean(batch.corrupt).z, batch.corrupt.lengths
            replacements = {
                layer: aligned_at_end(others[layer], lengths, z, batch.rows.lengths)
                for layer, z in run.z.items()
            }
        return CleanBatch(batch, run, later, replacements)

    def _log_probabilities(
        self, states: Float[Tensor, "place d_model"]
    ) -> Float[Tensor, "place vocabulary"]:
        return logits_of(self.rerunner.network, states).float().log_softmax(-1)


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


def _at_labels(
    logs: Float[Tensor, "place vocabulary"], label: Int[Tensor, " place"]
) -> Float[Tensor, " place"]:
    """The log-probability of each place's label."""
    return logs.gather(-1, label[:, None])[:, 0]
