"""Edges of heads on a task's prompts, from role to role: attention, effect, and what is written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
import torch
from einops import einsum
from jaxtyping import Bool, Float
from numpy import ndarray
from torch import Tensor

from headscope.causal.direct_paths import DirectPaths
from headscope.causal.head_set import Head
from headscope.causal.intervention import AttentionRead, HeadsSet
from headscope.causal.roles import PromptRoles
from headscope.causal.task_prompts import PromptBatch
from headscope.causal.task_runner import CleanBatch, TaskRunner
from headscope.models.engines.attention import AttentionCall
from headscope.models.engines.engine import StoppedError
from headscope.models.layout.projections import output_matrix

NEAR = 2
"""Largest difference of distance of the control tokens beside a key."""
LISTED = 5
"""Tokens that are listed as raised and as lowered most."""


@dataclass(frozen=True, eq=False)
class _Reading:
    """A head's attention in one batch."""

    pattern: Float[Tensor, "row query key"]
    value: Float[Tensor, "row key width"]
    has_sink: bool
    """True if attention can go to a learned sink, which has no value."""

    def moved(self) -> Float[Tensor, "row query key width"]:
        """Change of z at each query if the attention on a key moves to the first token."""
        value = self.value[:, None]
        first = torch.zeros_like(value[:, :, :1]) if self.has_sink else value[:, :, :1]
        return self.pattern[..., None] * (first - value)


class TaskAttention:
    """Some heads' attention among the roles of a task's prompts.

    Args:
        runner: the model on the task.
        roles: of its prompts' positions.
        heads: those that are read.
    """

    def __init__(self, runner: TaskRunner, roles: PromptRoles, heads: Sequence[Head]) -> None:
        self.runner = runner
        self.roles = roles
        width = max(len(one.tokens) for one in runner.prompts.continuations)
        self.masks: Bool[ndarray, "role prompt position"] = roles.masks(width)
        # attention is read once for all heads; masses, cuts and patterns are computed from it
        self._read: dict[PromptBatch, dict[Head, _Reading]] = {}
        self.row_of: dict[int, tuple[PromptBatch, int]] = {}
        """Batch and row of each prompt; of several rows the first."""
        for clean in runner.clean_batches:
            read = self._read.setdefault(clean.batch, {})

            def store(call: AttentionCall, read: dict[Head, _Reading] = read) -> None:
                pattern = call.pattern().float()
                # grouped query heads share values
                per_value = call.query.shape[1] // call.value.shape[1]
                for layer, head in heads:
                    if layer == call.layer:
                        read[layer, head] = _Reading(
                            pattern=pattern[:, head].clone(),
                            value=call.value[:, head // per_value].float().clone(),
                            has_sink=call.score_terms.sink is not None,
                        )

            reader = AttentionRead({layer for layer, _ in heads}, store)
            runner.rerunner.states(clean.run, reader)
            # a prompt has a row for each of its answers if these have several tokens; all have the
            # same attention on the prompt
            for row, prompt in enumerate(clean.batch.prompt_of_row.tolist()):
                self.row_of.setdefault(prompt, (clean.batch, row))

    def pattern(self, head: Head, prompt: int) -> Float[ndarray, "query key"]:
        """A head's pattern on a prompt."""
        batch, row = self.row_of[prompt]
        length = len(self.roles.of_prompt[prompt])
        return self._read[batch][head].pattern[row, :length, :length].cpu().numpy()

    def masses(self, head: Head) -> Float[ndarray, "prompt from_role to_role"]:
        """Mean attention of the queries of a role to all keys of a role; NaN if one is absent."""
        masses = []
        for prompt in range(self.runner.prompts.count):
            pattern = self.pattern(head, prompt)
            of_role = self.masks[:, prompt, : len(pattern)].astype(float)
            counts = of_role.sum(1)
            with np.errstate(invalid="ignore", divide="ignore"):
                mass = of_role @ pattern @ of_role.T / counts[:, None]
            mass[:, counts == 0] = np.nan
            masses.append(mass)
        return np.stack(masses)

    def control(self, head: Head, from_role: int, to_role: int) -> Float[ndarray, " prompt"]:
        """The same for as many other keys, at most `NEAR` tokens nearer or farther.

        Neither the first token nor the query itself is a control; NaN if no query of a prompt has
        as many other keys.
        """
        means = np.full(self.runner.prompts.count, np.nan)
        for prompt in range(self.runner.prompts.count):
            pattern = self.pattern(head, prompt)
            queries = np.flatnonzero(self.masks[from_role, prompt])
            keys = np.flatnonzero(self.masks[to_role, prompt])
            of_queries = []
            for query in queries.tolist():
                # a causal query sees no later key
                visible = keys[keys <= query]
                # attention falls with distance, so that a control is at the distance of some key of
                # the role
                others = np.arange(1, query)
                others = others[~np.isin(others, keys)]
                apart = np.abs(others[:, None] - visible[None])
                others = others[(apart <= NEAR).any(1)]
                # each key counts once, so that the control is a share of attention too
                if len(others) and len(others) >= len(visible) > 0:
                    of_keys = pattern[query, others].sum()
                    of_queries.append(of_keys * len(visible) / len(others))
            if of_queries:
                means[prompt] = np.mean(of_queries)
        return means

    def cut_estimates(self, head: Head) -> Float[ndarray, "prompt from_role to_role"]:
        """First-order estimate of the effect of each cut, by smoothed gradients; see `cut`."""
        layer, number = head
        roles = len(self.roles.names)
        effects = np.zeros((self.runner.prompts.count, roles, roles))
        for clean in self.runner.clean_batches:
            gradient = self.runner.gradients(clean, smooth=True)[layer][:, :, number].float()
            moved = self._read[clean.batch][head].moved()
            of_cells = einsum(gradient, moved, "row q width, row q k width -> row q k")
            masks = clean.batch.masks(self.masks).float()
            of_roles = einsum(masks, of_cells, masks, "f row q, row q k, t row k -> row f t")
            np.add.at(effects, clean.batch.prompt_of_row, of_roles.double().cpu().numpy())
        return effects

    def cut(self, head: Head, from_role: int, to_role: int) -> Float[ndarray, " prompt"]:
        """Change of the metric if the attention of a role's queries to a role's keys is moved.

        It moves to the first token, or to a learned sink; the head's attention is that of the
        untouched model otherwise.
        """
        layer, number = head

        def states(clean: CleanBatch) -> Tensor:
            masks = clean.batch.masks(self.masks).float()
            moved = self._read[clean.batch][head].moved()
            change = einsum(
                masks[from_role],
                masks[to_role],
                moved,
                "row q, row k, row q k width -> row q width",
            )
            # the pattern is that of the untouched model, so that the change of z is known before
            # the run
            z = clean.run.z[layer][:, :, [number]]
            z = z + change[:, :, None].to(z)
            # positions that are kept cannot be changed
            run = clean.later
            if bool(masks[from_role][:, : run.rows.start].any()):
                run = clean.run
            changed = HeadsSet({layer: [number]}, {layer: z[:, run.rows.start :]})
            return self.runner.rerunner.states(run, changed)

        effect: ndarray = self.runner.of_states(states) - self.runner.clean
        return effect


@dataclass(frozen=True, eq=False)
class Writing:
    """A head's output at the last token of each prompt, through the final norm as it is there.

    Logits minus their mean over the vocabulary; differences are nats.
    """

    answer: Float[ndarray, " prompt"]
    wrong: Float[ndarray, " prompt"]
    """NaN without a wrong answer."""
    raises: list[tuple[str, float]]
    """Tokens with the largest mean over prompts."""
    lowers: list[tuple[str, float]]
    copies: float | None
    """Share of prompts in which, of the prompt's tokens, it raises the one most that it attends to
    most; None if it attends to the first token most everywhere."""


@torch.inference_mode()
def measure_writing(
    paths: DirectPaths, attention: TaskAttention, heads: Sequence[Head]
) -> Mapping[Head, Writing]:
    """Direct effects at the last token; of answers of several tokens the first counts."""
    runner = attention.runner
    prompts = runner.prompts
    ends = np.array([len(names) - 1 for names in attention.roles.of_prompt])
    layers = {layer for layer, _ in heads}
    z_of: dict[tuple[int, int], Tensor] = {}
    scale_of = np.zeros(prompts.count)

    # outputs and the last norm's scale at the last token of each prompt
    for clean in runner.clean_batches:
        width = clean.batch.rows.tokens.shape[1]
        of_batch = []
        flat = []
        for prompt in range(prompts.count):
            batch, row = attention.row_of[prompt]
            if batch is clean.batch:
                of_batch.append(prompt)
                flat.append(row * width + int(ends[prompt]))
        places = torch.tensor(flat)

        def take(layer: int, z: Tensor, scale: Tensor, of_batch: list[int] = of_batch) -> None:
            if layer in layers:
                for number, prompt in enumerate(of_batch):
                    z_of[layer, prompt] = z[number] * scale[number]

        with paths.watching(places, take) as end, suppress(StoppedError):
            runner.rerunner.network.base_model(clean.batch.rows.tokens, use_cache=False)
        assert end.scale is not None
        scale_of[of_batch] = end.scale.double().cpu().numpy()

    # the first token of each answer, and what all heads' writing is multiplied by
    labels = {1: np.full(prompts.count, -1), -1: np.full(prompts.count, -1)}
    for one in prompts.continuations:
        labels[one.sign][one.prompt] = one.labels[0]
    rows_of = {one.prompt: torch.tensor(one.tokens) for one in prompts.continuations}
    weight = paths.unembedding.weight
    mean_row = weight.float().mean(0)
    writings = {}
    for layer, number in heads:
        # what the head adds to the stream, as the last norm scales it
        z = torch.stack([z_of[layer, prompt][number] for prompt in range(prompts.count)])
        matrix = output_matrix(paths.outputs[layer]).float()
        width = z.shape[-1]
        written = z.float() @ matrix[number * width : (number + 1) * width]
        post_norm = paths.post_norms[layer]
        if post_norm is not None:
            written = post_norm.linear(written)
        scale = torch.from_numpy(scale_of).to(written)[:, None] * paths.logit_scale
        written = paths.final_norm.linear(written) * scale
        centre = written @ mean_row

        # on the logit of each token, minus the mean over the vocabulary
        of_label = {}
        for sign, of_prompts in labels.items():
            values = np.full(prompts.count, np.nan)
            for prompt in np.flatnonzero(of_prompts >= 0).tolist():
                token = torch.tensor([int(of_prompts[prompt])])
                logit = weight[token].float() @ written[prompt] - centre[prompt]
                values[prompt] = float(logit[0])
            of_label[sign] = values

        # it copies if it raises the attended token more than any other of the prompt
        copied = []
        for prompt in range(prompts.count):
            pattern = attention.pattern((layer, number), prompt)[ends[prompt]]
            if pattern.argmax() == 0:
                continue
            tokens = rows_of[prompt][1 : len(pattern)]
            attended = tokens[int(pattern[1:].argmax())]
            distinct = torch.unique(tokens)
            logits = weight[distinct].float() @ written[prompt] - centre[prompt]
            copied.append(bool(distinct[logits.argmax()] == attended))

        mean = weight.float() @ written.mean(0) - centre.mean()
        spell = runner.rerunner.model.tokenizer.spell
        largest = mean.topk(LISTED)
        least = (-mean).topk(LISTED)
        writings[layer, number] = Writing(
            answer=of_label[1],
            wrong=of_label[-1],
            raises=list(zip(spell(largest.indices.tolist()), largest.values.tolist(), strict=True)),
            lowers=list(zip(spell(least.indices.tolist()), (-least.values).tolist(), strict=True)),
            copies=float(np.mean(copied)) if copied else None,
        )
    return writings
