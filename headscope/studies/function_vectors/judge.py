"""Statements on heads from their effects: on single tasks, and on all of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.special import stdtr

from headscope.measure.bootstrap import interval, ratio_error, resample
from headscope.statistics.conditions import MAX_Q
from headscope.statistics.estimates import adjusted
from headscope.studies.function_vectors.head_effects import (
    UNINFORMED,
    VALUES,
    TaskEffects,
    TaskReading,
)

FLOOR = 0.05
"""Nats: least mean lift over tasks, in each half of them; ours."""
AMONG_ANSWERS = 1 / 3
"""Share of the lift that must be left among the task's own answers: a head that raises all of them
alike leaves nothing but noise, which grows with what it writes."""
MIN_TASKS = 6
"""Scored tasks without which no head is tagged: halves of three."""
EFFECT_COLUMNS = [
    *("layer", "head", "task", "effect", "same_task", "other_tasks", "lift", "ci_low", "ci_high"),
    *("among_answers", "shuffled", "zero_shot", "on_answers", "chance", "q_value", "holds"),
    "promotes",
]
HEAD_COLUMNS = [
    *("layer", "head", "function_vector", "lift", "ci_low", "ci_high"),
    *("first_half", "second_half", "among_answers", "among_answers_low", "held_in", "tasks"),
    *("on_answers", "chance", "induction_head"),
]


def effect_table(
    readings: Sequence[TaskReading],
    effects: Sequence[TaskEffects],
    layers: Sequence[int],
    *,
    seed: int,
) -> pd.DataFrame:
    """A row per head × task; the columns are `EFFECT_COLUMNS`.

    Effects are means over prompts and both kinds that do not tell the task. `lift` is the effect
    less that of the control with the larger effect, with its interval and test over prompts;
    `among_answers` is the lift of the log-probability among the task's own answers, over the same
    control. q values are over all rows. `holds` says that the lift is surely above 0, among all
    words and among the answers.

    Args:
        readings: of the tasks.
        effects: of each.
        layers: numbers of the layers.
        seed: seeds the bootstrap over prompts.
    """
    parts = [
        _task_rows(reading, effect, layers, seed)
        for reading, effect in zip(readings, effects, strict=True)
    ]
    table = pd.concat(parts, ignore_index=True)
    table["q_value"] = adjusted(table.pop("p_value").to_numpy())
    sure = (table["ci_low"] > 0) & (table.pop("among_low") > 0)
    table["holds"] = sure & (table["q_value"] < MAX_Q)
    table["promotes"] = ""
    return table[EFFECT_COLUMNS]


def _task_rows(
    reading: TaskReading, effects: TaskEffects, layers: Sequence[int], seed: int
) -> pd.DataFrame:
    words, answers = (
        part.mean(3).reshape(-1, len(VALUES), part.shape[-1])
        for part in (effects.among_words, effects.among_answers)
    )
    larger = words[:, 1:].mean(-1).argmax(-1) + 1
    rows = np.arange(len(words))
    lift, among = (part[:, 0] - part[rows, larger] for part in (words, answers))
    count = lift.shape[-1]
    draws = resample(count, np.random.default_rng(seed))
    low, high = interval(lift.T, np.ones(count), draws)
    among_low, _ = interval(among.T, np.ones(count), draws)
    by_kind = effects.among_words[..., 0, :, :].mean(-1).reshape(-1, len(UNINFORMED))
    layer, head = np.indices(effects.among_words.shape[:2])
    return pd.DataFrame(
        {
            "layer": np.asarray(layers)[layer.ravel()],
            "head": head.ravel(),
            "task": reading.task.name,
            "effect": words[:, 0].mean(-1),
            "same_task": words[:, 1].mean(-1),
            "other_tasks": words[:, 2].mean(-1),
            "lift": lift.mean(-1),
            "ci_low": low,
            "ci_high": high,
            "among_answers": among.mean(-1),
            "among_low": among_low,
            "shuffled": by_kind[:, 0],
            "zero_shot": by_kind[:, 1],
            "on_answers": reading.on_answers.ravel(),
            "chance": reading.chance,
            "p_value": above_zero(lift.T),
        }
    )


def unmeasured_heads(layers: Sequence[int], heads: int) -> pd.DataFrame:
    """The table of `head_table` for a model whose heads could not be asked: numbers are missing."""
    layer, head = (index.ravel() for index in np.indices((len(layers), heads)))
    table = pd.DataFrame({"layer": np.asarray(layers)[layer], "head": head})
    table = table.reindex(columns=HEAD_COLUMNS)
    return table.assign(function_vector=False, held_in=0, tasks="", induction_head="")


def above_zero(values: Float[ndarray, "item head"]) -> Float[ndarray, " head"]:
    """One-sided p values of means being above 0, by Student's distribution over items."""
    with np.errstate(divide="ignore", invalid="ignore"):
        t = values.mean(0) / ratio_error(values, np.ones((len(values), 1)))
    return np.asarray(stdtr(len(values) - 1, -np.nan_to_num(t)))


def head_table(effects: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """A row per head, the largest lift first; the columns are `HEAD_COLUMNS`.

    `lift` is the mean over tasks, with its interval over tasks; `first_half` and `second_half` are
    means over every other task. A head is tagged `function_vector` if

    - the lift of both halves reaches `FLOOR`, so that the tasks of either confirm the other's;
    - the interval lies above 0, also that of the lift among the answers, which is at least a third
      of the lift;
    - it holds in a task of each half, q < 0.01 over heads × tasks.

    Args:
        effects: as of `effect_table`.
        seed: seeds the bootstrap over tasks.
    """
    names = list(dict.fromkeys(effects["task"]))
    by_task = effects.set_index(["task", "layer", "head"])
    wide = {
        name: by_task[name].unstack("task")[names]
        for name in ("lift", "among_answers", "holds", "on_answers", "chance")
    }
    lift, among, holds = (wide[name].to_numpy() for name in ("lift", "among_answers", "holds"))
    draws = resample(len(names), np.random.default_rng(seed))
    low, high = interval(lift.T.astype(float), np.ones(len(names)), draws)
    among_low, _ = interval(among.T.astype(float), np.ones(len(names)), draws)
    halves = [lift[:, half::2].mean(1) for half in (0, 1)]
    index = wide["lift"].index
    table = pd.DataFrame(
        {
            "layer": index.get_level_values("layer"),
            "head": index.get_level_values("head"),
            "lift": lift.mean(1),
            "ci_low": low,
            "ci_high": high,
            "first_half": halves[0],
            "second_half": halves[1],
            "among_answers": among.mean(1),
            "among_answers_low": among_low,
            "held_in": holds.sum(1),
            "tasks": [";".join(np.array(names)[row.astype(bool)]) for row in holds],
            "on_answers": wide["on_answers"].to_numpy().mean(1),
            "chance": wide["chance"].to_numpy().mean(1),
            "induction_head": "",
        }
    )
    both_halves = holds[:, 0::2].any(1) & holds[:, 1::2].any(1)
    table["function_vector"] = (
        (np.minimum(*halves) >= FLOOR)
        & (table["ci_low"] > 0)
        & (table["among_answers_low"] > 0)
        & (table["among_answers"] >= AMONG_ANSWERS * table["lift"])
        & both_halves
        & (len(names) >= MIN_TASKS)
    )
    order = ["function_vector", "lift"]
    return table.sort_values(order, ascending=False, kind="stable", ignore_index=True)[HEAD_COLUMNS]
