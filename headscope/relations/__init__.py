"""The table of relations. A new head type is one new file with its rows, and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.errors import ChoiceError, HeadscopeError
from headscope.relations import coreference, delimiter, induction, positional, semantic, syntactic
from headscope.relations.relation import Relation

STIMULI = ("text", "repeat", "pairs")

TYPES: dict[str, Sequence[Relation]] = {
    "positional": positional.RELATIONS,
    "delimiter": delimiter.RELATIONS,
    "induction": induction.RELATIONS,
    "syntactic": syntactic.RELATIONS,
    "coreference": coreference.RELATIONS,
    "semantic": semantic.RELATIONS,
}


def relations_of(types: Sequence[str] | None = None) -> list[Relation]:
    """The relations of these head types, of all types when None.

    Raises:
        ChoiceError: there is no such type.
    """
    for name in types or ():
        if name not in TYPES:
            raise ChoiceError("head type", name, TYPES)
    return [row for name, rows in TYPES.items() if types is None or name in types for row in rows]


def check_relations(relations: Sequence[Relation]) -> Sequence[Relation]:
    """The relations themselves, if a run can score them side by side.

    Raises:
        HeadscopeError: one has a name that tables cannot hold, two have one name, or one reads a
            stimulus that does not exist, or asks to beat a simple rule that it does not name.
    """
    seen: set[str] = set()
    for relation in relations:
        names = (relation.type, relation.name, relation.rule.meaning)
        if not all(name and name.isprintable() for name in names) or ";" in relation.type:
            raise HeadscopeError(
                f"a relation called {relation.id!r:.100}: type, name and meaning are words on one "
                "line, and a type has no ; because a head's tags are joined by it"
            )
        if relation.id in seen:
            raise HeadscopeError(f"two relations are called {relation.id}; names must differ")
        seen.add(relation.id)
        for stimulus in relation.stimuli:
            if stimulus not in STIMULI:
                raise ChoiceError(f"stimulus for {relation.id}", stimulus, STIMULI)
        if relation.rule.beat_guess_by is not None and relation.guess is None:
            raise HeadscopeError(
                f"{relation.id}: its rule asks to beat a simple rule (beat_guess_by), but the "
                "relation has no guess to compare with"
            )
    return relations
