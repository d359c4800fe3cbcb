"""The table of relations. A new head type is one new file with its rows, and one line here."""

from __future__ import annotations

from collections.abc import Sequence

from headscope.errors import ChoiceError
from headscope.relations import coreference, delimiter, induction, positional, semantic, syntactic
from headscope.relations.relation import Relation

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
