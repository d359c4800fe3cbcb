"""A model on a task: how well it does untouched, and with heads replaced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.gradients import frozen_weights
from headscope.causal.head_set import Head, heads_by_layer, mean_outputs, output_norms
from headscope.causal.intervention import HeadOutputs, HeadsSet, OutputChange
from headscope.causal.loss import logits_of
from headscope.causal.rerun import CleanRun, Rerunner
from headscope.causal.task_prompts import PromptBatch, TaskPrompts, aligned_at_end
from headscope.errors import ModelError

Metric = Literal["difference", "log-probability", "accuracy"]
Method = Literal["mean", "zero", "resample"]
KEPT_BYTES = 2**30
"""Bytes of clean runs that are kept; with more prompts each batch is run again for each change."""
Replacements = Mapping[int, Float[Tensor, "..."]]
"""Values that heads are set to, by layer, in any shape that fits `row position head width`."""


@dataclass(frozen=True, eq=False)
class _Scores:
    """Predictions of a model at each place."""

    log_probability: Float[ndarray, " place"]
    """Log-probability of the label, in nats."""
    is_top: Bool[ndarray, " place"]
    """True if the label is the most likely token."""


@dataclass(frozen=True, eq=False)
class _PromptSums:
    """Sums over the tokens of each prompt's answers."""

    answer: Float[ndarray, " prompt"]
    """Log-probability of the answer, in nats."""
    wrong: Float[ndarray, " prompt"]
    """Log-probability of the wrong answer, in nats."""
    misses: Float[ndarray, " prompt"]
    """Tokens of the answer that are not the most likely."""

    @classmethod
    def zeros(cls, count: int) -> _PromptSums:
        """Sums over no token."""
        return cls(np.zeros(count), np.zeros(count), np.zeros(count))

    def add(self, batch: PromptBatch, scores: _Scores) -> None:
        """Add the places of a batch."""
        is_answer = batch.sign > 0
        prompts = batch.prompt[is_answer]
        np.add.at(self.answer, prompts, scores.log_probability[is_answer])
        np.add.at(self.misses, prompts, ~scores.is_top[is_answer])
        is_wrong = ~is_answer
        np.add.at(self.wrong, batch.prompt[is_wrong], scores.log_probability[is_wrong])


@dataclass(frozen=True, eq=False)
class _CleanBatch:
    """The untouched run of one batch, and what heads are replaced by in it."""

    batch: PromptBatch
    run: CleanRun
    replacements: Replacements


class TaskRunner:
    """A causal model on the prompts of a task.

    Args:
        rerunner: the model.
        prompts: of the task.
        metric: `difference`, log-probability of the answer minus that of the wrong one, in nats;
            `log-probability` of the answer, in nats; or `accuracy`, the share of prompts at which
            the answer is more likely than the wrong one, or without a wrong one at which each of
            its tokens is the most likely.
        method: replaces a head's output by its `mean` over all tokens of the prompts, by `zero`,
            or by its output on the corrupt prompt (`resample`), aligned at the end.

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
        if method == "mean":
            self._means = mean_outputs(rerunner, [batch.rows for batch in self._batches])
        self._kept: list[_CleanBatch] = []
        if self._clean_bytes() <= KEPT_BYTES:
            self._kept = [self._clean_batch(batch) for batch in self._batches]
        self.clean = self._joined(lambda clean: None)
        """The metric of each prompt by the untouched model."""
        if not np.isfinite(self.clean).all():
            raise ModelError(f"{rerunner.model.name}: its log-probabilities are not finite")

    @property
    def heads(self) -> list[Head]:
        """All heads of the model, layer by layer."""
        model = self.rerunner.model
        return [(layer, head) for layer in model.attention_layers for head in range(model.heads)]

    def without(self, heads: Collection[Head]) -> Float[ndarray, " prompt"]:
        """The metric of each prompt with some heads replaced together."""
        by_layer = heads_by_layer(heads)

        def change(clean: _CleanBatch) -> HeadsSet:
            values = {
                layer: clean.replacements[layer][..., members, :]
                for layer, members in by_layer.items()
            }
            return HeadsSet(by_layer, values)

        return self._joined(change)

    def only(self, heads: Collection[Head]) -> Float[ndarray, " prompt"]:
        """The metric of each prompt with all heads replaced but these."""
        return self.without([head for head in self.heads if head not in set(heads)])

    def attributions(self) -> Float[ndarray, "prompt head"]:
        """First-order estimate of the effect of replacing each head alone.

        Gradient of the metric by a head's output, times the change of this output, summed over
        positions (attribution patching, Nanda 2023). For `accuracy` the gradient is that of the
        log-probabilities.
        """
        effects = np.zeros((self.prompts.count, len(self.heads)))
        for clean in self._clean:
            gradient = self._mixing_gradient(clean)
            np.add.at(effects, clean.batch.prompt_of_row, -gradient)
        return effects

    def output_norms(self) -> dict[Head, float]:
        """Mean norm of each head's output z W_O over the prompts' tokens, without the first."""
        return output_norms(self.rerunner, (clean.run for clean in self._clean))

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
        return self._above_other_answers()

    @torch.inference_mode()
    def _above_other_answers(self) -> Float[ndarray, " prompt"]:
        """Log-probability of each answer's first token minus the mean of the other answers'."""
        first_token = {
            one.prompt: one.labels[0] for one in self.prompts.continuations if one.sign > 0
        }
        tokens = sorted(set(first_token.values()))
        uniform = -np.log(self.rerunner.model.vocabulary_size)
        above = np.zeros(self.prompts.count)
        for clean in self._clean:
            is_first = _is_first_of_answer(clean.batch)
            states = clean.run.states
            states = states[torch.from_numpy(is_first).to(states.device)]
            logs = self._log_probabilities(states)[:, tokens]
            of_prompts = logs.double().cpu().numpy()
            for prompt, row in zip(clean.batch.prompt[is_first], of_prompts, strict=True):
                is_right = np.array(tokens) == first_token[prompt]
                others = row[~is_right]
                expected = others.mean() if len(others) else uniform
                above[prompt] = row[is_right].item() - expected
        return above

    @property
    def _clean(self) -> Iterable[_CleanBatch]:
        """The clean runs of all batches, run again if they are too large to be kept."""
        return self._kept or map(self._clean_batch, self._batches)

    def _clean_bytes(self) -> int:
        """Bytes of the clean runs: the input and the heads' outputs of each layer."""
        network = self.rerunner.network
        tokens = sum(batch.rows.tokens.numel() for batch in self._batches)
        width = network.get_input_embeddings().weight.shape[1]
        layers = len(self.rerunner.blocks) + 2 * len(self.rerunner.outputs)
        return tokens * int(width) * layers * int(network.dtype.itemsize)

    def _clean_batch(self, batch: PromptBatch) -> _CleanBatch:
        run = self.rerunner.clean(batch.rows)
        if self.method == "mean":
            replacements = self._means
        elif self.method == "zero":
            replacements = {layer: z[:1, :1] * 0 for layer, z in run.z.items()}
        else:
            replacements = self._corrupt_outputs(batch, run)
        return _CleanBatch(batch, run, replacements)

    def _corrupt_outputs(self, batch: PromptBatch, run: CleanRun) -> dict[int, HeadOutputs]:
        """Each head's z on the corrupt prompts, at the positions of the clean ones."""
        assert batch.corrupt is not None, "resample needs a corrupt prompt in each row"
        corrupt = self.rerunner.clean(batch.corrupt)
        outputs = {}
        for layer, z in run.z.items():
            outputs[layer] = aligned_at_end(
                corrupt.z[layer], batch.corrupt.lengths, z, batch.rows.lengths
            )
        return outputs

    def _joined(
        self, change: Callable[[_CleanBatch], OutputChange | None]
    ) -> Float[ndarray, " prompt"]:
        """The metric of all prompts, with a change of each batch."""
        sums = _PromptSums.zeros(self.prompts.count)
        for clean in self._clean:
            intervention = change(clean)
            states = clean.run.states
            if intervention is not None:
                states = self.rerunner.states(clean.run, intervention)
            sums.add(clean.batch, self._scores(states, clean.batch.label))
        return self._metric_of(sums)

    def _metric_of(self, sums: _PromptSums) -> Float[ndarray, " prompt"]:
        if self.metric == "log-probability":
            return sums.answer
        lead: ndarray = sums.answer - sums.wrong
        if self.metric == "difference":
            return lead
        is_right = sums.answer > sums.wrong if self.prompts.compares else sums.misses == 0
        return is_right.astype(float)

    @torch.inference_mode()
    def _scores(
        self, states: Float[Tensor, "place d_model"], label: Int[Tensor, " place"]
    ) -> _Scores:
        logs = self._log_probabilities(states)
        of_label = _at_labels(logs, label)
        is_top = logs.argmax(-1) == label
        return _Scores(of_label.double().cpu().numpy(), is_top.cpu().numpy())

    def _log_probabilities(
        self, states: Float[Tensor, "place d_model"]
    ) -> Float[Tensor, "place vocabulary"]:
        return logits_of(self.rerunner.network, states).float().log_softmax(-1)

    def _mixing_gradient(self, clean: _CleanBatch) -> Float[ndarray, "row head"]:
        """Derivative of the metric of each row by the share of each head's own output, at 1."""
        model = self.rerunner.model
        batch = clean.batch
        size = len(model.attention_layers), len(batch.rows.tokens), model.heads
        weights = torch.from_numpy(self._weights(batch))
        with frozen_weights(self.rerunner.network), torch.enable_grad():
            shares = torch.ones(size, device=model.device, requires_grad=True)
            by_layer = dict(zip(model.attention_layers, shares, strict=True))
            mixed = HeadsMixed(by_layer, clean.replacements)
            with mixed.applied(model):
                states = self.rerunner.place_states(batch.rows)
            logs = self._log_probabilities(states)
            of_label = _at_labels(logs, batch.label)
            total = (of_label * weights.to(of_label)).sum()
            (gradient,) = torch.autograd.grad(total, shares)
        by_row = gradient.transpose(0, 1).flatten(1)
        return by_row.double().cpu().numpy()

    def _weights(self, batch: PromptBatch) -> Int[ndarray, " place"]:
        """Factors of the log-probabilities of the places in the metric that is differentiated."""
        if self.metric == "log-probability":
            return (batch.sign > 0).astype(np.int64)
        return batch.sign


@dataclass(frozen=True, eq=False)
class HeadsMixed(OutputChange):
    """Each head's z mixed with another value: share 1 is its own z, share 0 the other value."""

    shares: Mapping[int, Float[Tensor, "row head"]]
    """Shares by layer."""
    values: Replacements

    @property
    def layers(self) -> frozenset[int]:
        """The layers with shares."""
        return frozenset(self.shares)

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The mixture at every position."""
        share = self.shares[layer][:, None, :, None].to(z)
        value = self.values[layer].to(z)
        return share * z + (1 - share) * value


def _at_labels(
    logs: Float[Tensor, "place vocabulary"], label: Int[Tensor, " place"]
) -> Float[Tensor, " place"]:
    """The log-probability of each place's label."""
    return logs.gather(-1, label[:, None])[:, 0]


def _is_first_of_answer(batch: PromptBatch) -> Bool[ndarray, " place"]:
    """Mask of the first place of each prompt's answer."""
    answers = np.flatnonzero(batch.sign > 0)
    _, first = np.unique(batch.prompt[answers], return_index=True)
    is_first = np.zeros(len(batch.prompt), bool)
    is_first[answers[first]] = True
    return is_first
