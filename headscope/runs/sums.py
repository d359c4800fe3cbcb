"""The sums of a run: packed into `sums.npz`, or all of them in `tally.safetensors`.

What a tally adds are multiples of `GRAIN`: whole numbers, of which most bytes are 0. Blocks in
which a relation has no query are left out. The bytes of a sum lie apart, so that they compress.
Both are exact to the last bit.
"""

from __future__ import annotations

import io
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from numpy.lib import format as npy
from safetensors.numpy import load_file, save_file

from headscope.errors import RunError
from headscope.measure.tally import GRAIN, Profile, Tally
from headscope.relations.relation import is_part
from headscope.runs.folder import SUMS, TALLY, UNREADABLE, readable_path
from headscope.runs.write import write_file

CELL = ("block", "relation")
"""Of each block and relation with a query their places; the first axis of the sums."""
_SUMS = ("target", "control", "hits", "queries", "chance")
_STIMULUS_MEANS = ("profile.stimulus_mean", "profile.stimulus_queries")
"""Sums of mean patterns on other stimuli than text. Those that are drawn are in a file apart."""
_TWIN = "twin."
_PLANES = 8
_NO_ZIP = (*UNREADABLE, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What reading a compressed file can raise when it was altered."""

Arrays = dict[str, ndarray]
Shape = tuple[int | Sequence[int], int]
"""Layers, as a number or as their numbers in the model, and the heads of a layer."""


def pack_sums(tally: Tally) -> Arrays:
    """The arrays of a tally by name, without empty blocks, as planes of bytes; see `planes`."""
    arrays = _cells(tally.relations, {name: getattr(tally, name) for name in _SUMS})
    return arrays | {
        f"profile.{column.name}": planes(getattr(tally.profile, column.name))
        for column in fields(Profile)
    }


def unpack_sums(
    path: Path, arrays: Mapping[str, ndarray], relations: tuple[str, ...], shape: Shape
) -> Tally:
    """The tally that was packed; sums of the profile that are not there are 0.

    Raises:
        RunError: the arrays are none of such a tally; the message names the path.
    """
    tally = Tally.zeros(relations, *shape)
    try:
        block, relation = (arrays[name] for name in CELL)
        for name, sums in tally.arrays().items():
            if name in _SUMS:
                sums[block, relation] = from_planes(arrays[name])
            elif name in arrays:
                sums[...] = from_planes(arrays[name])
    except (KeyError, IndexError, ValueError, TypeError) as error:
        raise RunError(f"{path}: no sums of such a run: {error!s:.200}") from error
    return tally


def write_tallies(folder: Path, tally: Tally, twin: Tally | None, *, keep_sums: bool) -> None:
    """Write a run's sums into its folder.

    Packed, they are of the twin those over all blocks, which are what a tag must exceed.
    """
    if keep_sums:
        arrays = dict(tally.arrays())
        if twin is not None:
            twin_arrays = {k: v for k, v in twin.arrays().items() if k not in _STIMULUS_MEANS}
            arrays |= {_TWIN + name: array for name, array in twin_arrays.items()}
        contiguous = {name: np.asarray(array, order="C") for name, array in arrays.items()}
        write_file(folder / TALLY, lambda new: save_file(contiguous, new))
        return
    arrays = {
        name: array for name, array in pack_sums(tally).items() if name not in _STIMULUS_MEANS
    }
    if twin is not None:
        totals = {name: getattr(twin, name).sum(0, keepdims=True) for name in _SUMS}
        arrays |= {_TWIN + name: a for name, a in _cells(twin.relations, totals).items()}
    content = io.BytesIO()
    # the time that numpy states of each array is always the same, and so are the bytes
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_file(folder / SUMS, content.getvalue())


def read_tallies(
    folder: Path, relations: tuple[str, ...], shape: Shape
) -> tuple[Tally, Tally | None]:
    """The sums of a run and of its twin; if they are packed, the twin's stand in the first block.

    Raises:
        RunError: the file is none of such a run, or would fill more memory than its sums.
    """
    is_packed = os.path.lexists(folder / SUMS)
    path = readable_path(folder, SUMS if is_packed else TALLY)
    try:
        limit = 2 * Tally.zeros(relations, *shape).size
        arrays = dict(_read_arrays(path, limit)) if is_packed else load_file(path)
    except _NO_ZIP as error:
        raise RunError(f"{path}: no sums of a run: {error!s:.200}") from error
    twin = {n.removeprefix(_TWIN): a for n, a in arrays.items() if n.startswith(_TWIN)}
    model = {name: array for name, array in arrays.items() if not name.startswith(_TWIN)}
    tally_of = unpack_sums if is_packed else _tally_of_all
    return (
        tally_of(path, model, relations, shape),
        tally_of(path, twin, relations, shape) if twin else None,
    )


def _tally_of_all(
    path: Path, arrays: Mapping[str, ndarray], relations: tuple[str, ...], shape: Shape
) -> Tally:
    """The tally of which all sums were written as they are."""
    tally = Tally.zeros(relations, *shape)
    try:
        for name, sums in tally.arrays().items():
            if name in arrays or name not in _STIMULUS_MEANS:
                sums[...] = arrays[name]
    except (KeyError, ValueError, TypeError) as error:
        raise RunError(f"{path}: no sums of such a run: {error!s:.200}") from error
    return tally


def planes(values: Float[ndarray, "*shape"]) -> ndarray:
    """Bytes of whole numbers of grains, the lowest first: an axis more than the values have.

    What is no multiple of the grain stays as it is.

    >>> planes(np.array([0.0, 3 * GRAIN, -256 * GRAIN])).tolist()
    [[0, 3, 0], [0, 0, 255]]
    >>> planes(np.array([0.1])).tolist()
    [0.1]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        grains = values / GRAIN
        exact = bool((np.abs(grains) < 2.0**53).all() and (np.rint(grains) == grains).all())
    if not exact:
        return np.ascontiguousarray(values, "<f8")
    integers = np.ascontiguousarray(grains, "<i8").reshape(-1)
    # a number that is below 0 repeats its sign in each byte that is left out
    size = next(n for n in range(1, _PLANES + 1) if _fits(integers, 8 * n - 1))
    bytes_of = integers.view(np.uint8).reshape(-1, _PLANES)[:, :size]
    return np.ascontiguousarray(bytes_of.T).reshape(size, *values.shape)


def from_planes(stored: ndarray) -> Float[ndarray, "*shape"]:
    """The values that `planes` was given.

    >>> from_planes(planes(np.array([0.5, -2.0, 700.25]))).tolist()
    [0.5, -2.0, 700.25]
    """
    if stored.dtype != np.uint8:
        return np.asarray(stored, np.float64)
    integers = stored[-1].view(np.int8).astype(np.int64)
    for plane in stored[-2::-1]:
        integers = integers * 256 + plane
    return np.asarray(integers * GRAIN)


def _fits(integers: Int[ndarray, "*shape"], bits: int) -> bool:
    return bool(bits >= 8 * _PLANES - 1 or ((integers >= -(2**bits)) & (integers < 2**bits)).all())


def _cells(relations: Sequence[str], sums: Mapping[str, ndarray]) -> Arrays:
    """Sums of the blocks in which a relation has any, a relation beside its parts.

    A part often repeats its relation's sums, which compresses where both lie together.
    """
    stored = np.any([array.reshape(*array.shape[:2], -1).any(-1) for array in sums.values()], 0)
    block, relation = np.nonzero(stored)
    first = {name: number for number, name in reversed(list(enumerate(map(_base, relations))))}
    bases = np.array([first[_base(name)] for name in relations], np.int64)
    order = np.lexsort((relation, block, bases[relation]))
    block, relation = block[order], relation[order]
    places = {"block": block.astype(np.int32), "relation": relation.astype(np.int32)}
    return places | {name: planes(array[block, relation]) for name, array in sums.items()}


def _base(name: str) -> str:
    """The relation that a name is a part of."""
    return name.rpartition("/")[0] if is_part(name.partition("/")[2]) else name


def _read_arrays(path: Path, limit: int) -> Iterator[tuple[str, ndarray]]:
    """The arrays of a compressed file; their sizes are known before any of them is unpacked."""
    with zipfile.ZipFile(path) as archive:
        for entry in archive.infolist():
            if not entry.filename.endswith(".npy"):
                raise ValueError(f"it holds {entry.filename!r:.100}, which is no array")
            with archive.open(entry) as stream:
                shape, dtype = _header(stream)
                size = int(np.prod(shape, dtype=object)) * dtype.itemsize
                limit -= size
                if limit < 0:
                    raise ValueError(f"{entry.filename!r:.100} has {size:,} bytes, too many")
                content = stream.read(size)
                if len(content) != size or stream.read(1):
                    raise ValueError(f"{entry.filename!r:.100} is not as long as it says")
            array = np.frombuffer(content, dtype).reshape(shape)
            yield entry.filename.removesuffix(".npy"), array


_DTYPES = tuple(np.dtype(kind) for kind in ("|u1", "<i4", "<f8"))


def _header(stream: Any) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """An array's shape and kind of numbers."""
    if npy.read_magic(stream) != (1, 0):
        raise ValueError("an array of another version of the format")
    shape, transposed, dtype = npy.read_array_header_1_0(stream)
    if dtype not in _DTYPES or transposed or min(shape, default=0) < 0:
        raise ValueError(f"an array of {dtype!s:.100}, which no sums are")
    return shape, dtype
