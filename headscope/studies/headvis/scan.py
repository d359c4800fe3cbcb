"""The first pass: every row of the text is read once, and no pattern is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.studies.headvis.head_selection import Advance, HeadSelection, read_rows
from headscope.studies.headvis.row_metrics import HIGH, MetricSums, facts


@dataclass(frozen=True, eq=False)
class Points:
    """Queries of one head with the key that each attends to strongly, in the order of the text."""

    window: Int[ndarray, " point"]
    query: Int[ndarray, " point"]
    key: Int[ndarray, " point"]

    def __len__(self) -> int:
        return len(self.window)

    def of(self, window: int) -> Points:
        """The points that are in a window."""
        inside = slice(*np.searchsorted(self.window, [window, window + 1]).tolist())
        return Points(self.window[inside], self.query[inside], self.key[inside])


@dataclass(frozen=True, eq=False)
class Scan:
    """The first pass's sums, maxima and points of each head."""

    sums: MetricSums
    largest: Float[ndarray, "window head"]
    """Of each window the largest attention, the first token's row and column and the diagonal left
    out."""
    points: Sequence[Points]


class Reservoir:
    """At most so many points of a head, each that came as likely to be kept as any other.

    Each comes with a number drawn by chance, and those with the smallest stay.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._rows = np.empty((0, 4))

    def add(self, rows: Float[ndarray, "point 4"]) -> None:
        """Add points: the number drawn, the window, the query and the key of each."""
        self._rows = np.concatenate([self._rows, rows])
        if len(self._rows) > 4 * self.size:
            self._shrink()

    def points(self) -> Points:
        """Those that stay."""
        self._shrink()
        points = self._rows[:, 1:].astype(np.int64)
        return Points(*points[np.lexsort((points[:, 1], points[:, 0]))].T)

    def _shrink(self) -> None:
        order = np.argsort(self._rows[:, 0], kind="stable")
        self._rows = self._rows[order[: self.size]]


def scan(
    model: Model,
    windows: Sequence[Window],
    selection: HeadSelection,
    *,
    points: int,
    seed: int,
    advance: Advance,
) -> Scan:
    """Read all windows once.

    What is drawn of a head does not depend on which other heads are read.

    Args:
        model: the model.
        windows: of three tokens or more each.
        selection: the heads.
        points: most points that are kept of a head.
        seed: seeds which.
        advance: told the tokens of each window when they are done.
    """
    kinds, known = np.unique(np.concatenate([w.tokens for w in windows]), return_inverse=True)
    scanner = _Scanner(model, selection, MetricSums(len(selection.heads), len(kinds)), seed)
    reservoirs = [Reservoir(points) for _ in selection.heads]
    largest, start = np.zeros((len(windows), len(selection.heads))), 0
    for number, window in enumerate(windows):
        window_kinds = known[start : start + len(window)]
        scanner.read(number, window, window_kinds, largest[number], reservoirs)
        start += len(window)
        advance(len(window))
    return Scan(scanner.sums, largest, [reservoir.points() for reservoir in reservoirs])


@dataclass(frozen=True, eq=False)
class _Scanner:
    """Reads windows one after the other."""

    model: Model
    selection: HeadSelection
    sums: MetricSums
    seed: int

    def read(
        self,
        number: int,
        window: Window,
        kinds: Int[ndarray, " position"],
        largest: Float[ndarray, " head"],
        reservoirs: Sequence[Reservoir],
    ) -> None:
        """Add a window to the sums, to the maxima and to what is drawn."""
        tokens = torch.from_numpy(window.tokens).to(self.model.device)

        def take(layer: int, places: slice, rows: Tensor, first: int) -> None:
            seen = facts(rows, tokens, first)
            self.sums.add(places, seen, kinds, first)
            here = largest[places]
            np.maximum(here, seen.largest.amax(1).double().cpu().numpy(), out=here)
            # for all heads of the layer, so that a head's are the same whichever are read
            chance = np.random.default_rng([self.seed, number, layer, first])
            priority = chance.random((self.model.heads, rows.shape[1]))
            best, key = seen.best.cpu().numpy(), seen.key.cpu().numpy()
            for i, head in enumerate(self.selection.by_layer[layer][1]):
                query = np.flatnonzero(best[i] >= HIGH)
                where = np.full(len(query), number)
                columns = priority[head, query], where, first + query, key[i, query]
                reservoirs[places.start + i].add(np.stack(columns, 1))

        read_rows(self.model, window, self.selection, take)
