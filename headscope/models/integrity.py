"""Checks that the weights that a file holds are those of the model that its configuration names.

transformers draws at random what a file lacks, leaves out what it does not know, and reports both
in words only. Here each is an error, or a note for what cannot change what the heads compute.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from math import prod
from typing import Any

import torch

from headscope.errors import ModelError
from headscope.models.checkpoint import Shapes, plain_name
from headscope.models.config_values import CHECK
from headscope.models.layout.model_layout import BUFFER

_NUMBERED = re.compile(r"(?:^|\.)([A-Za-z_]\w*)\.(\d+)\.")
_LISTED = 3
_RANDOM = "transformers would draw them at random"

Mismatch = tuple[str, Collection[int], Collection[int]]
"""A tensor's name, its shape in the file, and its shape by the configuration."""


def check_fit(
    name: str, info: Mapping[str, Collection[Any]], shapes: Shapes, tensor_names: Collection[str]
) -> list[str]:
    """Compare what transformers expects of a file with what the file holds.

    Args:
        name: of the model, for messages.
        info: `output_loading_info` of transformers: missing, mismatched and unexpected tensors.
        shapes: of all tensors in the file.
        tensor_names: of the network.

    Returns:
        Notes on tensors that are not read and need not be.

    Raises:
        ModelError: a tensor is missing, has another shape, or belongs to a layer or a module
            that is loaded without it.
    """
    errors = [str(message).strip().split("\n")[0] for message in info.get("error_msgs", ())]
    if errors:
        raise ModelError(f"{name}: transformers cannot load this model: {errors[0]}")
    mismatched: list[Mismatch] = sorted(info["mismatched_keys"])
    if mismatched:
        key, in_file, expected = mismatched[0]
        raise ModelError(
            f"{name}: {_count(mismatched)} not the shape that the configuration says: {key} is "
            f"{_sides(in_file)} in the file and {_sides(expected)} by the configuration; {CHECK}"
        )
    missing = sorted(info["missing_keys"], key=_in_order)
    if missing:
        raise ModelError(
            f"{name}: {_count(missing)} not in the weights, and {_RANDOM}: {_listed(missing)}; "
            f"{CHECK}"
        )
    unread = {key for key in info["unexpected_keys"] if not BUFFER.fullmatch(key)}
    return _check_unread(name, unread, [plain_name(key) for key in shapes], tensor_names)


def check_names(name: str, shapes: Shapes, prefix: str) -> list[str]:
    """Notes on names that a wrapper of torch has changed.

    Args:
        name: of the model, for messages.
        shapes: of all tensors in the file.
        prefix: what transformers itself puts before, or takes from, the names of this model.

    Raises:
        ModelError: two tensors of the file would be loaded into one.
    """
    by_name: dict[str, str] = {}
    for key in shapes:
        plain = plain_name(key).removeprefix(f"{prefix}." if prefix else "")
        if plain in by_name:
            raise ModelError(
                f"{name}: {by_name[plain]} and {key} are both in the weights, and would be loaded "
                "into the same place; one of them is to be deleted"
            )
        by_name[plain] = key
    changed = [key for key in shapes if plain_name(key) != key]
    if not changed:
        return []
    return [
        f"the names of {len(changed)} tensors were read without _orig_mod. or module., which "
        "torch.compile or DataParallel put there"
    ]


def check_finite(name: str, network: Any) -> None:
    """Refuse weights that are no numbers, as they are in memory.

    Raises:
        ModelError: a tensor holds NaN or an infinity; the message names the first.
    """
    for key, tensor in network.state_dict().items():
        if tensor.is_meta or not tensor.is_floating_point() or tensor.element_size() < 2:
            continue
        if not tensor.numel():
            continue
        if all(bool(torch.isfinite(end)) for end in torch.aminmax(tensor)):
            continue  # in one pass that copies nothing: NaN is passed on
        wrong = tensor.numel() - int(torch.isfinite(tensor).sum())
        kind = str(tensor.dtype).removeprefix("torch.")
        raise ModelError(
            f"{name}: {wrong:,} of {tensor.numel():,} numbers in {key} are NaN or infinite "
            f"as {kind}; the file is damaged, or needs a wider --dtype"
        )


def check_size(name: str, shapes: Shapes, sizes: Mapping[str, int], layers: int) -> None:
    """Compare a GGUF file, whose unread tensors transformers does not report, by its size.

    Args:
        name: of the model, for messages.
        shapes: of all tensors in the file.
        sizes: of the parameters that transformers builds, tied ones once.
        layers: how many the configuration says.

    Raises:
        ModelError: there are more layers than the configuration says, or numbers left over.
    """
    numbers = [int(match[1]) for key in shapes if (match := re.match(r"blk\.(\d+)\.", key))]
    if numbers and max(numbers) >= layers:
        raise ModelError(
            f"{name}: the file says {layers} layers and holds tensors of layer {max(numbers)}, "
            f"which would be left out; {CHECK}"
        )
    in_file = sum(prod(shape) for key, shape in shapes.items() if not BUFFER.fullmatch(key))
    expected = sum(sizes.values())
    if in_file != expected:
        raise ModelError(
            f"{name}: the file holds {in_file:,} numbers and the model that it describes has "
            f"{expected:,}: transformers would draw at random or leave out what does not fit"
        )


def _check_unread(
    name: str, unread: Collection[str], in_file: Collection[str], tensor_names: Collection[str]
) -> list[str]:
    if not unread:
        return []
    # by both names, where transformers has another name for a module than the file
    read = [*tensor_names, *(key for key in in_file if key not in unread)]
    modules = {key.rpartition(".")[0] for key in read} - {""}
    layers = _layers_left_out(unread, in_file, tensor_names)
    for wrong, owner in (
        (layers, "a layer that the configuration leaves out"),
        (
            [key for key in unread if key.rpartition(".")[0] in modules],
            "a module that would be loaded without it",
        ),
    ):
        if wrong:
            first = _listed(sorted(wrong, key=_in_order))
            raise ModelError(f"{name}: {_count(wrong)} of {owner}: {first}; {CHECK}")
    listed = _listed(sorted(unread, key=_in_order))
    return [f"not read, because the model has no such part: {listed}"]


def _layers_left_out(
    unread: Collection[str], in_file: Collection[str], tensor_names: Collection[str]
) -> list[str]:
    """The held tensors of layers that the network does not have, in a stack of layers that it has.

    All of such a layer: some of its names look to transformers like the masks of old files, and
    are not reported.
    """
    layers = {key: numbered[0] for key in in_file if (numbered := _NUMBERED.findall(key))}
    in_network = {numbered[0] for key in tensor_names if (numbered := _NUMBERED.findall(key))}
    stacks = {stack for stack, _ in in_network}
    beyond = {
        layers[key] for key in unread if key in layers and layers[key][0] in stacks
    } - in_network
    return [key for key, layer in layers.items() if layer in beyond]


def _listed(names: list[str]) -> str:
    unlisted = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f" and {unlisted} more" if unlisted > 0 else "")


def _count(tensors: Collection[Any]) -> str:
    return "1 tensor is" if len(tensors) == 1 else f"{len(tensors)} tensors are"


def _sides(shape: Collection[int]) -> str:
    return " × ".join(map(str, shape)) or "a single number"


def _in_order(key: str) -> list[tuple[int, str]]:
    """Layer 2 before layer 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in key.split(".")]
