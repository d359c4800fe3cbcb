"""Structure heads: from a mark to the one that it belongs to, by a text's brackets, lists, tables.

What is right is read from the text alone, and so is the simple rule of each kind: the nearest mark
of the right one's form, the nearest line that is marked alike, the last cell above. It is wrong
where brackets or quotations stand within others of their own form, where a list holds another, and
in all columns of a table but the last.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.structure.annotate import KINDS, rule_kind
from headscope.corpus.structure.lines import ABOVE, HEADER, ITEM
from headscope.corpus.window import Window
from headscope.relations.pointing import (
    every_candidate,
    of_kind,
    other_candidates,
    pointed_to,
)
from headscope.relations.relation import Baseline, Relation, Rule
from headscope.relations.types import HeadType

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on one place, as syntactic heads are asked for, beside "
    "the best simple rule plus 10 points where that rule is wrong"
)
BEAT_RULE_BY = 0.10
CELLS = (HEADER, ABOVE)
"""Kinds whose candidates stand in a row: a fixed place of it is often right by chance."""


def nearest_alike(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """At each query of a kind what its simple rule picks, −1 where the window does not hold it.

    Of list items those are alike whose token is: in many tokenizers a marker that is indented is
    another token than one that is not, and so the same token tells the outermost list from others.
    """
    found = of_kind(window, rule_kind(kind))
    if kind == ITEM:
        indented = np.array([string[:1].isspace() for string in window.strings], bool)
        found = found.take(indented[found.query] == indented[found.last])
    picks = np.full(len(window), -1)
    np.maximum.at(picks, found.query, found.last)
    return picks


_MEANINGS = {
    "bracket-pair": "the bracket that the closing one closes",
    "quote-pair": "the quotation mark that the closing one closes",
    "list-item": "the marker of the item before it in the same list",
    "table-header": "the header of the cell's column",
    "cell-above": "the cell above it in the table",
}

RELATIONS = tuple(
    Relation(
        "structure",
        kind,
        partial(pointed_to, kind=kind),
        partial(every_candidate if kind in CELLS else other_candidates, kind=kind),
        Rule(FLOOR, SOURCE, _MEANINGS[kind], beat_baseline_by=BEAT_RULE_BY),
        baseline=Baseline(partial(nearest_alike, kind=kind), by_class=False),
    )
    for kind in KINDS
)

TYPE = HeadType(
    name="structure",
    letter="T",
    colour="#882255",
    marker="p",
    relations=RELATIONS,
    looks_at="what a closing bracket or quotation mark closes; in Markdown the item before of the "
    "same list, the header of a table's column, the cell above",
    rivals="same query, other openers and line starts nearer and farther, all other cells of the "
    "row; where the nearest one of the same form is wrong, that one",
    behaviour="text",
)
