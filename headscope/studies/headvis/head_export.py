"""The files of every head, written a group of heads at a time so that memory stays the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.models.load import Model
from headscope.runs.listing import Head
from headscope.runs.write import write_file
from headscope.studies.headvis.cells import IN_A_ROW, read_patterns, top_pairs
from headscope.studies.headvis.scan import Advance, HeadSelection, Points, Scan
from headscope.studies.headvis.vectors import read_vectors, shows_vectors
from headscope.studies.headvis.written import (
    FEWEST_POINTS,
    INTERVALS,
    PER_INTERVAL,
    cloud_files,
    head_file,
    json_bytes,
    sample_sequences,
    visible_tokens,
)

MEMORY = 2**29
"""Bytes of cells and vectors that are kept at once, about."""
CELL_BYTES, NUMBER_BYTES = 12, 4
SAMPLED_TOKENS = 7_680
"""Tokens of a head's sequences together, about: with eight cells of each, its file has 0.9 MB at
most."""
EMPTY = ("attributions/qk", "attributions/ov", "custom_sequences")
"""Folders that HeadVis' own server writes into."""
SAMPLE = 3
"""Sequences that are read to reckon the size of an export, evenly spread."""
HEAD_BYTES = 2_500
"""Of a head's file without its sequences: histograms and tables of tokens; and of its rotation."""
TOKEN_BYTES = len('"token",')
VALUE_BYTES = len("0.1234,")
POINT_BYTES = 12 * len("-1.2345,") + len("100,100,100,1.2345,")
"""Of a cloud: three axes of queries, keys, outputs and values, and which cell it is."""


@dataclass(frozen=True, eq=False)
class ExportInput:
    """A model, its heads, and what they are read on."""

    model: Model
    windows: Sequence[Window]
    selection: HeadSelection
    seed: int
    points: int
    """Most points of a cloud."""

    @property
    def tokens(self) -> int:
        """Of all windows."""
        return sum(map(len, self.windows))

    @property
    def per_interval(self) -> int:
        """Sequences of each stretch that are shown: fewer of long ones, and one at least."""
        longest = max(map(len, self.windows))
        return max(1, min(PER_INTERVAL, SAMPLED_TOKENS // (INTERVALS * longest)))

    @property
    def sampled(self) -> int:
        """Sequences of a head that are shown."""
        return min(len(self.windows), INTERVALS * self.per_interval)

    @property
    def has_clouds(self) -> bool:
        """True where clouds are asked for and can be had."""
        return self.points > 0 and shows_vectors(self.model)

    @property
    def groups(self) -> list[tuple[slice, HeadSelection]]:
        """The heads that are read together in the second pass, and in the third."""
        length = self.tokens / len(self.windows)
        head_bytes = self.sampled * length * IN_A_ROW * CELL_BYTES
        if self.has_clouds:
            engine: Any = self.model.engine
            head_bytes += 4 * self.points * engine.dimensions.d_head * NUMBER_BYTES
        return self.selection.groups(max(1, int(MEMORY // head_bytes)))

    @property
    def passes(self) -> int:
        """Over the whole text."""
        return 1 + len(self.groups) * (1 + self.has_clouds)


def expected_bytes(reading: ExportInput) -> int:
    """Bytes of all files of an export, about, from a few sequences that are read before it begins.

    A head's sequences are most of it: as many as are shown, with as many cells as those of the
    sample have on the average.
    """
    count, heads = len(reading.windows), len(reading.selection.heads)
    windows = [reading.windows[i] for i in sorted({0, count // 2, count - 1})[:SAMPLE]]
    numbers = [range(len(windows))] * heads
    sample = read_patterns(reading.model, windows, reading.selection, numbers, lambda tokens: None)
    lengths = [len(window) for window in windows]
    # of all heads, for each token of a sequence
    written = strong = 0
    for cells_of_window in sample:
        for number, cells in cells_of_window.items():
            place_bytes = len(f"{lengths[number] ** 2 // 2},")
            written += len(cells.index) * (place_bytes + VALUE_BYTES)
            strong += len(top_pairs(cells, lengths[number]))
    sampled_tokens = reading.sampled / count * reading.tokens
    sequences = sampled_tokens * (written / sum(lengths) + heads * TOKEN_BYTES)
    points = min(strong / sum(lengths) * reading.tokens, heads * reading.points)
    clouds = points * POINT_BYTES + reading.tokens * TOKEN_BYTES if reading.has_clouds else 0.0
    return round(sequences + clouds + heads * HEAD_BYTES)


def write_head_files(
    folder: Path, reading: ExportInput, scanned: Scan, advance: Advance
) -> list[Head]:
    """Write the files of all heads, and return the heads with a cloud.

    Args:
        folder: HeadVis' data folder, empty.
        reading: the heads, the model and its text.
        scanned: what the first pass found.
        advance: told the tokens of each window when they are done.
    """
    for name in (*EMPTY, "heads", "umap"):
        (folder / name).mkdir(parents=True)
    clouds: dict[Head, Points] = {}
    for places, selection in reading.groups:
        _write_patterns(folder / "heads", reading, selection, scanned.largest[:, places].T, advance)
        if reading.has_clouds:
            points = scanned.points[places]
            _write_clouds(folder / "umap", reading, selection, points, advance)
            pairs = zip(selection.heads, points, strict=True)
            clouds |= {head: cloud for head, cloud in pairs if len(cloud) >= FEWEST_POINTS}
    numbers = sorted({int(number) for cloud in clouds.values() for number in cloud.window})
    lookup = {str(number): visible_tokens(reading.windows[number]) for number in numbers}
    _write(folder / "umap" / "sequences.json", lookup)
    _write(folder / "server_config.json", {})
    _write(folder / "attributions" / "manifest.json", {})
    return list(clouds)


def _write_patterns(
    folder: Path,
    reading: ExportInput,
    selection: HeadSelection,
    largest: Float[ndarray, "head window"],
    advance: Advance,
) -> None:
    sequences = [
        sample_sequences(maxima, np.random.default_rng([reading.seed, *head]), reading.per_interval)
        for maxima, head in zip(largest, selection.heads, strict=True)
    ]
    numbers = [{number for number, _ in head_sequences} for head_sequences in sequences]
    cells = read_patterns(reading.model, reading.windows, selection, numbers, advance)
    for i, head in enumerate(selection.heads):
        value = head_file(reading.windows, largest[i], sequences[i], cells[i])
        _write(folder / f"{head_name(*head)}.json", value)


def _write_clouds(
    folder: Path,
    reading: ExportInput,
    selection: HeadSelection,
    points: Sequence[Points],
    advance: Advance,
) -> None:
    vectors = read_vectors(reading.model, reading.windows, selection, points, advance)
    for head, head_points, head_vectors in zip(selection.heads, points, vectors, strict=True):
        if len(head_points) >= FEWEST_POINTS:
            placed, rotation = cloud_files(head_points, head_vectors)
            name = f"{head_name(*head)}.json"
            _write(folder / name, placed)
            _write(folder / "pca" / name, rotation)


def _write(path: Path, value: Any) -> None:
    write_file(path, json_bytes(value))
