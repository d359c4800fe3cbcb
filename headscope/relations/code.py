"""Code heads: from a place in a Python file to what its grammar says that it points back to.

The annotation is Python's own (`ast`, `tokenize`), so that nothing is guessed. A query's rivals are
the other candidates of the same kind (names of the same scope, other brackets, other blocks), the
next nearer and farther than what is right, and the rule to beat is the nearest of all.
"""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.arrows import ArrowTable
from headscope.corpus.code.excerpts import DENSE
from headscope.corpus.code.links import KINDS
from headscope.corpus.window import EXCERPT, Window
from headscope.relations.pairs import Pairs, distinct, no_pairs, span_pairs, without
from headscope.relations.relation import Baseline, Relation, Rule, draws_nothing
from headscope.relations.types import HeadType

FLOOR = 0.1
SOURCE = (
    "ours: a tenth of a head's attention on one place, as syntactic heads are asked for, beside "
    "the best simple rule plus 10 points where that rule is wrong"
)
BEAT_RULE_BY = 0.10


@lru_cache(maxsize=64)
def of_kind(window: Window, kind: str) -> ArrowTable:
    """The arrows of a window that are of one kind."""
    return window.arrows.take(window.arrows.kind == kind)


def pointed_to(window: Window, kind: str) -> Pairs:
    """Each query of a kind with what it points back to."""
    found = of_kind(window, kind)
    return _cells(found.take(found.right))


@draws_nothing
def other_candidates(
    window: Window, targets: Pairs, rng: np.random.Generator, *, kind: str
) -> Pairs:
    """Same query, other candidates of the kind: the next nearer and the next farther.

    A head that likes names, or brackets, gains nothing; one that likes near ones gains where no
    other lies nearer, which contested queries tell.
    """
    found = of_kind(window, kind)
    order = np.lexsort((found.last, found.query))
    order = order[np.isin(found.query[order], targets.queries)]
    rows = found.take(order)
    chosen = []
    # the rows of a query stand together, from the first candidate to the last
    ends = np.flatnonzero(np.diff(rows.query, append=-1)) + 1
    for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
        own = np.arange(start, end)
        others = own[~rows.right[own]]
        for goal in own[rows.right[own]]:
            chosen += others[rows.first[others] > rows.last[goal]][:1].tolist()
            chosen += others[rows.last[others] < rows.first[goal]][-1:].tolist()
    if not chosen:
        return no_pairs()
    return without(_cells(rows.take(np.unique(chosen))), targets)


def nearest_candidate(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """At each query of a kind the nearest of its candidates, −1 where nothing is asked."""
    found = of_kind(window, kind)
    nearest = np.full(len(window), -1)
    np.maximum.at(nearest, found.query, found.last)
    return nearest


def _cells(table: ArrowTable) -> Pairs:
    if not len(table):
        return no_pairs()
    return distinct(span_pairs(table.query, table.first, table.last))


_MEANINGS = {
    "definition": "where the name was last bound",
    "previous-use": "the last use of the same variable",
    "call": "the name of the function or class that is called, where it is defined",
    "parameter": "the parameter that the argument is passed to",
    "bracket": "the bracket that the closing one closes",
    "block": "the line that opened the block",
    "attribute": "the name of the object whose attribute it is",
    "import": "where the name was imported",
    "return": "the def of the function that it returns from",
}

RELATIONS = tuple(
    Relation(
        "code",
        kind,
        partial(pointed_to, kind=kind),
        partial(other_candidates, kind=kind),
        Rule(FLOOR, SOURCE, _MEANINGS[kind], beat_baseline_by=BEAT_RULE_BY),
        stimuli=("text", EXCERPT) if kind in DENSE else ("text",),
        baseline=Baseline(
            partial(nearest_candidate, kind=kind), by_class=False, always_sought=True
        ),
    )
    for kind in KINDS
)

TYPE = HeadType(
    name="code",
    letter="K",
    colour="#44aa99",
    marker="d",
    relations=RELATIONS,
    looks_at="in Python files: the definition of a name, its use before, the function that is "
    "called, a parameter, an opening bracket, the line that opened a block, the object of an "
    "attribute, an import, the def of a return",
    rivals="same query, other candidates of the same kind nearer and farther; the nearest of them",
    behaviour="text",
)
