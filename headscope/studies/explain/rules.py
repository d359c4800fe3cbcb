"""Rules as plain data: what a head is said to do, apart from how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.studies.explain.catalogue import GATES
from headscope.studies.explain.content import Content
from headscope.studies.explain.feature import Feature
from headscope.studies.explain.judge import Share


@dataclass(frozen=True)
class Weighed:
    """A feature in a rule."""

    feature: Feature
    gate: int
    """At which queries: a number among `GATES`, −1 for all."""
    weight: float
    """In logits: e to its power is by how much a key is preferred to one without the feature."""
    with_content: float
    """The weight beside the content term."""
    unique: Share
    """The share of the bits that is lost without it."""
    kind: str
    """What attention on it counts as in this layer."""

    @property
    def queries(self) -> str:
        """At which queries it speaks, in words; empty for all."""
        return GATES[self.gate] if self.gate >= 0 else ""


@dataclass(frozen=True)
class Remainder:
    """A query of which a rule says little."""

    window: str
    text: str
    """What stands before it, the query in [[ ]]."""
    looks_at: str
    """The token that has most of the head's attention."""
    rule_says: str
    """The token that has most of the rule's."""
    bits: float
    """KL(head ‖ rule) there."""


@dataclass(frozen=True)
class Smaller:
    """A part of a rule that was fitted again by itself."""

    features: int
    """How many it has."""
    explained: float
    """By these, on held-out documents."""
    parts: tuple[tuple[Feature, int, float], ...]
    """Features with their gates and weights."""


@dataclass(frozen=True)
class HeadRule:
    """What one head is said to do, and how much of it that explains on held-out documents."""

    layer: int
    head: int
    bits: float
    """Bits a query between uniform attention and the head's own."""
    terms: tuple[Weighed, ...]
    """The largest share of unique bits first."""
    position: Share
    """Explained by token 0 and distance alone."""
    explained: Share
    """By the rule's features, which come from the text alone."""
    content: Share | None
    """By features and the content term together; None without one."""
    remainders: tuple[Remainder, ...] = ()
    """The queries that the rule says least about, the worst first."""
    kinds: Mapping[str, float] = field(default_factory=dict)
    """The share that each kind of feature adds to the simpler ones."""
    smaller: tuple[Smaller, ...] = ()
    """Rules of fewer features, each a part of the one before."""

    def parts(self, size: int | None = None) -> tuple[tuple[Feature, int, float], ...]:
        """Features with their gates and weights; of the rule of at most so many features."""
        found = [each.parts for each in self.smaller if each.features == size]
        whole = tuple((each.feature, each.gate, each.weight) for each in self.terms)
        return found[0] if found else whole


Place = tuple[tuple[Feature, float], ...]
"""A rule of token 0 and distance alone: features and weights."""


@dataclass(frozen=True)
class LayerRules:
    """What a layer needs to run on rules."""

    heads: tuple[HeadRule, ...]
    places: tuple[Place, ...]
    """Each head's rule of token 0 and distance alone."""
    content: Content | None
