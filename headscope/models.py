"""From a name to a model whose attention patterns can be read.

A model is `mini`, which ships with headscope, a Hugging Face folder, a `.gguf` file, or a name on
the hub; all end as local safetensors (or a de-quantised GGUF) under one of the two engines.
Nothing from the hub is executed (`trust_remote_code` stays off) and no pickle is ever loaded.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from headscope.activations import fuse_activations
from headscope.attention import check_patterns
from headscope.corpus.read import file_sha256
from headscope.engine import Engine
from headscope.errors import ChoiceError, ModelError
from headscope.locate import locate
from headscope.tokenizer import Tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ENGINES = ("auto", "fused", "lens")
DEVICE_MAPS = ("auto", "balanced", "sequential")


@dataclass(frozen=True)
class Model:
    """A loaded model and the facts about it that a run records."""

    name: str
    engine: Engine
    tokenizer: Tokenizer
    architecture: str
    layers: int
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
    notes: tuple[str, ...] = ()
    """What the reader of its results should know about how it runs."""

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


def load_model(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    bos: str | None = None,
    engine: str = "auto",
    device_map: str | None = None,
) -> Model:
    """Load a causal language model and check that its patterns are attention patterns.

    Args:
        name: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name such as `gpt2`.
        revision: branch, tag or commit on the hub, e.g. Pythia's `step1000`.
        device: `cpu`, `cuda`, `mps`, …; `auto` takes a GPU when there is one.
        dtype: `float32`, `bfloat16` or `float16`.
        bos: text of the token to put before each document; the tokenizer's own when None.
        engine: `fused`, `lens`, or `auto`: fused where the model allows it.
        device_map: `auto`, `balanced` or `sequential` spread a model that is too large for one
            device over all of them, the processor too, with accelerate; fused engine only.

    Raises:
        ModelError: not found, not loadable, or its patterns do not sum to 1, look ahead, or
            have another number of heads than the configuration says; or it has attention that
            the fused engine does not know, and that one was asked for.
        ChoiceError: no such dtype, engine or device map.
    """
    if dtype not in DTYPES:
        raise ChoiceError("dtype", dtype, DTYPES)
    if engine not in ENGINES:
        raise ChoiceError("engine", engine, ENGINES)
    if device_map is not None:
        _check_map(device_map, device, engine)
        engine = "fused"
    device = _device(device)
    folder, files, commit = _locate(name, revision)
    with _quiet():
        hf_model = _load_weights(name, folder, DTYPES[dtype], device_map)
        fuse_activations(hf_model)
        if device_map is None:
            hf_model = hf_model.to(device)
        else:
            device = str(hf_model.get_input_embeddings().weight.device)
        backend = _load_tokenizer(name, folder)
        tokenizer = Tokenizer(backend, name=name, bos=bos)
        chosen, notes = _engine(name, hf_model, backend, device, dtype, engine)
    notes += _spread_note(hf_model)
    config = hf_model.config
    heads = config.num_attention_heads
    model = Model(
        name=name,
        engine=chosen,
        tokenizer=tokenizer,
        architecture=config.architectures[0],
        layers=config.num_hidden_layers,
        heads=heads,
        key_value_heads=getattr(config, "num_key_value_heads", None) or heads,
        context=config.max_position_embeddings,
        vocabulary_size=hf_model.get_input_embeddings().weight.shape[0],
        device=device,
        dtype=dtype,
        revision=commit,
        weights_sha256={path.name: file_sha256(path) for path in files},
        notes=notes,
    )
    check_patterns(model.engine, model.name, model.heads, model.vocabulary_size, device)
    return model


def save_reinitialised(name: str, folder: Path, *, seed: int) -> Path:
    """Write a model of the same architecture and tokenizer with newly drawn weights.

    Args:
        name: as for `load_model`.
        folder: where to write, in Hugging Face layout.
        seed: seeds the weights, which are drawn as the architecture's own code draws them.

    Raises:
        ModelError: the model cannot be loaded.
    """
    source, _, _ = _locate(name, None)
    with _quiet():
        config = _load_weights(name, source, torch.float32).config
        if getattr(config, "quantization_config", None) is not None:
            del config.quantization_config
        torch.manual_seed(seed)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        _load_tokenizer(name, source).save_pretrained(folder)
    return folder


def _device(asked: str) -> str:
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=asked)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {asked!r} is not to be had here: {reason}") from error
    return asked


def _check_map(device_map: str, device: str, engine: str) -> None:
    if device_map not in DEVICE_MAPS:
        raise ChoiceError("device map", device_map, DEVICE_MAPS)
    if device != "auto":
        raise ModelError(f"--device-map chooses the devices; leave --device {device} out")
    if engine == "lens":
        raise ModelError("--device-map goes with the fused engine; the lens engine has one device")
    if find_spec("accelerate") is None:
        raise ModelError("--device-map needs accelerate; install it with: pip install accelerate")


def _spread_note(hf_model: Any) -> tuple[str, ...]:
    """Where the parts of a model lie that was spread over several devices."""
    places = getattr(hf_model, "hf_device_map", {}).values()
    devices = list(dict.fromkeys(str(place) for place in places))
    if not devices:
        return ()
    named = [f"cuda:{name}" if name.isdigit() else name for name in devices]
    return (f"spread by accelerate over {', '.join(named)}",)


def _locate(name: str, revision: str | None) -> tuple[Path, list[Path], str]:
    """The folder or GGUF file, its weight files, and the hub's commit."""
    path, commit = locate(name, revision)
    if path.is_file():
        if path.suffix != ".gguf":
            raise ModelError(f"{name}: a model is a folder, a .gguf file or a hub name, not this")
        return path, [path], ""
    if not (path / "config.json").is_file():
        raise ModelError(
            f"{name}: no config.json in this folder; a model in Hugging Face layout has one"
        )
    files = sorted(path.glob("*.safetensors"))
    if not files:
        raise ModelError(
            f"{name}: no .safetensors file; headscope never loads pickles (.bin, .pt). "
            "Convert it with transformers: model.save_pretrained(folder)"
        )
    return path, files, commit


def _load_weights(
    name: str, folder: Path, dtype: torch.dtype, device_map: str | None = None
) -> Any:
    where: dict[str, Any] = {"pretrained_model_name_or_path": folder}
    if folder.is_file():
        where = {"pretrained_model_name_or_path": folder.parent, "gguf_file": folder.name}
    if device_map is not None:
        where["device_map"] = device_map
    try:
        return AutoModelForCausalLM.from_pretrained(
            **where, dtype=dtype, attn_implementation="eager", use_safetensors=True,
            local_files_only=True, trust_remote_code=False,
        ).eval()  # fmt: skip
    except ImportError as error:
        raise ModelError(f"{name}: needs a package that is not installed: {error}") from error
    except Exception as error:  # transformers raises many kinds for a folder that it cannot use
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: transformers cannot load this model: {reason}") from error


def _load_tokenizer(name: str, folder: Path) -> Any:
    try:
        if folder.is_file():
            return AutoTokenizer.from_pretrained(
                folder.parent, gguf_file=folder.name, local_files_only=True, trust_remote_code=False
            )
        # without a word about it, transformers asks the user whether to run a tokenizer's own code
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except Exception as error:  # likewise
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: transformers cannot load its tokenizer: {reason}") from error


def _engine(
    name: str, hf_model: Any, backend: Any, device: str, dtype: str, asked: str
) -> tuple[Engine, tuple[str, ...]]:
    """The engine asked for; for `auto` the fused one, or a note why it is not."""
    config = hf_model.config
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config  # a GGUF's weights are no longer quantised
    if not config.architectures:
        config.architectures = [type(hf_model).__name__]
    notes: tuple[str, ...] = ()
    if asked != "lens":
        # each engine's library takes seconds to import
        from headscope.fused import FusedEngine

        try:
            heads, layers = config.num_attention_heads, config.num_hidden_layers
            return FusedEngine(hf_model, heads, layers), notes
        except Exception as error:  # a model's own code may fail in any way
            reason = str(error).strip().split("\n")[0]
            if asked == "fused":
                raise ModelError(f"{name}: the fused engine does not fit: {reason}") from error
            notes = (f"lens engine, because the fused one does not fit: {reason}",)
        hf_model.set_attn_implementation("eager")
    from headscope.boot import boot

    return boot(name, hf_model, backend, device, DTYPES[dtype]), notes


@contextmanager
def _quiet() -> Iterator[None]:
    """No progress bars and no advice from transformers while a model loads: errors are raised."""
    level = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity_error()
    transformers_logging.disable_progress_bar()
    try:
        # the GGUF reader draws its bar whatever the settings say
        with redirect_stderr(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        transformers_logging.set_verbosity(level)
        transformers_logging.enable_progress_bar()
