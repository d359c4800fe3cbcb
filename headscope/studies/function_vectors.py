"""Function vectors: the heads whose outputs carry the task of few-shot examples.

At the last token of a prompt that does not show the task, one head's output is set to its mean over
prompts that do. The effect is the rise of the right answer's log-probability (the causal indirect
effect of Todd et al. 2024, arXiv 2310.15213, section 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field
from scipy.special import stdtr
from torch import Tensor, nn

from headscope.causal.token_rerun import LastToken, LastTokenRunner
from headscope.measure.bootstrap import interval, ratio_error, resample
from headscope.models.families import refuse_encoder
from headscope.options import LARGEST, Device, Flag, Name, Revision, Seed
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.runs.recorded_paths import name_of
from headscope.runs.resolve import ModelOrRun, model_or_run
from headscope.statistics.conditions import MAX_Q
from headscope.statistics.estimates import adjusted
from headscope.stimuli.few_shot import (
    CLEAN,
    SHUFFLED,
    ZERO_SHOT,
    FewShot,
    PromptSize,
    WordTask,
    chosen_tasks,
    few_shot_prompts,
    spelled_task,
)
from headscope.stimuli.prompts import Spelling
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

PROMPTS, SHOTS, MIN_PROMPTS = 12, 5, 6
MEANS, EFFECTS = 0, 1
"""The part of a task's words that mean outputs, and effects, are measured on."""
UNINFORMED = (SHUFFLED, ZERO_SHOT)
VALUES = 3
"""A head's output is set to its mean over clean prompts, over shuffled prompts of the same task
(control), and over clean prompts of another task (control)."""
MIN_ACCURACY = 0.3
MIN_TASKS = 6
THRESHOLD = 0.05
AMONG_ANSWERS = 1 / 3
Means = Mapping[int, Float[Tensor, "head width"]]
Effects = Float[ndarray, "score layer head value kind prompt"]
"""Rise of the right answer's log-probability in nats, among the words of all tasks, then among the
answers of the task: a head that raises all answers alike adds nothing to the second."""


STUDY = Study(
    rows="head, tagged ones first, then by lift",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        function_vector | True or False | tagged: its effect holds in both halves of the tasks
        lift | nats | effect of its mean output less the larger control, mean over tasks
        ci_low, ci_high | nats | ends of its 95 % interval over tasks
        first_half, second_half | nats | mean lift over every other task, and over the others
        among_answers | nats | lift of the log-probability among the task's own answers
        among_answers_low | nats | lower end of its 95 % interval over tasks
        held_in | count, ≥ 0 | tasks in which its effect holds
        tasks | names | these tasks, joined by `;`
    """),
    figure=HeatMap(value="lift", mark="function_vector"),
    encoders=False,
    bad_call={"shots": 1},
)


@study(STUDY)
def function_vectors(
    model: ModelOrRun,
    *,
    tasks: Annotated[
        Name,
        Field(description="all, names such as antonym,capital, or a .csv: task,question,answer."),
    ] = "all",
    prompts: Annotated[
        int,
        Field(ge=MIN_PROMPTS, le=LARGEST, description="Maximum number of prompts of each task."),
    ] = PROMPTS,
    shots: Annotated[
        int, Flag(""), Field(ge=2, le=64, description="Examples in each prompt.")
    ] = SHOTS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Find the heads that carry the task of few-shot examples to the last token.

    A head is tagged `function_vector` if the lift of both halves is at least 0.05 nats, its
    interval is above 0, at least a third of it remains among the answers with an interval above 0,
    and each half has a task with q < 0.01 over heads × tasks. At least 6 tasks must be scored.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        ChoiceError: no such task.
        CorpusError: the file of tasks cannot be read.
    """
    pairs = chosen_tasks(tasks)
    size = PromptSize(shots, prompts, seed)
    with progress_bar(progress, "patching heads", unit="steps") as bar:
        loaded, _ = model_or_run(model, revision=revision, device=device)
        refuse_encoder(loaded, "study function-vectors")
        runner = LastTokenRunner(loaded)
        spelling = Spelling(loaded.tokenizer)
        spelled = [spelled_task(name, rows, spelling, seed=seed) for name, rows in pairs.items()]
        readings, table = _measure(runner, spelled, size, bar)
    scored = [reading.task.name for reading in readings if not reading.verdict]
    notes = [f"{r.task.name} is not scored: {r.verdict}" for r in readings if r.verdict]
    if len(scored) < MIN_TASKS:
        notes.append(f"fewer than {MIN_TASKS} tasks: none tagged")
    tagged = int(table["function_vector"].sum())
    return StudyResult(
        title=f"{name_of(loaded.name)}: {tagged} function-vector heads; lift in nats over "
        f"{len(scored)} of {len(readings)} tasks",
        table=table,
        terminal_table=table.drop(columns=["tasks"]).head(max(12, tagged)),
        notes=notes,
        values={"scored": scored},
        draw=STUDY.draw,
    )


def _measure(
    runner: LastTokenRunner, tasks: Sequence[WordTask], size: PromptSize, progress: OnProgress
) -> tuple[list[TaskReading], pd.DataFrame]:
    """A reading of each task, and the row of each head."""
    layers = runner.model.attention_layers
    steps = Steps(progress, (1 + 2 * len(layers)) * len(tasks))
    readings = []
    for task in tasks:
        readings.append(read_task(runner, task, size))
        steps.advance(1 + 2 * len(layers) * bool(readings[-1].verdict))
    scored = [reading for reading in readings if not reading.verdict]
    if len(scored) < 2:
        places = [(layer, head) for layer in layers for head in range(runner.model.heads)]
        table = pd.DataFrame(places, columns=["layer", "head"]).reindex(columns=STUDY.names)
        return readings, table.assign(function_vector=False, held_in=0, tasks="")
    effects = [
        task_effects(runner, scored, number, size, steps.advance) for number in range(len(scored))
    ]
    names = [reading.task.name for reading in scored]
    return readings, effects_by_head(names, effects, layers, seed=size.seed)


@dataclass(frozen=True, eq=False)
class TaskReading:
    """Mean outputs of a model's heads at the last tokens of a task's prompts."""

    task: WordTask
    verdict: str
    """Empty if the model can do the task, else why the task is not scored."""
    clean_mean: Means
    shuffled_mean: Means


def read_task(runner: LastTokenRunner, task: WordTask, size: PromptSize) -> TaskReading:
    """Test if the model can do a task, and record its heads' mean outputs."""
    tested = prompts_of(runner, task, EFFECTS, CLEAN, size)
    if len(tested) < MIN_PROMPTS or len(task.parts[EFFECTS]) <= size.shots:
        reason = f"too few words: {sum(map(len, task.parts))} usable pairs"
        return TaskReading(task, reason, {}, {})
    clean = runner.read([prompt.tokens for prompt in tested])
    shuffled = prompts_of(runner, task, EFFECTS, SHUFFLED, size)
    right, logs = _answers(runner, clean, tested)
    _, shuffled_logs = _answers(runner, runner.read([p.tokens for p in shuffled]), shuffled)
    draws = resample(len(logs), np.random.default_rng(size.seed))
    low = float(interval(logs - shuffled_logs, np.ones(len(logs)), draws)[0])
    verdict = "" if low > 0 else "shuffled answers do as well"
    if right.mean() < MIN_ACCURACY:
        verdict = f"too hard: {right.mean():.0%} of the answers are right"
    clean_mean, shuffled_mean = (
        _means(runner, prompts_of(runner, task, MEANS, kind, size)) for kind in (CLEAN, SHUFFLED)
    )
    return TaskReading(task, verdict, clean_mean, shuffled_mean)


def prompts_of(
    runner: LastTokenRunner, task: WordTask, part: int, kind: str, size: PromptSize
) -> list[FewShot]:
    """Prompts of one kind on one part of a task's words."""
    return few_shot_prompts(task, part, kind, tokenizer=runner.model.tokenizer, size=size)


def task_effects(
    runner: LastTokenRunner,
    readings: Sequence[TaskReading],
    number: int,
    size: PromptSize,
    advance: Callable[[], None],
) -> Effects:
    """Effects of all heads on task `number` of at least two scored tasks."""
    reading, others = readings[number], [*readings[number + 1 :], *readings[:number]]
    words = sorted({token for other in readings for token in other.task.words})
    effects: list[ndarray] = []
    for kind in UNINFORMED:
        prompts = prompts_of(runner, reading.task, EFFECTS, kind, size)
        runs = runner.read([prompt.tokens for prompt in prompts], keys=True)
        scores = partial(_scores, runner, words, reading.task.answers, prompts)
        before = scores(torch.stack([run.state for run in runs])[:, None])
        rises = []
        for layer in runner.model.attention_layers:
            same_task = reading.clean_mean[layer], reading.shuffled_mean[layer]
            another = [others[i % len(others)].clean_mean[layer] for i in range(len(prompts))]
            values = torch.stack([torch.stack([*same_task, mean], dim=1) for mean in another])
            rise = scores(_patched(runner, runs, layer, values)) - before
            rises.append(rise.reshape(2, *values.shape[:3]))
            advance()
        effects.append(np.stack(rises))
    return np.stack(effects).transpose(2, 1, 4, 5, 0, 3)  # was kind layer score prompt head value


@torch.inference_mode()
def _scores(
    runner: LastTokenRunner,
    words: Sequence[int],
    answers: Sequence[int],
    prompts: Sequence[FewShot],
    states: Float[Tensor, "prompt item d_model"],
) -> Float[ndarray, "score prompt item"]:
    """Log-probability of the right answer among all words, and among the task's answers."""
    unembed = runner.network.get_output_embeddings()
    bias = None if unembed.bias is None else unembed.bias[list(words)]
    logits = nn.functional.linear(states, unembed.weight[list(words)], bias).float().cpu()
    right = torch.from_numpy(np.searchsorted(words, [prompt.right for prompt in prompts]))
    of_right = logits.gather(-1, right[:, None, None].expand(*logits.shape[:2], 1))[..., 0]
    of_task = logits[..., torch.from_numpy(np.searchsorted(words, answers))]
    scores = [of_right - part.logsumexp(-1) for part in (logits, of_task)]
    return torch.stack(scores).double().numpy()


def _patched(
    runner: LastTokenRunner,
    runs: Sequence[LastToken],
    layer: int,
    values: Float[Tensor, "prompt head value width"],
) -> Float[Tensor, "prompt item d_model"]:
    """Last states with one head set to one value at a time."""
    prompts, heads, kinds, width = values.shape
    prompt, head, _ = (index.ravel() for index in np.indices((prompts, heads, kinds)))
    states = runner.states(
        runs,
        layer,
        prompt=torch.from_numpy(prompt),
        head=torch.from_numpy(head),
        value=values.reshape(-1, width),
    )
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
    """Flags of the answers that are right, and the log-probability of the right one."""
    unembed = runner.network.get_output_embeddings()
    logs = unembed(torch.stack([run.state for run in runs])).float().log_softmax(-1).cpu()
    right = torch.tensor([prompt.right for prompt in prompts])
    log_probability = logs.gather(-1, right[:, None])[:, 0]
    return (logs.argmax(-1) == right).numpy(), log_probability.double().numpy()


def _task_tests(effects: Effects, seed: int) -> tuple[ndarray, ...]:
    """Lift of each head in a task, its lower bound and p value, and both among the answers.

    The lift is the effect less the larger control, mean over prompts, shuffled and zero-shot; its
    interval and its one-sided test are over prompts.
    """
    words, answers = (part.mean(3).reshape(-1, VALUES, part.shape[-1]) for part in effects)
    larger = words[:, 1:].mean(-1).argmax(-1) + 1
    rows = np.arange(len(words))
    lift, among = (part[:, 0] - part[rows, larger] for part in (words, answers))
    count = lift.shape[-1]
    draws = resample(count, np.random.default_rng(seed))
    low, _ = interval(lift.T, np.ones(count), draws)
    among_low, _ = interval(among.T, np.ones(count), draws)
    with np.errstate(divide="ignore", invalid="ignore"):
        t = lift.mean(-1) / ratio_error(lift.T, np.ones((count, 1)))
    p_values = stdtr(count - 1, -np.nan_to_num(t))
    return lift.mean(-1), low, p_values, among.mean(-1), among_low


def effects_by_head(
    names: Sequence[str], effects: Sequence[Effects], layers: Sequence[int], *, seed: int
) -> pd.DataFrame:
    """A row per head with the columns of the study, tagged heads first, then by lift.

    An effect holds in a task if both lower bounds are above 0, and q < 0.01 over heads × tasks.
    """
    tests = zip(*(_task_tests(effect, seed) for effect in effects), strict=True)
    lift, lift_low, p_values, among, among_low = (np.stack(part, axis=1) for part in tests)
    q_values = adjusted(p_values.ravel()).reshape(p_values.shape)
    holds = (lift_low > 0) & (among_low > 0) & (q_values < MAX_Q)
    draws = resample(len(names), np.random.default_rng(seed))
    low, high = interval(lift.T, np.ones(len(names)), draws)
    low_among, _ = interval(among.T, np.ones(len(names)), draws)
    first, second = (lift[:, half::2].mean(1) for half in (0, 1))
    layer, head = (index.ravel() for index in np.indices(effects[0].shape[1:3]))
    columns = {
        "layer": np.asarray(layers)[layer],
        "head": head,
        "lift": lift.mean(1),
        "ci_low": low,
        "ci_high": high,
        "first_half": first,
        "second_half": second,
        "among_answers": among.mean(1),
        "among_answers_low": low_among,
        "held_in": holds.sum(1),
        "tasks": [";".join(np.array(names, object)[row]) for row in holds],
    }
    table = pd.DataFrame(columns)
    table["function_vector"] = (
        (np.minimum(first, second) >= THRESHOLD)
        & (table["ci_low"] > 0)
        & (table["among_answers_low"] > 0)
        & (table["among_answers"] >= AMONG_ANSWERS * table["lift"])
        & (holds[:, 0::2].any(1) & holds[:, 1::2].any(1))
        & (len(names) >= MIN_TASKS)
    )
    order = ["function_vector", "lift"]
    return table.sort_values(order, ascending=False, kind="stable", ignore_index=True)[STUDY.names]
