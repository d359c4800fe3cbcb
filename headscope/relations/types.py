"""What a head type is: a name, how it is drawn, its relations, and what it predicts.

And one's own relations in a few lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from headscope.arguments import CALL, NAME, NAMES, made_by, takes
from headscope.attention_kind import AttentionKind
from headscope.errors import ChoiceError, HeadscopeError
from headscope.relations.controls import other_keys
from headscope.relations.relation import DrawControl, FindPairs, Relation, TagThresholds
from headscope.stimuli import FOR_RELATIONS

BEHAVIOURS = (*FOR_RELATIONS, "agreement", "pronoun")
"""What a type may predict: tokens of a stimulus, or which of two sentences is grammatical."""
ALL = "all"
"""Names every head type where types are chosen."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_COLOUR = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True, kw_only=True)
class HeadType:
    """One kind of head, as tables, pictures, reports and studies know it.

    Raises:
        HeadscopeError: a name that is no lower-case word or is `all`, a colour that is not like
            `#0072b2`, or a relation of another type.
        ChoiceError: there is no such behaviour.

    >>> HeadType(name="words", letter="W", relations=()).colour
    '#8a6fdf'
    """

    name: str
    """A lower-case word; relations are called `name/relation`."""
    letter: str
    """One letter, for where there is no colour."""
    relations: tuple[Relation, ...]
    """What is asked of causal heads, and of an encoder's where nothing else is said of them."""
    relations_by_kind: Mapping[AttentionKind, tuple[Relation, ...]] = field(default_factory=dict)
    """What is asked instead of heads of another kind of attention."""
    chat_relations: tuple[Relation, ...] = ()
    """What is asked too where texts stand in a chat template."""
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
    on_request: bool = False
    """True for a type that only runs with `--types all` or its name measure. Other runs do not read
    its stimuli."""
    behaviour: str = "text"
    """What suffers when its heads are ablated: `repeat` (repeated random tokens), `agreement` (of a
    verb over an attractor), `pronoun` (that agrees), or the prediction at its relations' queries
    in another stimulus, such as natural `text`."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name) or self.name in ("unclassified", ALL):
            raise HeadscopeError(
                f"a head type called {self.name!r:.60}; a name is a lower-case word, e.g. words"
            )
        if not _COLOUR.fullmatch(self.colour):
            raise HeadscopeError(
                f"{self.name}: colour is {self.colour!r:.60}, expected one like #0072b2"
            )
        if self.behaviour not in BEHAVIOURS:
            raise ChoiceError(f"behaviour of {self.name}", self.behaviour, BEHAVIOURS)
        by_kind = self.relations_by_kind.values()
        for relation in chain(self.relations, self.chat_relations, *by_kind):
            if relation.type != self.name:
                raise HeadscopeError(f"{relation.id} is no relation of the type {self.name}")

    def relations_of(self, attention_kind: AttentionKind) -> tuple[Relation, ...]:
        """What is asked of heads of a kind of attention."""
        return self.relations_by_kind.get(attention_kind, self.relations)


class Floor(NamedTuple):
    """The least mass that a tag asks for, and where that number is from."""

    mass: float
    source: str


FLOOR = Floor(0.1, "ours: a tenth of a head's attention")


@takes(type=NAME, control=CALL, floor=made_by("an hs.Floor", Floor), stimuli=NAMES)
def relation(
    type: str,
    name: str,
    *,
    control: DrawControl = other_keys,
    floor: Floor = FLOOR,
    stimuli: tuple[str, ...] = ("text",),
    **rule: Any,
) -> Callable[[FindPairs], Relation]:
    """Make a relation of a function that finds its pairs; its docstring says what is looked at.

    Args:
        type: the head type, a word.
        name: the relation's own name.
        control: draws the cells that a baseline head would hit as often as the targets.
        floor: the least mass that a tag asks for.
        stimuli: names of the windows that are read, such as `text`, `repeat` or `pairs`.
        rule: what else a tag asks for; see `headscope.relations.relation.TagThresholds`.

    Raises:
        HeadscopeError: the function has no docstring.

    >>> from headscope.corpus.window import Window
    >>> from headscope.relations.pairs import Pairs, pairs
    >>> @relation("words", "two-back", floor=Floor(0.3, "my guess"))
    ... def two_back(window: Window) -> Pairs:
    ...     \"\"\"the word before last\"\"\"
    ...     return pairs(window.words.last[2:], window.words.last[:-2])
    >>> two_back.id, two_back.rule.meaning
    ('words/two-back', 'the word before last')
    """

    def declare(find: FindPairs) -> Relation:
        meaning = (find.__doc__ or "").strip().split("\n")[0].rstrip(".")
        if not meaning:
            raise HeadscopeError(
                f"{type}/{name}: the function has no docstring; its first line says what a head of "
                "this relation looks at"
            )
        thresholds = TagThresholds(floor.mass, floor.source, meaning, **rule)
        return Relation(type, name, find, control, thresholds, stimuli)

    return declare
