"""The sums of a run as arrays of one file: packed in `sums.npz`, or plain in `tally.safetensors`.

What a tally adds are multiples of `GRAIN`: whole numbers, of which most bytes are 0. Packing leaves
out blocks in which a relation has no query, and stores the bytes of a sum apart, so that they
compress. Both forms are exact to the last bit.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import fields

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray
from safetensors.numpy import load as load_safetensors
from safetensors.numpy import save as save_safetensors

from headscope.measure.tally import GRAIN, Profile, Tally
from headscope.relations.relation import is_part

_SUMS = ("target", "control", "hits", "queries", "chance")
_STIMULUS_MEANS = ("profile.stimulus_mean", "profile.stimulus_queries")
"""Sums of mean patterns on other stimuli than text. Those that are drawn are in a file apart."""
_PLANES = 8

Arrays = dict[str, ndarray]
Shape = tuple[int | Sequence[int], int]
"""Layers, as a number or as their numbers in the model, and the heads of a layer."""


def packed_tally(tally: Tally) -> bytes:
    """The content of `sums.npz`."""
    arrays = {n: array for n, array in pack_sums(tally).items() if n not in _STIMULUS_MEANS}
    return to_npz(arrays, compressed=True)


def plain_tally(tally: Tally) -> bytes:
    """The content of `tally.safetensors`."""
    arrays = tally.arrays()
    return save_safetensors({n: np.asarray(a, order="C") for n, a in arrays.items()})


def read_packed(content: bytes, relations: tuple[str, ...], shape: Shape) -> Tally:
    """The sums of `sums.npz`.

    Raises:
        ValueError: another run's sums, or more than fit in a tally; or other errors of NumPy.
    """
    arrays = from_npz(content, 2 * Tally.zeros(relations, *shape).size)
    return unpack_sums(arrays, relations, shape)


def read_plain(content: bytes, relations: tuple[str, ...], shape: Shape) -> Tally:
    """The sums of `tally.safetensors`.

    Raises:
        ValueError: another run's sums; or an error of safetensors.
    """
    return _filled(load_safetensors(content), relations, shape)


def pack_sums(tally: Tally) -> Arrays:
    """The arrays of a tally by name, without empty blocks, as planes of bytes; see `planes`."""
    arrays = _cells(tally.relations, {name: getattr(tally, name) for name in _SUMS})
    return arrays | {
        f"profile.{column.name}": planes(getattr(tally.profile, column.name))
        for column in fields(Profile)
    }


def unpack_sums(arrays: Mapping[str, ndarray], relations: tuple[str, ...], shape: Shape) -> Tally:
    """The tally that was packed; sums of the profile that are not there are 0.

    Raises:
        ValueError: the arrays are not those of a tally; or KeyError or IndexError.
    """
    tally = Tally.zeros(relations, *shape)
    block, relation = arrays["block"], arrays["relation"]
    for name, sums in tally.arrays().items():
        if name in _SUMS:
            sums[block, relation] = from_planes(arrays[name])
        elif name in arrays:
            sums[...] = from_planes(arrays[name])
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
        ValueError: they take more; or other errors of NumPy and zipfile for what is no such file.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        size = sum(entry.file_size for entry in archive.infolist())
    if size > limit + 2**20:  # headers take 128 bytes or more
        raise ValueError(f"its arrays take {size:,} bytes, and such sums {limit:,} at most")
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return dict(arrays)


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
    """Sums of the blocks in which a relation has any, a relation next to its parts.

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


def _filled(arrays: Arrays, relations: tuple[str, ...], shape: Shape) -> Tally:
    """The tally whose sums were written as they are."""
    tally = Tally.zeros(relations, *shape)
    for name, sums in tally.arrays().items():
        if name in arrays or name not in _STIMULUS_MEANS:
            sums[...] = arrays[name]
    return tally
