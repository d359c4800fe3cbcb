"""Checks that weights are those of the model that their configuration names.

transformers draws at random what a file lacks and leaves out what it does not know, with a warning
only. Here each is an error, or a note for tensors that the model has no place for.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod
from typing import Any

from headscope.errors import ModelError
from headscope.models.checkpoint import Shapes
from headscope.models.layout.model_layout import BUFFER

CHECK = "does config.json belong to these weights, and is every file whole?"
_LISTED = 3


def check_fit(
    name: str, info: Mapping[str, Collection[Any]], shapes: Shapes, tensor_names: Collection[str]
) -> tuple[str, ...]:
    """Compare what transformers expects of a file with what the file holds.

    Args:
        name: of the model, for messages.
        info: `output_loading_info` of transformers: missing, mismatched and unexpected tensors.
        shapes: of all tensors in the file.
        tensor_names: of the network.

    Returns:
        Notes on tensors that are not read.

    Raises:
        ModelError: a tensor is missing, has another shape, or belongs to a module that is loaded
            without it.
    """
    if info["mismatched_keys"]:
        key, in_file, expected = sorted(info["mismatched_keys"])[0]
        raise ModelError(
            f"{name}: {key} is {_sides(in_file)} in the file and {_sides(expected)} by the "
            f"configuration; {CHECK}"
        )
    if info["missing_keys"]:
        raise ModelError(
            f"{name}: {_listed(info['missing_keys'])} not in the weights, and transformers would "
            f"draw them at random; {CHECK}"
        )
    unread = {key for key in info["unexpected_keys"] if not BUFFER.fullmatch(key)}
    # transformers has another name for some modules than the file
    modules = {key.rpartition(".")[0] for key in (*tensor_names, *(shapes.keys() - unread))} - {""}
    parts = [key for key in unread if key.rpartition(".")[0] in modules]
    if parts:
        raise ModelError(
            f"{name}: {_listed(parts)} of a module that would be loaded without it; {CHECK}"
        )
    return (f"{_listed(unread)} not read: the model has no such part",) if unread else ()


def check_size(name: str, shapes: Shapes, sizes: Mapping[str, int]) -> None:
    """Compare a GGUF file, whose unread tensors transformers does not report, by its size.

    Args:
        name: of the model, for messages.
        shapes: of all tensors in the file.
        sizes: of the parameters that transformers builds, tied ones once.

    Raises:
        ModelError: numbers are missing or left over.
    """
    in_file = sum(prod(shape) for key, shape in shapes.items() if not BUFFER.fullmatch(key))
    expected = sum(sizes.values())
    if in_file != expected:
        raise ModelError(
            f"{name}: the file holds {in_file:,} numbers and the model that it describes has "
            f"{expected:,}: transformers would draw at random or leave out what does not fit"
        )


def _listed(names: Collection[str]) -> str:
    first = ", ".join(sorted(names)[:_LISTED])
    unlisted = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
    return f"{first}{unlisted} {'is' if len(names) == 1 else 'are'}"


def _sides(shape: Collection[int]) -> str:
    return " × ".join(map(str, shape)) or "a single number"
