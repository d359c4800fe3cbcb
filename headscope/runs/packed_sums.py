"""A tally without what is empty, exact to the last bit, and the compressed file of a run's sums.

What a tally adds are multiples of `GRAIN`: whole numbers, of which most bytes are 0. Blocks in
which a relation has no query are left out. The bytes of a sum lie apart, so that they compress.
"""

from __future__ import annotations

import io
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

from headscope.errors import RunError
from headscope.measure.tally import BLOCKS, GRAIN, Profile, Tally
from headscope.relations.contested import is_part
from headscope.runs.pattern_cache import UNREADABLE
from headscope.runs.write import write_file

MOST_BYTES = 16 * 2**30
"""Of a tally in memory. No run has as many sums."""
CELL = ("block", "relation")
"""Of each block and relation with a query their places; the first axis of the sums."""
_SUMS = ("target", "control", "hits", "queries", "chance")
_UNUSED = ("profile.stimulus_mean", "profile.stimulus_queries")
"""Sums of mean patterns on other stimuli than text. Those that are drawn are in a file apart."""
_TWIN = "twin."
_PLANES = 8
_NO_ZIP = (*UNREADABLE, zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""What reading a compressed file can raise when it was altered."""

Arrays = dict[str, ndarray]


def pack_sums(tally: Tally) -> Arrays:
    """The arrays of a tally by name, without empty blocks, as planes of bytes; see `planes`."""
    arrays = _cells(tally.relations, {name: getattr(tally, name) for name in _SUMS})
    return arrays | {
        f"profile.{column.name}": planes(getattr(tally.profile, column.name))
        for column in fields(Profile)
    }


def unpack_sums(
    path: Path, arrays: Mapping[str, ndarray], relations: tuple[str, ...], shape: tuple[Any, int]
) -> Tally:
    """The tally that was packed.

    Args:
        path: of the file, for messages.
        arrays: what `pack_sums` gave; sums of the profile that are not there are 0.
        relations: of the tally.
        shape: its layers, as a number or as their numbers in the model, and the heads of a layer.

    Raises:
        RunError: the arrays are none of such a tally.
    """
    _check_size(path, relations, shape)
    tally = Tally.zeros(relations, *shape)
    expected = tally.arrays()
    known = {*CELL, *expected}
    missing = {*CELL, *_SUMS} - arrays.keys()
    if odd := sorted((arrays.keys() - known) | missing):
        raise RunError(f"{path}: the sums {odd[0]!r:.100} are missing, or are none of a run")
    block, relation = _places(path, arrays, len(relations))
    for name, sums in expected.items():
        if name in _SUMS:
            cells = (len(block), *sums.shape[2:])
            sums[block, relation] = _values(path, name, arrays[name], cells)
        elif name in arrays:
            sums[...] = _values(path, name, arrays[name], sums.shape)
    return tally


def write_sums(path: Path, tally: Tally, twin: Tally | None) -> None:
    """Write a run's sums, of the twin those over all blocks, which are what a tag must exceed."""
    arrays = {name: array for name, array in pack_sums(tally).items() if name not in _UNUSED}
    if twin is not None:
        totals = {name: getattr(twin, name).sum(0, keepdims=True) for name in _SUMS}
        arrays |= {_TWIN + name: a for name, a in _cells(twin.relations, totals).items()}
    content = io.BytesIO()
    # the time that numpy states of each array is always the same, and so are the bytes
    np.savez_compressed(content, **arrays)  # type: ignore[arg-type]
    write_file(path, content.getvalue())


def read_sums(
    path: Path, relations: tuple[str, ...], shape: tuple[Sequence[int], int]
) -> tuple[Tally, Tally | None]:
    """The sums that `write_sums` wrote; those of the twin stand in the first block.

    Raises:
        RunError: the file is none of such a run, or would fill more memory than its sums.
    """
    _check_size(path, relations, shape)
    limit = 2 * Tally.zeros(relations, *shape).size
    try:
        arrays = dict(_read_arrays(path, limit))
    except _NO_ZIP as error:
        raise RunError(f"{path}: no sums of a run: {error!s:.200}") from error
    twin = {n.removeprefix(_TWIN): a for n, a in arrays.items() if n.startswith(_TWIN)}
    model = {name: array for name, array in arrays.items() if not name.startswith(_TWIN)}
    return (
        unpack_sums(path, model, relations, shape),
        unpack_sums(path, twin, relations, shape) if twin else None,
    )


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


def _check_size(path: Path, relations: Sequence[str], shape: tuple[Any, int]) -> None:
    layers, heads = shape
    count = layers if isinstance(layers, int) else len(layers)
    size = 3 * 8 * BLOCKS * len(relations) * count * heads
    if size > MOST_BYTES:
        raise RunError(f"{path}: sums of {size:,} bytes, and no run has more than {MOST_BYTES:,}")


def _places(
    path: Path, arrays: Mapping[str, ndarray], relations: int
) -> tuple[Int[ndarray, " cell"], Int[ndarray, " cell"]]:
    """The blocks and the relations that sums are of, none of them twice."""
    block, relation = (arrays[name] for name in CELL)
    for name, size in zip(CELL, (BLOCKS, relations), strict=True):
        places = arrays[name]
        if places.dtype != np.int32 or places.shape != (len(block),):
            raise RunError(
                f"{path}: {name} has shape {places.shape} of {places.dtype}, expected one axis of "
                "int32"
            )
        if ((places < 0) | (places >= size)).any():
            raise RunError(f"{path}: a {name} that is none of the run's {size}")
    if len(np.unique(block.astype(np.int64) * relations + relation)) != len(block):
        raise RunError(f"{path}: the sums of a block and relation are there twice")
    return block, relation


def _values(path: Path, name: str, stored: ndarray, shape: tuple[int, ...]) -> ndarray:
    """The sums of an array of the file."""
    is_packed = (
        stored.dtype == np.uint8 and 0 < len(stored) <= _PLANES and stored.shape[1:] == shape
    )
    if not is_packed and (stored.dtype != np.float64 or stored.shape != shape):
        raise RunError(
            f"{path}: {name} has shape {stored.shape} of {stored.dtype}, expected {shape} of "
            "float64, or its bytes"
        )
    values = from_planes(stored)
    if not np.isfinite(values).all():
        raise RunError(f"{path}: {name} holds what is no finite number")
    return values


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
