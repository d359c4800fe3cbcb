"""Weights from disk into a network of transformers: all of them and no others, or an error."""

from __future__ import annotations

import io
import json
import logging
import re
import warnings
from collections.abc import Collection, Iterator, Mapping, Set
from contextlib import contextmanager, redirect_stderr, suppress
from importlib.metadata import version
from inspect import ismethod
from math import prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
import transformers
from torch import nn
from transformers.utils import logging as transformers_logging

from headscope.attention_kind import CAUSAL
from headscope.errors import HeadscopeError, ModelError
from headscope.models.families import check_family
from headscope.models.gguf_config import CONVERSION, complete_config, read_header
from headscope.models.layout.dimensions import attention_kind, read_dimensions
from headscope.models.packaged import cache_root
from headscope.models.weight_files import Checkpoint, config_file, pretrained_source

BUFFER = re.compile(
    r"(?:.*\.)?(?:attn|attention|self_attn|self_attention)(?:\.attention|\.self)?"
    r"\.(?:masked_)?bias"
    r"|.*inv_freq|(?:.*\.)?position_ids|rope_(?:freqs|factors_\w+)(?:\.weight)?"
)
"""Causal masks, positions and rotary frequencies, which old files store beside the parameters."""
_QUESTION = "does config.json belong to these weights, and is every file whole?"
_QUANTISED = "quantization_config"
_MOST_KEPT = 2 * 2**30
"""Bytes of the largest GGUF model whose weights are kept as safetensors."""
_WITH_MASKS = "ForMaskedLM"
_SAME_AS_MASKED = ("BertForPreTraining",)
"""Architectures that hold all of the masked language model, and more."""


def load_weights(
    name: str, checkpoint: Checkpoint, dtype: torch.dtype, device_map: str | None = None
) -> tuple[Any, tuple[str, ...]]:
    """A network whose parameters are the tensors of these files, and notes on what is not read.

    Raises:
        ModelError: transformers cannot build the model, or the weights are not its own.
    """
    _ = checkpoint.shapes  # damaged headers are named before transformers reads them
    config = read_config(name, checkpoint.path)
    method = None if checkpoint.is_gguf else quantisation_method(config)
    placement: dict[str, Any] = {} if device_map is None else {"device_map": device_map}
    if method is not None and device_map is None and torch.cuda.is_available():
        placement = {"device_map": {"": "cuda"}}  # kernels of quantised weights may want a GPU
    network, report = _from_pretrained(name, checkpoint, config, dtype=dtype, **placement)
    # transformers draws at random what a file lacks and leaves out what it does not know
    if checkpoint.is_gguf:
        # it does not report unread tensors of a GGUF file, which is compared by its size
        in_file = sum(
            prod(shape) for key, shape in checkpoint.shapes.items() if not BUFFER.fullmatch(key)
        )
        expected = sum(weight.numel() for weight in network.parameters())
        if in_file != expected:
            raise ModelError(
                f"{name}: the file contains {in_file:,} numbers and the model that it describes "
                f"has {expected:,}: transformers would draw at random or leave out what does not "
                "fit"
            )
    # transformers has another name for some modules than the file
    unread = {key for key in report["unexpected_keys"] if not BUFFER.fullmatch(key)}
    names = (*network.state_dict(), *(checkpoint.shapes.keys() - unread))
    fault = _fault_of(report, unread, modules={key.rpartition(".")[0] for key in names} - {""})
    if fault:
        raise ModelError(f"{name}: {fault}; {_QUESTION}")
    notes: tuple[str, ...] = ()
    if unread:
        notes = (f"{_listed(unread)} not read: the model has no such part",)
    if method is not None:
        with in_one_sentence(name, f"its weights ({method}) cannot be read"), quiet_logging():
            if getattr(network, "hf_quantizer", None) is not None:
                network = network.dequantize(dtype=dtype)
            network = network.to(dtype)
        numbers = str(dtype).removeprefix("torch.")
        notes += (f"its weights are quantised ({method}) and are read as {numbers} numbers",)
        if device_map is None:
            network.hf_device_map = {}  # on one device, and not spread
    network.hf_quantizer = None  # weights are plain numbers from here on, a GGUF's too
    vars(network.config).pop(_QUANTISED, None)
    return network.eval(), notes


def unpacked_gguf(sha256: str) -> Path:
    """The folder in Hugging Face layout for the weights of a GGUF file, which may not be there.

    transformers takes a GGUF apart byte by byte: half a minute for 98 MB, where the same numbers
    as safetensors take a second.
    """
    # another version of the readers may give other numbers
    reader = f"{version('transformers')}-{version('gguf')}-{CONVERSION}"
    return cache_root() / "unpacked" / f"{reader}-{sha256[:32]}"


def keep_unpacked(folder: Path, network: Any, tokenizer: Any, stored_bits: int) -> None:
    """Write a loaded GGUF for the next time, in single precision alone, if it can be written.

    The configuration keeps the bits of its matrices, as reading them in a GGUF takes seconds.
    """
    network.config.stored_bits = stored_bits
    weights = [*network.parameters()]
    size = sum(weight.numel() * weight.element_size() for weight in weights)
    if size > _MOST_KEPT or any(weight.dtype != torch.float32 for weight in weights):
        return
    with suppress(Exception):  # a full disk, or another process that was faster
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".new-", dir=folder.parent) as unfinished:
            network.save_pretrained(unfinished)
            tokenizer.save_pretrained(unfinished)
            Path(unfinished).rename(folder)


def quantisation_method(config: Any) -> str | None:
    """The method that quantised the weights of a folder, such as `gptq`; None for plain weights."""
    # a model that also sees or hears may state it of its text part alone
    fields = getattr(config, _QUANTISED, None) or getattr(
        config.get_text_config(), _QUANTISED, None
    )
    if fields is None:
        return None
    fields = fields if isinstance(fields, Mapping) else fields.to_dict()
    method = fields.get("quant_method", "no quant_method")
    return str(getattr(method, "value", method))[:40]


def check_plain_weights(name: str, network: Any) -> None:
    """Check that the weights of a network in memory are plain numbers.

    Raises:
        ModelError: they are quantised.
    """
    integers = any(not weight.is_floating_point() for weight in network.parameters())
    # torch's dynamic quantisation packs a weight, and replaces the tensor by a method
    packed = any(ismethod(getattr(module, "weight", None)) for module in network.modules())
    if integers or packed or quantisation_method(network.config) not in (None, "gguf"):
        raise ModelError(
            f"{name}: its weights are quantised; pass the model before it was quantised, or what "
            "its dequantize() returns"
        )


def fuse_activations(network: nn.Module) -> None:
    """Put torch's GELU in the place of transformers' `gelu_new`, in place.

    Both are 0.5 x (1 + tanh(√(2/π) (x + 0.044715 x³))). transformers takes eight passes over the
    widest tensor of the model for it, a fifth of the time of a forward pass of GPT-2 small.
    """
    for module in list(network.modules()):
        for name, child in module.named_children():
            if isinstance(child, transformers.activations.NewGELUActivation):
                setattr(module, name, nn.GELU(approximate="tanh"))


def _fault_of(report: Any, unread: Set[str], modules: Set[str]) -> str:
    """The fault of a file that does not fit its model; empty if all fits.

    Args:
        report: what transformers reports of loading.
        unread: names of tensors that the model has no part for.
        modules: names of the modules that are loaded.
    """
    if report["mismatched_keys"]:
        key, in_file, expected = sorted(report["mismatched_keys"])[0]
        return f"{key} is {tuple(in_file)} in the file and {tuple(expected)} by the configuration"
    if report["missing_keys"]:
        listed = _listed(report["missing_keys"])
        return f"{listed} not in the weights, and transformers would draw them at random"
    parts = [key for key in unread if key.rpartition(".")[0] in modules]
    return f"{_listed(parts)} of a module that would be loaded without it" if parts else ""


def _listed(names: Collection[str]) -> str:
    names_in_words = ", ".join(sorted(names)[:3])
    if len(names) > 3:
        names_in_words += f" and {len(names) - 3} more"
    verb = "is" if len(names) == 1 else "are"
    return f"{names_in_words} {verb}"


def read_config(name: str, path: Path) -> transformers.PreTrainedConfig:
    """The configuration of a model's folder, `config.json` or `.gguf` file.

    Raises:
        ModelError: it cannot be read.
    """
    # counts first, as transformers builds whatever is stated
    file = config_file(name, path)
    source = pretrained_source(file)
    is_gguf = "gguf_file" in source
    with in_one_sentence(name, "not a whole GGUF file"):
        header = read_header(file) if is_gguf else None
    check_counts(name, config_entries(file) if header is None else header.values)
    with in_one_sentence(name, "transformers cannot read its configuration"), quiet_logging():
        config = transformers.AutoConfig.from_pretrained(**source)
    if header is not None:
        check_family(name, config.to_dict())
        complete_config(name, config, header)
    # weights are read from the files that are checked, not from another that it names
    vars(config).pop("transformers_weights", None)
    return config


def empty_network(name: str, config: transformers.PreTrainedConfig) -> nn.Module:
    """Network that transformers builds for a configuration, on torch's `meta` device: no memory is
    taken and no weight is drawn.

    Raises:
        ModelError: transformers has no language model for it, or cannot build it.
    """
    with in_one_sentence(name, "transformers cannot build this model"), torch.device("meta"):
        network: nn.Module = network_class(name, config).from_config(
            config, trust_remote_code=False
        )
    return network


def network_class(name: str, config: Any) -> Any:
    """The class of transformers that builds or loads a model of this configuration.

    An encoder that was not trained to fill in masked tokens, or whose head for that is not in its
    files, is read without it: its attention is the same.

    Raises:
        ModelError: headscope does not read this family.
    """
    check_family(name, config.to_dict())
    if attention_kind(config) == CAUSAL:
        return transformers.AutoModelForCausalLM
    architecture = (config.architectures or [_WITH_MASKS])[0]
    if architecture.endswith(_WITH_MASKS) or architecture in _SAME_AS_MASKED:
        return transformers.AutoModelForMaskedLM
    return transformers.AutoModel


def _from_pretrained(
    name: str, checkpoint: Checkpoint, config: transformers.PreTrainedConfig, **options: Any
) -> tuple[Any, dict[str, Any]]:
    """The network, and what transformers says it found in the files."""
    kind = network_class(name, config)
    # what no engine reads is refused before it is built
    read_dimensions(name, config)
    with in_one_sentence(name, "transformers cannot load this model"), quiet_logging():
        # a shape that does not fit is reported with the others, and refused there
        network, report = kind.from_pretrained(
            **pretrained_source(checkpoint.path),
            **options,
            config=config,
            attn_implementation="eager",
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,
        )
    # what pools an encoder's last layer comes after all attention
    if attention_kind(config) != CAUSAL:
        report["missing_keys"] = [key for key in report["missing_keys"] if "pooler." not in key]
    return network, report


@contextmanager
def in_one_sentence(name: str, failed: str) -> Iterator[None]:
    """Any error within this context as a ModelError of one line: transformers raises many kinds.

    Raises:
        ModelError: anything is raised.
    """
    try:
        yield
    except HeadscopeError:
        raise
    except Exception as error:
        lines = [line.strip() for line in str(error).strip().split("\n")]
        # a field of a configuration is named in one line, and what is wrong with it in the next
        reason = " ".join(lines[: 2 if lines[0].endswith(":") else 1])
        raise ModelError(f"{name}: {failed}: {type(error).__name__}: {reason}") from error


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
    previous = transformers_logging.set_tqdm_hook(
        lambda _factory, args, options: transformers_logging.EmptyTqdm(*args, **options)
    )
    try:
        # the GGUF reader draws its bar whatever the settings say
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        transformers_logging.set_tqdm_hook(previous)


LARGEST_COUNT = 10_000
"""Most layers, heads or experts; the largest models have a few hundred of each."""
LARGEST_SIZE = 2**24
"""Largest width, vocabulary or context; the largest models have contexts of 10 million tokens."""
_COUNTED = ("layer", "head", "block", "expert")
"""Parts of the names of fields that count parts of a model."""
_NOT_COUNTED = ("dim", "feature", "size", "length", "width", "norm", "epsilon")
"""Parts of the names of fields that have such a word, and state something else."""
_SIZES = ("_dim", "_length", "_positions", "_size", "d_model", "n_ctx", "n_embd", "n_inner")
"""Ends of the names of fields that state sizes."""


def check_counts(name: str, entries: Mapping[str, Any]) -> None:
    """Refuse a configuration that states impossibly many layers or heads, or impossible sizes.

    Args:
        name: the model's name, for messages.
        entries: a configuration and its parts, such as `text_config`; or keys of a GGUF file.

    Raises:
        ModelError: a count is above `LARGEST_COUNT` or below 0, or a size above `LARGEST_SIZE`; the
            message names the field.
    """
    for field, value in entries.items():
        if isinstance(value, Mapping):
            check_counts(name, value)
        # any other field is free
        is_count = any(word in field for word in _COUNTED)
        is_other = any(word in field for word in _NOT_COUNTED)
        if is_count and not is_other:
            largest = LARGEST_COUNT
        elif field.endswith(_SIZES):
            largest = LARGEST_SIZE
        else:
            continue
        if not isinstance(value, int | float):
            continue
        # XLNet states the context −1
        if value > largest or (value < 0 and largest == LARGEST_COUNT):
            raise ModelError(
                f"{name}: its configuration states {field} {value}; expected at most {largest:,}"
            )


def config_entries(file: Path) -> Mapping[str, Any]:
    """The entries of a `config.json`; none if it is not JSON, as transformers states the reason."""
    with suppress(OSError, ValueError, RecursionError):
        entries = json.loads(file.read_text(encoding="utf-8"))
        if isinstance(entries, Mapping):
            return entries
    return {}
