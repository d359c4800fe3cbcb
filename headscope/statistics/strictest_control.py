"""The stricter of a head's two controls, the one that decides its tag, with words for its keys."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan
from typing import Any

_MATCHED_KEYS = {
    "syntactic": "keys of the same word class and distance at other queries",
    "retrieval": "what is said of that person or of that property alone",
    "concept-induction": "other tokens near the earlier copy",
}


def matched_keys(type: str) -> str:
    """Keys of the matched control of a head type's relations, in words.

    >>> matched_keys("syntactic")
    'keys of the same word class and distance at other queries'
    """
    return _MATCHED_KEYS.get(type, "other keys")


def strictest_control(row: Mapping[str, Any]) -> tuple[float, str]:
    """The larger of a row's control masses, and its keys in words.

    A tag requires 1.5 times each of them, so the larger one decides.

    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched": 0.34})
    (0.34, 'keys of the same word class and distance at other queries (matched control)')
    >>> strictest_control({"type": "syntactic", "control": 0.01, "matched": float("nan")})
    (0.01, 'control keys')
    """
    control, matched = row["control"], row.get("matched", float("nan"))
    if isnan(matched) or matched <= control:
        return control, "control keys"
    return matched, f"{matched_keys(row['type'])} (matched control)"
