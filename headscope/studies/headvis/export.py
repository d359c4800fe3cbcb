"""The files of every head, written a group of heads at a time so that memory stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.models.load import Model
from headscope.runs.listing import Head
from headscope.runs.write import write_file
from headscope.studies.headvis.cells import IN_A_ROW
from headscope.studies.headvis.chosen import Chosen
from headscope.studies.headvis.deciles import EACH, INTERVALS, drawn
from headscope.studies.headvis.patterns import read_patterns
from headscope.studies.headvis.scan import Advance, Scan
from headscope.studies.headvis.vectors import read_vectors, shows_vectors
from headscope.studies.headvis.written import (
    FEWEST_POINTS,
    Drawn,
    cloud_file,
    head_file,
    json_bytes,
    shown,
)

MEMORY = 2**29
"""Bytes of cells and vectors that are kept at once, about."""
CELL_BYTES, NUMBER_BYTES = 12, 4
EMPTY = ("attributions/qk", "attributions/ov", "custom_sequences")
"""Folders that HeadVis' own server writes into."""


@dataclass(frozen=True, eq=False)
class Reading:
    """A model, its heads, and what they are read on."""

    model: Model
    windows: Sequence[Window]
    chosen: Chosen
    seed: int
    points: int
    """Most points of a cloud."""

    @property
    def has_clouds(self) -> bool:
        """Whether clouds are asked for and can be had."""
        return self.points > 0 and shows_vectors(self.model)

    @property
    def groups(self) -> list[tuple[slice, Chosen]]:
        """The heads that are read together in the second pass, and in the third."""
        length = sum(map(len, self.windows)) / len(self.windows)
        most = min(len(self.windows), INTERVALS * EACH)
        each = most * length * IN_A_ROW * CELL_BYTES
        if self.has_clouds:
            engine: Any = self.model.engine
            each += 4 * self.points * engine.stated.d_head * NUMBER_BYTES
        return self.chosen.groups(max(1, int(MEMORY // each)))

    @property
    def passes(self) -> int:
        """Over the whole text."""
        return 1 + len(self.groups) * (1 + self.has_clouds)


def write_heads(folder: Path, reading: Reading, scanned: Scan, advance: Advance) -> list[Head]:
    """Write the files of all heads, and return the heads with a cloud.

    Args:
        folder: HeadVis' data folder, empty.
        reading: the heads, the model and its text.
        scanned: what the first pass found.
        advance: told the tokens of each window when they are done.
    """
    for name in (*EMPTY, "heads", "umap"):
        (folder / name).mkdir(parents=True)
    clouds: list[Head] = []
    for places, chosen in reading.groups:
        _write_patterns(folder, reading, scanned, (places, chosen), advance)
        if reading.has_clouds:
            clouds += _write_clouds(folder, reading, scanned, (places, chosen), advance)
    used = {head: number for number, head in enumerate(reading.chosen.heads)}
    numbers = {int(n) for head in clouds for n in np.unique(scanned.points[used[head]].window)}
    lookup = {str(number): shown(reading.windows[number]) for number in sorted(numbers)}
    _write(folder / "umap" / "sequences.json", lookup)
    _write(folder / "server_config.json", {})
    _write(folder / "attributions" / "manifest.json", {})
    return clouds


def _write_patterns(
    folder: Path,
    reading: Reading,
    scanned: Scan,
    group: tuple[slice, Chosen],
    advance: Advance,
) -> None:
    places, chosen = group
    columns = scanned.largest[:, places].T
    sequences = [
        drawn(largest, np.random.default_rng([reading.seed, *head]))
        for largest, head in zip(columns, chosen.heads, strict=True)
    ]
    wanted = [{number for number, _ in own} for own in sequences]
    cells = read_patterns(reading.model, reading.windows, chosen, wanted, advance)
    for i, head in enumerate(chosen.heads):
        value = head_file(reading.windows, columns[i], Drawn(sequences[i], cells[i]))
        _write(folder / "heads" / f"{head_name(*head)}.json", value)


def _write_clouds(
    folder: Path,
    reading: Reading,
    scanned: Scan,
    group: tuple[slice, Chosen],
    advance: Advance,
) -> list[Head]:
    places, chosen = group
    points = scanned.points[places]
    vectors = read_vectors(reading.model, reading.windows, chosen, points, advance)
    found = []
    for head, own, theirs in zip(chosen.heads, points, vectors, strict=True):
        if len(own) >= FEWEST_POINTS:
            cloud = cloud_file(own, theirs)
            name = f"{head_name(*head)}.json"
            _write(folder / "umap" / name, cloud.points)
            _write(folder / "umap" / "pca" / name, cloud.rotation)
            found.append(head)
    return found


def _write(path: Path, value: Any) -> None:
    write_file(path, json_bytes(value))
