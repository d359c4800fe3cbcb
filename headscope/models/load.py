"""From a name to a model whose attention patterns can be read.

A model is `mini`, which ships with headscope, a Hugging Face folder, a `.gguf` file, or a name on
the hub; all end as local safetensors (or a de-quantised GGUF) under one of the two engines.
Nothing from the hub is executed (`trust_remote_code` stays off) and no pickle is ever loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from headscope.errors import ChoiceError, ModelError
from headscope.heads import Stacks
from headscope.models.activations import fuse_activations
from headscope.models.adapter import adapter_sha256, find_adapter, merged
from headscope.models.checkpoint import Checkpoint, find_checkpoint
from headscope.models.device import moved
from headscope.models.encoders import LONGEST, network_class
from headscope.models.engines.check import check_patterns
from headscope.models.engines.choose import choose_engine
from headscope.models.engines.engine import Engine
from headscope.models.engines.modules import other_layers
from headscope.models.in_stacks import in_stacks, start_of
from headscope.models.layout import read_layout
from headscope.models.loading import DEVICE_MAPS, DTYPES, Loading
from headscope.models.locate import locate
from headscope.models.notes import notes_on
from headscope.models.quiet import quiet
from headscope.models.tokenizer import Tokenizer, load_tokenizer
from headscope.models.unpacked import keep_unpacked, using_unpacked
from headscope.models.weights import examine, load_weights, read_config


@dataclass(frozen=True)
class Model:
    """A loaded model and the facts about it that a run records."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    architecture: str
    layers: int
    """Whose attention is read: all, or of a hybrid those that have softmax attention."""
    heads: int
    key_value_heads: int
    context: int
    """Longest input in tokens."""
    vocabulary_size: int
    device: str
    dtype: str
    revision: str
    """The hub's commit; empty for local files."""
    weights_sha256: dict[str, str]
    both_ways: bool = False
    """Whether a token sees those after it too, as in an encoder."""
    stack: str = ""
    """The letter of the stack that this is of a model with several, as in `headscope.heads`."""
    stacks: tuple[Model, ...] = ()
    """Each stack of a model with an encoder and a decoder as a model of its own."""
    target: Tokenizer | None = None
    """Of heads across, for what the decoder reads."""
    others: tuple[int, ...] = ()
    """Of a hybrid the numbers of the layers that have no softmax attention."""
    notes: tuple[str, ...] = ()
    """What the reader of its results should know about how it runs."""
    origin: Any = None
    """What was in memory before headscope read it; None for what was loaded by its name."""

    @property
    def longest_window(self) -> int:
        """Tokens of the longest window that is read of it.

        Of an encoder every row is read whole, and of a longer window some rows are left out.
        """
        return min(self.context, LONGEST) if self.both_ways else self.context

    @property
    def naming(self) -> Stacks:
        """How its heads are called."""
        return Stacks(
            tuple(each.stack for each in self.stacks), tuple(each.layers for each in self.stacks)
        )

    def at(self, layer: int) -> tuple[Model, int]:
        """The stack that a layer belongs to, and its number there; of one stack the model."""
        for each in self.stacks:
            if layer < each.layers:
                return each, layer
            layer -= each.layers
        return self, layer

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that are read by their numbers in the model, in order."""
        every = range(self.layers + len(self.others))
        return tuple(layer for layer in every if layer not in self.others)

    @property
    def bridge(self) -> Any:
        """The TransformerLens model behind a `lens` engine.

        Raises:
            ModelError: the model was loaded for the other engine.
        """
        # no isinstance: the other engine must not wait seconds for TransformerLens to be imported
        bridge = getattr(self.engine, "bridge", None)
        if bridge is None:
            raise ModelError(f"{self.name}: TransformerLens' view of it takes the lens engine")
        return bridge


def load_model(name: str, **how: Any) -> Model:
    """Load a language model and check that its patterns are attention patterns.

    Args:
        name: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name such as `gpt2`.
        how: fields of `headscope.models.loading.Loading`.

    Raises:
        ModelError: not found, not loadable, or its patterns do not sum to 1, look ahead, or
            have another number of heads than the configuration says; or it has attention that
            the fused engine does not know, and that one was asked for.
        ChoiceError: no such dtype, engine or device map.
    """
    asked = Loading(**how)
    if asked.device_map is not None:
        _check_map(asked)
        asked = replace(asked, engine="fused")
    adapter = None if asked.adapter is None else find_adapter(asked.adapter)
    device = _device(asked.device)
    path, commit = locate(name, asked.revision)
    checkpoint = find_checkpoint(name, path)
    _check_layout(name, path)
    sha256 = checkpoint.sha256()
    hf_model, backend, unread = _read(name, checkpoint, sha256, asked)
    if adapter is not None:
        hf_model, sha256 = merged(name, hf_model, adapter), sha256 | adapter_sha256(adapter)
    with quiet():
        if asked.device_map is None:
            hf_model = moved(name, hf_model, device)
        else:
            device = str(hf_model.get_input_embeddings().weight.device)
        return model_around(
            name,
            hf_model,
            backend,
            asked,
            notes=unread,
            device=device,
            dtype=asked.dtype,
            revision=commit,
            weights_sha256=sha256,
        )


def _read(
    name: str, checkpoint: Checkpoint, sha256: dict[str, str], asked: Loading
) -> tuple[Any, Any, tuple[str, ...]]:
    """The network, its tokenizer, and notes on what of its files is not read."""

    def read(files: Checkpoint) -> tuple[Any, Any, tuple[str, ...]]:
        network, unread = load_weights(name, files, DTYPES[asked.dtype], asked.device_map)
        with quiet():
            return network, load_tokenizer(name, files.path), unread

    if not checkpoint.is_gguf:
        return read(checkpoint)
    (key,) = sha256.values()
    with using_unpacked(key) as folder:
        if folder is not None:
            return read(find_checkpoint(name, folder))
    found = read(checkpoint)
    with quiet():
        keep_unpacked(key, found[0], found[1])
    return found


def model_around(
    name: str,
    network: Any,
    backend: Any,
    asked: Loading,
    *,
    notes: tuple[str, ...],
    **facts: Any,
) -> Model:
    """A model around a network of transformers, whose attention and activations are replaced.

    Args:
        name: what the model is called.
        network: a language model with eager attention, in evaluation mode and on its device.
        backend: its tokenizer, as transformers loads it.
        asked: its `bos`, `engine` and `longest` are heeded.
        notes: what is to be said of how it was loaded.
        facts: the other fields of `Model` that the network does not say.

    Raises:
        ModelError: see `load_model`.
    """
    fuse_activations(network)
    stated = read_layout(name, network.config)
    if not stated.stacks:
        stated = replace(stated, others=other_layers(network, stated.layers))
    bos = start_of(name, network, backend, asked.bos) if stated.stacks else asked.bos
    tokenizer = Tokenizer(
        backend, name=name, bos=bos, rows=_rows(network), both_ways=stated.both_ways
    )
    context = stated.longest_input(name)
    longest = min(asked.longest or context, context)
    chosen, more = choose_engine(
        name, network, backend, stated, asked=asked.engine, longest=longest
    )
    model = Model(
        name=name,
        engine=chosen,
        tokenizer=tokenizer,
        architecture=network.config.architectures[0],
        layers=len(stated.attention_layers),
        heads=stated.heads,
        key_value_heads=stated.key_value_heads,
        context=context,
        vocabulary_size=_rows(network),
        both_ways=stated.both_ways,
        others=stated.others,
        notes=(*notes, *more, *notes_on(network, stated, asked.longest, context)),
        **facts,
    )
    if stated.stacks:
        return in_stacks(model, backend)
    layers = model.attention_layers
    check_patterns(chosen, name, model.heads, model.vocabulary_size, model.device, layers=layers)
    return model


def save_reinitialised(name: str, folder: Path, *, seed: int, revision: str | None = None) -> Path:
    """Write a model of the same architecture and tokenizer with newly drawn weights.

    Args:
        name: as for `load_model`.
        folder: where to write, in Hugging Face layout.
        seed: seeds the weights, which are drawn as the architecture's own code draws them.
        revision: branch, tag or commit on the hub, for a hub name.

    Raises:
        ModelError: the model cannot be loaded.
    """
    path, _ = locate(name, revision)
    config, _ = examine(name, find_checkpoint(name, path))
    with quiet():
        if getattr(config, "quantization_config", None) is not None:
            del config.quantization_config
        torch.manual_seed(seed)
        network_class(name, config).from_config(config).save_pretrained(folder)
        load_tokenizer(name, path).save_pretrained(folder)
    return folder


def _rows(hf_model: Any) -> int:
    """Of the embedding: one for each token that the model knows."""
    return int(hf_model.get_input_embeddings().weight.shape[0])


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {asked!r} is not to be had here: {reason}") from error
    return asked


def _check_map(asked: Loading) -> None:
    if asked.device_map not in DEVICE_MAPS:
        raise ChoiceError("device map", str(asked.device_map), DEVICE_MAPS)
    if asked.device != "auto":
        raise ModelError(f"--device-map chooses the devices; leave --device {asked.device} out")
    if asked.adapter is not None:
        raise ModelError("--adapter is merged on one device; merge, save, and spread that model")
    if asked.engine == "lens":
        raise ModelError("--device-map goes with the fused engine; the lens engine has one device")
    if find_spec("accelerate") is None:
        raise ModelError("--device-map needs accelerate; install it with: pip install accelerate")


def _check_layout(name: str, path: Path) -> None:
    """Refuse by its configuration alone what no engine reads, before anything is built.

    Building takes time, and some of transformers' own code looks for a compiler then (RWKV).
    """
    if path.is_dir():  # the header of a GGUF takes seconds, and its layouts all have heads
        read_layout(name, read_config(name, path)).longest_input(name)
