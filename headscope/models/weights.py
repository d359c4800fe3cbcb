"""Weights from disk into a network of transformers: all of them and no others, or an error."""

from __future__ import annotations

import io
import logging
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, PreTrainedConfig
from transformers.utils import logging as transformers_logging

from headscope.attention_kind import CAUSAL
from headscope.errors import HeadscopeError, ModelError
from headscope.models.checkpoint import CONFIG, WRAPPERS, Checkpoint, Shapes
from headscope.models.config_values import check_counts, check_values, find_entry, read_entries
from headscope.models.integrity import (
    check_finite,
    check_fit,
    check_names,
    check_size,
)
from headscope.models.layout.dimensions import attention_kind, read_dimensions
from headscope.models.model_kinds import network_class
from headscope.models.packages import missing_package
from headscope.models.quantised import check_library, dequantised, quantised, where_quantised

_STRIP = {WRAPPERS.pattern: ""}


def _activations() -> list[str]:
    from transformers.activations import ACT2CLS

    return sorted(ACT2CLS)


def _rotary_kinds() -> list[str]:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    return sorted({"default", *ROPE_INIT_FUNCTIONS})


_KNOWN: Mapping[str, Callable[[], list[str]]] = {
    r"act(?:ivation)?(?:_function|_fn)?$": _activations,
    r"rope_type$": _rotary_kinds,
}
"""The names that transformers knows for an entry, by the end of the entry's path."""


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
    quantisation = None if checkpoint.is_gguf else quantised(name, config)
    placement = {} if device_map is None else {"device_map": device_map}
    if quantisation is not None:
        placement = where_quantised(device_map)
    network, info = _from_pretrained(name, checkpoint, config, dtype=dtype, **placement)
    check_fit(name, info, checkpoint.shapes, network.state_dict())
    if quantisation is not None:
        failed = f"its quantised weights ({quantisation}) cannot be read"
        with _one_sentence(name, failed, config.to_dict()), quiet_logging():
            network, weight_notes = dequantised(network, quantisation, dtype)
        notes = (*notes, *weight_notes)
        if device_map is None:
            network.hf_device_map = {}  # on one device, and not spread
    check_finite(name, network)
    return network.eval(), notes


def examine(name: str, checkpoint: Checkpoint) -> tuple[PreTrainedConfig, tuple[str, ...]]:
    """Check that configuration and weights fit, by the headers of the files: no weight is read.

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
        sizes = {key: weight.numel() for key, weight in network.named_parameters()}
        check_size(name, shapes, sizes, read_dimensions(name, config).layers)
        return config, ()
    quantisation = quantised(name, config)
    if (
        quantisation is not None
    ):  # packed as their library packs them, which is compared as they are loaded
        check_library(name, quantisation)
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
    stated = {} if gguf else read_entries(name, file)
    with _one_sentence(name, "transformers cannot read its configuration", stated), quiet_logging():
        if not gguf:
            _check_weights_name(name, stated)
            check_counts(name, stated, shapes)
            check_values(f"{name}: its configuration", stated)
        config = AutoConfig.from_pretrained(
            file.parent if gguf else file, local_files_only=True, trust_remote_code=False, **gguf
        )
        if gguf:
            check_counts(name, config.to_dict(), shapes)
            check_values(f"{name}: its configuration", config.to_dict())
    return config


def empty_network(name: str, config: PreTrainedConfig) -> nn.Module:
    """Network that transformers builds for a configuration, on torch's `meta` device: no memory is
    taken and no weight is drawn.

    Raises:
        ModelError: transformers has no language model for it, or cannot build it.
    """
    failed = "transformers cannot build this model"
    with _one_sentence(name, failed, config.to_dict()), torch.device("meta"):
        network: nn.Module = network_class(name, config).from_config(
            config, trust_remote_code=False
        )
    return network


def _from_pretrained(
    name: str, checkpoint: Checkpoint, config: PreTrainedConfig, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """The network, and what transformers says it found in the files."""
    source: dict[str, Any] = {"pretrained_model_name_or_path": checkpoint.path}
    if checkpoint.is_gguf:
        path = checkpoint.path
        source = {"pretrained_model_name_or_path": path.parent, "gguf_file": path.name}
    else:
        source["key_mapping"] = _STRIP
    failed = "transformers cannot load this model"
    with _one_sentence(name, failed, config.to_dict()), quiet_logging():
        # a shape that does not fit is reported with the others, and refused there
        network, info = network_class(name, config).from_pretrained(
            **source,
            **options,
            config=config,
            attn_implementation="eager",
            use_safetensors=True,
            local_files_only=True,
            trust_remote_code=False,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    # what pools an encoder's last layer comes after all attention
    if attention_kind(config) != CAUSAL:
        info["missing_keys"] = [key for key in info["missing_keys"] if "pooler." not in key]
    return network, info


@contextmanager
def _one_sentence(name: str, failed: str, stated: Mapping[str, Any]) -> Iterator[None]:
    """Any error of transformers, which raises many kinds, as a ModelError of one line.

    Args:
        name: of the model.
        failed: what did not succeed, as the beginning of a sentence.
        stated: the configuration, in which a name is looked for that transformers does not know.
    """
    try:
        yield
    except HeadscopeError:
        raise
    except ImportError as error:
        raise missing_package(f"{name}: reading it", error) from error
    except Exception as error:
        if isinstance(error, KeyError) and error.args:
            _check_known(name, stated, error.args[0])
        lines = [line.strip() for line in str(error).strip().split("\n")]
        # a field of a configuration is named in one line, and what is wrong with it in the next
        reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1]) or type(error).__name__
        if "above report" in reason:  # which was written where nobody reads it
            reason = "its tensors cannot be brought into the layout that the configuration asks for"
        raise ModelError(f"{name}: {failed}: {reason}") from error


def _check_known(name: str, stated: Mapping[str, Any], value: Any) -> None:
    """Refuse a name that transformers has looked up in vain, by the entry that gives it."""
    entry = find_entry(stated, value) if isinstance(value, str) else None
    if entry is None:
        return
    known = next((names() for key, names in _KNOWN.items() if re.search(key, entry)), ())
    ways = f"choose from: {', '.join(known)}" if known else "is it spelled as in other models?"
    raise ModelError(
        f"{name}: its configuration gives {entry} as {value!r:.60}, which transformers does not "
        f"know; {ways}"
    )


def _check_weights_name(name: str, stated: dict[str, Any]) -> None:
    """A configuration may say that transformers is to read another file than its usual ones."""
    file = stated.get("transformers_weights")
    if file is not None:
        raise ModelError(
            f"{name}: its configuration names its weights by transformers_weights "
            f"({file!r:.60}); headscope reads model.safetensors, or what its index names"
        )


@contextmanager
def quiet_logging() -> Iterator[None]:
    """No progress bars and no advice from transformers within this context: errors are raised.

    The level of its logger, its progress bars and those of the hub are afterwards what they were,
    also when the body raises.
    """
    logger = logging.getLogger("transformers")
    transformers_logging.get_verbosity()  # sets its own first level, if this is the first look
    level = logger.level
    logger.setLevel(logging.ERROR)
    # a hook says nothing about what the user had set: the switch for bars has no exact way back
    previous = transformers_logging.set_tqdm_hook(_no_bar)
    try:
        # the GGUF reader draws its bar whatever the settings say
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        transformers_logging.set_tqdm_hook(previous)


def _no_bar(_factory: Callable[..., Any], args: tuple[Any, ...], options: dict[str, Any]) -> Any:
    return transformers_logging.EmptyTqdm(*args, **options)
