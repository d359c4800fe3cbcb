"""The circuit of a task: chosen on one half of the prompts, judged on the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Bool, Float
from numpy import ndarray

from headscope.causal.head_set import Head, exchangeable_sets
from headscope.causal.task_runner import TaskRunner
from headscope.heads import head_name
from headscope.progress import Steps
from headscope.statistics.estimates import adjusted
from headscope.statistics.ratio import estimate, interval, resample
from headscope.studies.task.stages import Stages

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

Interval = dict[str, float]
"""A mean with the ends of its 95 % interval: `mean`, `low`, `high`."""


@dataclass(frozen=True, eq=False)
class Statistics:
    """Means over prompts with intervals and tests over their groups."""

    groups: ndarray
    """Group of each prompt."""
    seed: int

    def interval(self, by_prompt: Float[ndarray, " prompt"]) -> Interval:
        """Mean and its interval; prompts with NaN are left out."""
        mean, low, high, _ = self._estimate(by_prompt)
        return {"mean": mean, "low": low, "high": high}

    def p_value(self, by_prompt: Float[ndarray, " prompt"]) -> float:
        """Two-sided test that the mean is 0; 1 if all are 0."""
        if not np.nan_to_num(by_prompt).any():
            return 1.0
        one_sided = self._estimate(by_prompt)[3]
        return 2 * min(one_sided, 1 - one_sided)

    def ratio(self, part: Float[ndarray, " prompt"], total: Float[ndarray, " prompt"]) -> Interval:
        """Σ part ÷ Σ total over prompts; those with NaN are left out."""
        known = ~np.isnan(part)
        _, group = np.unique(self.groups[known], return_inverse=True)
        parts = np.bincount(group, part[known])
        totals = np.bincount(group, total[known])
        mean = parts.sum() / totals.sum()
        # groups of prompts are resampled as one
        rng = np.random.default_rng(self.seed)
        draws = resample(len(parts), rng)
        low, high = interval(parts, totals, draws).tolist()
        return {"mean": float(mean), "low": low, "high": high}

    def q_values(
        self, effects: Mapping[Head, Float[ndarray, " prompt"]], tests: int
    ) -> dict[Head, float]:
        """Benjamini–Hochberg over all heads, of which those not measured count as failed."""
        p_values = np.ones(tests)
        p_values[: len(effects)] = [self.p_value(effect) for effect in effects.values()]
        q_values = adjusted(p_values)[: len(effects)]
        return dict(zip(effects, q_values.tolist(), strict=True))

    def _estimate(self, by_prompt: Float[ndarray, " prompt"]) -> tuple[float, float, float, float]:
        known = ~np.isnan(by_prompt)
        sums = np.bincount(self.groups[known], by_prompt[known])
        return estimate(sums, np.bincount(self.groups[known]), seed=self.seed)


def choose_heads(
    effects: Mapping[Head, Float[ndarray, " prompt"]],
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
    of_half = {head: np.where(prompts, effect, np.nan) for head, effect in effects.items()}
    q_values = statistics.q_values(of_half, tests)
    members = []
    for head in by_size(of_half):
        size = abs(float(np.nanmean(of_half[head])))
        if q_values[head] < MAX_Q and size >= LEAST * abs(floor):
            members.append(head)
    return members[:MOST_HEADS]


def by_size(effects: Mapping[Head, Float[ndarray, " prompt"]]) -> list[Head]:
    """Heads in the order of the absolute values of their mean effects."""
    return sorted(effects, key=lambda head: -abs(float(np.nanmean(effects[head]))))


@dataclass(frozen=True, eq=False)
class Judge:
    """Sets of heads on the half of the prompts that did not choose them."""

    runner: TaskRunner
    stages: Stages
    statistics: Statistics
    floor: Float[ndarray, " prompt"]
    """The metric with all heads replaced."""
    steps: Steps
    cost: int
    """Steps of a run of all layers."""

    @property
    def total_effect(self) -> Float[ndarray, " prompt"]:
        """Loss of the metric if all heads are replaced; NaN at prompts that chose."""
        total = self.runner.clean - self.floor
        return np.where(self.runner.prompts.halves == JUDGES, total, np.nan)

    def effect_kept(self, heads: Sequence[Head]) -> Float[ndarray, " prompt"]:
        """Part of the total effect that is left if these heads alone are not replaced."""
        run = partial(self.runner.only, heads, JUDGES)
        beyond: ndarray = self._array("only", heads, run) - self.floor
        return beyond

    def lost(self, heads: Sequence[Head]) -> Float[ndarray, " prompt"]:
        """The effect of replacing these heads."""
        run = partial(self.runner.without, heads, JUDGES)
        effect: ndarray = self._array("without", heads, run) - self.runner.clean
        return effect

    def faithfulness(self, heads: Sequence[Head]) -> Interval:
        """Share of the total effect that the heads alone keep."""
        return self.statistics.ratio(self.effect_kept(heads), self.total_effect)

    def _array(self, kind: str, heads: Sequence[Head], run: Callable[[], ndarray]) -> ndarray:
        name = "-".join(head_name(*head) for head in sorted(heads))
        if len(name) > 120:  # a name of a file
            name = f"{len(heads)}-{hash(tuple(sorted(heads))) & 0xFFFFFFFFFFFF:x}"
        metric = self.stages.array(f"{kind}-{name}", run)
        self.steps.advance(self.cost)
        return metric


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
    statistics = judge.statistics
    total = statistics.interval(judge.total_effect)
    faithfulness = judge.faithfulness(heads)
    completeness = statistics.ratio(-judge.lost(heads), judge.total_effect)

    # the same of random sets
    norms = judge.runner.output_norms()
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
