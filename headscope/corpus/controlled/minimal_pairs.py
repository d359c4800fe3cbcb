"""Pairs of sentences of which only one is grammatical, by one word."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from headscope.corpus.controlled import lexicon
from headscope.corpus.read import read_text_file
from headscope.errors import CorpusError

KEYS = ("sentence_good", "sentence_bad")


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


def read_minimal_pairs(path: Path) -> list[MinimalPair]:
    """A JSON-lines file in the format of BLiMP (Warstadt et al. 2020).

    Raises:
        CorpusError: with the line, for a file that cannot be read or a line without a pair.
    """
    lines = read_text_file(path).splitlines()
    pairs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
            good, bad = (row[key] for key in KEYS)
        except (json.JSONDecodeError, KeyError, TypeError) as error:
            raise CorpusError(
                f"{path}:{number}: not a pair; a line is a JSON object with {' and '.join(KEYS)}"
            ) from error
        if not (isinstance(good, str) and isinstance(bad, str) and good and bad and good != bad):
            raise CorpusError(f"{path}:{number}: two different sentences make a pair")
        pairs.append(MinimalPair(good, bad))
    if not pairs:
        raise CorpusError(f"{path}: no pair in this file")
    return pairs
