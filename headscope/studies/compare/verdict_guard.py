"""Conditions on which a comparison fails, for those who quantise, prune, merge or fine-tune."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headscope.errors import ChoiceError, RunError
from headscope.heads import head_name
from headscope.studies.compare.compare_result import Comparison

_FORM = re.compile(r"(sure )?(changes|lost|gained)(?: ([a-z][a-z0-9-]*))?\s*(>=|>)\s*(\d{1,6})")
LISTED = 8
"""Heads that a verdict names."""


@dataclass(frozen=True)
class FailCondition:
    """The number of heads that may change before a comparison fails."""

    text: str
    what: str
    """`changes`, `lost` or `gained`."""
    sure: bool
    """Whether only those count that are more than noise: intervals that do not overlap."""
    type: str
    """Of the tags; empty for any."""
    limit: int
    """Heads that may."""


@dataclass(frozen=True)
class Verdict:
    """The outcome of a condition."""

    condition: FailCondition
    heads: tuple[str, ...]
    sure: int
    """How many of these are more than noise."""

    @property
    def failed(self) -> bool:
        """More heads than may."""
        return len(self.heads) > self.condition.limit

    def __str__(self) -> str:
        unlisted = len(self.heads) - LISTED
        listed = ", ".join(self.heads[:LISTED]) + (f" and {unlisted} more" if unlisted > 0 else "")
        summary = f"{len(self.heads)} heads" + (f" ({listed})" if listed else "")
        noise = len(self.heads) - self.sure
        noise_note = f", {noise} of which may be noise" if noise else ""
        return (
            f"{'FAILED' if self.failed else 'passed'}: {self.condition.text}: {summary}{noise_note}"
        )


def condition_of(text: str, types: Sequence[str]) -> FailCondition:
    """A condition as it is written, such as `lost induction > 0` or `sure changes > 3`.

    Args:
        text: `changes`, `lost` or `gained`, perhaps `sure` before and a head type behind it, then
            `>` or `>=` and a number of heads.
        types: those that the runs know.

    Raises:
        RunError: it is written in another way.
        ChoiceError: there is no such type.

    >>> condition_of("sure lost induction > 2", ["induction"]).limit
    2
    """
    match = _FORM.fullmatch(" ".join(text.split()))
    always = match is not None and match[4] == ">=" and int(match[5]) == 0
    if match is None or always or (match[2] == "changes" and match[3]):
        raise RunError(
            f"--fail-on {text!r:.80} is no condition; write for example 'lost induction > 0', "
            "'sure changes > 3', 'gained > 10' or 'sure lost coreference >= 1'"
        )
    if match[3] and match[3] not in types:
        raise ChoiceError("head type in these runs", match[3], types)
    limit = int(match[5]) - (match[4] == ">=")
    return FailCondition(text, match[2], bool(match[1]), match[3] or "", limit)


def condition_outcomes(comparison: Comparison, conditions: Sequence[str]) -> list[Verdict]:
    """The outcome of each condition.

    Args:
        comparison: runs of the same layers and heads.
        conditions: as they are written.

    Raises:
        RunError: a condition is written in another way, or the runs have other shapes.
        ChoiceError: a condition names a type that the runs do not know.
    """
    parsed = [condition_of(text, comparison.types) for text in conditions]
    if comparison.heads is None:
        raise RunError(
            "--fail-on compares head by head, and these runs differ in layers or heads; compare "
            "runs of one layout"
        )
    return [_verdict(comparison, condition) for condition in parsed]


def _verdict(comparison: Comparison, condition: FailCondition) -> Verdict:
    rows = comparison.changed
    several = len(comparison.runs) > 2
    names, sure = [], 0
    for row in rows.to_dict("records"):
        tags = {side: {*str(row[side]).split(";")} - {""} for side in ("gained", "lost", "sure")}
        head_tags = (
            tags["gained"] | tags["lost"] if condition.what == "changes" else tags[condition.what]
        )
        if condition.type:
            head_tags &= {condition.type}
        certain = bool(head_tags & tags["sure"])
        counts = bool(head_tags) or condition.what == "changes"
        if counts and (certain or not condition.sure):
            name = head_name(row["layer"], row["head"])
            names.append(f"{row['run']} {name}" if several else name)
            sure += certain
    return Verdict(condition, tuple(names), sure)
