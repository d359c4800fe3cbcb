"""Effects of heads on a task: one by one, together beside random sets, and found by a search."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.causal.head_set import Head, matched_sets
from headscope.causal.task_runner import TaskRunner
from headscope.heads import head_name
from headscope.progress import Steps
from headscope.statistics.bootstrap import Estimate, estimate
from headscope.statistics.estimates import adjusted

SHARE_EXACT = 0.2
"""Share of the heads whose effects must be exact: those with the largest ones."""
SHARE_AT_ONCE = 0.1
"""Share of the heads that are measured before the screen looks again."""
FOUND_SHARE = 0.8
"""Share of the metric that the ablation of a found set takes."""
MOST_FOUND = 12
"""Most heads of a found set."""
CANDIDATES = 30
"""Heads that the search tries at each step: those with the most harmful single effects."""
HEAD, SET, RANDOM_SET, ONLY_SET = "head", "set", "random set", "only the set"


@dataclass(frozen=True)
class TaskTest:
    """A model on a task, and how its effects are tested."""

    runner: TaskRunner
    tags: Mapping[Head, str]
    """Tags of each head, joined by `;`; empty without a run."""
    seed: int

    @property
    def competence(self) -> Estimate:
        """The metric of the untouched model minus chance, with its interval over groups."""
        return self.estimate(self.runner.above_chance())

    def estimate(self, by_prompt: Float[ndarray, " prompt"]) -> Estimate:
        """Mean over prompts and its 95 % interval; groups of prompts are resampled together."""
        groups = self.runner.prompts.groups
        sums = np.bincount(groups, by_prompt)
        counts = np.bincount(groups)
        return estimate(sums, counts, seed=self.seed)


def head_rows(test: TaskTest, steps: Steps) -> pd.DataFrame:
    """A row per head with the effect of its ablation, the largest effects first.

    Attribution orders the heads. Heads are measured exactly, a tenth at a time, until no other head
    is estimated to be among the fifth with the largest effects: its attribution, plus the largest
    error of the attributions in the last tenth, is below the smallest effect of that fifth. A head
    with a small gradient and a large effect can be missed.
    """
    runner = test.runner
    attributions = runner.attributions().mean(0)
    order = np.argsort(-np.abs(attributions), kind="stable")
    at_once = max(1, round(SHARE_AT_ONCE * len(order)))
    effects: dict[int, Float[ndarray, " prompt"]] = {}
    for start in range(0, len(order), at_once):
        part = order[start : start + at_once]
        for number in part.tolist():
            effects[number] = runner.without([runner.heads[number]]) - runner.clean
            steps.advance(1)
        if _is_screened(order[start + at_once :], part, effects, attributions):
            break
    steps.advance(len(order) - len(effects))
    rows = [
        _head_row(test, number, attributions[number], effects.get(number))
        for number in range(len(order))
    ]
    table = pd.DataFrame(rows)
    # a head that was not measured counts as a test that failed
    table["q_value"] = adjusted(table["p_value"].fillna(1.0).to_numpy())
    table.loc[table["p_value"].isna(), "q_value"] = np.nan
    size = table["effect"].abs().fillna(-1)
    return table.loc[size.sort_values(ascending=False, kind="stable").index].reset_index(drop=True)


def _is_screened(
    others: Int[ndarray, " other"],
    last: Int[ndarray, " measured"],
    effects: Mapping[int, Float[ndarray, " prompt"]],
    attributions: Float[ndarray, " head"],
) -> bool:
    """True if no other head is estimated to be among those with the largest effects."""
    fifth = max(1, round(SHARE_EXACT * len(attributions)))
    if len(effects) < fifth or not len(others):
        return False
    means = np.full(len(attributions), np.nan)
    for number, effect in effects.items():
        means[number] = effect.mean()
    sizes = np.sort(np.abs(means[list(effects)]))
    least_of_fifth = sizes[-fifth]
    errors = np.abs(means[last] - attributions[last])
    largest_attribution = np.abs(attributions[others]).max()
    largest_estimate = largest_attribution + errors.max()
    return bool(largest_estimate < least_of_fifth)


def _head_row(
    test: TaskTest,
    number: int,
    attribution: float,
    effect: Float[ndarray, " prompt"] | None,
) -> dict[str, Any]:
    head = test.runner.heads[number]
    row = {
        "kind": HEAD,
        "layer": head[0],
        "head": head[1],
        "heads": head_name(*head),
        "tags": test.tags.get(head, ""),
        "attribution": float(attribution),
        "measured": effect is not None,
    }
    return row | _effect_columns(test, effect)


def _effect_columns(test: TaskTest, effect: Float[ndarray, " prompt"] | None) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "prompts": test.runner.prompts.count,
        "clean": float(test.runner.clean.mean()),
    }
    if effect is None:
        return columns | {"effect": np.nan, "ci_low": np.nan, "ci_high": np.nan, "p_value": np.nan}
    mean = test.estimate(effect)
    return columns | {
        "effect": mean.mean,
        "ci_low": mean.low,
        "ci_high": mean.high,
        # of a two-sided test
        "p_value": 2 * min(mean.p_value, 1 - mean.p_value),
    }


def set_rows(test: TaskTest, heads: Sequence[Head], steps: Steps) -> pd.DataFrame:
    """A row for the set, one for the model with only the set, and one per random set.

    The p value of the set is the rank of its |effect| among those of the random sets: (1 + sets
    with at least as large an effect) ÷ (1 + sets).
    """
    runner = test.runner
    norms = runner.output_norms()
    controls = matched_sets(heads, norms, seed=test.seed)
    effect = runner.without(heads) - runner.clean
    steps.advance(1)
    only = runner.only(heads) - runner.clean
    floor = runner.without(runner.heads) - runner.clean
    steps.advance(2)
    control_effects = []
    for control in controls:
        control_effects.append(runner.without(control) - runner.clean)
        steps.advance(1)
    size = abs(float(effect.mean()))
    at_least = sum(abs(float(control.mean())) >= size for control in control_effects)
    set_row = _set_row(test, SET, heads, effect, floor) | {
        "rank": 1 + at_least,
        "p_value": (1 + at_least) / (1 + len(controls)),
    }
    rows = [set_row, _set_row(test, ONLY_SET, heads, only, floor) | {"p_value": np.nan}]
    for control, control_effect in zip(controls, control_effects, strict=True):
        row = _set_row(test, RANDOM_SET, control, control_effect, floor)
        rows.append(row | {"p_value": np.nan})
    return pd.DataFrame(rows)


def _set_row(
    test: TaskTest,
    kind: str,
    heads: Sequence[Head],
    effect: Float[ndarray, " prompt"],
    floor: Float[ndarray, " prompt"],
) -> dict[str, Any]:
    row = {
        "kind": kind,
        "heads": ";".join(head_name(*head) for head in heads),
        "tags": ";".join(dict.fromkeys(test.tags[head] for head in heads if test.tags.get(head))),
        "measured": True,
    }
    columns = _effect_columns(test, effect)
    return row | columns | {"share": _share(effect, floor)}


def _share(effect: Float[ndarray, " prompt"], floor: Float[ndarray, " prompt"]) -> float:
    """Share of the metric that an ablation takes: 1 for that of all heads."""
    loss_of_all = float(floor.mean())
    return float(effect.mean()) / loss_of_all if loss_of_all else float("nan")


def found_set(test: TaskTest, singles: pd.DataFrame, steps: Steps) -> list[Head]:
    """A small set of heads whose ablation takes most of the metric, found greedily.

    Each step adds the head that lowers the metric most, until `FOUND_SHARE` of it is gone or
    `MOST_FOUND` heads are in the set. Search on one half of the prompts and judge on the other.

    Args:
        test: on the half of the prompts that is searched.
        singles: rows of single heads on these prompts.
        steps: advanced by each tried set.
    """
    runner = test.runner
    floor = runner.without(runner.heads) - runner.clean
    harmful = singles[singles["effect"] < 0].nsmallest(CANDIDATES, "effect")
    candidates = list(zip(harmful["layer"].astype(int), harmful["head"].astype(int), strict=True))
    members: list[Head] = []
    while candidates and len(members) < MOST_FOUND:
        effects = {}
        for head in candidates:
            effects[head] = runner.without([*members, head]) - runner.clean
            steps.advance(1)
        best = min(effects, key=lambda head: float(effects[head].mean()))
        members.append(best)
        candidates.remove(best)
        if _share(effects[best], floor) >= FOUND_SHARE:
            break
    return sorted(members)
