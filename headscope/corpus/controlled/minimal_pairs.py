"""Pairs of sentences of which only one is grammatical, by one word."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from headscope.corpus.controlled import lexicon


@dataclass(frozen=True)
class MinimalPair:
    """Two sentences that share a beginning."""

    good: str
    bad: str


def agreement_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The guards near the old boat open / opens the boxes: a noun of the other number between."""
    pick = partial(lexicon.pick, np.random.default_rng(seed))
    pairs = []
    for i in range(count):
        many = i % 2
        subject = pick(lexicon.PEOPLE).split("/")[many]
        attractor = pick(lexicon.THINGS).split("/")[1 - many]
        forms = pick(lexicon.ON_THINGS).split("/")
        start = f"The {subject} {pick(lexicon.NEAR)} the {attractor}"
        end = f"the {pick(lexicon.PLACES).split('/')[0]}."
        pairs.append(
            MinimalPair(f"{start} {forms[1 - many]} {end}", f"{start} {forms[many]} {end}")
        )
    return pairs


def anaphor_pairs(count: int, *, seed: int) -> list[MinimalPair]:
    """The queen behind the monk trusted herself / himself: two candidates, one antecedent."""
    pick = partial(lexicon.pick, np.random.default_rng(seed))
    pairs = []
    for i in range(count):
        people = [pick(lexicon.FEMALE).split("/")[0], pick(lexicon.MALE).split("/")[0]]
        pronouns = ["herself", "himself"]
        subject, other = i % 2, 1 - i % 2
        verb = pick(lexicon.ON_PEOPLE).split("/")[2]
        start = f"The {people[subject]} {pick(lexicon.NEAR)} the {people[other]} {verb}"
        pairs.append(MinimalPair(f"{start} {pronouns[subject]}.", f"{start} {pronouns[other]}."))
    return pairs
