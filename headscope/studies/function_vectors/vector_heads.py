"""`function-vectors`: the heads whose outputs carry the task of a few examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Unpack

import numpy as np
import pandas as pd

from headscope.arguments import NAME, Default, either, number, takes, whole
from headscope.corpus.controlled.tasks import chosen_tasks
from headscope.errors import ModelError
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.last_token import LastTokenRunner
from headscope.models.load import Model
from headscope.models.model_kinds import refuse_encoder
from headscope.runs.listing import Head
from headscope.runs.reopen_model import model_or_run
from headscope.runs.resolve import A_MODEL, A_RUN, Named
from headscope.statistics.result import Result
from headscope.stimuli.prompts import Spelling
from headscope.studies.function_vectors.ablation import (
    COLUMNS,
    DRAWS,
    accuracy_without,
    arms_of,
)
from headscope.studies.function_vectors.few_shot import (
    CLEAN,
    PARTS,
    SHUFFLED,
    ZERO_SHOT,
    PromptSize,
    Task,
    few_shot_prompts,
    spelled_task,
)
from headscope.studies.function_vectors.head_effects import (
    MIN_PROMPTS,
    TaskReading,
    read_task,
    task_effects,
)
from headscope.studies.function_vectors.judge import (
    EFFECT_COLUMNS,
    effect_table,
    head_table,
    unmeasured_heads,
)
from headscope.studies.function_vectors.promoted import promoted_words
from headscope.studies.function_vectors.vectors_result import (
    TASK_COLUMNS,
    FunctionVectors,
)

PROMPTS, SHOTS = 12, 5
SILENCED = 0.05
LONGEST = 256
"""Tokens of a prompt that a model is loaded for; a longer one is refused by the model's context."""
INDUCTION = "induction/repeat"


class FunctionVectorOptions(Named, total=False):
    """Options of `function_vectors` besides the model and its prompts."""

    silenced: Annotated[float, number(0, 0.5), Default(SILENCED)]
    """Share of all heads that are silenced together, those of the largest lift; 0 silences none."""


@takes(
    model=either(A_RUN, A_MODEL), tasks=NAME, prompts=whole(MIN_PROMPTS), shots=whole(2, largest=64)
)
def function_vectors(
    model: Any,
    *,
    tasks: str = "all",
    prompts: int = PROMPTS,
    shots: int = SHOTS,
    seed: int = 0,
    progress: Progress = True,
    **options: Unpack[FunctionVectorOptions],
) -> FunctionVectors:
    """Say which heads carry the task of a few examples to the place where the answer is due.

    The causal indirect effect of Todd et al. 2024 (arXiv 2310.15213): what a head's mean output
    over prompts with examples adds to the right answer in prompts whose examples are shuffled or
    lacking.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model. A run's tags say
            which heads are induction heads, to be compared.
        tasks: `all`, names such as `antonym,capital`, or a .csv file with the columns
            `task,question,answer`.
        prompts: most prompts of each task and kind. Each has another question.
        shots: examples in each prompt.
        seed: seeds the examples, random heads and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the steps done and the steps in all.
        options: `silenced`, the share of all heads that are silenced together (0.05); `revision`, a
            branch, tag or commit on the hub, for a name; `device`, `cpu`, `cuda`, …, where `auto`,
            the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, does not run under the fused engine, or its context
            is too short for the examples.
        ChoiceError: no such task.
        CorpusError: the file of tasks cannot be read.
    """
    pairs = chosen_tasks(tasks)
    share = options.pop("silenced", SILENCED)
    size = PromptSize(shots, prompts, seed)
    load_options: Named = options
    with progress_bar(progress, "asking heads", unit="steps") as bar:
        loaded, run = model_or_run(model, longest=LONGEST, **load_options)
        refuse_encoder(loaded, "study function-vectors")
        runner = LastTokenRunner(loaded)
        spelling = Spelling(loaded.tokenizer)
        spelled = [spelled_task(name, rows, spelling, seed=seed) for name, rows in pairs.items()]
        _check_length(loaded, spelled, size)
        return _study(runner, run, spelled, size, share, bar)


def _study(
    runner: LastTokenRunner,
    run: Result | None,
    tasks: Sequence[Task],
    size: PromptSize,
    share: float,
    progress: OnProgress,
) -> FunctionVectors:
    model = runner.model
    layers = model.attention_layers
    groups = 0 if share == 0 else 2 + DRAWS if run is None else 5 + 2 * DRAWS
    of_task = 1 + len(layers) + groups
    steps = Steps(progress, of_task * len(tasks))
    readings = []
    for task in tasks:
        reading = read_task(runner, task, size)
        readings.append(reading)
        steps.advance(1 if reading.scored else of_task)
    scored = [reading for reading in readings if reading.scored]
    table = pd.DataFrame([_task_row(reading) for reading in readings], columns=TASK_COLUMNS)
    if len(scored) < 2:
        steps.advance((of_task - 1) * len(scored))
        note = "fewer than two tasks can be asked, so that no head is compared with another task"
        heads = unmeasured_heads(layers, model.heads)
        effects_table, ablation = (pd.DataFrame(columns=c) for c in (EFFECT_COLUMNS, COLUMNS))
        return FunctionVectors(model.name, heads, effects_table, table, ablation, (note,))
    effects = [
        task_effects(runner, scored, number, size, steps.advance) for number in range(len(scored))
    ]
    judged = effect_table(scored, effects, layers, seed=size.seed)
    heads = head_table(judged, seed=size.seed)
    judged["promotes"] = promoted_words(runner, scored, judged, heads, size)
    induction = [] if run is None else _induction(run)
    notes = []
    if run is not None:
        tagged = _induction_tags(run)
        heads["induction_head"] = [
            "yes" if (row.layer, row.head) in tagged else "no" for row in heads.itertuples()
        ]
        notes.append(_overlap(heads))
    ablation = pd.DataFrame(columns=COLUMNS)
    if share:
        count = max(1, round(share * len(heads)))
        best = heads.sort_values("lift", ascending=False, kind="stable").head(count)
        strongest: list[Head] = [(int(row.layer), int(row.head)) for row in best.itertuples()]
        by_layer = dict.fromkeys(layers, model.heads)
        arms = arms_of(strongest, induction[:count], by_layer, seed=size.seed)
        ablation = accuracy_without(runner, scored, arms, size, steps.advance)
        steps.advance((groups - len(arms)) * len(scored))
    return FunctionVectors(model.name, heads, judged, table, ablation, tuple(notes))


def _check_length(model: Model, tasks: Sequence[Task], size: PromptSize) -> None:
    """Refuse prompts that are longer than the model's context."""
    longest = max(
        (
            len(prompt.tokens)
            for task in tasks
            for part in range(PARTS)
            for prompt in few_shot_prompts(task, part, CLEAN, tokenizer=model.tokenizer, size=size)
        ),
        default=0,
    )
    if longest > model.context:
        raise ModelError(
            f"{model.name}: prompts of {size.shots} examples have up to {longest} tokens, and its "
            f"context has {model.context}; fewer examples would do"
        )


def _task_row(reading: TaskReading) -> dict[str, object]:
    kinds = {"": CLEAN, "shuffled_": SHUFFLED, "zero_shot_": ZERO_SHOT}
    row: dict[str, object] = {"task": reading.task.name, "pairs": reading.task.size}
    for prefix, kind in kinds.items():
        row[f"{prefix}accuracy"] = reading.accuracy.get(kind, np.nan)
        row[f"{prefix}log_probability"] = reading.log_probability.get(kind, np.nan)
    return row | {"verdict": reading.verdict}


def _induction(run: Result) -> list[Head]:
    """The heads of a run by how much they look as induction does, those that do so most first."""
    evidence = run.evidence
    rows = evidence[evidence["type"] + "/" + evidence["relation"] == INDUCTION]
    rows = rows.sort_values("lift", ascending=False, kind="stable")
    return [(int(row.layer), int(row.head)) for row in rows.itertuples()]


def _induction_tags(run: Result) -> set[Head]:
    evidence = run.evidence
    tagged = evidence[evidence["tagged"].astype(bool) & (evidence["type"] == "induction")]
    return {(int(row.layer), int(row.head)) for row in tagged.itertuples()}


def _overlap(heads: pd.DataFrame) -> str:
    tagged = heads[heads["function_vector"].astype(bool)]
    both = int((tagged["induction_head"] == "yes").sum())
    count = int((heads["induction_head"] == "yes").sum())
    return (
        f"{both} of {len(tagged)} function-vector heads are among the run's {count} induction heads"
    )
