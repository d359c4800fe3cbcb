"""Pairs (query, key): what a relation is made of."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import PlainValidator

from headscope.attention_kind import CAUSAL, AttentionKind, KindName, kind_of
from headscope.corpus.window import Window
from headscope.errors import ShapeError
from headscope.options import checked, not_allowed


@dataclass(frozen=True, eq=False)
class Pairs:
    """Attention cells `(query, key)` of one window, each with its weight.

    `owner` is the query whose target or control the cell is. For targets it is the query itself;
    a control cell can be at another query ("same distance, other query"). `share` is the part of
    a word that the cell covers: 1 for a single token, a third for each token of a word of three.
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

    def of_queries(self, queries: Int[ndarray, " query"], length: int) -> Pairs:
        """The pairs of some queries of a window of this length."""
        is_query = np.zeros(length, bool)
        is_query[queries] = True
        return self.where(is_query[self.owner])

    @property
    def queries(self) -> Int[ndarray, " query"]:
        """The distinct owners, in order."""
        return distinct_values(self.owner)


def _places(value: Any) -> ndarray:
    array = np.asarray(value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise not_allowed("be a row of whole numbers, the positions of tokens")
    return array.astype(np.int64, copy=False)


_Places = Annotated[ndarray, PlainValidator(_places)]


@checked
def pairs(
    query: _Places,
    key: _Places,
    owner: _Places | None = None,
    *,
    attention_kind: KindName = CAUSAL,
) -> Pairs:
    """Cells of weight 1; keys that the query does not see are left out: those after it.

    In an encoder every key is seen, as `attention_kind=window.attention_kind` says of any window.

    Raises:
        ShapeError: there are not as many of one as of the other.

    >>> found = pairs(np.array([1, 2, 3]), np.array([0, 1, 4]))
    >>> found.query.tolist(), found.key.tolist()
    ([1, 2], [0, 1])
    """
    owner = query if owner is None else owner
    if not len(query) == len(key) == len(owner):
        raise ShapeError(f"{len(query)} queries and {len(key)} keys; a pair has one of each")
    share = np.ones(len(query))
    return _cells(query, key, owner, share, kind_of(attention_kind))


def _cells(
    query: ndarray, key: ndarray, owner: ndarray, share: ndarray, attention_kind: AttentionKind
) -> Pairs:
    weight = np.ones(len(query))
    cells = Pairs(query, key, owner, weight, share)
    return cells.where(attention_kind.sees(query, key))


def distinct_values(values: Int[ndarray, " value"]) -> Int[ndarray, " distinct"]:
    """Sorted distinct values; numpy's own `unique` hashes, which takes longer for these.

    >>> distinct_values(np.array([3, 1, 3])).tolist()
    [1, 3]
    """
    ordered = np.sort(values)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    return np.asarray(ordered[is_first])


def without(controls: Pairs, targets: Pairs) -> Pairs:
    """The drawn cells that are not target cells; at least one exists.

    >>> drawn = pairs(np.array([5, 5]), np.array([1, 2]))
    >>> without(drawn, pairs(np.array([5]), np.array([2]))).key.tolist()
    [1]
    """
    size = max(_size(targets), _size(controls))
    target_cells = np.sort(targets.query * size + targets.key)
    control_cells = controls.query * size + controls.key
    position = np.searchsorted(target_cells, control_cells)
    position = np.minimum(position, len(target_cells) - 1)
    is_target = target_cells[position] == control_cells
    return controls.where(~is_target)


def distinct(repeated: Pairs) -> Pairs:
    """Equal target cells counted once: two words can share a token."""
    cell = repeated.query * _size(repeated) + repeated.key
    if len(distinct_values(cell)) == len(cell):
        return repeated
    _, first = np.unique(cell, return_index=True)
    return repeated.take(first)


def _size(cells: Pairs) -> int:
    """A number above all queries and keys."""
    last_query = cells.query.max(initial=0)
    last_key = cells.key.max(initial=0)
    return int(max(last_query, last_key)) + 1


def span_pairs(
    query: ndarray,
    first: ndarray,
    last: ndarray,
    owner: ndarray | None = None,
    *,
    attention_kind: AttentionKind = CAUSAL,
) -> Pairs:
    """Every query with all positions of its span `first` … `last` (both included), one word.

    Positions that the query does not see are left out.

    >>> found = span_pairs(np.array([9]), np.array([3]), np.array([5]))
    >>> found.query.tolist(), found.key.tolist()
    ([9, 9, 9], [3, 4, 5])
    """
    owner = query if owner is None else owner
    length = np.asarray(last) - first + 1
    if (length == 1).all():
        share = np.ones(len(query))
        return _cells(query, first, owner, share, attention_kind)
    row = np.repeat(np.arange(len(length)), length)
    # the cells of a span follow each other
    cells_before = np.cumsum(length) - length
    step = np.arange(length.sum()) - cells_before[row]
    key = first[row] + step
    share = 1 / length[row]
    return _cells(query[row], key, owner[row], share, attention_kind)


def earlier_keys(queries: ndarray, keys: ndarray) -> Pairs:
    """Every query with all of these keys that come before it."""
    row, column = np.nonzero(queries[:, None] > keys[None, :])
    return pairs(queries[row], keys[column])


def in_second_copy(window: Window, shift: int) -> Pairs:
    """Queries of the second copy in `[bos, r, r]` with their places in the first, plus `shift`."""
    n = window.copy_length
    first_copy = np.arange(1, n + 1)
    query = first_copy + n
    key = first_copy + shift
    is_before = key < query
    return pairs(query[is_before], key[is_before])


def no_pairs() -> Pairs:
    """No pair at all: what an inapplicable window gives."""
    return _NONE


_EMPTY = np.empty(0, np.int64)
_NONE = Pairs(_EMPTY, _EMPTY, _EMPTY, np.empty(0), np.empty(0))


def balance(targets: Pairs, controls: Pairs) -> tuple[Pairs, Pairs]:
    """Give every query as much control weight as it has target keys, counted in whole words.

    A query's mass is a sum over its targets, so its control is the mean over its control words, or
    tokens, times the number of its targets: a word of three tokens stands against one of one token
    as one against one. Queries for which no control could be drawn are left out on both sides: the
    lift compares like with like or not at all.
    """
    last_target = targets.owner.max(initial=0)
    last_control = controls.owner.max(initial=0)
    size = int(max(last_target, last_control)) + 1
    target_share = np.bincount(targets.owner, weights=targets.share, minlength=size)
    counted = controls.weight * controls.share
    control_share = np.bincount(controls.owner, weights=counted, minlength=size)
    balanced = targets.where(control_share[targets.owner] > 0)
    controls = controls.where(target_share[controls.owner] > 0)
    factor = target_share / np.where(control_share > 0, control_share, 1)
    weight = controls.weight * factor[controls.owner]
    return balanced, replace(controls, weight=weight)
