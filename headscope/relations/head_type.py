"""Head types: a type is one object with its relations, its stimuli, and how it is drawn.

`relation` makes a relation of a function in a few lines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from headscope.attention_kind import AttentionKind
from headscope.errors import HeadscopeError
from headscope.options import Name, checked
from headscope.relations.controls import other_keys
from headscope.relations.relation import DrawControl, FindPairs, Relation, Threshold
from headscope.stimuli.stimulus import Stimulus

ALL = "all"
"""Names every head type where types are chosen."""
_NAME = re.compile(r"[a-z][a-z0-9-]*")
_COLOUR = re.compile(r"#[0-9a-f]{6}")


@dataclass(frozen=True, kw_only=True)
class HeadType:
    """One kind of head: its relations and stimuli, and its name, colour and words in outputs.

    Gold links are part of a stimulus: its documents have `arrows` from a word to the words that it
    points to, which `headscope.relations.annotated_links` makes targets and controls of.

    Raises:
        HeadscopeError: a name that is not a lower-case word or is `all`, a colour that is not like
            `#0072b2`, or a relation of another type.

    >>> HeadType(name="words", letter="W", relations=()).colour
    '#8a6fdf'
    """

    name: str
    """A lower-case word; relations are called `name/relation`."""
    letter: str
    """One letter, for output without colour."""
    relations: tuple[Relation, ...]
    """Relations of causal heads, and of an encoder's heads unless it has its own."""
    stimuli: tuple[Stimulus, ...] = ()
    """Stimuli that its relations read in addition to natural text."""
    relations_by_kind: Mapping[AttentionKind, tuple[Relation, ...]] = field(default_factory=dict)
    """Relations of heads of another kind of attention, instead."""
    chat_relations: tuple[Relation, ...] = ()
    """Relations that are added if texts stand in a chat template."""
    haystack_relations: tuple[Relation, ...] = ()
    """Relations that are added if haystacks are requested."""
    colour: str = "#8a6fdf"
    """A colour that colour-blind readers tell from the others (Okabe and Ito 2008)."""
    looks_at: str = ""
    """Keys that its heads attend to, in words."""
    control_keys: str = ""
    """Controls of its relations, in words."""
    order: int = 1000
    """Place in tables and pages among the types that ship; equal places go by name."""
    matched_control_keys: str = "other keys"
    """Keys of the matched control of its relations, in words."""
    functional: bool = True
    """False for an attention sink."""
    on_request: bool = False
    """True for a type that only runs with `--types all` or its name measure. Other runs do not read
    its stimuli."""
    behaviour: str = "text"
    """Prediction that is measured when its heads are ablated: `repeat` (repeated random tokens),
    `agreement` (of a verb over an attractor), `pronoun` (that agrees), or the tokens at its
    relations' queries in another stimulus, such as natural `text`."""

    def __post_init__(self) -> None:
        fault = self._fault()
        if fault:
            raise HeadscopeError(fault)

    def _fault(self) -> str:
        """The fault of its name, its colour or its relations; empty for a sound type."""
        if not _NAME.fullmatch(self.name) or self.name in ("unclassified", ALL):
            return f"a head type called {self.name!r:.60}; a name is a lower-case word, e.g. words"
        if not _COLOUR.fullmatch(self.colour):
            return f"{self.name}: colour is {self.colour!r:.60}, expected one like #0072b2"
        by_kind = self.relations_by_kind.values()
        added = (self.chat_relations, self.haystack_relations)
        for relation in chain(self.relations, *added, *by_kind):
            if relation.type != self.name:
                return f"{relation.id} is not a relation of the type {self.name}"
        return ""

    def relations_of(self, attention_kind: AttentionKind) -> tuple[Relation, ...]:
        """Relations of heads of a kind of attention."""
        return self.relations_by_kind.get(attention_kind, self.relations)


THRESHOLD = Threshold(0.1, "ours: a tenth of a head's attention")


@checked
def relation(
    type: Name,
    name: Name,
    *,
    control: DrawControl = other_keys,
    threshold: Threshold = THRESHOLD,
    stimuli: tuple[Name, ...] = ("text",),
    **other_thresholds: Any,
) -> Callable[[FindPairs], Relation]:
    """Make a relation of a function that finds its pairs; its docstring describes the targets.

    Args:
        type: the head type, a word.
        name: the relation's own name.
        control: draws the cells that a baseline head would hit as often as the targets.
        threshold: the least mass of a tag, and its source.
        stimuli: names of the stimuli that are read: `text`, `repeat`, or one of the type's own.
        **other_thresholds: further conditions of a tag; see
            `headscope.relations.relation.Threshold`.

    Raises:
        HeadscopeError: the function has no docstring.

    >>> from headscope.corpus.window import Window
    >>> from headscope.relations.pairs import Pairs, pairs
    >>> @relation("words", "two-back", threshold=Threshold(0.3, "my guess"))
    ... def two_back(window: Window) -> Pairs:
    ...     \"\"\"the word before last\"\"\"
    ...     return pairs(window.words.last[2:], window.words.last[:-2])
    >>> two_back.id, two_back.thresholds.meaning
    ('words/two-back', 'the word before last')
    """

    def declare(find: FindPairs) -> Relation:
        # `why` and the report put a head's attention into these words
        meaning = (find.__doc__ or "").strip().split("\n")[0].rstrip(".")
        if not meaning:
            raise HeadscopeError(
                f"{type}/{name}: the function has no docstring; its first line states what a head "
                "of this relation attends to"
            )
        thresholds = replace(threshold, meaning=meaning, **other_thresholds)
        return Relation(type, name, find, control, thresholds, stimuli)

    return declare
