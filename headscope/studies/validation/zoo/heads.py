"""The zoo's heads as one model's patterns, and what was found of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.evidence.result import Result
from headscope.relations.relation import MIN_QUERIES
from headscope.studies.validation.zoo.habit import Habit, Known
from headscope.studies.validation.zoo.oracles import NOISES, Oracle, noisy
from headscope.studies.validation.zoo.reading import Reading, Rows
from headscope.studies.validation.zoo.result import HEADS

WIDTH = 64
"""Heads of a layer."""


class Heads:
    """A function from a window to the pattern `[layer head query key]` of all heads of the zoo.

    Habits come first, then all oracles at one level of noise after the other; what is left of the
    last layer rests on the first token.

    Args:
        habits: heads without syntax, reference and meaning.
        oracles: heads that read the annotation.
    """

    def __init__(self, habits: Sequence[Habit], oracles: Sequence[Oracle]) -> None:
        self.habits, self.oracles = habits, oracles

    def __len__(self) -> int:
        return len(self.habits) + len(NOISES) * len(self.oracles)

    def __call__(self, window: Window) -> Float[ndarray, "layer head query key"]:
        size, layers = len(window), -(-len(self) // WIDTH)
        found = np.zeros((layers * WIDTH, size, size), np.float32)
        count = 0
        for count, rows in enumerate(self._rows(Reading(window)), 1):
            found[count - 1] = rows
        found[count:, :, 0] = 1
        return found.reshape(layers, WIDTH, size, size)

    def _rows(self, reading: Reading) -> Iterator[Rows]:
        for habit in self.habits:
            yield habit.look(reading)
        parts = [oracle.parts(reading) for oracle in self.oracles]
        for noise in NOISES:
            for each in parts:
                yield noisy(each, noise)

    def table(self, run: Result) -> pd.DataFrame:
        """A row per head with what it earned in a run of these patterns; see `Zoo.heads`."""
        evidence = _named(run.evidence)
        own = dict(tuple(evidence.groupby(evidence["layer"] * WIDTH + evidence["head"])))
        heads: list[tuple[str, Known, float]] = [("habit", each, math.nan) for each in self.habits]
        heads += [("oracle", each, noise) for noise in NOISES for each in self.oracles]
        rows = [
            {"kind": kind, "name": head.name, "noise": noise, **_earned(head, own[number])}
            for number, (kind, head, noise) in enumerate(heads)
        ]
        return pd.DataFrame(rows, columns=HEADS)

    def judged(self, run: Result) -> pd.DataFrame:
        """A row per relation that a head could have earned; see `Zoo.judged`."""
        counts = _named(run.evidence).groupby("id", sort=False)["n"].max()
        rows = [
            {
                "relation": str(name),
                "n": int(n),
                "habits": sum(not habit.true(str(name)) for habit in self.habits),
            }
            for name, n in counts.items()
            if n >= MIN_QUERIES and run.rules[str(name)].taggable
        ]
        return pd.DataFrame(rows, columns=["relation", "n", "habits"])


def _named(evidence: pd.DataFrame) -> pd.DataFrame:
    """The evidence with each relation's full name, and an empty verdict where there is none."""
    verdict = evidence.get("verdict", "")
    return evidence.assign(id=evidence["type"] + "/" + evidence["relation"], verdict=verdict)


def _earned(head: Known, evidence: pd.DataFrame) -> dict[str, Any]:
    """What a head earned. It is found if it earned all that it must and that can be earned here."""
    asked = evidence[evidence["id"].isin(head.own) & (evidence["n"] >= MIN_QUERIES)]
    tags = evidence.loc[evidence["tagged"].astype(bool), "id"].tolist()
    return {
        "relation": ";".join(asked["id"]),
        "n": int(asked["n"].min()) if len(asked) else 0,
        "verdict": ";".join(filter(None, asked["verdict"])),
        "found": bool(asked["tagged"].all()) if len(asked) else None,
        "tags": ";".join(tags),
        "false": ";".join(tag for tag in tags if not head.true(tag)),
    }
