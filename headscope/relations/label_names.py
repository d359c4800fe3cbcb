"""Labels of heads in other work: the relations and direct effects that stand for them.

A label is a name of `data/label_names.csv`, a head type, or a relation.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.shipped import data_folder
from headscope.relations import relations_of
from headscope.relations.effects import EFFECTS
from headscope.relations.head_type import ALL

SYNTACTIC = "syntactic/"
_DIRECTION = re.compile(r":(dep>head|head>dep)$")
_HEAD = re.compile(r"\s+heads?$")


@dataclass(frozen=True)
class LabelMeaning:
    """Meaning of a label: a head has the label if one of the relations tags it."""

    relations: tuple[str, ...] = ()
    """Full names of relations and direct effects; empty if headscope measures nothing for it."""
    test: str = ""
    """A test of it, if headscope measures nothing for it."""


@cache
def published_names() -> Mapping[str, LabelMeaning]:
    """The names that other work gives to heads, as `data/label_names.csv` spells them.

    >>> published_names()["previous token"].relations
    ('positional/offset-1', 'positional/offset-1-random')
    """
    names = {}
    with (data_folder() / "label_names.csv").open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            relations = tuple(filter(None, row["relations"].split(";")))
            names[row["name"]] = LabelMeaning(relations, row["test"])
    return names


def label_meanings(measured: Iterable[str] = ()) -> dict[str, LabelMeaning]:
    """Meaning of every known label, by its `normalised` text.

    Of labels with the same text, a relation's full name comes first, then a name of
    `published_names`, a head type, and a relation's name without its type.

    Args:
        measured: full names of the relations of a run, which may have types of its own.

    >>> label_meanings()[normalised("Induction heads")].relations
    ('induction/repeat', 'induction/natural')
    """
    relations = dict.fromkeys([*measured, *_shipped_relations()])
    # relations by their names without the type, and by their types
    short: dict[str, list[str]] = {}
    types: dict[str, list[str]] = {}
    for relation in relations:
        kind, _, name = relation.partition("/")
        types.setdefault(normalised(kind), []).append(relation)
        short.setdefault(normalised(name), []).append(relation)
        if relation.startswith(SYNTACTIC):
            label = normalised(_DIRECTION.sub("", name))
            short.setdefault(label, []).append(relation)
    # effects by their types
    effect_types: dict[str, list[str]] = {}
    for effect in EFFECTS:
        effect_types.setdefault(normalised(effect.type), []).append(effect.id)
    # what comes later replaces what came before
    meanings = {}
    for group in (short, effect_types, types):
        for label, members in group.items():
            meanings[label] = LabelMeaning(tuple(members))
    for name, meaning in published_names().items():
        meanings[normalised(name)] = meaning
    for full_name in (*relations, *(effect.id for effect in EFFECTS)):
        meanings[normalised(full_name)] = LabelMeaning((full_name,))
    return meanings


@cache
def _shipped_relations() -> tuple[str, ...]:
    """Full names of all relations that ship, of causal models and of encoders."""
    names = []
    for attention_kind in (CAUSAL, BIDIRECTIONAL):
        for relation in relations_of([ALL], attention_kind, in_chat=True, in_haystack=True):
            names.append(relation.id)
    return tuple(names)


def normalised(label: str) -> str:
    """A label in small letters, with spaces for `_` and `-`, and without "head" at its end.

    >>> normalised("Previous-token heads"), normalised("duplicate_token")
    ('previous token', 'duplicate token')
    """
    words = label.casefold().replace("_", " ").replace("-", " ").split()
    return _HEAD.sub("", " ".join(words))
