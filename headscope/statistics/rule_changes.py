"""Rules that a run was judged by, as `run.json` keeps them, and how the installed ones differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from headscope.attention_kind import KINDS
from headscope.measure.bootstrap import LEVEL, RESAMPLES
from headscope.measure.tally import BLOCKS, MIN_BLOCKS
from headscope.relations import head_types
from headscope.relations.relation import MIN_QUERIES, RELIABLE, TagThresholds
from headscope.relations.sink import PARTIAL
from headscope.statistics.conditions import CONDITIONS, MAX_P, MAX_Q, TIMES_CONTROL
from headscope.statistics.general_labels import TIMES_LABEL
from headscope.statistics.relation_sums import TWIN_PERCENTILE, TWIN_QUERIES
from headscope.statistics.result import Result

THRESHOLDS: Mapping[str, Any] = {
    "conditions": [condition.name for condition in CONDITIONS],
    "min_queries": MIN_QUERIES,
    "max_q_value": MAX_Q,
    "max_contested_p": MAX_P,
    "times_control": TIMES_CONTROL,
    "times_label": TIMES_LABEL,
    "partial_sink": PARTIAL,
    "blocks": BLOCKS,
    "min_blocks": MIN_BLOCKS,
    "interval": LEVEL,
    "resamples": RESAMPLES,
    "reliable": RELIABLE,
    "twin_percentile": TWIN_PERCENTILE,
    "twin_queries": TWIN_QUERIES,
}


_LISTED = 3
"""Differences that a sentence names; the others are counted."""


def rule_changes(run: Result) -> list[str]:
    """Differences between a run's rules and those that would judge it now; none as a rule.

    They are the conditions and numbers of every tag, and the thresholds of each relation of a head
    type that is installed. How a number is computed is not compared.
    """
    return [*_of_tags(run), *_of_relations(run)]


def changes_in_words(changes: list[str]) -> str:
    """Differences in a few words.

    >>> changes_in_words(["a", "b", "c", "d", "e"])
    'a; b; c; and 2 more'
    """
    listed = "; ".join(changes[:_LISTED])
    return listed if len(changes) <= _LISTED else f"{listed}; and {len(changes) - _LISTED} more"


def _of_tags(run: Result) -> Iterator[str]:
    stated = run.info.get("thresholds", {})
    for name, value in THRESHOLDS.items():
        words, old = name.replace("_", " "), stated.get(name)
        if old is None:
            yield f"{words} not stated"
        elif old != value and isinstance(value, list):
            yield from (f"a tag asks for {one} now" for one in value if one not in old)
            yield from (f"a tag asks no more for {one}" for one in old if one not in value)
        elif old != value:
            yield f"{words} {old}, now {value}"


def _of_relations(run: Result) -> Iterator[str]:
    installed = _installed_rules()
    types = head_types()
    for name, rule in run.rules.items():
        if name.partition("/")[0] in types and _numbers(rule) not in installed.get(name, []):
            yield f"{name} has other thresholds" if name in installed else f"{name} is gone"


def _installed_rules() -> dict[str, list[TagThresholds]]:
    """Rules by relation, one for each kind of attention that it is asked of."""
    rules: dict[str, list[TagThresholds]] = {}
    for head_type in head_types().values():
        for kind in KINDS.values():
            for relation in head_type.relations_of(kind):
                rules.setdefault(relation.id, []).append(_numbers(relation.rule))
    return rules


def _numbers(rule: TagThresholds) -> TagThresholds:
    return replace(rule, source="", meaning="")
