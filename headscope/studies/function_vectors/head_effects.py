"""Causal indirect effects of single heads on few-shot tasks (Todd et al. 2024, section 2.3).

At the last token of a prompt that does not tell the task, one head's output is set to its mean
over prompts that do. The effect is what that adds to the log-probability of the right answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.measure.bootstrap import interval, resample
from headscope.models.last_token import LastToken, LastTokenRunner
from headscope.studies.function_vectors.few_shot import (
    CLEAN,
    SHUFFLED,
    ZERO_SHOT,
    FewShot,
    PromptSize,
    Task,
    few_shot_prompts,
)

MEANS, EFFECTS, ABLATION = range(3)
"""What each part of a task's words is for."""
UNINFORMED = (SHUFFLED, ZERO_SHOT)
"""Prompts in which heads' outputs are set."""
SAME_TASK, OTHER_TASK = "shuffled mean", "other tasks' mean"
VALUES = (CLEAN, SAME_TASK, OTHER_TASK)
"""What a head's output is set to: its mean over clean prompts, over prompts of the same task with
shuffled answers, and over clean prompts of another task, of each prompt another one."""
MIN_ACCURACY = 0.3
"""Share of clean prompts that the model must answer rightly, of all tokens of its vocabulary."""
MIN_PROMPTS = 6
SCORED = "scored"
Means = Mapping[int, Float[Tensor, "head width"]]


@dataclass(frozen=True, eq=False)
class TaskReading:
    """A model's answers to a task's prompts, and its heads' mean outputs at their last tokens."""

    task: Task
    accuracy: Mapping[str, float]
    """By the kind of prompts, the share of right answers, of all tokens of the vocabulary."""
    log_probability: Mapping[str, float]
    """Likewise the mean log-probability of the right answer's first token."""
    verdict: str
    """`SCORED`, or why the task is not."""
    clean_mean: Means
    shuffled_mean: Means
    on_answers: Float[ndarray, "layer head"]
    """In clean prompts, attention from the last token to the last tokens of the answers."""
    chance: float
    """What that is for a head that looks everywhere alike."""

    @property
    def scored(self) -> bool:
        """Whether the model can do the task, so that its heads are asked."""
        return self.verdict == SCORED


@dataclass(frozen=True, eq=False)
class TaskEffects:
    """Rises of the right answer's log-probability, in nats, for each head, prompt and value.

    `among_words` is its log-probability among all words of all tasks, `among_answers` among the
    answers of its own task: to raise all of them alike adds nothing there.
    """

    among_words: Float[ndarray, "layer head value kind prompt"]
    among_answers: Float[ndarray, "layer head value kind prompt"]


def read_task(runner: LastTokenRunner, task: Task, size: PromptSize) -> TaskReading:
    """Read a task's prompts: clean and shuffled ones for means, all three kinds for answers."""

    def prompts(part: int, kind: str) -> list[FewShot]:
        return prompts_of(runner, task, part, kind, size)

    tested = prompts(EFFECTS, CLEAN)
    if len(tested) < MIN_PROMPTS or len(task.parts[EFFECTS]) <= size.shots:
        reason = f"too few words: {task.size} pairs of {task.name} can be asked"
        return TaskReading(task, {}, {}, reason, {}, {}, np.zeros((0, 0)), float("nan"))
    clean = runner.read([prompt.tokens for prompt in tested], attention=True)
    means = {kind: _means(runner, prompts(MEANS, kind)) for kind in (CLEAN, SHUFFLED)}
    scores = {CLEAN: _answers(runner, clean, tested)}
    for kind in UNINFORMED:
        uninformed = prompts(EFFECTS, kind)
        runs = runner.read([prompt.tokens for prompt in uninformed])
        scores[kind] = _answers(runner, runs, uninformed)
    accuracy = {kind: float(right.mean()) for kind, (right, _) in scores.items()}
    mean = {kind: float(logs.mean()) for kind, (_, logs) in scores.items()}
    gain = scores[CLEAN][1] - scores[SHUFFLED][1]
    draws = resample(len(gain), np.random.default_rng(size.seed))
    low = float(interval(gain, np.ones(len(gain)), draws)[0])
    verdict = SCORED
    if accuracy[CLEAN] < MIN_ACCURACY:
        verdict = f"too hard: {accuracy[CLEAN]:.0%} of the answers are right"
    elif not low > 0:
        verdict = "told by shuffled answers as well"
    per_prompt = [
        _on_answers(runner, run, prompt) for run, prompt in zip(clean, tested, strict=True)
    ]
    chance = float(np.mean([len(p.answers) / len(p.tokens) for p in tested]))
    shares = np.mean(per_prompt, axis=0)
    return TaskReading(task, accuracy, mean, verdict, means[CLEAN], means[SHUFFLED], shares, chance)


def prompts_of(
    runner: LastTokenRunner, task: Task, part: int, kind: str, size: PromptSize
) -> list[FewShot]:
    """Prompts of one part of a task's words, of one kind."""
    tokenizer = runner.model.tokenizer
    return few_shot_prompts(task, part, kind, tokenizer=tokenizer, size=size)


def task_effects(
    runner: LastTokenRunner,
    readings: Sequence[TaskReading],
    number: int,
    size: PromptSize,
    advance: Callable[[], None],
) -> TaskEffects:
    """Effects of all heads on one of the tasks.

    Args:
        runner: the model.
        readings: of all tasks that are scored, two or more.
        number: of the task.
        size: of its prompts.
        advance: called after each layer.
    """
    reading, others = readings[number], [*readings[number + 1 :], *readings[:number]]
    words = sorted({token for other in readings for token in other.task.words})
    answers = np.searchsorted(words, reading.task.answers)
    layers, heads = runner.model.attention_layers, runner.model.heads
    effects: list[ndarray] = []
    for kind in UNINFORMED:
        prompts = prompts_of(runner, reading.task, EFFECTS, kind, size)
        runs = runner.read([prompt.tokens for prompt in prompts], keys=True)
        scorer = _Scorer(runner.network, words, answers, [prompt.right for prompt in prompts])
        before = scorer(torch.stack([run.state for run in runs])[:, None])
        rises = []
        for layer in layers:
            values = _values(reading, others, layer, len(prompts))
            states = _patched(runner, runs, layer, values)
            rises.append((scorer(states) - before).reshape(2, len(runs), heads, len(VALUES)))
            advance()
        effects.append(np.stack(rises))
    # kind layer score prompt head value
    words_first = np.stack(effects).transpose(2, 1, 4, 5, 0, 3)
    return TaskEffects(words_first[0], words_first[1])


class _Scorer:
    """Log-probabilities of the right answers, among all words and among the task's answers."""

    def __init__(
        self, network: Any, words: Sequence[int], answers: Int[ndarray, " answer"], right: list[int]
    ) -> None:
        unembed = network.get_output_embeddings()
        self._answers = torch.from_numpy(answers)
        self._right = torch.from_numpy(np.searchsorted(words, right))
        self._unembed: Callable[[Tensor], Tensor]
        if type(unembed) is nn.Linear:
            rows = unembed.weight.detach()[list(words)]
            bias = None if unembed.bias is None else unembed.bias.detach()[list(words)]
            self._unembed = lambda states: nn.functional.linear(states, rows, bias)
        else:
            self._unembed = lambda states: unembed(states)[..., list(words)]

    @torch.inference_mode()
    def __call__(
        self, states: Float[Tensor, "prompt item d_model"]
    ) -> Float[ndarray, "score prompt item"]:
        """A score of each item: first among words, then among answers."""
        logits = self._unembed(states).float().cpu()
        right = logits.gather(-1, self._right[:, None, None].expand(*logits.shape[:2], 1))[..., 0]
        scores = [right - part.logsumexp(-1) for part in (logits, logits[..., self._answers])]
        return torch.stack(scores).double().numpy()


def _values(
    reading: TaskReading, others: Sequence[TaskReading], layer: int, prompts: int
) -> Float[Tensor, "prompt head value width"]:
    """What every head's output is set to in each prompt."""
    rows = [
        torch.stack(
            [
                reading.clean_mean[layer],
                reading.shuffled_mean[layer],
                others[i % len(others)].clean_mean[layer],
            ],
            dim=1,
        )
        for i in range(prompts)
    ]
    return torch.stack(rows)


def _patched(
    runner: LastTokenRunner,
    runs: Sequence[LastToken],
    layer: int,
    values: Float[Tensor, "prompt head value width"],
) -> Float[Tensor, "prompt item d_model"]:
    """Last states with each head set to each value, heads one after the other."""
    prompts, heads, kinds, width = values.shape
    items = torch.arange(prompts).repeat_interleave(heads * kinds)
    head = torch.arange(heads).repeat_interleave(kinds).repeat(prompts)
    value = values.reshape(-1, width)
    states = runner.states(runs, layer, prompt=items, head=head, value=value)
    return states.reshape(prompts, heads * kinds, -1)


def _means(runner: LastTokenRunner, prompts: Sequence[FewShot]) -> Means:
    runs = runner.read([prompt.tokens for prompt in prompts])
    return {
        layer: torch.stack([run.z[layer] for run in runs]).mean(0)
        for layer in runner.model.attention_layers
    }


@torch.inference_mode()
def _answers(
    runner: LastTokenRunner, runs: Sequence[LastToken], prompts: Sequence[FewShot]
) -> tuple[ndarray, ndarray]:
    """Whether each answer is right, and the log-probability of the right one."""
    unembed = runner.network.get_output_embeddings()
    logs = unembed(torch.stack([run.state for run in runs])).float().log_softmax(-1).cpu()
    right = torch.tensor([prompt.right for prompt in prompts])
    log_probability = logs.gather(-1, right[:, None])[:, 0]
    return (logs.argmax(-1) == right).numpy(), log_probability.double().numpy()


def _on_answers(
    runner: LastTokenRunner, run: LastToken, prompt: FewShot
) -> Float[ndarray, "layer head"]:
    layers = runner.model.attention_layers
    shares = [run.attention[layer][:, list(prompt.answers)].sum(-1) for layer in layers]
    return torch.stack(shares).double().cpu().numpy()
