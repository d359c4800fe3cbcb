"""What a head type is: a name, how it is drawn, its relations, and what it predicts."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headscope.errors import ChoiceError, HeadscopeError
from headscope.relations.relation import Relation

BEHAVIOURS = ("repeat", "agreement", "pronoun", "text", "pairs", "facts", "words")
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_COLOUR = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True, kw_only=True)
class HeadType:
    """One kind of head, as tables, pictures, reports and studies know it.

    Raises:
        HeadscopeError: a name that is no lower-case word, a colour that is not like `#0072b2`, or
            a relation of another type.
        ChoiceError: there is no such behaviour.

    >>> HeadType(name="words", letter="W", relations=()).colour
    '#8a6fdf'
    """

    name: str
    """A lower-case word; relations are called `name/relation`."""
    letter: str
    """One letter, for where there is no colour."""
    relations: tuple[Relation, ...]
    both_ways: tuple[Relation, ...] = ()
    """What is asked instead of an encoder, whose tokens see those after them; the same if empty."""
    across: tuple[Relation, ...] = ()
    """What is asked of heads that look from a target at its source."""
    colour: str = "#8a6fdf"
    """Told apart by colour-blind readers too, among the others (Okabe and Ito 2008)."""
    marker: str = "X"
    """matplotlib's mark of its points."""
    looks_at: str = ""
    """What its heads look at, in words."""
    rivals: str = ""
    """What its heads are held against, in words."""
    functional: bool = True
    """False for a resting place: no head is of this type first that does anything else."""
    behaviour: str = "text"
    """What breaks when its heads are silenced: `repeat` (repeated random tokens), `agreement` (of a
    verb over an attractor), `pronoun` (that agrees), or the prediction at its relations' queries,
    in natural `text` or in `pairs` of related words, of `facts` that are asked for,
    or in repeated random `words`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name == "unclassified":
            raise HeadscopeError(
                f"a head type called {self.name!r:.60}; a name is a lower-case word, e.g. words"
            )
        if len(self.letter) != 1 or not self.letter.isprintable():
            raise HeadscopeError(f"{self.name}: letter is {self.letter!r:.60}, expected one letter")
        if not _COLOUR.fullmatch(self.colour):
            raise HeadscopeError(
                f"{self.name}: colour is {self.colour!r:.60}, expected one like #0072b2"
            )
        if self.behaviour not in BEHAVIOURS:
            raise ChoiceError(f"behaviour of {self.name}", self.behaviour, BEHAVIOURS)
        for relation in (*self.relations, *self.both_ways, *self.across):
            if relation.type != self.name:
                raise HeadscopeError(f"{relation.id} is no relation of the type {self.name}")
