"""The table of head types: those that ship, those of other packages, and those of this process.

A type that ships is a file of `headscope/relations/types`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib.metadata import entry_points
from typing import Annotated

from pydantic import Field

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.errors import HeadscopeError, check_choice, first_line
from headscope.options import checked
from headscope.relations.head_type import ALL, HeadType
from headscope.relations.parts import is_part
from headscope.relations.relation import Relation
from headscope.relations.types import shipped_types
from headscope.stimuli import COMMON
from headscope.stimuli.natural_text import TEXT
from headscope.stimuli.stimulus import Stimulus

GRAMMATICAL = ("agreement", "pronoun")
"""Behaviours beside predictions in a stimulus: which of two sentences is grammatical."""
QUICK = (
    "sink",
    "positional",
    "delimiter",
    "induction",
    "duplicate-token",
    "lexical/duplicate",
    "syntactic",
    "coreference",
)
"""Types and single relations of a quick run: those that most heads have."""
ENTRY_POINTS = "headscope.types"
"""The group of entry points by which an installed package brings head types of its own."""
_registered: dict[str, HeadType] = {}


@checked
def register(head_type: HeadType) -> HeadType:
    """Make a head type known to every command and study of this process.

    A package does the same for all processes by an entry point of the group `headscope.types`
    that names a `HeadType`.

    Raises:
        HeadscopeError: another type has its name, another stimulus has the name of one of its
            stimuli, or its relations conflict.
        ChoiceError: there is no such behaviour or stimulus.
    """
    known = head_types().get(head_type.name)
    if known != head_type:
        _check_new("head type", head_type.name, head_types())
    check_type(head_type, all_stimuli())
    _registered[head_type.name] = head_type
    return head_type


def check_type(head_type: HeadType, known: Mapping[str, Stimulus]) -> None:
    """Refuse a type that does not fit to the stimuli that are known without it, as `register`."""
    for stimulus in head_type.stimuli:
        if known.get(stimulus.name) != stimulus:
            _check_new("stimulus", stimulus.name, known)
    stimuli = {**known, **{row.name: row for row in head_type.stimuli}}
    predicted = [name for name, row in stimuli.items() if row.build is not None]
    behaviours = (TEXT.name, *predicted, *GRAMMATICAL)
    check_choice(f"behaviour of {head_type.name}", head_type.behaviour, behaviours)
    check_relations(head_type.relations, stimuli)


def _check_new(what: str, name: str, known: Container[str]) -> None:
    if name in known:
        raise HeadscopeError(f"a {what} called {name} is there already; choose another name")


def head_types() -> dict[str, HeadType]:
    """All head types by name: those that ship, those of installed packages, those registered."""
    shipped = {head_type.name: head_type for head_type in shipped_types()}
    return shipped | _installed() | _registered


def types_on_request() -> list[str]:
    """Names of the head types that a run measures only if they are named, or with `all`."""
    return [name for name, head_type in head_types().items() if head_type.on_request]


@cache
def _installed() -> dict[str, HeadType]:
    installed: dict[str, HeadType] = {}
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            head_type = entry.load()
        except (Exception, SystemExit) as error:  # code of another package, which may do anything
            reason = f"{type(error).__name__}: {first_line(error):.200}"
            raise HeadscopeError(f"cannot load the head type {entry.value}: {reason}") from error
        if not isinstance(head_type, HeadType):
            raise HeadscopeError(f"{entry.value} is not an hs.HeadType")
        # packages are checked against each other too: the name of the second is refused
        known = {row.name: row for row in shipped_types()} | installed
        _check_new("head type", head_type.name, known)
        check_type(head_type, _stimuli_of([*shipped_types(), *installed.values()]))
        installed[head_type.name] = head_type
    return installed


def all_stimuli() -> dict[str, Stimulus]:
    """All stimuli by name: those of no type, then those of head types as they are read."""
    return _stimuli_of(head_types().values())


def _stimuli_of(types: Iterable[HeadType]) -> dict[str, Stimulus]:
    return COMMON | {row.name: row for head_type in types for row in head_type.stimuli}


Relations = Annotated[Sequence[Relation], Field(min_length=1)]


ENCODER_SURROGATE_SHARE = 0.5
"""`Threshold.surrogate_share` of relations of encoders."""


def relations_of(
    types: Sequence[str] | None = None,
    attention_kind: AttentionKind = CAUSAL,
    *,
    quick: bool = False,
    in_chat: bool = False,
    in_haystack: bool = False,
) -> list[Relation]:
    """The relations of these head types.

    Args:
        types: names of head types, as in `check_types`.
        attention_kind: of the heads that are asked.
        quick: those in `QUICK` alone, if no types are named.
        in_chat: those about a chat template too.
        in_haystack: those about facts in long text too.

    Raises:
        ChoiceError: there is no such type.
    """
    relations: list[Relation] = []
    for head_type in check_types(types).values():
        relations += head_type.relations_of(attention_kind)
        if in_chat:
            relations += head_type.chat_relations
        if in_haystack and not attention_kind.sees_future:
            relations += head_type.haystack_relations
    if quick and types is None:
        relations = [row for row in relations if row.type in QUICK or row.id in QUICK]
    if attention_kind.sees_future:
        # types whose share is lower in causal models have the full share here
        for i, relation in enumerate(relations):
            if relation.thresholds.beats_surrogate:
                limits = replace(relation.thresholds, surrogate_share=ENCODER_SURROGATE_SHARE)
                relations[i] = replace(relation, thresholds=limits)
    return relations


def check_types(types: Sequence[str] | None) -> dict[str, HeadType]:
    """The head types of these names, in the order of the table.

    Args:
        types: names of head types; `all` names every type, None every type not on request.

    Raises:
        ChoiceError: there is no such type.

    >>> [*check_types(["syntactic", "sink"])]
    ['sink', 'syntactic']
    >>> "code" in check_types(None), "code" in check_types(["all"])
    (False, True)
    """
    known = head_types()
    if types is None:
        return {name: head_type for name, head_type in known.items() if not head_type.on_request}
    for name in types:
        check_choice("head type", name, [*known, ALL])
    if ALL in types:
        return known
    return {name: head_type for name, head_type in known.items() if name in types}


def check_relations(
    relations: Sequence[Relation], stimuli: Mapping[str, Stimulus] | None = None
) -> Sequence[Relation]:
    """The relations themselves, if a run can score them side by side.

    Args:
        relations: of one run.
        stimuli: those that they may read, `all_stimuli()` by default.

    Raises:
        HeadscopeError: a name that tables cannot hold, a name of two relations, an unknown
            stimulus, or a condition on a baseline that the relation does not have.
    """
    known = all_stimuli() if stimuli is None else stimuli
    readable = [name for name in known if name == TEXT.name or name not in COMMON]
    seen: set[str] = set()
    for relation in relations:
        # tables name rows by relations, and separate types by ;
        name = relation.id
        if name in seen:
            raise HeadscopeError(f"two relations are called {name}; names must differ")
        if ";" in relation.type or is_part(relation.name) or not name.isprintable():
            raise HeadscopeError(
                f"invalid relation name {name!r:.100}; expected no control character, no ; in "
                "the type, and no ending that headscope reserves for partial sums"
            )
        seen.add(name)
        # a tag that must beat baselines needs one to be compared with
        if relation.thresholds.beat_baseline_by is not None and relation.baseline is None:
            raise HeadscopeError(
                f"{name}: a tag must beat a baseline (beat_baseline_by), but the relation has no "
                "baseline to compare with"
            )
        for stimulus in relation.stimuli:
            check_choice(f"stimulus for {relation.id}", stimulus, readable)
    return relations
