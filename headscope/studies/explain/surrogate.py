"""Surrogates as plain data: what a head is said to do, apart from how it was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headscope.studies.explain.catalogue import GATES
from headscope.studies.explain.content_term import Content
from headscope.studies.explain.feature import Feature
from headscope.studies.explain.places import CURVE, DISTANCE, LATER, LOG_DISTANCE
from headscope.studies.explain.surrogate_shares import Share

LISTED_FEATURES = 5
"""Features that a sentence names; the table has all."""
_SMOOTH = (LOG_DISTANCE, CURVE, DISTANCE)

Parts = tuple[tuple[Feature, int, float], ...]
"""Features with their gates and weights: all that a pattern takes."""


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

    @property
    def words(self) -> str:
        """What it says, with its weight."""
        at = f"on a {self.queries}: " if self.queries else ""
        return f"{at}{self.feature.words} ({self.weight:+.1f})"


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
class PartialFit:
    """A part of a rule that was fitted again by itself."""

    features: int
    """How many it has."""
    explained: float
    """By these, on held-out documents."""
    parts: Parts


@dataclass(frozen=True)
class Surrogate:
    """The rule of one head, and how much of the head it explains on held-out documents."""

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
    smaller: tuple[PartialFit, ...] = ()
    """Rules of fewer features, each a part of the one before."""

    def parts(self, size: int | None = None) -> Parts:
        """The rule; of smaller ones that of so many features, where there is one."""
        parts_of_size = (item.parts for item in self.smaller if item.features == size)
        return next(parts_of_size, tuple((t.feature, t.gate, t.weight) for t in self.terms))

    def explained_by(self, size: int) -> float:
        """The share that the rule of at most so many features explains."""
        shares = (item.explained for item in self.smaller if item.features == size)
        return next(shares, self.explained.value)

    @property
    def sentence(self) -> str:
        """The features with the most unique bits, what is liked before what is avoided.

        Numbers are weights in logits; smooth ones are said as "nearer is better".
        """
        if not self.terms:
            return "nothing that the features name: even attention"
        first_terms = self.terms[:LISTED_FEATURES]
        smooth = [term for term in first_terms if term.feature in _SMOOTH]
        other = [term for term in first_terms if term.feature not in (*_SMOOTH, LATER)]
        liked = "; ".join(term.words for term in other if term.weight > 0)
        avoided = ", ".join(term.words for term in other if term.weight <= 0)
        later = not other and any(term.feature == LATER for term in first_terms)
        parts = ["token 0 the more, the later it is"] if later else []
        parts += [liked] if liked else []
        parts += [f"avoids {avoided}"] if avoided else []
        if smooth:
            parts.append("nearer is better" if smooth[0].weight < 0 else "farther is better")
        unlisted = len(self.terms) - len(first_terms)
        return "; ".join(parts) + (f"; {unlisted} more" if unlisted else "")


@dataclass(frozen=True)
class LayerSurrogates:
    """Everything that a layer needs to run on rules."""

    heads: tuple[Surrogate, ...]
    places: tuple[Parts, ...]
    """Each head's rule of token 0 and distance alone."""
    content: Content | None
