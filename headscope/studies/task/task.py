"""A task explained: which heads matter, from where to where, what they write, who feeds them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from headscope.causal.direct_paths import find_paths
from headscope.causal.head_set import Head
from headscope.causal.paths import VIAS, PathReader
from headscope.causal.rerun import Rerunner
from headscope.causal.roles import OTHER, START, PromptRoles
from headscope.causal.task_attention import TaskAttention, Writing, writing
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import Method, Metric, TaskRunner
from headscope.errors import CorpusError, HeadscopeError, ModelError, first_line
from headscope.heads import head_name
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
from headscope.progress import Progress, Steps, cost, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.write import check_target
from headscope.statistics.estimates import adjusted
from headscope.statistics.result import Result
from headscope.stimuli.tasks import MIN_PROMPTS, OptionalTask, Task, TaskSource, read_task
from headscope.studies.study import Study, study
from headscope.studies.study_table import Command
from headscope.studies.task.circuit import (
    LEAST,
    MAX_Q,
    Judge,
    Statistics,
    by_size,
    choose_heads,
    judged_circuit,
    sizes,
)
from headscope.studies.task.result import COLUMNS, FILES, REPLACED_BY, Findings, TaskResult
from headscope.studies.task.stages import Stages
from headscope.views.study_figure import HeatMap
from headscope.views.task_page.words import in_interval

OF_EACH = 30
"""Heads with the largest estimates of each kind that are measured exactly."""
MOST_MEASURED = 45
BACKED_UP = 3
"""Times that a head's estimate exceeds its effect if it may have a backup."""
MOST_SUSPECTS = 6
"""Heads that may have backups, at most."""
DESCRIBED = 12
"""Heads with the largest effects whose attention is described, besides those of the circuit."""
CUTS = 2
"""Edges of a head that are cut by each of two criteria."""
LEAST_MASS = 0.05
"""Least mean attention from role to role that is described."""
CONFIRMED = 4
"""Strongest paths into a head that are run exactly."""
LEAST_PATH = 0.01
"""Least estimate of a path, as a share of the effect of replacing all heads."""
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
            check_target(folder / name, overwrite=overwrite)

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
        spelled = TaskPrompts.of(checked_task, loaded)
        if len(np.unique(spelled.groups)) < 2 * MIN_PROMPTS:
            raise CorpusError(
                f"{spelled.name}: {len(np.unique(spelled.groups))} groups of prompts; to choose "
                f"heads on one half and judge them on the other, {2 * MIN_PROMPTS} are needed"
            )
        started = time.perf_counter()
        runner = TaskRunner(Rerunner(loaded), spelled, metric=metric, method=method)
        seconds = time.perf_counter() - started
        statistics = Statistics(spelled.groups, seed)

        # no head is to blame for a task that the model cannot do
        above = statistics.interval(runner.above_chance())
        if above["low"] <= 0:
            raise HeadscopeError(
                f"{loaded.name} cannot do the task {spelled.name}: its {metric} minus chance is "
                f"{in_interval(above, 3)} over {spelled.count} prompts; no head was replaced"
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
        explanation = _Explanation(
            runner=runner,
            run=run,
            stages=Stages(folder, repr(key)),
            statistics=statistics,
            sets=sets,
            seed=seed,
        )
        # the first runs tell how long the others take
        on_message(explanation.estimate(seconds, quick=quick))
        result = explanation.quick(bar) if quick else explanation.explain(bar, second)
    if folder is not None:
        result.write(folder, overwrite=overwrite)
        explanation.stages.remove()
    return result


def _checked(task: Task, method: str | None, metric: Metric | None) -> tuple[Task, Method, Metric]:
    """The task, the method and the metric, by default those that the task allows."""
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
    if metric is None:
        metric = "difference" if task.compares else "log-probability"
    if metric == "difference":
        task.check_wrong("the metric difference")
    return task, cast(Method, method), metric


@dataclass(frozen=True, eq=False, kw_only=True)
class _Explanation:
    """A model on a task whose stages are measured one after the other."""

    runner: TaskRunner
    run: Result | None
    stages: Stages
    statistics: Statistics
    sets: int
    seed: int

    @property
    def layers(self) -> int:
        """Blocks of the model."""
        return len(self.runner.rerunner.blocks)

    def estimate(self, seconds: float, *, quick: bool) -> str:
        """A line on what is measured, and what it costs by the time of the first runs."""
        prompts = self.runner.prompts
        tokens = sum(len(text.strings) for text in prompts.texts)
        # positions that the corrupt prompts do not change are not run again
        unchanged = np.mean([clean.later.rows.start for clean in self.runner.clean_batches])
        share = 1 - float(unchanged) * prompts.count / tokens
        # the first runs are two of each prompt, or three with means
        passes = 8.0
        if not quick:
            curve = len(sizes(len(self.runner.heads))) + 10
            passes += MOST_MEASURED / 2 * share + (self.sets + curve / 2) * share + 30
        resumed = "; an interrupted run goes on" if self.stages.resumed else ""
        return (
            f"{prompts.name}: {prompts.count} prompts, {tokens:,} tokens, heads replaced by "
            f"{REPLACED_BY[self.runner.method]}; {cost(seconds / 2 * passes)}{resumed}"
        )

    def estimates(self) -> dict[str, Float[ndarray, " head"]]:
        """Mean first-order estimates of all heads, by their kind."""
        attributions = self.runner.attributions
        by_position = {
            "attribution": self.stages.array("attribution", attributions),
            "smooth": self.stages.array("smooth", partial(attributions, smooth=True)),
        }
        return {kind: values.sum(1).mean(0) for kind, values in by_position.items()}

    def quick(self, progress: Callable[[int, int], None]) -> TaskResult:
        """Estimates by gradients alone, and the attention of the heads with the largest."""
        steps = Steps(progress, 7 * self.layers)
        estimates = self.estimates()
        steps.advance(6 * self.layers)
        described = _candidates(estimates)[:DESCRIBED]
        heads = [self.runner.heads[number] for number in described]
        roles = PromptRoles.of(self.runner.prompts.texts)
        attention = TaskAttention(self.runner, roles, heads)
        parts = self._described(attention, heads, {}, {}, steps)
        steps.finish()
        notes = ["effects are first-order estimates by gradients; no head was run exactly"]
        return Findings(
            runner=self.runner,
            statistics=self.statistics,
            tags=self.tags,
            attention=attention,
            estimates=estimates,
            effects={},
            described=parts,
            edges=[],
            circuit=NO_CIRCUIT,
            notes=notes,
        ).result(STUDY.draw)

    def explain(self, progress: Callable[[int, int], None], second: Task | None) -> TaskResult:
        """Everything: exact effects, the circuit, the heads' attention and writing, and paths."""
        runner, statistics = self.runner, self.statistics
        count = len(runner.heads)
        estimates = self.estimates()
        measured = [runner.heads[number] for number in _candidates(estimates)]
        of_layers = sum(self.layers - layer for layer, _ in measured)
        judging = len(sizes(count)) + 2 * self.sets + 14
        steps = Steps(
            progress,
            of_layers * (2 if second else 1)
            + judging * self.layers // 2
            + (2 * DESCRIBED * CUTS + 15 * CONFIRMED) * self.layers // 2
            + 10 * self.layers,
        )

        # heads that may matter, one by one
        effects = self._exact(runner, self.stages, "", measured, steps)
        floor = self.stages.array("floor", lambda: runner.without(runner.heads))
        whole_effect = float((floor - runner.clean).mean())

        # a head with a backup does nothing alone, though what it writes would matter
        joint = self._joint(effects, estimates["smooth"], whole_effect, steps)
        decisive = {**effects, **joint}

        # each half chooses a circuit; that of the first is judged on the second
        halves = []
        for half in (0, 1):
            prompts = runner.prompts.halves == half
            halves.append(choose_heads(decisive, whole_effect, statistics, prompts, count))
        members = halves[0]

        # all heads in the order in which they are kept: measured ones first
        chosen_on = runner.prompts.halves == 0
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
            judge = Judge(runner, self.stages, statistics, floor, steps, self.layers // 2)
            circuit |= judged_circuit(judge, members, order, self.sets, self.seed)
            for head in members:
                without = judge.effect_kept([other for other in members if other != head])
                lost = judge.effect_kept(members) - without
                shares[head] = statistics.ratio(lost, judge.total_effect)["mean"]
        else:
            notes.append(
                f"there is no circuit: on one half of the prompts no head has q < {MAX_Q:g} and an "
                f"effect of at least {LEAST:.0%} of that of all heads"
            )
        circuit["halves"] = _agreement(*halves)
        if second is not None:
            circuit["other_words"] = self._in_other_words(second, members, measured, steps)

        # the heads with the largest effects, from role to role
        roles = PromptRoles.of(runner.prompts.texts)
        q_values = statistics.q_values(decisive, count)
        largest = [head for head in by_size(decisive)[:DESCRIBED] if q_values[head] < MAX_Q]
        described = list(dict.fromkeys([*members, *largest]))
        attention = TaskAttention(runner, roles, described)
        writes: Mapping[Head, Writing] = {}
        try:
            modules = find_paths(runner.rerunner.network, runner.rerunner.model.heads)
            writes = writing(modules, attention, described)
        except ModelError as error:
            notes.append(f"what heads write was not computed: {first_line(error)}")
        parts = self._described(attention, described, effects, writes, steps)

        # direct paths into the heads of the circuit
        edges, path_notes = self._paths(attention, members, whole_effect, steps)
        steps.finish()
        return Findings(
            runner=self.runner,
            statistics=self.statistics,
            tags=self.tags,
            attention=attention,
            estimates=estimates,
            effects=effects,
            joint=joint,
            described=parts,
            edges=edges,
            circuit=circuit,
            shares=shares,
            notes=[*notes, *path_notes],
        ).result(STUDY.draw)

    @property
    def tags(self) -> dict[Head, str]:
        """Tags of each head of the run, joined by `;`; empty without a run."""
        if self.run is None:
            return {}
        rows = self.run.heads[["layer", "head", "tags"]].itertuples(index=False)
        return {(int(layer), int(head)): str(types) for layer, head, types in rows}

    def _exact(
        self,
        runner: TaskRunner,
        stages: Stages,
        prefix: str,
        heads: Sequence[Head],
        steps: Steps,
    ) -> dict[Head, Float[ndarray, " prompt"]]:
        """Exact effects of heads, one by one."""
        effects = {}
        for head in heads:
            name = f"{prefix}{head_name(*head)}"
            metric = stages.array(name, partial(runner.without, [head]))
            effects[head] = metric - runner.clean
            steps.advance(self.layers - head[0])
        return effects

    def _joint(
        self,
        effects: Mapping[Head, Float[ndarray, " prompt"]],
        smooth: Float[ndarray, " head"],
        floor: float,
        steps: Steps,
    ) -> dict[Head, Float[ndarray, " prompt"]]:
        """Effects beside those of other heads that may do the same, where these are larger.

        Suspects are heads whose estimate with norms held is several times their effect; what counts
        is what the last of them takes when all the others are replaced already.
        """
        runner = self.runner
        estimate = dict(zip(runner.heads, np.abs(smooth).tolist(), strict=True))
        suspects = []
        for head in sorted(effects, key=lambda head: -estimate[head]):
            size = abs(float(effects[head].mean()))
            if estimate[head] >= LEAST * abs(floor) and size < estimate[head] / BACKED_UP:
                suspects.append(head)
        suspects = suspects[:MOST_SUSPECTS]

        # one suspect alone has no other to stand in for it
        if len(suspects) < 2:
            return {}
        names = "-".join(head_name(*head) for head in suspects)
        without_all = self.stages.array(f"joint-{names}", partial(runner.without, suspects))
        joint = {}
        for head in suspects:
            others = [other for other in suspects if other != head]
            name = f"joint-{names}-but-{head_name(*head)}"
            without_others = self.stages.array(name, partial(runner.without, others))
            effect = without_all - without_others
            if abs(effect.mean()) > abs(effects[head].mean()):
                joint[head] = effect
            steps.advance(self.layers)
        return joint

    def _in_other_words(
        self, second: Task, members: Sequence[Head], measured: Sequence[Head], steps: Steps
    ) -> dict[str, Any]:
        """The circuit on the same task in other words."""
        runner = self.runner
        prompts = TaskPrompts.of(second, runner.rerunner.model)
        other = TaskRunner(runner.rerunner, prompts, metric=runner.metric, method=runner.method)
        statistics = Statistics(prompts.groups, self.seed)
        effects = self._exact(other, self.stages, "other-", measured, steps)
        floor = self.stages.array("other-floor", lambda: other.without(other.heads))
        with_members = self.stages.array("other-only", lambda: other.only(members))
        every = np.ones(prompts.count, bool)
        whole_effect = float((floor - other.clean).mean())
        chosen_here = choose_heads(effects, whole_effect, statistics, every, len(runner.heads))
        agreement = _agreement(members, chosen_here)
        return {
            "name": prompts.name,
            "prompts": prompts.count,
            "clean": statistics.interval(other.clean),
            "faithfulness": statistics.ratio(with_members - floor, other.clean - floor),
            "heads": agreement["second"],
            "jaccard": agreement["jaccard"],
        }

    def _described(
        self,
        attention: TaskAttention,
        heads: Sequence[Head],
        effects: Mapping[Head, Float[ndarray, " prompt"]],
        writes: Mapping[Head, Writing],
        steps: Steps,
    ) -> dict[Head, dict[str, Any]]:
        """Each head's edges from role to role, the strongest of which are cut, and its writing."""
        names = attention.roles.names
        is_start = np.array(names) == START
        is_other = np.array(names) == OTHER
        statistics = self.statistics
        compares = self.runner.prompts.compares
        parts: dict[Head, dict[str, Any]] = {}
        for head in heads:
            masses = attention.masses(head)
            # edges that matter by the first order; where a head's effect is saturated, which has
            # no gradient, those with the largest masses
            known = (~np.isnan(masses)).sum(0).clip(min=1)
            mass = np.nan_to_num(masses).sum(0) / known
            mass[:, is_start] = 0  # what is moved goes there
            estimated = np.abs(attention.cut_estimates(head).mean(0)) * (mass >= LEAST_MASS)
            of_named = mass * (mass >= LEAST_MASS)
            of_named[is_other] = 0
            strongest = []
            for sizes_of_edges in (estimated, of_named):
                cells = np.argsort(-sizes_of_edges, axis=None, kind="stable")[:CUTS]
                strongest += [cell for cell in cells.tolist() if sizes_of_edges.flat[cell]]

            # each edge once, with keys at like distance as a control, and its cut
            edges = []
            for cell in dict.fromkeys(strongest):
                from_role, to_role = divmod(cell, len(names))
                control = attention.control(head, from_role, to_role)
                known_controls = control[~np.isnan(control)]
                edge = {
                    "from": names[from_role],
                    "to": names[to_role],
                    "mass": statistics.interval(masses[:, from_role, to_role]),
                    "control": float(known_controls.mean()) if len(known_controls) else None,
                    "cut": None,
                }
                if effects:
                    name = f"cut-{head_name(*head)}-{from_role}-{to_role}"
                    cut = partial(attention.cut, head, from_role, to_role)
                    effect = self.stages.array(name, cut)
                    edge["cut"] = statistics.interval(effect)
                    steps.advance(self.layers - head[0])
                edges.append(edge)
            edges.sort(key=lambda edge: -abs((edge["cut"] or {"mean": 0})["mean"]))
            parts[head] = {"attention": edges, "writes": None}

            # what the head writes on both answers; without a wrong one there is no difference
            if head in writes:
                written = writes[head]
                difference = written.answer - written.wrong
                parts[head]["writes"] = {
                    "answer": statistics.interval(written.answer),
                    "wrong": statistics.interval(written.wrong) if compares else None,
                    "difference": statistics.interval(difference) if compares else None,
                    "raises": [[token, round(size, 3)] for token, size in written.raises],
                    "lowers": [[token, round(size, 3)] for token, size in written.lowers],
                    "copies": written.copies,
                }
        return parts

    def _paths(
        self, attention: TaskAttention, members: Sequence[Head], floor: float, steps: Steps
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Paths into the heads of the circuit; the strongest estimates are run exactly."""
        try:
            reader = PathReader(self.runner)
        except ModelError as error:
            return [], [f"paths into heads were not computed: {first_line(error)}"]
        names = attention.roles.names
        edges: list[dict[str, Any]] = []
        for receiver in members:
            senders = reader.senders(receiver)
            of_via = reader.estimates(receiver, at=attention.masks)
            steps.advance(1)
            # the strongest over queries, keys and values, senders and roles: of heads, then others
            means = np.stack([of_via[via].mean(0) for via in VIAS])
            is_head = np.array([sender.head is not None for sender in senders])[:, None]
            strongest = []
            for kind, limit in ((is_head, CONFIRMED), (~is_head, CONFIRMED // 2)):
                sizes_of_kind = np.abs(means) * kind
                cells = np.argsort(-sizes_of_kind, axis=None, kind="stable")[:limit]
                least = LEAST_PATH * abs(floor)
                strongest += [cell for cell in cells.tolist() if sizes_of_kind.flat[cell] >= least]

            # each of them in a run of its own
            for cell in strongest:
                via_number, sender, role = np.unravel_index(cell, means.shape)
                via = VIAS[via_number]
                mask = attention.masks[role]
                exact = partial(reader.exact, receiver, via, [senders[sender]], at=mask)
                name = f"path-{senders[sender]}-{head_name(*receiver)}-{via}-{role}"
                effect = self.stages.array(name, exact)[:, 0]
                steps.advance(self.layers - receiver[0])
                edges.append(
                    {
                        "from": str(senders[sender]),
                        "to": head_name(*receiver),
                        "via": via,
                        "role": names[role],
                        "effect": self.statistics.interval(effect),
                        "estimate": float(means[via_number, sender, role]),
                        "p_value": self.statistics.p_value(effect),
                    }
                )

        # all paths that were run are tested together
        q_values = adjusted(np.array([edge["p_value"] for edge in edges]))
        for edge, q_value in zip(edges, q_values.tolist(), strict=True):
            large = abs(edge["effect"]["mean"]) >= LEAST_PATH * abs(floor)
            edge["confirmed"] = bool(q_value < MAX_Q and large)
        edges.sort(key=lambda edge: -abs(edge["effect"]["mean"]))
        return edges, []


def _candidates(estimates: Mapping[str, Float[ndarray, " head"]]) -> list[int]:
    """The heads with the largest estimates of each kind, those of both kinds in turn."""
    orders = [np.argsort(-np.abs(values), kind="stable")[:OF_EACH] for values in estimates.values()]
    in_turn = np.stack(orders, 1).flatten().tolist()
    return list(dict.fromkeys(in_turn))[:MOST_MEASURED]


def _agreement(first: Sequence[Head], second: Sequence[Head]) -> dict[str, Any]:
    """Two circuits, and their heads in common as a share of those of either."""
    either = {*first, *second}
    common = set(first) & set(second)
    return {
        "first": [head_name(*head) for head in first],
        "second": [head_name(*head) for head in second],
        "jaccard": len(common) / len(either) if either else None,
    }
