"""One's own relations in a few lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from headscope.arguments import CALL, NAME, NAMES, Kind, made_by, takes
from headscope.errors import HeadscopeError
from headscope.relations.controls import other_keys
from headscope.relations.relation import DrawControl, FindPairs, Relation, TagThresholds
from headscope.stimuli import FOR_RELATIONS


class Floor(NamedTuple):
    """The least mass that a tag asks for, and where that number is from."""

    mass: float
    source: str


FLOOR = Floor(0.1, "ours: a tenth of a head's attention")


def _stimuli(value: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = NAMES.plain(value)
    if not names or not set(names) <= set(FOR_RELATIONS):
        raise ValueError
    return names


_STIMULI = Kind(f"a list of one or more of {', '.join(FOR_RELATIONS)}", _stimuli)


@takes(type=NAME, control=CALL, floor=made_by("an hs.Floor", Floor), stimuli=_STIMULI)
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
        control: draws the cells that a head with a simpler habit would hit as often.
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
