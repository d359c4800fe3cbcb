"""Few-shot accuracy without some heads: which of them carry it (Yin and Steinhardt 2025)?

Todd et al. find heads by what they add; the experiment of arXiv 2502.14010 takes heads away, those
of function vectors or those of induction, and compares with as many others of the same layers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.measure.bootstrap import interval, resample
from headscope.models.intervention import HeadsSet
from headscope.models.last_token import LastTokenRunner
from headscope.models.rerun import CleanRun, TokenRows
from headscope.studies.function_vectors.few_shot import CLEAN, PromptSize
from headscope.studies.function_vectors.head_effects import (
    ABLATION,
    TaskReading,
    prompts_of,
)

Head = tuple[int, int]
UNTOUCHED, FUNCTION_VECTOR, INDUCTION = "untouched", "function vector", "induction"
RANDOM = "random, layers of "
DRAWS = 3
"""Random groups of heads that each group is compared with."""
COLUMNS = ["silenced", "heads", "accuracy", "ci_low", "ci_high", "log_probability", "names"]


class Arm(NamedTuple):
    """Heads that are silenced together."""

    name: str
    heads: tuple[Head, ...]


def arms_of(
    function_vector: Sequence[Head],
    induction: Sequence[Head],
    by_layer: Mapping[int, int],
    *,
    seed: int,
) -> list[Arm]:
    """The groups of heads to silence, first none, each with random ones of its layers.

    Where the two have heads in common, each is silenced without these too.

    Args:
        function_vector: heads that are silenced together.
        induction: likewise; none where no run says which they are.
        by_layer: the number of heads of each layer.
        seed: seeds the random heads, which are in neither group.
    """
    rng = np.random.default_rng(seed)
    ablated = {*function_vector, *induction}
    arms = [Arm(UNTOUCHED, ())]
    for name, heads in ((FUNCTION_VECTOR, function_vector), (INDUCTION, induction)):
        if not heads:
            continue
        arms.append(Arm(name, tuple(sorted(heads))))
        for _ in range(DRAWS):
            random_heads: list[Head] = []
            for layer, _ in heads:
                free = [
                    (layer, head)
                    for head in range(by_layer[layer])
                    if (layer, head) not in ablated and (layer, head) not in random_heads
                ]
                random_heads += [free[int(rng.integers(len(free)))]] if free else []
            arms.append(Arm(RANDOM + name, tuple(sorted(random_heads))))
    overlap = {*function_vector} & {*induction}
    if overlap:
        for name, heads, other in (
            (FUNCTION_VECTOR, function_vector, INDUCTION),
            (INDUCTION, induction, FUNCTION_VECTOR),
        ):
            own_heads = tuple(sorted({*heads} - overlap))
            arms.append(Arm(f"{name}, not {other}", own_heads))
    return arms


def accuracy_without(
    runner: LastTokenRunner,
    readings: Sequence[TaskReading],
    arms: Sequence[Arm],
    size: PromptSize,
    advance: Callable[[], None] = lambda: None,
) -> pd.DataFrame:
    """Accuracy on clean prompts of other words with each group of heads silenced.

    Args:
        runner: the model.
        readings: of the tasks that are scored.
        arms: the groups; a head's output is set to its mean over the tokens of all tasks' prompts.
        size: of the prompts.
        advance: called for each task and group.

    Returns:
        a row per group: `accuracy`, of all tokens of the vocabulary, with its interval over tasks,
        the mean `log_probability` of the right answer's first token, and the `names` of the heads.
    """
    rows = [_rows(runner, reading, size) for reading in readings]
    means = _mean_outputs(runner, rows)
    right = np.zeros((len(arms), len(rows)))
    logs = np.zeros_like(right)
    for task, (tokens, labels) in enumerate(rows):
        clean = runner.rerunner.clean(tokens)
        for number, arm in enumerate(arms):
            right[number, task], logs[number, task] = _answers(runner, clean, labels, arm, means)
            advance()
    draws = resample(len(rows), np.random.default_rng(size.seed))
    low, high = interval(right.T, np.ones(len(rows)), draws)
    return pd.DataFrame(
        {
            "silenced": [arm.name for arm in arms],
            "heads": [len(arm.heads) for arm in arms],
            "accuracy": right.mean(1),
            "ci_low": low,
            "ci_high": high,
            "log_probability": logs.mean(1),
            "names": [";".join(f"L{layer}H{head}" for layer, head in arm.heads) for arm in arms],
        },
        columns=COLUMNS,
    )


def _rows(
    runner: LastTokenRunner, reading: TaskReading, size: PromptSize
) -> tuple[TokenRows, Tensor]:
    prompts = prompts_of(runner, reading.task, ABLATION, CLEAN, size)
    device = runner.model.device
    lengths = torch.tensor([len(prompt.tokens) for prompt in prompts])
    tokens = torch.nn.utils.rnn.pad_sequence([p.tokens for p in prompts], batch_first=True)
    labels = torch.tensor([prompt.right for prompt in prompts], device=device)
    # a place is scored at the token before it
    places = (torch.arange(len(prompts)), lengths)
    return TokenRows(tokens.to(device), lengths, *places, labels), labels


def _mean_outputs(
    runner: LastTokenRunner, rows: Sequence[tuple[TokenRows, Tensor]]
) -> dict[int, Float[Tensor, "head width"]]:
    """Each head's mean output over all tokens but the first of each prompt."""
    sums: dict[int, Tensor] = {}
    count = 0
    for tokens, _ in rows:
        clean = runner.rerunner.clean(tokens)
        position = torch.arange(tokens.tokens.shape[1])
        real = ((position > 0) & (position < tokens.lengths[:, None])).to(runner.model.device)
        count += int(real.sum())
        for layer, z in clean.z.items():
            part = (z * real[:, :, None, None]).sum((0, 1))
            sums[layer] = sums[layer] + part if layer in sums else part
    return {layer: total / count for layer, total in sums.items()}


@torch.inference_mode()
def _answers(
    runner: LastTokenRunner,
    clean: CleanRun,
    labels: Tensor,
    arm: Arm,
    means: Mapping[int, Float[Tensor, "head width"]],
) -> tuple[float, float]:
    """The share of right answers, and the mean log-probability of these."""
    states = clean.states
    if arm.heads:
        heads: dict[int, list[int]] = {}
        for layer, head in arm.heads:
            heads.setdefault(layer, []).append(head)
        values = {layer: means[layer][numbers] for layer, numbers in heads.items()}
        states = runner.rerunner.states(clean, HeadsSet(heads, values))
    unembed = runner.network.get_output_embeddings()
    logs = unembed(states).float().log_softmax(-1)
    right = logs.argmax(-1) == labels
    log_probability = logs.gather(-1, labels[:, None])
    return float(right.float().mean()), float(log_probability.mean())
