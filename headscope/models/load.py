"""Loads a model by its name and checks its attention patterns.

A model is `mini`, which ships with headscope, a Hugging Face folder, a `.gguf` file, or a name on
the hub; all end as local safetensors (or a de-quantised GGUF) under one of the two engines.
Nothing from the hub is executed (`trust_remote_code` stays off) and no pickle is ever loaded.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.errors import ModelError, RunError, first_line
from headscope.heads import head_name, without_softmax
from headscope.models.checkpoint import Checkpoint, find_checkpoint
from headscope.models.engines.choose import choose_engine
from headscope.models.engines.engine import Engine
from headscope.models.engines.kernels import fuse_activations
from headscope.models.families import check_family, explain_unread
from headscope.models.gguf_files import cache_model, cached_folder
from headscope.models.layout.dimensions import AttentionDimensions, read_dimensions, text_config
from headscope.models.layout.modules import layers_without_softmax
from headscope.models.load_options import DTYPES, LoadOptions, check_device_map, device_map_note
from headscope.models.locate import locate
from headscope.models.tokenizer import Tokenizer, load_tokenizer, substitute_bos
from headscope.models.weights import load_weights, quiet_logging, read_config

LONGEST_ENCODED = 512
"""Tokens of a window of an encoder's text at most: every row of so short a window is read whole."""


@dataclass(frozen=True)
class Model:
    """A loaded model and the facts about it that a run records."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    architecture: str
    layers: int
    """Number of layers with softmax attention, which are those that are read."""
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
    attention_kind: AttentionKind = CAUSAL
    """Kind of attention of its heads: causal or bidirectional."""
    others: tuple[int, ...] = ()
    """Numbers of a hybrid's layers without softmax attention."""
    notes: tuple[str, ...] = ()
    """Notes on how the model was loaded and runs, for the report of a run."""
    checkpoint: Checkpoint | None = None
    """Files of the model; None for a model in memory or spread over devices."""
    origin: Any = None
    """Object that the user passed; None for a model that was loaded by its name."""

    @property
    def longest_window(self) -> int:
        """Tokens of the longest window that is read of it.

        Of an encoder every row is read whole, and of a longer window some rows are left out.
        """
        return (
            min(self.context, LONGEST_ENCODED) if self.attention_kind.sees_future else self.context
        )

    @property
    def attention_layers(self) -> tuple[int, ...]:
        """The layers that are read by their numbers in the model, in order."""
        every = range(self.layers + len(self.others))
        return tuple(layer for layer in every if layer not in self.others)

    def check_head(self, layer: int, head: int) -> None:
        """Refuse a head that the model has not.

        Args:
            layer: its number in the model.
            head: its number in the layer.

        Raises:
            RunError: there is no such layer, or not so many heads, or that layer has no heads.
        """
        name = head_name(layer, head)
        if layer in self.others:
            raise RunError(f"no head {name} in {self.name}: {without_softmax(self.others)}")
        last = self.attention_layers[-1]
        if layer > last or head >= self.heads:
            last_name = head_name(last, self.heads - 1)
            raise RunError(f"no head {name} in {self.name}; they go up to {last_name}")

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


def load_model(name: str, **options: Any) -> Model:
    """Load a language model and check that its patterns are attention patterns.

    Args:
        name: `mini`, a packaged model such as `smollm2`, a folder in Hugging Face layout, a `.gguf`
            file, or a hub name such as `gpt2`.
        options: fields of `headscope.models.load_options.LoadOptions`.

    Raises:
        ModelError: not found, not loadable, or its patterns do not sum to 1, look ahead, or
            have another number of heads than the configuration says; or it has attention that
            the fused engine does not know, and that one was asked for.
        ChoiceError: no such dtype, engine or device map.
    """
    load_options = LoadOptions(**options)
    if load_options.device_map is not None:
        check_device_map(load_options)
        load_options = replace(load_options, engine="fused")
    device = _device(load_options.device)
    path, commit = locate(name, load_options.revision)
    checkpoint = find_checkpoint(name, path)
    _check_layout(name, path)
    sha256 = checkpoint.sha256()
    hf_model, backend, unread = _read(name, checkpoint, sha256, load_options)
    if load_options.device_map is not None:
        device = str(hf_model.get_input_embeddings().weight.device)
    with quiet_logging():
        return model_around(
            name,
            hf_model,
            backend,
            load_options,
            notes=unread,
            device=device,
            dtype=load_options.dtype,
            revision=commit,
            weights_sha256=sha256,
            checkpoint=checkpoint if load_options.device_map is None else None,
        )


def _read(
    name: str, checkpoint: Checkpoint, sha256: dict[str, str], options: LoadOptions
) -> tuple[Any, Any, tuple[str, ...]]:
    """The network, its tokenizer, and notes on what of its files is not read."""

    def read(files: Checkpoint) -> tuple[Any, Any, tuple[str, ...]]:
        network, unread = load_weights(name, files, DTYPES[options.dtype], options.device_map)
        with quiet_logging():
            return network, load_tokenizer(name, files.path), unread

    if not checkpoint.is_gguf:
        return read(checkpoint)
    (key,) = sha256.values()
    with cached_folder(key) as folder:
        if folder is not None:
            return read(find_checkpoint(name, folder))
    loaded = read(checkpoint)
    with quiet_logging():
        cache_model(checkpoint.path, key, loaded[0], loaded[1])
    return loaded


def model_around(
    name: str,
    network: Any,
    backend: Any,
    options: LoadOptions,
    *,
    notes: tuple[str, ...],
    device: str,
    **facts: Any,
) -> Model:
    """A model around a network of transformers, whose attention and activations are replaced.

    Args:
        name: what the model is called.
        network: a language model with eager attention, in evaluation mode.
        backend: its tokenizer, as transformers loads it.
        options: its `bos`, `chat`, `engine` and `longest` are heeded.
        notes: what is to be said of how it was loaded.
        device: where it is to run.
        facts: the other fields of `Model` that the network does not say.

    Raises:
        ModelError: see `load_model`.
    """
    fuse_activations(network)
    dimensions = read_dimensions(name, network.config)
    dimensions = replace(dimensions, others=layers_without_softmax(network, dimensions.layers))
    kind = dimensions.attention_kind
    bos: str | None = options.bos
    bos_notes: tuple[str, ...] = ()
    if bos is None and kind.predicts_next:
        config_bos = getattr(text_config(name, network.config), "bos_token_id", None)
        bos, bos_notes = substitute_bos(backend, config_bos)
    tokenizer = Tokenizer(
        backend,
        name=name,
        bos=bos,
        rows=_embedding_rows(network),
        attention_kind=kind,
        short_rope=dimensions.short_rope,
        chat=options.chat,
    )
    context = dimensions.longest_input(name, options.longest)
    longest = min(options.longest or context, context)
    with explain_unread(name, network.config.model_type):
        engine, engine_notes = choose_engine(
            name,
            network,
            backend,
            dimensions,
            engine_name=options.engine,
            longest=longest,
            device=device,
        )
    return Model(
        name=name,
        engine=engine,
        tokenizer=tokenizer,
        architecture=network.config.architectures[0],
        layers=len(dimensions.attention_layers),
        heads=dimensions.heads,
        key_value_heads=dimensions.key_value_heads,
        context=context,
        vocabulary_size=_embedding_rows(network),
        attention_kind=kind,
        others=dimensions.others,
        notes=(
            *notes,
            *bos_notes,
            *engine_notes,
            *_notes(network, dimensions, options.longest, context),
        ),
        device=device,
        **facts,
    )


def _notes(
    network: Any, dimensions: AttentionDimensions, longest: int | None, context: int
) -> tuple[str, ...]:
    """The devices of its parts, the layers that are not read, and the cut of its texts."""
    notes = list(device_map_note(network))
    if dimensions.others:
        notes.append(f"{without_softmax(dimensions.others)}: what they mix is not read")
    limit = min(context, LONGEST_ENCODED)
    if longest and longest > limit and dimensions.attention_kind.sees_future:
        notes.append(
            f"windows of {longest:,} tokens were asked for; an encoder's are cut at {limit:,}"
        )
    return tuple(notes)


def _embedding_rows(hf_model: Any) -> int:
    """Rows of the embedding: one for each token that the model knows."""
    return int(hf_model.get_input_embeddings().weight.shape[0])


def _device(device: str) -> str:
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = first_line(error)
        raise ModelError(f"device {device!r} is not to be had here: {reason}") from error
    return device


def _check_layout(name: str, path: Path) -> None:
    """Refuse by its configuration alone what no engine reads, before anything is built.

    Building takes time, and some of transformers' own code looks for a compiler then (RWKV).
    """
    if path.is_dir():  # the header of a GGUF takes seconds, and its layouts all have heads
        config = read_config(name, path)
        check_family(name, config.to_dict())
        with explain_unread(name, config.model_type):
            read_dimensions(name, config).longest_input(name)
