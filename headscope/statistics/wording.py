"""Words for baselines such as `nearest-VERB`, and for the control that decides a tag."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from operator import itemgetter
from typing import Any

from headscope.relations import head_types
from headscope.relations.baselines import IN_WORDS, spelled_out

TIMES_CONTROL = 1.5
"""Least mass in units of the strictest control. A lift can be certain and still be small: a head
that puts 0.31 on prepositions that belong to its noun and 0.25 on others at the same distance is a
head for prepositions."""


def baseline_in_words(name: str) -> str:
    """A baseline's name in words.

    >>> [baseline_in_words(name) for name in ("nearest-VERB", "2-words-back", "same-class")]
    ['nearest verb', '2 words back', 'nearest word of the same class']
    """
    return IN_WORDS.get(name, spelled_out(name))


def matched_control_keys(type: str) -> str:
    """Keys of the matched control of a head type's relations, in words.

    >>> matched_control_keys("syntactic")
    'keys of that class and distance from other words'
    """
    head_type = head_types().get(type)
    return "other keys" if head_type is None else head_type.matched_control_keys


def strictest_control(row: Mapping[str, Any]) -> tuple[float, str]:
    """The largest of a row's control masses, and its keys in words.

    A multiple of evenly spread attention is a control of relations that state `times_chance`.

    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": 0.34})
    (0.34, 'keys of that class and distance from other words (matched)')
    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched_control": float("nan")})
    (0.01, 'control keys')
    >>> strictest_control({"type": "syntactic", "control": float("nan")})  # no finite attention
    (nan, 'control keys')
    """
    controls = [
        (row["control"], "control keys"),
        (row.get("matched_control"), f"{matched_control_keys(row['type'])} (matched)"),
    ]
    times_chance = row.get("times_chance", float("nan"))
    if not isnan(times_chance):
        multiple = times_chance / TIMES_CONTROL
        keys = f"the same keys by evenly spread attention, × {multiple:g}"
        mass = row["chance"] * times_chance / TIMES_CONTROL
        controls.append((mass, keys))
    known = []
    for mass, keys in controls:
        if mass is not None and not isnan(mass):
            known.append((mass, keys))
    return max(known, key=itemgetter(0), default=controls[0])
