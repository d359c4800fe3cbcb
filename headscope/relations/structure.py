"""Structure heads: from a mark to the one that it belongs to, by a text's brackets, lists, tables.

What is right is read from the text alone, and so is the simple rule of each kind: the nearest mark
of the right one's form, the nearest line that is marked alike, the last cell above, the nearest
number. It is wrong where brackets or quotations stand within others of their own form, where a list
holds another, in all columns of a table but the last, and where numbers of several kinds take
turns.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.structure import KINDS, rule_kind
from headscope.corpus.structure.lines import ABOVE, HEADER, ITEM
from headscope.corpus.structure.numbers import NUMBER
from headscope.corpus.window import Window
from headscope.relations.annotated_links import (
    every_candidate,
    of_kind,
    other_candidates,
    pointed_to,
)
from headscope.relations.pairs import Pairs, no_pairs, span_pairs
from headscope.relations.relation import Baseline, Relation, TagThresholds, draws_nothing
from headscope.relations.types import HeadType

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on one place, as syntactic heads are asked for, beside "
    "the best simple rule plus 10 points where that rule is wrong"
)
BEAT_RULE_BY = 0.10
ROWS = (HEADER, ABOVE, NUMBER)
"""Kinds whose candidates are of several words: all of them are rivals, not the next word alone.

Of a table's row a fixed place is often right by chance, too.
"""


def nearest_of_kind(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """At each query of a kind what its simple rule picks, −1 where the window does not hold it.

    Of list items those are alike whose token is: in many tokenizers a marker that is indented is
    another token than one that is not, and so the same token tells the outermost list from others.
    """
    links = of_kind(window, rule_kind(kind))
    if kind == ITEM:
        indented = np.array([string[:1].isspace() for string in window.strings], bool)
        links = links.take(indented[links.query] == indented[links.last])
    picks = np.full(len(window), -1)
    np.maximum.at(picks, links.query, links.last)
    return picks


def same_kind(window: Window) -> Pairs:
    """Each number's last token with the nearest number of its kind, where their tokens differ.

    Where the query's token stands in the right number too, such as `%` or `th` or the same digit, a
    head of the same token is right; such queries are left out.
    """
    links = pointed_to(window, NUMBER)
    tokens = np.array([string.strip() for string in window.strings])
    same_token = links.query[tokens[links.query] == tokens[links.key]]
    return links.where(~np.isin(links.query, same_token))


@draws_nothing
def from_other_kinds(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """The same number, from the numbers of other kinds between it and the query.

    It is the nearest of its kind for them too: a head that likes years looks at it from everywhere,
    one that looks for numbers of the query's own kind does not.
    """
    between = of_kind(window, rule_kind(NUMBER))
    right = of_kind(window, NUMBER)
    right = right.take(right.right & np.isin(right.query, targets.queries))
    row, other = np.nonzero(
        (right.query[:, None] == between.query) & (right.query[:, None] != between.last)
    )
    goal = np.full(len(window), -1)
    np.maximum.at(goal, right.query, right.last)
    is_behind = between.last[other] > goal[right.query[row]]
    row, other = row[is_behind], other[is_behind]
    if not len(row):
        return no_pairs()
    return span_pairs(between.last[other], right.first[row], right.last[row], right.query[row])


_MEANINGS = {
    "bracket-pair": "the bracket that the closing one closes",
    "quote-pair": "the quotation mark that the closing one closes",
    "list-item": "the marker of the item before it in the same list",
    "table-header": "the header of the cell's column",
    "cell-above": "the cell above it in the table",
    "number-kind": "the number of its kind before it",
}

RELATIONS = tuple(
    Relation(
        "structure",
        kind,
        same_kind if kind == NUMBER else partial(pointed_to, kind=kind),
        partial(every_candidate if kind in ROWS else other_candidates, kind=kind),
        TagThresholds(
            FLOOR, SOURCE, _MEANINGS[kind], beat_baseline_by=BEAT_RULE_BY, beats_shadow=True
        ),
        baseline=Baseline(partial(nearest_of_kind, kind=kind), by_class=False),
        matched=from_other_kinds if kind == NUMBER else None,
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
    "same list, the header of a table's column, the cell above; the number of one kind before",
    rivals="same query, other openers and line starts nearer and farther, all other cells of the "
    "row, numbers of other kinds; where the nearest one of the same form is wrong, that one",
    behaviour="text",
)
