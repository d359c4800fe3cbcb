"""Weights from disk into a network of transformers: all of them and no others, or an error."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig

from headscope.errors import HeadscopeError, ModelError
from headscope.models.checkpoint import CONFIG, WRAPPERS, Checkpoint, Shapes
from headscope.models.encoders import network_class
from headscope.models.integrity import (
    check_counts,
    check_finite,
    check_fit,
    check_names,
    check_size,
)
from headscope.models.layout import looks_both_ways, read_layout
from headscope.models.quantised import check_library, plain, quantised, where_quantised
from headscope.models.quiet import quiet

_STRIP = {WRAPPERS.pattern: ""}


def load_weights(
    name: str, checkpoint: Checkpoint, dtype: torch.dtype, device_map: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """A network whose parameters are the tensors of these files, and notes on what is not read.

    Args:
        name: of the model, for messages.
        checkpoint: its files.
        dtype: of the parameters.
        device_map: how accelerate is to spread them; None leaves them on the processor.

    Raises:
        ModelError: transformers cannot build the model; a tensor is missing, left over in a way
            that matters, of another shape, or holds no numbers; see `integrity`.
    """
    config, notes = examine(name, checkpoint)
    how = None if checkpoint.is_gguf else quantised(name, config)
    where = {} if device_map is None else {"device_map": device_map}
    if how is not None:
        where = where_quantised(device_map)
    network, info = _from_pretrained(name, checkpoint, config, dtype=dtype, **where)
    check_fit(name, info, checkpoint.shapes, network.state_dict())
    if how is not None:
        with _one_sentence(name, f"its quantised weights ({how}) cannot be read"), quiet():
            network, told = plain(network, how, dtype)
        notes = (*notes, *told)
        if device_map is None:
            network.hf_device_map = {}  # on one device, and not spread
    check_finite(name, network)
    return network.eval(), notes


def examine(name: str, checkpoint: Checkpoint) -> tuple[PreTrainedConfig, tuple[str, ...]]:
    """Whether configuration and weights fit, by the headers of the files: no weight is read.

    Args:
        name: of the model, for messages.
        checkpoint: its files.

    Returns:
        The configuration, and notes on what is not read or read under another name.

    Raises:
        ModelError: they do not fit, or one of them cannot be read.
    """
    shapes = checkpoint.shapes
    config = read_config(name, checkpoint.path, shapes=shapes)
    if checkpoint.is_gguf:
        network = empty_network(name, config)
        sizes = {key: each.numel() for key, each in network.named_parameters()}
        check_size(name, shapes, sizes, read_layout(name, config).layers)
        return config, ()
    how = quantised(name, config)
    if how is not None:  # packed as their library packs them, which is compared as they are loaded
        check_library(name, how)
        return config, ()
    network, info = _from_pretrained(
        name, checkpoint, config, device_map={"": "meta"}, dtype=torch.float32
    )
    notes = check_names(name, shapes, network.base_model_prefix)
    return config, (*notes, *check_fit(name, info, shapes, network.state_dict()))


def read_config(name: str, path: Path, *, shapes: Shapes | None = None) -> PreTrainedConfig:
    """The configuration of a model's folder, `config.json` or `.gguf` file.

    Args:
        name: of the model, for messages.
        path: where it is.
        shapes: of all tensors, where there are any.

    Raises:
        ModelError: it cannot be read, or gives numbers that no model can have.
    """
    file = path / CONFIG if path.is_dir() else path
    gguf = {"gguf_file": file.name} if file.suffix.lower() == ".gguf" else {}
    with _one_sentence(name, "transformers cannot read its configuration"), quiet():
        if not gguf:
            stated = json.loads(file.read_text(encoding="utf-8"))
            if not isinstance(stated, dict):
                raise ModelError(f"{name}: {file.name} is no configuration: {stated!r:.40}")
            _check_weights_name(name, stated)
            check_counts(name, stated, shapes)
        config = AutoConfig.from_pretrained(
            file.parent if gguf else file, local_files_only=True, trust_remote_code=False, **gguf
        )
        if gguf:
            check_counts(name, config.to_dict(), shapes)
    return config


def empty_network(name: str, config: PreTrainedConfig) -> nn.Module:
    """What transformers builds for a configuration, on torch's `meta` device: no memory is taken
    and no weight is drawn.

    Raises:
        ModelError: transformers has no language model for it, or cannot build it.
    """
    with _one_sentence(name, "transformers cannot build this model"), torch.device("meta"):
        network: nn.Module = network_class(name, config).from_config(
            config, trust_remote_code=False
        )
    return network


def _from_pretrained(
    name: str, checkpoint: Checkpoint, config: PreTrainedConfig, **how: Any
) -> tuple[Any, dict[str, Any]]:
    """The network, and what transformers says it found in the files."""
    where: dict[str, Any] = {"pretrained_model_name_or_path": checkpoint.path}
    if checkpoint.is_gguf:
        path = checkpoint.path
        where = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    else:
        where["key_mapping"] = _STRIP
    with _one_sentence(name, "transformers cannot load this model"), quiet():
        # a shape that does not fit is reported with the others, and refused there
        network, info = network_class(name, config).from_pretrained(
            **where,
            **how,
            config=config,
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    if looks_both_ways(config):  # what pools an encoder's last layer comes after all attention
        info["missing_keys"] = [key for key in info["missing_keys"] if "pooler." not in key]
    return network, info


@contextmanager
def _one_sentence(name: str, failed: str) -> Iterator[None]:
    """Any error of transformers, which raises many kinds, as a ModelError of one line."""
    try:
        yield
    except HeadscopeError:
        raise
    except ImportError as error:
        raise ModelError(f"{name}: needs a package that is not installed: {error}") from error
    except Exception as error:
        lines = [line.strip() for line in str(error).strip().split("\n")]
        # a field of a configuration is named in one line, and what is wrong with it in the next
        reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1]) or type(error).__name__
        if "above report" in reason:  # which was written where nobody reads it
            reason = "its tensors cannot be brought into the layout that the configuration asks for"
        raise ModelError(f"{name}: {failed}: {reason}") from error


def _check_weights_name(name: str, stated: dict[str, Any]) -> None:
    """A configuration may say that transformers is to read another file than its usual ones."""
    asked = stated.get("transformers_weights")
    if asked is not None:
        raise ModelError(
            f"{name}: its configuration names its weights by transformers_weights "
            f"({asked!r:.60}); headscope reads model.safetensors, or what its index names"
        )
