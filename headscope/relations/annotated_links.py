"""Relations of gold links: from a position to the positions that it is linked to."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.gold_links import NO_ARROWS, ArrowTable
from headscope.corpus.window import Window
from headscope.relations.pairs import Pairs, distinct, span_pairs, without
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing


def linked_relation(
    type: str, name: str, *, kind: str, baseline_kind: str, stimulus: str, meaning: str
) -> Relation:
    """A relation from each query of a kind of gold links to what it is linked to.

    Controls are the next candidates. The baseline is the nearest candidate of another kind.
    """
    source = "ours: a tenth of a head's attention on one word, as for syntactic heads"
    return Relation(
        type,
        name,
        partial(pointed_to, kind=kind),
        partial(other_candidates, kind=kind),
        above_baseline(0.1, source, meaning, beats_surrogate=True),
        stimuli=(stimulus,),
        baseline=Baseline(partial(nearest_candidate, kind=baseline_kind)),
    )


def of_kind(window: Window, kind: str) -> ArrowTable:
    """The arrows of a window that are of one kind."""
    return window.once(_by_kind).get(kind, NO_ARROWS)


def _by_kind(window: Window) -> dict[str, ArrowTable]:
    arrows = window.arrows
    by_kind: dict[str, ArrowTable] = {}
    for kind in np.unique(arrows.kind):
        by_kind[str(kind)] = arrows.take(arrows.kind == kind)
    return by_kind


def pointed_to(window: Window, kind: str) -> Pairs:
    """Each query of a kind with what it points back to."""
    links = of_kind(window, kind)
    return _cells(links.take(links.right))


@draws_nothing
def other_candidates(
    window: Window, targets: Pairs, rng: np.random.Generator, *, kind: str
) -> Pairs:
    """Same query, other candidates of the kind: the next nearer and the next farther."""
    links = of_kind(window, kind)
    order = np.lexsort((links.last, links.query))
    # queries without a target have nothing to be compared with
    is_asked = np.isin(links.query[order], targets.queries)
    arrows = links.take(order[is_asked])
    # the rows of a query stand together, from the first candidate to the last
    row = np.arange(len(arrows.query))
    starts = np.flatnonzero(np.diff(arrows.query)) + 1
    nearest: list[int] = []
    for of_query in np.split(row, starts):
        is_right = arrows.right[of_query]
        others = of_query[~is_right]
        for goal in of_query[is_right]:
            is_nearer = arrows.first[others] > arrows.last[goal]
            is_farther = arrows.last[others] < arrows.first[goal]
            nearest += others[is_nearer][:1].tolist()
            nearest += others[is_farther][-1:].tolist()
    neighbours = np.unique(np.array(nearest, np.int64))
    controls = _cells(arrows.take(neighbours))
    return without(controls, targets)


@draws_nothing
def every_candidate(
    window: Window, targets: Pairs, rng: np.random.Generator, *, kind: str
) -> Pairs:
    """Same query, all other candidates of the kind."""
    links = of_kind(window, kind)
    is_asked = np.isin(links.query, targets.queries)
    wrong = links.take(~links.right & is_asked)
    return without(_cells(wrong), targets)


def as_one_word(controls: Pairs, length: int) -> Pairs:
    """The controls of each query counted as one word, so that their masses are added up."""
    words = np.bincount(controls.owner, weights=controls.share, minlength=length)
    share = controls.share / words[controls.owner]
    return replace(controls, share=share)


def nearest_candidate(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """Nearest candidate of each query of a kind, −1 at other positions."""
    links = of_kind(window, kind)
    nearest = np.full(len(window), -1)
    np.maximum.at(nearest, links.query, links.last)
    return nearest


def _cells(table: ArrowTable) -> Pairs:
    return distinct(span_pairs(table.query, table.first, table.last))
