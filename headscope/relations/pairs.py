"""Pairs (query, key): what a relation is made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.arguments import FLAG, Kind, maybe, takes
from headscope.errors import ShapeError


@dataclass(frozen=True, eq=False)
class Pairs:
    """Attention cells `(query, key)` of one window, each with its weight.

    `owner` is the query that a cell speaks for. For targets that is the query itself; a
    control cell may belong to another query ("same distance, other query") and still stand
    for its owner. `share` is the part of a word that a cell is: 1 for a token by itself, a third
    for each token of a word of three.
    """

    query: Int[ndarray, " pair"]
    key: Int[ndarray, " pair"]
    owner: Int[ndarray, " pair"]
    weight: Float[ndarray, " pair"]
    share: Float[ndarray, " pair"]

    def __len__(self) -> int:
        return len(self.query)

    def take(self, which: ndarray) -> Pairs:
        """The pairs at these rows."""
        columns = (self.query, self.key, self.owner, self.weight, self.share)
        return Pairs(*(column[which] for column in columns))

    def where(self, which: Bool[ndarray, " pair"]) -> Pairs:
        """The pairs that a mask keeps: these themselves where it keeps all."""
        return self if which.all() else self.take(which)

    @property
    def queries(self) -> Int[ndarray, " query"]:
        """The distinct owners, in order."""
        return distinct_values(self.owner)


def _places(value: Any) -> ndarray:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise TypeError
    return array.astype(np.int64, copy=False)


_PLACES = Kind("a row of whole numbers, the places of tokens", _places)


@takes(query=_PLACES, key=_PLACES, owner=maybe(_PLACES), later=FLAG)
def pairs(
    query: ndarray, key: ndarray, owner: ndarray | None = None, *, later: bool = False
) -> Pairs:
    """Cells of weight 1; keys after the query are left out, unless `later` keeps them.

    Raises:
        ShapeError: there are not as many of one as of the other.

    >>> found = pairs(np.array([1, 2, 3]), np.array([0, 1, 4]))
    >>> found.query.tolist(), found.key.tolist()
    ([1, 2], [0, 1])
    """
    if len({len(each) for each in (query, key, owner) if each is not None}) > 1:
        raise ShapeError(f"{len(query)} queries and {len(key)} keys; a pair has one of each")
    owner = query if owner is None else owner
    return _cells(query, key, owner, np.ones(len(query)), later)


def _cells(query: ndarray, key: ndarray, owner: ndarray, share: ndarray, later: bool) -> Pairs:
    back = (key <= query) | later
    if not back.all():
        query, key, owner, share = query[back], key[back], owner[back], share[back]
    return Pairs(query, key, owner, np.ones(len(query)), share)


def distinct_values(values: Int[ndarray, " value"]) -> Int[ndarray, " distinct"]:
    """Sorted distinct values; numpy's own `unique` hashes, which takes longer for these.

    >>> distinct_values(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    kept = np.ones(len(ordered), bool)
    kept[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[kept])


def without(drawn: Pairs, targets: Pairs) -> Pairs:
    """The drawn cells that are no target cells, of which there is at least one.

    >>> drawn = pairs(np.array([5, 5]), np.array([1, 2]))
    >>> without(drawn, pairs(np.array([5]), np.array([2]))).key.tolist()
    [1]
    """
    size = 1 + int(max(each.max(initial=0) for p in (targets, drawn) for each in (p.query, p.key)))
    taken, own = (np.sort(targets.query * size + targets.key), drawn.query * size + drawn.key)
    place = np.minimum(np.searchsorted(taken, own), len(taken) - 1)
    return drawn.where(taken[place] != own)


def distinct(found: Pairs) -> Pairs:
    """Equal target cells counted once: two words can share a token.

    >>> len(distinct(pairs(np.array([5, 5]), np.array([2, 2]))))
    1
    """
    size = int(max(found.query.max(initial=0), found.key.max(initial=0))) + 1
    cell = found.query * size + found.key
    if len(distinct_values(cell)) == len(cell):
        return found
    return found.take(np.unique(cell, return_index=True)[1])


def span_pairs(
    query: ndarray,
    first: ndarray,
    last: ndarray,
    owner: ndarray | None = None,
    *,
    later: bool = False,
) -> Pairs:
    """Every query with all positions of its span `first` … `last` (both included), one word.

    Positions after the query are left out, unless `later` keeps them.

    >>> found = span_pairs(np.array([9]), np.array([3]), np.array([5]))
    >>> found.query.tolist(), found.key.tolist()
    ([9, 9, 9], [3, 4, 5])
    """
    owner = query if owner is None else owner
    length = np.asarray(last) - first + 1
    if (length == 1).all():
        return _cells(query, first, owner, np.ones(len(query)), later)
    row = np.repeat(np.arange(len(length)), length)
    step = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    return _cells(query[row], first[row] + step, owner[row], 1 / length[row], later)


def no_pairs() -> Pairs:
    """No pair at all: what an inapplicable window gives.

    >>> len(no_pairs())
    0
    """
    return _NONE


_EMPTY = np.empty(0, np.int64)
_NONE = Pairs(_EMPTY, _EMPTY, _EMPTY, np.empty(0), np.empty(0))


def balance(targets: Pairs, controls: Pairs) -> tuple[Pairs, Pairs]:
    """Give every query as much control weight as it has target keys, counted in whole words.

    A query's mass is a sum over its targets, so its control is the mean over its control words, or
    tokens, times the number of its targets: a word of three tokens stands against one of one token
    as one against one. Queries for which no control could be drawn are left out on both sides: the
    lift compares like with like or not at all.

    >>> targets = pairs(np.array([5, 6]), np.array([1, 1]))
    >>> controls = pairs(np.array([5, 5]), np.array([2, 3]))
    >>> kept, weighed = balance(targets, controls)
    >>> kept.query.tolist(), weighed.weight.tolist()
    ([5], [0.5, 0.5])
    """
    size = int(max(targets.owner.max(initial=0), controls.owner.max(initial=0))) + 1
    wanted = np.bincount(targets.owner, weights=targets.share, minlength=size)
    counted = controls.weight * controls.share
    drawn = np.bincount(controls.owner, weights=counted, minlength=size)
    kept = targets.where(drawn[targets.owner] > 0)
    controls = controls.where(wanted[controls.owner] > 0)
    weight = controls.weight * (wanted / np.where(drawn > 0, drawn, 1))[controls.owner]
    return kept, Pairs(controls.query, controls.key, controls.owner, weight, controls.share)
