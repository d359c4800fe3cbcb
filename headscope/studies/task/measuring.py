"""Measurements of a task: kept so that an interrupted run goes on, with intervals and tests."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.causal.head_set import Head
from headscope.causal.task_runner import TaskRunner
from headscope.progress import Steps, silent
from headscope.runs.write import write_file
from headscope.statistics.estimates import adjusted
from headscope.statistics.ratio import estimate, interval, resample

FOLDER = "unfinished"
"""Folder of what is measured, below that of the results; removed at the end."""
_KEY = "key.txt"

Interval = dict[str, float]
"""A mean with the ends of its 95 % interval: `mean`, `low`, `high`."""
ByPrompt = Float[ndarray, " prompt"]


class Stages:
    """Arrays that were computed, in memory and in a folder.

    Args:
        out: the folder of the results; None keeps arrays in memory alone.
        key: what the arrays depend on; those of another key are removed.
    """

    def __init__(self, out: Path | None, key: Any) -> None:
        self._arrays: dict[str, ndarray] = {}
        self._folder = None if out is None else out / FOLDER
        self.resumed = False
        """True if arrays of an interrupted run are there."""
        if self._folder is None:
            return
        text = json.dumps(key, sort_keys=True, default=str)
        digest = hashlib.sha256(text.encode()).hexdigest()
        key_file = self._folder / _KEY
        is_same = key_file.exists() and key_file.read_text("utf-8") == digest
        self.resumed = is_same
        if not is_same:
            self.remove()
            write_file(key_file, digest, overwrite=True)

    def array(self, name: str, make: Callable[[], Float[ndarray, ...]]) -> Float[ndarray, ...]:
        """An array by its name, computed if it is not there yet."""
        if name in self._arrays:
            return self._arrays[name]
        path = None if self._folder is None else self._folder / f"{name}.npy"
        if path is not None and path.exists():
            values: ndarray = np.load(path, allow_pickle=False)
        else:
            values = make()
            if path is not None:
                content = io.BytesIO()
                np.save(content, values, allow_pickle=False)
                write_file(path, content.getvalue(), overwrite=True)
        self._arrays[name] = values
        return values

    def remove(self) -> None:
        """Remove the folder of the stages."""
        if self._folder is not None and self._folder.exists():
            shutil.rmtree(self._folder)


@dataclass(frozen=True, eq=False)
class Statistics:
    """Means over prompts with intervals and tests over their groups."""

    groups: ndarray
    """Group of each prompt."""
    seed: int

    def interval(self, by_prompt: ByPrompt) -> Interval:
        """Mean and its interval; prompts with NaN are left out."""
        return self.ratio(by_prompt, np.ones_like(by_prompt))

    def ratio(self, part: ByPrompt, total: ByPrompt) -> Interval:
        """Σ part ÷ Σ total over prompts; those with NaN are left out."""
        known = ~np.isnan(part)
        # groups of prompts are resampled as one
        _, group = np.unique(self.groups[known], return_inverse=True)
        parts = np.bincount(group, part[known])
        totals = np.bincount(group, total[known])
        draws = resample(len(parts), np.random.default_rng(self.seed))
        low, high = interval(parts, totals, draws).tolist()
        mean = float(parts.sum() / totals.sum())
        return {"mean": mean, "low": low, "high": high}

    def p_value(self, by_prompt: ByPrompt) -> float:
        """Two-sided test that the mean is 0; 1 if all are 0."""
        if not np.nan_to_num(by_prompt).any():
            return 1.0
        known = ~np.isnan(by_prompt)
        sums = np.bincount(self.groups[known], by_prompt[known])
        counts = np.bincount(self.groups[known])
        one_sided = estimate(sums, counts, seed=self.seed).p_value
        return 2 * min(one_sided, 1 - one_sided)

    def q_values(self, effects: Mapping[Head, ByPrompt], tests: int) -> dict[Head, float]:
        """Benjamini–Hochberg over all heads, of which those not measured count as failed."""
        p_values = np.ones(tests)
        p_values[: len(effects)] = [self.p_value(effect) for effect in effects.values()]
        q_values = adjusted(p_values)[: len(effects)]
        return dict(zip(effects, q_values.tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class Measuring:
    """The model, statistics, stored arrays and progress of a task's measurement."""

    runner: TaskRunner
    statistics: Statistics
    stages: Stages
    steps: Steps = field(default_factory=lambda: Steps(silent, 0))

    @property
    def layers(self) -> int:
        """Blocks of the model."""
        return len(self.runner.rerunner.blocks)

    def array(
        self, name: str, make: Callable[[], Float[ndarray, ...]], *, layers: int
    ) -> Float[ndarray, ...]:
        """An array by its name, computed if it is not there yet; `layers` run again for it."""
        values = self.stages.array(name, make)
        self.steps.advance(layers)
        return values
