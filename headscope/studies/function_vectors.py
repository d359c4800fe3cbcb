"""Function vectors: the heads whose outputs carry the task of few-shot examples.

At the last token of a prompt that does not show the task, one head's output is set to its mean over
prompts that do. The effect is the rise of the right answer's log-probability (the causal indirect
effect of Todd et al. 2024, arXiv 2310.15213, section 2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from einops import rearrange
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from headscope.causal.intervention import RowHeadsSet
from headscope.causal.loss import at_labels, log_probabilities, logits_of
from headscope.causal.rerun import Rerunner
from headscope.models.families import refuse_encoder
from headscope.options import LARGEST, Device, Flag, Name, Revision, Seed
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.recorded_paths import name_of
from headscope.statistics.conditions import MAX_Q
from headscope.statistics.estimates import adjusted
from headscope.statistics.ratio import interval, ratio_error, resample, student_p_value, t_statistic
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
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

PROMPTS, SHOTS, MIN_PROMPTS = 12, 5, 6
MEANS, EFFECTS = 0, 1
"""The part of a task's words that mean outputs, and effects, are measured on."""
UNINFORMED = (SHUFFLED, ZERO_SHOT)
VALUES = 3
"""A head's output is set to its mean over clean prompts, over shuffled prompts of the same task
(control), and over clean prompts of another task (control)."""
ITEMS_AT_ONCE = 512
"""Last tokens that run again at once."""
MIN_ACCURACY = 0.3
MIN_TASKS = 6
THRESHOLD = 0.05
AMONG_ANSWERS = 1 / 3
Means = Mapping[int, Float[Tensor, "head width"]]
Effects = Float[ndarray, "score layer head value kind prompt"]
"""Rise of the right answer's log-probability in nats, among the words of all tasks, then among the
answers of the task: a head that raises all answers alike adds nothing to the second."""


STUDY = Study(
    command=Command(
        group="study",
        name="function-vectors",
        summary="Find heads that carry the task of in-context examples.",
        examples=(
            "headscope study function-vectors smollm2 --out vectors.csv --figure vectors.pdf",
        ),
    ),
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
    # long words are refused before any prompt is read
    with progress_bar(progress, "patching heads", unit="steps") as bar:
        loaded, _ = model_or_run(model, revision=revision, device=device)
        refuse_encoder(loaded, "study function-vectors")
        for word in chain.from_iterable(pair for rows in pairs.values() for pair in rows):
            loaded.tokenizer.check_length(word, loaded.context)
        # last tokens run alone on the keys of their prompts, which makes heads × values × prompts
        # affordable
        runner = Rerunner(loaded)
        runner.check_tokens_alone()
        spelling = Spelling(loaded.tokenizer)
        spelled = [spelled_task(name, rows, spelling, seed=seed) for name, rows in pairs.items()]
        readings, table = _measure(runner, spelled, size, bar)
    # tasks that the model cannot do say nothing of its heads
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
    runner: Rerunner, tasks: Sequence[WordTask], size: PromptSize, progress: OnProgress
) -> tuple[list[TaskReading], pd.DataFrame]:
    """A reading of each task, and the row of each head."""
    layers = runner.model.attention_layers
    patch_steps = 2 * len(layers)
    steps = Steps(progress, (1 + patch_steps) * len(tasks))
    readings = []
    for task in tasks:
        reading = read_word_task(runner, task, size)
        readings.append(reading)
        # a task that is not scored is not patched
        steps.advance(1 + patch_steps if reading.verdict else 1)
    # a control is the mean of another task, so that one alone is not enough
    scored = [reading for reading in readings if not reading.verdict]
    if len(scored) < 2:
        return readings, _untagged(layers, runner.model.heads)
    effects = []
    for number in range(len(scored)):
        effects.append(task_effects(runner, scored, number, size, steps.advance))
    names = [reading.task.name for reading in scored]
    return readings, effects_by_head(names, effects, layers, seed=size.seed)


def _untagged(layers: Sequence[int], heads: int) -> pd.DataFrame:
    """The rows of all heads without numbers."""
    positions = [(layer, head) for layer in layers for head in range(heads)]
    table = pd.DataFrame(positions, columns=["layer", "head"])
    table = table.reindex(columns=STUDY.names)
    return table.assign(function_vector=False, held_in=0, tasks="")


@dataclass(frozen=True, eq=False)
class TaskReading:
    """Mean outputs of a model's heads at the last tokens of a task's prompts."""

    task: WordTask
    verdict: str
    """Empty if the model can do the task, else why the task is not scored."""
    clean_mean: Means
    shuffled_mean: Means


def read_word_task(runner: Rerunner, task: WordTask, size: PromptSize) -> TaskReading:
    """Test if the model can do a task, and record its heads' mean outputs."""
    # words are divided, so that outputs are averaged over other prompts than those patched
    clean = prompts_of(runner, task, EFFECTS, CLEAN, size)
    if len(clean) < MIN_PROMPTS or len(task.halves[EFFECTS]) <= size.shots:
        reason = f"too few words: {sum(map(len, task.halves))} usable pairs"
        return TaskReading(task=task, verdict=reason, clean_mean={}, shuffled_mean={})
    shuffled = prompts_of(runner, task, EFFECTS, SHUFFLED, size)
    clean_answers = _answers(runner, clean)
    shuffled_answers = _answers(runner, shuffled)
    # the examples must help: right answers beat shuffled ones
    gained = clean_answers.log_probability - shuffled_answers.log_probability
    draws = resample(len(gained), np.random.default_rng(size.seed))
    low, _ = interval(gained, np.ones(len(gained)), draws)
    accuracy = clean_answers.is_right.mean()
    verdict = ""
    if accuracy < MIN_ACCURACY:
        verdict = f"too hard: {accuracy:.0%} of the answers are right"
    elif not low > 0:
        verdict = "shuffled answers do as well"
    return TaskReading(
        task=task,
        verdict=verdict,
        clean_mean=_means(runner, prompts_of(runner, task, MEANS, CLEAN, size)),
        shuffled_mean=_means(runner, prompts_of(runner, task, MEANS, SHUFFLED, size)),
    )


def prompts_of(
    runner: Rerunner, task: WordTask, half: int, kind: str, size: PromptSize
) -> list[FewShot]:
    """Prompts of one kind on one half of a task's words."""
    return few_shot_prompts(task, half, kind, tokenizer=runner.model.tokenizer, size=size)


def task_effects(
    runner: Rerunner,
    readings: Sequence[TaskReading],
    number: int,
    size: PromptSize,
    advance: Callable[[], None],
) -> Effects:
    """Effects of all heads on task `number` of at least two scored tasks."""
    reading = readings[number]
    # controls are taken from the tasks that follow, in turn
    others = [*readings[number + 1 :], *readings[:number]]
    words: set[int] = set()
    for other in readings:
        words.update(other.task.words)
    columns = _Columns(sorted(words), reading.task.answers)
    # prompts that do not show the task, which the head's output must bring
    effects: list[ndarray] = []
    for kind in UNINFORMED:
        prompts = prompts_of(runner, reading.task, EFFECTS, kind, size)
        run = runner.at_last([prompt.tokens for prompt in prompts])
        scores = partial(_scores, runner, columns, prompts)
        # the effect is the rise over the same prompt without a change
        before = scores(run.states[:, None])
        rises = []
        for layer in runner.model.attention_layers:
            values = _values(reading, others, layer, prompts=len(prompts))
            # one head of the last token is set to one value at a time
            count, heads, kinds, width = values.shape
            indices = torch.from_numpy(np.indices((count, heads, kinds)).reshape(3, -1))
            prompt, head, _ = indices.to(runner.model.device)
            value = values.reshape(-1, 1, width).to(runner.model.device)
            parts = []
            for start in range(0, len(head), ITEMS_AT_ONCE):
                part = slice(start, start + ITEMS_AT_ONCE)
                change = RowHeadsSet(layer, head[part], value[part])
                parts.append(runner.states(run.at_rows(prompt[part]), change))
            # every prompt has one state for each head and value that was set
            states = torch.cat(parts)
            patched = scores(states.reshape(count, heads * kinds, -1))
            rise = patched - before
            rises.append(rise.reshape(2, *values.shape[:3]))
            advance()
        effects.append(np.stack(rises))
    return rearrange(
        np.stack(effects),
        "kind layer score prompt head value -> score layer head value kind prompt",
    )


@dataclass(frozen=True, eq=False)
class _Columns:
    """Tokens whose logits are compared."""

    words: Sequence[int]
    """Words of all tasks, in order."""
    answers: Sequence[int]
    """Answers of one task, which are among the words."""

    def numbers(self, tokens: Sequence[int]) -> Int[Tensor, " token"]:
        """Numbers of tokens among the words."""
        return torch.from_numpy(np.searchsorted(self.words, tokens))


def _values(
    reading: TaskReading, others: Sequence[TaskReading], layer: int, *, prompts: int
) -> Float[Tensor, "prompt head value width"]:
    """The outputs that each head is set to in each prompt; the other task changes by prompt."""
    clean = reading.clean_mean[layer]
    shuffled = reading.shuffled_mean[layer]
    values = []
    for number in range(prompts):
        other = others[number % len(others)]
        values.append(torch.stack([clean, shuffled, other.clean_mean[layer]], dim=1))
    return torch.stack(values)


@torch.inference_mode()
def _scores(
    runner: Rerunner,
    columns: _Columns,
    prompts: Sequence[FewShot],
    states: Float[Tensor, "prompt item d_model"],
) -> Float[ndarray, "score prompt item"]:
    """Log-probability of the right answer among all words, and among the task's answers."""
    # the words of all tasks stand for the vocabulary
    logits = logits_of(runner.network, states, list(columns.words)).float().cpu()
    right = columns.numbers([prompt.right for prompt in prompts])
    prompt = torch.arange(len(prompts))
    right_logit = logits[prompt, :, right]
    answer_logits = logits[..., columns.numbers(columns.answers)]
    among_words = right_logit - logits.logsumexp(-1)
    among_answers = right_logit - answer_logits.logsumexp(-1)
    scores = torch.stack([among_words, among_answers])
    return scores.double().numpy()


def _means(runner: Rerunner, prompts: Sequence[FewShot]) -> Means:
    run = runner.at_last([prompt.tokens for prompt in prompts])
    return {layer: z[:, 0].mean(0) for layer, z in run.z.items()}


@dataclass(frozen=True, eq=False)
class _Answers:
    """Answers of a model to prompts."""

    is_right: Bool[ndarray, " prompt"]
    log_probability: Float[ndarray, " prompt"]
    """Log-probability of the right answer, in nats."""


@torch.inference_mode()
def _answers(runner: Rerunner, prompts: Sequence[FewShot]) -> _Answers:
    run = runner.at_last([prompt.tokens for prompt in prompts])
    logs = log_probabilities(runner.network, run.states).cpu()
    right = torch.tensor([prompt.right for prompt in prompts])
    log_probability = at_labels(logs, right)
    return _Answers(
        is_right=(logs.argmax(-1) == right).numpy(),
        log_probability=log_probability.double().numpy(),
    )


@dataclass(frozen=True, eq=False)
class _Lift:
    """Lift of each head in one task, over prompts."""

    mean: Float[ndarray, " head"]
    low: Float[ndarray, " head"]
    """Lower end of its 95 % interval."""
    p_values: Float[ndarray, " head"]
    """One-sided test of a lift above 0."""


def _lift_over(
    effects: Float[ndarray, "head value prompt"], control: Int[ndarray, " head"], seed: int
) -> _Lift:
    """The effect of each head's mean output less that of a control, tested over prompts."""
    heads = np.arange(len(effects))
    of_own_task = effects[:, 0]
    lift = of_own_task - effects[heads, control]
    count = lift.shape[-1]
    draws = resample(count, np.random.default_rng(seed))
    low, _ = interval(lift.T, np.ones(count), draws)
    mean = lift.mean(-1)
    error = ratio_error(lift.T, np.ones((count, 1)))
    p_values = student_p_value(t_statistic(mean, error), count)
    return _Lift(mean=mean, low=low, p_values=p_values)


def effects_by_head(
    names: Sequence[str], effects: Sequence[Effects], layers: Sequence[int], *, seed: int
) -> pd.DataFrame:
    """A row per head with the columns of the study, tagged heads first, then by lift.

    An effect holds in a task if both lower bounds are above 0, and q < 0.01 over heads × tasks.
    """
    # in each task the effect of each head less its larger control, shuffled and zero-shot prompts
    # as one
    of_words: list[_Lift] = []
    of_answers: list[_Lift] = []
    for effect in effects:
        by_prompt = effect.mean(4)
        words, answers = by_prompt.reshape(2, -1, VALUES, by_prompt.shape[-1])
        controls = words[:, 1:].mean(-1)
        larger = controls.argmax(-1) + 1
        of_words.append(_lift_over(words, larger, seed))
        of_answers.append(_lift_over(answers, larger, seed))
    lift = np.stack([task.mean for task in of_words], axis=1)
    lift_low = np.stack([task.low for task in of_words], axis=1)
    p_values = np.stack([task.p_values for task in of_words], axis=1)
    among = np.stack([task.mean for task in of_answers], axis=1)
    among_low = np.stack([task.low for task in of_answers], axis=1)
    # heads × tasks are tested together
    q_values = adjusted(p_values.ravel()).reshape(p_values.shape)
    holds = (lift_low > 0) & (among_low > 0) & (q_values < MAX_Q)
    # intervals over tasks
    weights = np.ones(len(names))
    draws = resample(len(names), np.random.default_rng(seed))
    low, high = interval(lift.T, weights, draws)
    low_among, _ = interval(among.T, weights, draws)
    # the halves are every other task, so that a tag does not rest on a few similar tasks
    layer, head = np.indices(effects[0].shape[1:3]).reshape(2, -1)
    columns = {
        "layer": np.asarray(layers)[layer],
        "head": head,
        "lift": lift.mean(1),
        "ci_low": low,
        "ci_high": high,
        "first_half": lift[:, 0::2].mean(1),
        "second_half": lift[:, 1::2].mean(1),
        "among_answers": among.mean(1),
        "among_answers_low": low_among,
        "held_in": holds.sum(1),
        "tasks": [";".join(np.array(names, object)[row]) for row in holds],
    }
    table = pd.DataFrame(columns)
    # a tag needs every condition, in both halves of the tasks
    smaller_half = np.minimum(table["first_half"], table["second_half"])
    least_among = AMONG_ANSWERS * table["lift"]
    holds_in_first = holds[:, 0::2].any(1)
    holds_in_second = holds[:, 1::2].any(1)
    enough_tasks = holds.shape[1] >= MIN_TASKS
    table["function_vector"] = (
        (smaller_half >= THRESHOLD)
        & (table["ci_low"] > 0)
        & (table["among_answers_low"] > 0)
        & (table["among_answers"] >= least_among)
        & holds_in_first
        & holds_in_second
        & enough_tasks
    )
    order = ["function_vector", "lift"]
    table = table.sort_values(order, ascending=False, kind="stable", ignore_index=True)
    return table[STUDY.names]
