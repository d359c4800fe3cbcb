"""The sums of a run as arrays of one file, `sums.npz`, exact to the last bit.

In most blocks most relations have no query: the file has rows for the others alone.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence

import numpy as np
from numpy import ndarray

from headscope.measure.tally import Tally

_SUMS = ("target", "control", "hits", "queries", "chance")

Arrays = dict[str, ndarray]
Shape = tuple[int | Sequence[int], int]
"""Layers, as a number or as their numbers in the model, and the heads of a layer."""


def sums_file(tally: Tally) -> bytes:
    """The content of `sums.npz`."""
    return to_npz(pack_sums(tally), compressed=True)


def read_sums(content: bytes, relations: tuple[str, ...], shape: Shape) -> Tally:
    """The sums of `sums.npz`.

    Raises:
        ValueError: another run's sums, or more than fit in a tally; or other errors of NumPy.
    """
    arrays = from_npz(content, 2 * Tally.zeros(relations, *shape).size)
    return unpack_sums(arrays, relations, shape)


def pack_sums(tally: Tally) -> Arrays:
    """The arrays of a tally by name, without empty blocks."""
    arrays = tally.arrays()
    sums = {name: arrays.pop(name) for name in _SUMS}
    has_numbers = []
    for array in sums.values():
        numbers = array.reshape(*array.shape[:2], -1)
        has_numbers.append(numbers.any(-1))
    block, relation = np.nonzero(np.any(has_numbers, axis=0))
    packed = {"block": block, "relation": relation}
    for name, array in sums.items():
        packed[name] = array[block, relation]
    return packed | arrays


def unpack_sums(arrays: Mapping[str, ndarray], relations: tuple[str, ...], shape: Shape) -> Tally:
    """The tally of packed arrays.

    Raises:
        ValueError: the arrays are not those of a tally; or KeyError or IndexError.
    """
    tally = Tally.zeros(relations, *shape)
    cells = arrays["block"], arrays["relation"]
    for name, sums in tally.arrays().items():
        sums[cells if name in _SUMS else ...] = arrays[name]
    return tally


def to_npz(arrays: Arrays, *, compressed: bool = False) -> bytes:
    """Arrays as the content of a `.npz` file; equal arrays give equal bytes."""
    content = io.BytesIO()
    save = np.savez_compressed if compressed else np.savez
    save(content, **arrays)  # type: ignore[arg-type]
    return content.getvalue()


def from_npz(content: bytes, limit: int) -> Arrays:
    """The arrays of a `.npz` file, none of them a pickle; each is compared with its checksum.

    Args:
        content: the file.
        limit: bytes that all arrays may take; a small file can unpack to any size.

    Raises:
        ValueError: they take more; or other errors of NumPy and zipfile for other files.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > limit + 2**20:  # headers take 128 bytes or more
        raise ValueError(f"its arrays take {size:,} bytes, and such sums {limit:,} at most")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)
