"""A rule in words."""

from __future__ import annotations

from headscope.studies.explain.positions import CURVE, DISTANCE, LATER, LOG_DISTANCE
from headscope.studies.explain.rules import HeadRule, Weighed

SHOWN = 5
"""Features that a sentence names; the table has all."""
_SMOOTH = (LOG_DISTANCE, CURVE, DISTANCE)


def rule_sentence(rule: HeadRule) -> str:
    """The features with the most unique bits, what is liked before what is avoided.

    Numbers are weights in logits; smooth ones are said as "nearer is better".
    """
    if not rule.terms:
        return "nothing that the features name: even attention"
    chosen = rule.terms[:SHOWN]
    smooth = [each for each in chosen if each.feature in _SMOOTH]
    other = [each for each in chosen if each.feature not in (*_SMOOTH, LATER)]
    liked = [each for each in other if each.weight > 0]
    avoided = [each for each in other if each.weight <= 0]
    parts = []
    if liked:
        parts.append("; ".join(_said(each) for each in liked))
    if avoided:
        parts.append("avoids " + ", ".join(_said(each) for each in avoided))
    if smooth:
        parts.append("nearer is better" if smooth[0].weight < 0 else "farther is better")
    if not other and any(each.feature == LATER for each in chosen):
        parts.insert(0, "token 0 the more, the later it is")
    left = len(rule.terms) - len(chosen)
    more = f"; {left} more" if left else ""
    return "; ".join(parts) + more


def _said(each: Weighed) -> str:
    at = f"on a {each.queries}: " if each.queries else ""
    return f"{at}{each.feature.words} ({each.weight:+.1f})"
