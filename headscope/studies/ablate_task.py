"""Ablation of heads on the prompts of a task: one by one, together, and found by a search."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from headscope.causal.head_set import SETS, Head
from headscope.causal.rerun import Rerunner
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import Method, Metric, TaskRunner
from headscope.errors import CorpusError, HeadscopeError
from headscope.heads import parse_head
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.options import Device, Name, Plain, Positive, Revision, Seed, Source
from headscope.progress import Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.listing import selected_heads
from headscope.runs.recorded_paths import name_of
from headscope.statistics.conditions import MAX_Q
from headscope.statistics.result import Result
from headscope.stimuli.tasks import MIN_PROMPTS, Task, TaskSource, read_task
from headscope.studies.ablate_task_effects import (
    CANDIDATES,
    MOST_FOUND,
    ONLY_SET,
    RANDOM_SET,
    SET,
    TaskTest,
    found_set,
    head_rows,
    set_rows,
)
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMINAL_HEADS = 12
"""Heads that a terminal shows."""

STUDY = Study(
    rows="head; or for heads together, a row for the set, one for the model with only the set, and "
    "one per random set",
    columns=table_columns("""
        kind | `head`, `set`, `only the set` or `random set` | what is replaced: a head, these
            heads, all heads but these, or as many heads of similar layer and norm of output
        layer, head | count, ≥ 0 | layer of the head, and its number there; empty for sets
        heads | names joined by `;` | the head or the heads
        tags | types joined by `;` | tags of the heads in the run; empty without a run
        prompts | count, ≥ 2 | prompts measured
        clean | the metric's unit | mean metric of the untouched model
        effect | the metric's unit | metric with the heads replaced − `clean`; below 0 is harm
        ci_low, ci_high | the metric's unit | ends of its 95 % interval over groups of prompts
        attribution | the metric's unit | first-order estimate of `effect`; empty for sets
        measured | True or False | False if by its attribution the head is not among the fifth with
            the largest effects; then `effect` is empty
        share | share | effect ÷ effect of replacing all heads; empty for single heads
        rank | count, ≥ 1 | for the set: 1 + random sets with an effect at least as large
        p_value | 0 to 1 | for a head: two-sided test over groups of prompts that the effect is 0;
            for the set: rank ÷ (1 + random sets)
        q_value | 0 to 1 | for a head: Benjamini–Hochberg over all heads of the model
    """),
    figure=HeatMap(value="effect", letters="tags", label="effect on the metric, below 0 is harm"),
    encoders=False,
    bad_call={"task": "no-such-task"},
)


@study(STUDY)
def ablate_task(
    model: ModelOrRun,
    *,
    task: TaskSource,
    heads: Annotated[
        Name | None,
        Field(
            description="Heads that are ablated together: names such as L5H1,L6H9, or of a run a "
            "type, a relation or tagged. Default: each head alone."
        ),
    ] = None,
    top: Annotated[
        Positive | None,
        Field(description="Ablate the heads with the most harmful single effects together."),
    ] = None,
    find: Annotated[
        bool,
        Field(
            description="Search a small set whose ablation takes 80 % of the metric on one half of "
            "the prompts, and test it on the other."
        ),
    ] = False,
    how: Annotated[
        Method,
        Field(
            description="Replace outputs by their mean over the prompts, by zero, or by those on "
            "the corrupt prompt (resample)."
        ),
    ] = "mean",
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
    plain: Plain = False,
    seed: Seed = 0,
    progress: Progress = True,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Measure which heads matter for a task: one by one, or together against random sets.

    If the interval of the metric includes chance, no head is ablated. Attribution orders single
    heads, and those that are estimated to be among the fifth with the largest effects are measured
    exactly. A set is compared with 20 random sets of as many heads, matched by layer and norm of
    output. Heads that `top` or `find` choose are chosen on one half of the prompts and tested on
    the other, because a set that is chosen and tested on the same prompts is favoured.

    Raises:
        CorpusError: the task has invalid rows, or too few prompts that the tokenizer can ask.
        ChoiceError: no task of that name ships.
        HeadscopeError: the model cannot do the task; no such head; or options that exclude others.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
    """
    _check_options(heads, top, find=find)
    checked_task = read_task(task, seed=seed).first(prompts)
    used_metric = _metric_of(checked_task, metric, how)
    with progress_bar(progress, "ablating", unit="heads") as bar:
        loaded, run = model_or_run(model, source=source, revision=revision, device=device)
        refuse_encoder(loaded, "ablate --task")
        loaded = loaded.with_plain_prompts(plain)
        together = [] if heads is None else _named_heads(loaded, run, heads)
        spelled = TaskPrompts.of(checked_task, loaded)
        make_test = partial(
            _test_of, Rerunner(loaded), run, metric=used_metric, method=how, seed=seed
        )
        searches = find or top is not None
        halves = _halves_of(spelled) if searches else None
        test = make_test(spelled)
        _check_competence(test)
        if not together and halves is None:
            singles = head_rows(test, Steps(bar, loaded.layers * loaded.heads))
            return _result_of_heads(test, singles)
        if halves is not None:
            searched = make_test(halves[0])
            steps = Steps(bar, _most_tries(loaded))
            together = _search(searched, top, steps)
            test = make_test(halves[1])
        table = set_rows(test, together, Steps(bar, SETS + 3))
    return _result_of_set(test, table)


def _check_options(heads: str | None, top: int | None, *, find: bool) -> None:
    options = {"--heads": heads is not None, "--top": top is not None, "--find": find}
    names = [name for name, is_given in options.items() if is_given]
    if len(names) > 1:
        raise HeadscopeError(f"{' and '.join(names)} both choose the heads; give one of them")


def _metric_of(task: Task, metric: Metric | None, how: Method) -> Metric:
    """The metric that was asked for, or the default one of the task."""
    if metric == "difference":
        task.check_wrong("the metric difference")
    if how == "resample":
        task.check_corrupt("--how resample")
    if metric is not None:
        return metric
    return "difference" if task.compares else "log-probability"


def _named_heads(model: Model, run: Result | None, heads: str) -> list[Head]:
    """Heads by their names, or by a type, a relation or `tagged` of a run."""
    if run is not None:
        return selected_heads(run, heads)
    positions = list(dict.fromkeys(parse_head(name) for name in heads.split(",")))
    for layer, head in positions:
        model.check_head(layer, head)
    return positions


def _test_of(
    rerunner: Rerunner,
    run: Result | None,
    prompts: TaskPrompts,
    *,
    metric: Metric,
    method: Method,
    seed: int,
) -> TaskTest:
    runner = TaskRunner(rerunner, prompts, metric=metric, method=method)
    tags: dict[Head, str] = {}
    if run is not None:
        rows = run.heads[["layer", "head", "tags"]].itertuples(index=False)
        tags = {(int(layer), int(head)): str(types) for layer, head, types in rows}
    return TaskTest(runner, tags, seed)


def _check_competence(test: TaskTest) -> None:
    """Refuse a task that the model cannot do: no head is to blame then.

    Raises:
        HeadscopeError: the interval of the metric includes chance.
    """
    above = test.competence
    if above.low > 0:
        return
    runner = test.runner
    raise HeadscopeError(
        f"{runner.rerunner.model.name} cannot do the task {runner.prompts.name}: its "
        f"{runner.metric} minus chance is {above.mean:.3f} [{above.low:.3f}, {above.high:.3f}] "
        f"over {runner.prompts.count} prompts; no head was ablated"
    )


def _most_tries(model: Model) -> int:
    return model.layers * model.heads + CANDIDATES * MOST_FOUND


def _halves_of(prompts: TaskPrompts) -> tuple[TaskPrompts, TaskPrompts]:
    """The half of the prompts that chooses heads, and the half that tests them.

    Raises:
        CorpusError: a half has fewer than two groups of prompts.
    """
    groups = len(np.unique(prompts.groups))
    if groups < 2 * MIN_PROMPTS:
        raise CorpusError(
            f"{prompts.name}: {groups} groups of prompts; to choose heads on one half and test "
            f"them on the other, at least {2 * MIN_PROMPTS} are needed"
        )
    return prompts.half(0), prompts.half(1)


def _search(test: TaskTest, top: int | None, steps: Steps) -> list[Head]:
    """The most harmful heads one by one, or a set that is found greedily if `top` is None.

    Raises:
        HeadscopeError: no head's ablation lowers the metric.
    """
    singles = head_rows(test, steps)
    if top is None:
        heads = found_set(test, singles, steps)
    else:
        harmful = singles[singles["effect"] < 0].nsmallest(top, "effect")
        heads = list(zip(harmful["layer"].astype(int), harmful["head"].astype(int), strict=True))
    if not heads:
        raise HeadscopeError("no head's ablation lowers the metric: there is no set to test")
    return heads


def _result_of_heads(test: TaskTest, table: pd.DataFrame) -> StudyResult:
    runner = test.runner
    measured = table[table["measured"]]
    table = table.assign(share=np.nan, rank=np.nan)[STUDY.names]
    columns = ["layer", "head", "tags", "effect", "ci_low", "ci_high", "q_value"]
    significant = measured[measured["q_value"] < MAX_Q]
    harmful = int((significant["effect"] < 0).sum())
    notes = [
        f"an effect below 0 is harm; at q < {MAX_Q:g}, {harmful} heads harm the task if they are "
        f"ablated and {len(significant) - harmful} help",
        f"{len(measured)} of {len(table)} heads were measured exactly; by attribution the others "
        "are not among the fifth with the largest effects",
    ]
    return StudyResult(
        title=_title(test),
        table=table,
        terminal_table=table.head(TERMINAL_HEADS)[columns],
        notes=[*notes, *runner.prompts.notes],
        values=_values(test),
        draw=STUDY.draw,
    )


def _result_of_set(test: TaskTest, table: pd.DataFrame) -> StudyResult:
    runner = test.runner
    table = table.reindex(columns=STUDY.names)
    tested = table.iloc[0]
    only = table.iloc[1]
    controls = table[table["kind"] == RANDOM_SET]
    notes = [
        f"an effect below 0 is harm; the ablation takes {tested['share']:.0%} of the metric, "
        f"random sets {controls['share'].mean():.0%} on average",
        f"rank {tested['rank']:.0f} among {len(controls)} random sets, p = {tested['p_value']:.3f}",
        f"with all other heads replaced, the model keeps {1 - only['share']:.0%} of the metric",
    ]
    columns = ["kind", "heads", "effect", "ci_low", "ci_high", "share"]
    summary = controls[["effect", "ci_low", "ci_high", "share"]].mean()
    mean_row = {"kind": f"mean of {len(controls)} random sets", "heads": "", **summary}
    summary_table = pd.concat([table.head(2)[columns], pd.DataFrame([mean_row])], ignore_index=True)
    return StudyResult(
        title=_title(test),
        table=table,
        terminal_table=summary_table,
        notes=[*notes, *runner.prompts.notes],
        values=_values(test),
        draw=_set_figure,
    )


def _title(test: TaskTest) -> str:
    runner = test.runner
    clean = test.estimate(runner.clean)
    interval = f"[{clean.low:.3f}, {clean.high:.3f}]"
    return (
        f"{name_of(runner.rerunner.model.name)}, task {runner.prompts.name}: {runner.metric} "
        f"{clean.mean:.3f} {interval} over {runner.prompts.count} prompts; heads replaced by "
        f"{_REPLACED_BY[runner.method]}"
    )


def _values(test: TaskTest) -> dict[str, Any]:
    runner = test.runner
    return {"task": runner.prompts.name, "metric": runner.metric, "how": runner.method}


_REPLACED_BY = {
    "mean": "their mean",
    "zero": "zero",
    "resample": "their output on the corrupt prompt",
}


def _set_figure(result: StudyResult) -> Figure:
    """Effects of the set and of the random sets, as points over a line of ranks."""
    figure = Figure(figsize=(6.0, 2.4), layout="constrained")
    axes = figure.subplots()
    for name, colour in ((RANDOM_SET, "0.6"), (ONLY_SET, "#4477aa"), (SET, "#cc3311")):
        rows = result.table[result.table["kind"] == name]
        effect = rows["effect"]
        below = effect - rows["ci_low"]
        above = rows["ci_high"] - effect
        height = [name] * len(rows)
        axes.errorbar(
            effect,
            height,
            xerr=[below, above],
            fmt="o",
            ms=4,
            color=colour,
            lw=0.8,
        )
    axes.axvline(0, color="0.8", lw=0.8)
    axes.set_xlabel(f"effect on the {result.values['metric']} (below 0 is harm)")
    axes.set_title(result.title.split(": ")[0].replace("$", r"\$"), fontsize=9)
    return figure
