"""Groups of heads that are silenced together, and the heads each group is compared with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from headscope.runs.listing import Head, chosen_heads, tagged_types
from headscope.statistics.result import Result

CONTROLS = 5
"""Groups of other heads that each group is compared with; with fewer there is no verdict."""
NEAREST = 8
"""Heads most like one in depth and size, of which groups of several draw their controls."""
TRIES = 40


@dataclass(frozen=True)
class Group:
    """Heads that are silenced together."""

    kind: str
    """`head` for one of them, `type` for all of a type."""
    type: str
    heads: tuple[Head, ...]
    controls: tuple[tuple[Head, ...], ...] = ()
    """Distinct groups of as many heads that lack the type, like these in depth and write norm."""


def choose_groups(
    run: Result, heads: str, norms: Mapping[Head, float], *, seed: int
) -> list[Group]:
    """Groups of heads to silence, each with its controls.

    Args:
        run: the run.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        norms: how much each head of the run writes: the mean length of what it adds to the stream.
        seed: seeds the controls of groups of several heads.

    Raises:
        HeadscopeError: see `chosen_heads`.
    """
    silenced_heads, types = chosen_heads(run, heads), tagged_types(run)
    rng = np.random.default_rng(seed)
    of_head = {
        head: [name for name, heads_of_type in types.items() if head in heads_of_type]
        for head in silenced_heads
    }
    groups = [
        Group("head", name, (head,), _controls([head], types.get(name, []), norms, rng))
        for head in silenced_heads
        for name in of_head[head] or (sorted(types) if heads == "all" else [])
    ]
    if heads in ("tagged", "all"):
        groups += [
            Group(
                "type",
                name,
                tuple(heads_of_type),
                _controls(heads_of_type, heads_of_type, norms, rng),
            )
            for name, heads_of_type in types.items()
        ]
    return groups


def _controls(
    heads: Sequence[Head],
    of_type: Sequence[Head],
    norms: Mapping[Head, float],
    rng: np.random.Generator,
) -> tuple[tuple[Head, ...], ...]:
    """Distinct groups of as many heads that lack the type: of one head the nearest."""
    pool = [head for head in norms if head not in of_type and head not in heads]
    order = {head: _by_likeness(head, pool, norms) for head in heads}
    if len(heads) == 1:
        return tuple((other,) for other in order[heads[0]][:CONTROLS])
    if len(pool) < len(heads):
        return ()
    controls: dict[tuple[Head, ...], None] = {}
    for _ in range(TRIES):
        members: list[Head] = []
        for i in rng.permutation(len(heads)):
            free = [other for other in order[heads[i]] if other not in members][:NEAREST]
            members.append(free[int(rng.integers(len(free)))])
        controls[tuple(sorted(members))] = None
        if len(controls) == CONTROLS:
            break
    return tuple(controls)


def _by_likeness(head: Head, pool: Sequence[Head], norms: Mapping[Head, float]) -> list[Head]:
    """The pool, those first that lie at the same depth and write as much."""
    layers = 1 + max(layer for layer, _ in norms)
    tiny = 1e-9  # a head may write nothing

    def far(other: Head) -> float:
        size = np.log((norms[other] + tiny) / (norms[head] + tiny))
        return abs(other[0] - head[0]) / layers + abs(float(size))

    return sorted(pool, key=far)


def norms_of(table: pd.DataFrame) -> dict[Head, float]:
    """Norms of what each head writes, from the table of `writes.head_writes`."""
    return {(int(row.layer), int(row.head)): float(row.write_norm) for row in table.itertuples()}
