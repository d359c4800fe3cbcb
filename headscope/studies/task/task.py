"""A task explained: which heads matter, from where to where, what they write, who feeds them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from headscope.causal.direct_paths import find_paths
from headscope.causal.head_set import Head
from headscope.causal.paths import PathReader
from headscope.causal.rerun import Rerunner
from headscope.causal.roles import PromptRoles
from headscope.causal.task_attention import TaskAttention, Writing, measure_writing
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import Method, Metric, TaskRunner
from headscope.errors import CorpusError, HeadscopeError, ModelError, first_line
from headscope.models.families import refuse_encoder
from headscope.options import (
    Chat,
    Device,
    OnMessage,
    Overwrite,
    PathName,
    Plain,
    Positive,
    Revision,
    Seed,
    Source,
)
from headscope.progress import OnProgress, Progress, Steps, cost, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.write import check_target
from headscope.stimuli.tasks import MIN_PROMPTS, OptionalTask, Task, TaskSource, read_task
from headscope.studies.study import Command, Study, study
from headscope.studies.task.circuit import (
    CHOOSES,
    JUDGES,
    LEAST,
    MAX_Q,
    MOST_MEASURED,
    Judge,
    by_size,
    choose_heads,
    exact_effects,
    heads_in_common,
    heads_to_measure,
    in_other_words,
    joint_effects,
    judged_circuit,
    sizes,
)
from headscope.studies.task.described import CONFIRMED, CUTS, confirmed_paths, describe_heads
from headscope.studies.task.measuring import Measuring, Stages, Statistics
from headscope.studies.task.result import COLUMNS, FILES, REPLACED_BY, Findings, TaskResult
from headscope.views.study_figure import HeatMap
from headscope.views.task_page.words import in_interval

DESCRIBED = 12
"""Heads with the largest effects whose attention is described, besides those of the circuit."""
NO_CIRCUIT: Mapping[str, Any] = {
    "heads": [],
    "curve": [],
    "random": [],
    "sets": 0,
    **dict.fromkeys(("total_effect", "faithfulness", "completeness", "effect", "p_value")),
    **dict.fromkeys(("completeness_p_value", "cpr", "cmd", "halves", "other_words")),
}
"""The part of `circuit.json` on a circuit that there is not."""

STUDY = Study(
    command=Command(
        group="top",
        summary="Explain your task: heads, paths and their circuit.",
        examples=(
            "headscope task smollm2 prompts.csv",
            "headscope task smollm2 ioi --sets 200 --out runs/ioi",
        ),
        out="",
        figure="",
    ),
    rows="head of the model, the largest effects first",
    columns=COLUMNS,
    figure=HeatMap(value="effect", letters="tags", label="effect on the metric, below 0 is harm"),
    encoders=False,
    bad_call={"sets": 0},
)


@study(STUDY)
def task(
    model: ModelOrRun,
    rows: TaskSource,
    *,
    how: Annotated[
        Literal["mean", "position", "zero", "resample", "restore"] | None,
        Field(
            description="Replace outputs of heads by those on the corrupt prompt (resample), by "
            "their mean over tokens (mean) or at each position (position), or by zero; or run the "
            "corrupt prompts with outputs on the prompts (restore). Default: resample if each row "
            "has a corrupt prompt, else mean."
        ),
    ] = None,
    metric: Annotated[
        Metric | None,
        Field(
            description="Default: difference (log-probability of the answer − that of the wrong "
            "one) if the task has wrong answers, else log-probability."
        ),
    ] = None,
    prompts: Annotated[
        Positive | None, Field(description="Maximum number of prompts. Default: all.")
    ] = None,
    quick: Annotated[
        bool, Field(description="Estimate heads by gradients alone; run none exactly.")
    ] = False,
    sets: Annotated[Positive, Field(description="Random sets of heads beside the circuit.")] = 50,
    other_words: Annotated[
        OptionalTask, Field(description="The same task in other words: a second file.")
    ] = None,
    out: Annotated[
        PathName | None,
        Field(
            description="Folder of the results, in which an interrupted call goes on. Default of "
            "the command: runs/tasks/NAME."
        ),
    ] = None,
    overwrite: Overwrite = False,
    plain: Plain = False,
    chat: Chat = False,
    seed: Seed = 0,
    progress: Progress = True,
    on_message: OnMessage = lambda line: None,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> TaskResult:
    """Explain a task: heads that matter, from where to where, what they write, who feeds them.

    Heads with the largest estimates by two kinds of gradients are replaced one by one. Those with
    the largest effects on one half of the prompts are the circuit; it is judged on the other half,
    beside random sets of heads of similar layer and norm. If the interval of the metric includes
    chance, nothing is measured.

    Raises:
        CorpusError: the task has invalid rows, or too few prompts that the tokenizer can ask.
        ChoiceError: no task of that name ships.
        HeadscopeError: the model cannot do the task.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
        WriteError: the folder has results already, or cannot be written.
    """
    folder = None if out is None else Path(out)
    if folder is not None:
        for name in FILES:
            check_target(folder / name, overwrite=overwrite, chosen_by="--out")

    # both tasks are checked before a model is loaded
    checked_task = read_task(rows, seed=seed).first(prompts)
    checked_task, method, metric = _checked(checked_task, how, metric)
    second = None
    if other_words is not None:
        second = read_task(other_words, seed=seed).first(prompts)
        second, _, _ = _checked(second, how or method, metric)

    with progress_bar(progress, "explaining", unit="layers", announced=False) as bar:
        loaded, run = model_or_run(model, source=source, revision=revision, device=device)
        refuse_encoder(loaded, "task")
        loaded = loaded.with_plain_prompts(plain).in_chat(chat)
        # groups are halved, because prompts of one group would be on both sides
        spelled = TaskPrompts.of(checked_task, loaded)
        groups = len(np.unique(spelled.groups))
        if groups < 2 * MIN_PROMPTS:
            size = f"{spelled.count} prompts"
            if groups < spelled.count:
                size += f" in {groups} groups"
            raise CorpusError(
                f"{spelled.name}: {size}; to choose heads on one half and judge them on the "
                f"other, {2 * MIN_PROMPTS} are needed"
            )
        # the clean runs are kept, and their time foretells that of the others
        started = time.perf_counter()
        runner = TaskRunner(Rerunner(loaded), spelled, metric=metric, method=method)
        seconds = time.perf_counter() - started
        statistics = Statistics(spelled.groups, seed)

        # no head is to blame for a task that the model cannot do
        above = statistics.interval(runner.above_chance())
        if above["low"] <= 0:
            raise HeadscopeError(
                f"{loaded.name} cannot do the task {spelled.name}: its {metric} minus chance is "
                f"{in_interval(above, 3)} over {spelled.count:,} prompts; no head was replaced"
            )

        # arrays of a stopped call are used again if all that they depend on is the same
        key = (
            [vars(row) for row in checked_task.rows],
            loaded.weights_sha256,
            method,
            metric,
            seed,
            plain,
            None if loaded.tokenizer.template is None else loaded.tokenizer.template.text,
        )
        measuring = Measuring(runner, statistics, Stages(folder, repr(key)))
        # the first runs tell how long the others take
        on_message(announcement(measuring, seconds, sets, quick=quick))
        if quick:
            findings = estimated(measuring, bar)
        else:
            findings = measured_exactly(measuring, bar, second, sets)

        # tags on running text stand beside what heads do here
        tags: dict[Head, str] = {}
        if run is not None:
            for row in run.heads.itertuples():
                tags[int(row.layer), int(row.head)] = str(row.tags)
        result = findings.result(tags, STUDY.draw)
    if folder is not None:
        result.write(folder, overwrite=overwrite)
        measuring.stages.remove()
    return result


def _checked(task: Task, method: str | None, metric: Metric | None) -> tuple[Task, Method, Metric]:
    """The task, the method and the metric, by default those that the task allows."""
    # a corrupt prompt changes what the task asks for and little else; means need no second prompt
    if method is None:
        method = "resample" if task.has_corrupt else "mean"
    if method in ("resample", "restore"):
        task.check_corrupt(method)
    if method == "restore":
        # what was wrong is right after the corrupt prompts, which run with the others' outputs
        task.check_wrong(method)
        rows = []
        for row in task.rows:
            swapped = replace(row, prompt=row.corrupt, corrupt=row.prompt)
            rows.append(replace(swapped, answer=row.wrong, wrong=row.answer))
        task = replace(task, rows=tuple(rows))
        method = "resample"
    # a difference leaves out what raises or lowers both answers
    if metric is None:
        metric = "difference" if task.compares else "log-probability"
    if metric == "difference":
        task.check_wrong("the metric difference")
    return task, cast(Method, method), metric


def announcement(measuring: Measuring, seconds: float, sets: int, *, quick: bool) -> str:
    """A line on what is measured, and what it costs by the time of the first runs."""
    runner = measuring.runner
    prompts = runner.prompts
    tokens = sum(len(text.strings) for text in prompts.texts)
    # positions that the corrupt prompts do not change are not run again
    unchanged = np.mean([clean.later.rows.start for clean in runner.clean_batches])
    share = 1 - float(unchanged) * prompts.count / tokens
    # the first runs are two of each prompt, or three with means
    passes = 8.0
    if not quick:
        curve = len(sizes(len(runner.heads))) + 10
        passes += MOST_MEASURED / 2 * share + (sets + curve / 2) * share + 30
    resumed = "; an interrupted run goes on" if measuring.stages.resumed else ""
    return (
        f"{prompts.name}: {prompts.count:,} prompts, {tokens:,} tokens, heads replaced by "
        f"{REPLACED_BY[runner.method]}; {cost(seconds / 2 * passes)}{resumed}"
    )


def _estimates(measuring: Measuring) -> dict[str, Float[ndarray, " head"]]:
    """Mean first-order estimates of all heads, by their kind."""
    attributions = measuring.runner.attributions
    by_position = {
        "attribution": measuring.stages.array("attribution", attributions),
        "smooth": measuring.stages.array("smooth", partial(attributions, smooth=True)),
    }
    return {kind: values.sum(1).mean(0) for kind, values in by_position.items()}


def estimated(measuring: Measuring, progress: OnProgress) -> Findings:
    """Estimates by gradients alone, and the attention of the heads with the largest."""
    runner, layers = measuring.runner, measuring.layers
    # two gradients of about three passes each, and a pass that reads attention
    steps = Steps(progress, 7 * layers)
    estimates = _estimates(measuring)
    steps.advance(6 * layers)
    # without exact runs the estimates decide which heads are described
    heads = [runner.heads[number] for number in heads_to_measure(estimates)[:DESCRIBED]]
    attention = TaskAttention(runner, PromptRoles.of(runner.prompts.texts), heads)
    described = describe_heads(measuring, attention, heads, {}, cut=False)
    steps.finish()
    return Findings(
        measuring=measuring,
        attention=attention,
        estimates=estimates,
        effects={},
        described=described,
        edges=[],
        circuit=NO_CIRCUIT,
        notes=["effects are first-order estimates by gradients; no head was run exactly"],
    )


def measured_exactly(
    measuring: Measuring, progress: OnProgress, second: Task | None, sets: int
) -> Findings:
    """Everything: exact effects, the circuit, the heads' attention and writing, and paths.

    Args:
        measuring: the model on the task.
        progress: called with the layers that have run, and all.
        second: the task in other words.
        sets: random sets beside the circuit.
    """
    runner, statistics, layers = measuring.runner, measuring.statistics, measuring.layers
    count = len(runner.heads)
    estimates = _estimates(measuring)
    measured = [runner.heads[number] for number in heads_to_measure(estimates)]

    # all layers that will run, as far as they are known now
    of_layers = sum(layers - layer for layer, _ in measured)
    judging = len(sizes(count)) + 2 * sets + 14
    steps = Steps(
        progress,
        of_layers * (2 if second else 1)
        + judging * layers // 2
        + (2 * DESCRIBED * CUTS + 15 * CONFIRMED) * layers // 2
        + 10 * layers,
    )
    measuring = replace(measuring, steps=steps)

    # heads that may matter, one by one
    effects = exact_effects(measuring, measured)
    floor = measuring.stages.array("floor", lambda: runner.without(runner.heads))
    whole_effect = float((floor - runner.clean).mean())

    # a head with a backup does nothing alone, though what it writes would matter
    joint = joint_effects(measuring, effects, estimates["smooth"], whole_effect)
    decisive = {**effects, **joint}

    # each half chooses a circuit; that of the first is judged on the second
    halves = []
    for half in (CHOOSES, JUDGES):
        prompts = runner.prompts.halves == half
        halves.append(choose_heads(decisive, whole_effect, statistics, prompts, count))
    members = halves[CHOOSES]

    # all heads in the order in which they are kept: measured ones first
    chosen_on = runner.prompts.halves == CHOOSES
    of_half = {head: np.where(chosen_on, effect, np.nan) for head, effect in decisive.items()}
    order = by_size(of_half)
    by_estimate = np.argsort(-np.abs(sum(estimates.values())), kind="stable")
    in_turn = [runner.heads[number] for number in by_estimate.tolist()]
    order += [head for head in in_turn if head not in effects]

    # the circuit beside random sets, and what each head adds to it
    circuit = dict(NO_CIRCUIT)
    shares: dict[Head, float] = {}
    notes: list[str] = []
    if members:
        judge = Judge(measuring, floor)
        circuit |= judged_circuit(judge, members, order, sets, statistics.seed)
        shares = judge.shares(members)
    else:
        notes.append(
            f"there is no circuit: on the half that chooses it, {chosen_on.sum()} prompts, no head "
            f"has q < {MAX_Q:g} and an effect of at least {LEAST:.0%} of that of all heads; more "
            "prompts may show one"
        )
    circuit["halves"] = heads_in_common(*halves)
    if second is not None:
        in_words = TaskPrompts.of(second, runner.rerunner.model)
        circuit["other_words"] = in_other_words(measuring, in_words, members, measured)

    # the heads with the largest effects, from role to role
    q_values = statistics.q_values(decisive, count)
    largest = [head for head in by_size(decisive)[:DESCRIBED] if q_values[head] < MAX_Q]
    heads = list(dict.fromkeys([*members, *largest]))
    attention = TaskAttention(runner, PromptRoles.of(runner.prompts.texts), heads)
    writes: Mapping[Head, Writing] = {}
    try:
        modules = find_paths(runner.rerunner.network, runner.rerunner.model.heads)
        writes = measure_writing(modules, attention, heads)
    except ModelError as error:
        notes.append(f"what heads write was not computed: {first_line(error)}")
    described = describe_heads(measuring, attention, heads, writes, cut=True)

    # direct paths into the heads of the circuit
    edges: list[dict[str, Any]] = []
    try:
        reader = PathReader(runner)
    except ModelError as error:
        notes.append(f"paths into heads were not computed: {first_line(error)}")
    else:
        edges = confirmed_paths(reader, measuring, attention, members, whole_effect)
    steps.finish()
    return Findings(
        measuring=measuring,
        attention=attention,
        estimates=estimates,
        effects=effects,
        joint=joint,
        described=described,
        edges=edges,
        circuit=circuit,
        shares=shares,
        notes=notes,
    )
