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
from headscope.runs.write import write_file
from headscope.studies.headvis.cells import IN_A_ROW, read_patterns
from headscope.studies.headvis.scan import Advance, HeadSelection, Scan
from headscope.studies.headvis.written import (
    INTERVALS,
    PER_INTERVAL,
    head_file,
    json_bytes,
    sample_sequences,
)

MEMORY = 2**29
"""Bytes of cells that are kept at once, about."""
CELL_BYTES = 12
SAMPLED_TOKENS = 7_680
"""Tokens of a head's sequences together, about: with eight cells of each, its file has 0.9 MB at
most."""
EMPTY = ("attributions/qk", "attributions/ov", "custom_sequences")
"""Folders that HeadVis' own server writes into."""


@dataclass(frozen=True, eq=False)
class ExportInput:
    """A model, its heads, and what they are read on."""

    model: Model
    windows: Sequence[Window]
    selection: HeadSelection
    seed: int

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
    def groups(self) -> list[tuple[slice, HeadSelection]]:
        """The heads that are read together in the second pass."""
        length = self.tokens / len(self.windows)
        head_bytes = self.sampled * length * IN_A_ROW * CELL_BYTES
        return self.selection.groups(max(1, int(MEMORY // head_bytes)))

    @property
    def passes(self) -> int:
        """Over the whole text."""
        return 1 + len(self.groups)


def write_head_files(folder: Path, reading: ExportInput, scanned: Scan, advance: Advance) -> None:
    """Write the files of all heads.

    Args:
        folder: HeadVis' data folder, empty.
        reading: the heads, the model and its text.
        scanned: what the first pass found.
        advance: told the tokens of each window when they are done.
    """
    for name in (*EMPTY, "heads", "umap"):
        (folder / name).mkdir(parents=True)
    for places, selection in reading.groups:
        _write_patterns(folder / "heads", reading, selection, scanned.largest[:, places].T, advance)
    _write(folder / "umap" / "sequences.json", {})
    _write(folder / "server_config.json", {})
    _write(folder / "attributions" / "manifest.json", {})


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


def _write(path: Path, value: Any) -> None:
    write_file(path, json_bytes(value))
