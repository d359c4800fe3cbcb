"""The circuit of a task: heads measured, chosen on half of the prompts, judged on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.causal.head_set import Head, exchangeable_sets
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import TaskRunner
from headscope.heads import head_name
from headscope.studies.task.measuring import ByPrompt, Interval, Measuring, Statistics

OF_EACH = 30
"""Heads with the largest estimates of each kind that are measured exactly."""
MOST_MEASURED = 45
BACKED_UP = 3
"""Times that a head's estimate exceeds its effect if it may have a backup."""
MOST_SUSPECTS = 6
"""Heads that may have backups, at most."""
MOST_HEADS = 10
"""Most heads of a circuit."""
MAX_Q = 0.05
LEAST = 0.02
"""Least effect of a head of a circuit, as a share of that of replacing all heads."""
SHARES = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Shares of the heads at which faithfulness is measured (MIB, Mueller et al. 2025)."""
SMALL = (1, 2, 3, 5, 7, MOST_HEADS)
"""Numbers of heads at which it is measured besides."""
CHOOSES, JUDGES = 0, 1
"""Halves of the prompts."""


def heads_to_measure(estimates: Mapping[str, Float[ndarray, " head"]]) -> list[int]:
    """The heads with the largest estimates of each kind, those of both kinds in turn."""
    # plain gradients miss saturated heads, and smoothed ones miss others, so that the first of both
    # are measured
    orders = [np.argsort(-np.abs(values), kind="stable")[:OF_EACH] for values in estimates.values()]
    in_turn = np.stack(orders, 1).flatten().tolist()
    return list(dict.fromkeys(in_turn))[:MOST_MEASURED]


def exact_effects(
    measuring: Measuring, heads: Sequence[Head], *, prefix: str = ""
) -> dict[Head, ByPrompt]:
    """Effects of replacing heads one by one; `prefix` begins the names of what is kept."""
    effects = {}
    for head in heads:
        metric = measuring.array(
            f"{prefix}{head_name(*head)}",
            partial(measuring.runner.without, [head]),
            layers=measuring.layers - head[0],
        )
        effects[head] = metric - measuring.runner.clean
    return effects


def joint_effects(
    measuring: Measuring,
    effects: Mapping[Head, ByPrompt],
    smooth: Float[ndarray, " head"],
    floor: float,
) -> dict[Head, ByPrompt]:
    """Effects beside those of other heads that may do the same, where these are larger.

    Suspects are heads whose estimate with norms held is several times their effect; what counts
    is what the last of them takes when all the others are replaced already.

    Args:
        measuring: the model on the task.
        effects: of heads alone.
        smooth: estimates of all heads with norms held.
        floor: mean effect of replacing all heads.
    """
    runner = measuring.runner
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
    # what the last of them takes, when nothing is left to stand in for it
    names = "-".join(head_name(*head) for head in suspects)
    run = partial(runner.without, suspects)
    without_all = measuring.array(f"joint-{names}", run, layers=0)
    joint = {}
    for head in suspects:
        others = [other for other in suspects if other != head]
        name = f"joint-{names}-but-{head_name(*head)}"
        run = partial(runner.without, others)
        effect = without_all - measuring.array(name, run, layers=measuring.layers)
        if abs(effect.mean()) > abs(effects[head].mean()):
            joint[head] = effect
    return joint


def choose_heads(
    effects: Mapping[Head, ByPrompt],
    floor: float,
    statistics: Statistics,
    prompts: Bool[ndarray, " prompt"],
    tests: int,
) -> list[Head]:
    """The heads of the circuit that some prompts choose, the largest effects first.

    Args:
        effects: of the measured heads.
        floor: mean effect of replacing all heads.
        statistics: of the prompts.
        prompts: those that choose.
        tests: number of heads of the model.
    """
    # an effect on the prompts that judge must not choose
    of_half = {head: np.where(prompts, effect, np.nan) for head, effect in effects.items()}
    q_values = statistics.q_values(of_half, tests)
    members = []
    for head in by_size(of_half):
        size = abs(float(np.nanmean(of_half[head])))
        if q_values[head] < MAX_Q and size >= LEAST * abs(floor):
            members.append(head)
    return members[:MOST_HEADS]


def by_size(effects: Mapping[Head, ByPrompt]) -> list[Head]:
    """Heads in the order of the absolute values of their mean effects."""
    return sorted(effects, key=lambda head: -abs(float(np.nanmean(effects[head]))))


@dataclass(frozen=True, eq=False)
class Judge:
    """Sets of heads on the half of the prompts that did not choose them."""

    measuring: Measuring
    floor: ByPrompt
    """The metric with all heads replaced."""

    @property
    def total_effect(self) -> ByPrompt:
        """Loss of the metric if all heads are replaced; NaN at prompts that chose."""
        runner = self.measuring.runner
        return np.where(runner.prompts.halves == JUDGES, runner.clean - self.floor, np.nan)

    def effect_kept(self, heads: Sequence[Head]) -> ByPrompt:
        """Part of the total effect that is left if these heads alone are not replaced."""
        run = partial(self.measuring.runner.only, heads, JUDGES)
        beyond: ndarray = self._array("only", heads, run) - self.floor
        return beyond

    def lost(self, heads: Sequence[Head]) -> ByPrompt:
        """The effect of replacing these heads."""
        runner = self.measuring.runner
        run = partial(runner.without, heads, JUDGES)
        effect: ndarray = self._array("without", heads, run) - runner.clean
        return effect

    def faithfulness(self, heads: Sequence[Head]) -> Interval:
        """Share of the total effect that the heads alone keep."""
        return self.measuring.statistics.ratio(self.effect_kept(heads), self.total_effect)

    def shares(self, heads: Sequence[Head]) -> dict[Head, float]:
        """Loss of the kept share without each of the heads."""
        shares = {}
        for head in heads:
            without = self.effect_kept([other for other in heads if other != head])
            lost = self.effect_kept(heads) - without
            shares[head] = self.measuring.statistics.ratio(lost, self.total_effect)["mean"]
        return shares

    def _array(self, kind: str, heads: Sequence[Head], run: Callable[[], ndarray]) -> ndarray:
        name = "-".join(head_name(*head) for head in sorted(heads))
        if len(name) > 120:  # a name of a file
            name = f"{len(heads)}-{hash(tuple(sorted(heads))) & 0xFFFFFFFFFFFF:x}"
        # a set begins at half of the depth on average
        return self.measuring.array(f"{kind}-{name}", run, layers=self.measuring.layers // 2)


def sizes(count: int) -> list[int]:
    """Numbers of heads at which a model of so many is measured.

    >>> sizes(270)
    [1, 2, 3, 5, 7, 10, 14, 27, 54, 135, 270]
    """
    of_shares = {max(1, round(share * count)) for share in SHARES}
    return sorted(size for size in of_shares | {*SMALL} if size <= count)


def areas(curve: Mapping[int, float]) -> tuple[float, float]:
    """CPR and CMD: the area below a curve of faithfulness, and that between it and 1.

    Trapezoids over the share of the heads, from the smallest set to all (MIB, Mueller et al. 2025).

    >>> areas({5: 0.0, 10: 1.0})
    (0.25, 0.25)
    """
    counts = np.array(sorted(curve))
    values = np.array([curve[count] for count in counts.tolist()])
    shares = counts / counts[-1]
    return float(np.trapezoid(values, shares)), float(np.trapezoid(np.abs(1 - values), shares))


def judged_circuit(
    judge: Judge, heads: Sequence[Head], order: Sequence[Head], sets: int, seed: int
) -> dict[str, Any]:
    """The circuit beside random sets, as a part of `circuit.json`.

    Args:
        judge: of the prompts that did not choose.
        heads: the circuit.
        order: all heads of the model, in the order in which they are kept.
        sets: random sets.
        seed: draws them.
    """
    # how much the first heads of the order keep, at all sizes
    curve = {size: judge.faithfulness(order[:size]) for size in sizes(len(order))}
    cpr, cmd = areas({size: point["mean"] for size, point in curve.items()})

    # what the circuit alone keeps, and what replacing it alone takes
    statistics = judge.measuring.statistics
    total = statistics.interval(judge.total_effect)
    faithfulness = judge.faithfulness(heads)
    completeness = statistics.ratio(-judge.lost(heads), judge.total_effect)

    # the same of random sets
    norms = judge.measuring.runner.output_norms()
    random_sets: list[dict[str, Any]] = []
    sampled = exchangeable_sets(heads, norms, count=sets, seed=seed)
    for number, random_set in enumerate(sampled, 1):
        random_sets.append(
            {
                "set": number,
                "heads": [head_name(*head) for head in random_set],
                "faithfulness": judge.faithfulness(random_set)["mean"],
                "effect": float(np.nanmean(judge.lost(random_set))),
            }
        )
    kept_by_random = [one["faithfulness"] for one in random_sets]
    taken_by_random = [-one["effect"] / total["mean"] for one in random_sets]
    return {
        "heads": [head_name(*head) for head in heads],
        "total_effect": total,
        "faithfulness": faithfulness,
        "curve": [{"heads": size, "faithfulness": point} for size, point in curve.items()],
        "cpr": cpr,
        "cmd": cmd,
        "completeness": completeness,
        "effect": statistics.interval(judge.lost(heads)),
        "random": random_sets,
        "p_value": p_of_rank(faithfulness["mean"], kept_by_random),
        "completeness_p_value": p_of_rank(completeness["mean"], taken_by_random),
        "sets": len(random_sets),
    }


def p_of_rank(of_circuit: float, of_random: Sequence[float]) -> float:
    """The p value of a share being as near to 1 as it is, among those of random sets.

    The set itself counts as one of them (Phipson and Smyth 2010).

    >>> p_of_rank(0.9, [0.2, 1.1, -0.1])
    0.5
    """
    # what is equal but for rounding is as near
    apart = abs(1 - of_circuit) + 1e-9
    at_least = sum(abs(1 - share) <= apart for share in of_random)
    return (1 + at_least) / (1 + len(of_random))


def in_other_words(
    measuring: Measuring, prompts: TaskPrompts, members: Sequence[Head], measured: Sequence[Head]
) -> dict[str, Any]:
    """The circuit on the same task in other words, as a part of `circuit.json`.

    Args:
        measuring: the model on the task that chose.
        prompts: of the other task.
        members: the circuit.
        measured: heads that are replaced one by one, of which a circuit is chosen here too.
    """
    chose = measuring.runner
    runner = TaskRunner(chose.rerunner, prompts, metric=chose.metric, method=chose.method)
    statistics = Statistics(prompts.groups, measuring.statistics.seed)
    other = replace(measuring, runner=runner, statistics=statistics)
    # the same heads are measured one by one, and a circuit is chosen here too
    effects = exact_effects(other, measured, prefix="other-")
    floor = other.array("other-floor", lambda: runner.without(runner.heads), layers=0)
    # the circuit was chosen on the other words, so that all prompts here can judge it
    with_members = other.array("other-only", lambda: runner.only(members), layers=0)
    # both circuits are compared as sets: heads that serve the words and not the task are in one
    # alone
    every = np.ones(prompts.count, bool)
    whole_effect = float((floor - runner.clean).mean())
    chosen_here = choose_heads(effects, whole_effect, statistics, every, len(runner.heads))
    common = heads_in_common(members, chosen_here)
    return {
        "name": prompts.name,
        "prompts": prompts.count,
        "clean": statistics.interval(runner.clean),
        "faithfulness": statistics.ratio(with_members - floor, runner.clean - floor),
        "heads": common["second"],
        "jaccard": common["jaccard"],
    }


def heads_in_common(first: Sequence[Head], second: Sequence[Head]) -> dict[str, Any]:
    """Two circuits, and their heads in common as a share of those of either."""
    either = {*first, *second}
    common = set(first) & set(second)
    return {
        "first": [head_name(*head) for head in first],
        "second": [head_name(*head) for head in second],
        "jaccard": len(common) / len(either) if either else None,
    }
