"""Conditions on which a comparison fails, for those who quantise, prune, merge or fine-tune."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from headscope.errors import ChoiceError, RunError
from headscope.heads import head_name
from headscope.studies.compare.result import Comparison

_FORM = re.compile(r"(sure )?(changes|lost|gained)(?: ([a-z][a-z0-9-]*))?\s*(>=|>)\s*(\d{1,6})")
LISTED = 8
"""Heads that a verdict names."""


@dataclass(frozen=True)
class Condition:
    """How many heads may change before a comparison fails."""

    text: str
    what: str
    """`changes`, `lost` or `gained`."""
    sure: bool
    """Whether only those count that are more than noise: intervals that do not overlap."""
    type: str
    """Of the tags; empty for any."""
    most: int
    """Heads that may."""


@dataclass(frozen=True)
class Verdict:
    """What became of a condition."""

    condition: Condition
    heads: tuple[str, ...]
    sure: int
    """How many of these are more than noise."""

    @property
    def failed(self) -> bool:
        """More heads than may."""
        return len(self.heads) > self.condition.most

    def __str__(self) -> str:
        rest = len(self.heads) - LISTED
        named = ", ".join(self.heads[:LISTED]) + (f" and {rest} more" if rest > 0 else "")
        told = f"{len(self.heads)} heads" + (f" ({named})" if named else "")
        noise = len(self.heads) - self.sure
        beside = f", {noise} of which may be noise" if noise else ""
        return f"{'FAILED' if self.failed else 'passed'}: {self.condition.text}: {told}{beside}"


def condition_of(text: str, types: Sequence[str]) -> Condition:
    """A condition as it is written, such as `lost induction > 0` or `sure changes > 3`.

    Args:
        text: `changes`, `lost` or `gained`, perhaps `sure` before and a head type behind it, then
            `>` or `>=` and a number of heads.
        types: those that the runs know.

    Raises:
        RunError: it is written in another way.
        ChoiceError: there is no such type.

    >>> condition_of("sure lost induction > 2", ["induction"]).most
    2
    """
    found = _FORM.fullmatch(" ".join(text.split()))
    always = found is not None and found[4] == ">=" and int(found[5]) == 0
    if found is None or always or (found[2] == "changes" and found[3]):
        raise RunError(
            f"--fail-on {text!r:.80} is no condition; write for example 'lost induction > 0', "
            "'sure changes > 3', 'gained > 10' or 'sure lost coreference >= 1'"
        )
    if found[3] and found[3] not in types:
        raise ChoiceError("head type in these runs", found[3], types)
    most = int(found[5]) - (found[4] == ">=")
    return Condition(text, found[2], bool(found[1]), found[3] or "", most)


def verdicts(found: Comparison, conditions: Sequence[str]) -> list[Verdict]:
    """What becomes of each condition.

    Args:
        found: runs of the same layers and heads.
        conditions: as they are written.

    Raises:
        RunError: a condition is written in another way, or the runs have other shapes.
        ChoiceError: a condition names a type that the runs do not know.
    """
    asked = [condition_of(text, found.types) for text in conditions]
    if found.heads is None:
        raise RunError(
            "--fail-on compares head by head, and these runs differ in layers or heads; compare "
            "runs of one layout"
        )
    return [_verdict(found, each) for each in asked]


def _verdict(found: Comparison, asked: Condition) -> Verdict:
    rows = found.changed
    several = len(found.runs) > 2
    names, sure = [], 0
    for row in rows.to_dict("records"):
        tags = {side: {*str(row[side]).split(";")} - {""} for side in ("gained", "lost", "sure")}
        own = tags["gained"] | tags["lost"] if asked.what == "changes" else tags[asked.what]
        if asked.type:
            own &= {asked.type}
        certain = bool(own & tags["sure"])
        counts = bool(own) or asked.what == "changes"
        if counts and (certain or not asked.sure):
            name = head_name(row["layer"], row["head"], found.runs[0].stacks)
            names.append(f"{row['run']} {name}" if several else name)
            sure += certain
    return Verdict(asked, tuple(names), sure)
