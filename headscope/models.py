"""From a name to a model whose attention patterns can be read.

A model is `mini`, which ships with headscope, a Hugging Face folder, a `.gguf` file, or a name on
the hub; all end as local safetensors (or a de-quantised GGUF) under a TransformerLens
`TransformerBridge`.
Nothing from the hub is executed (`trust_remote_code` stays off) and no pickle is ever loaded.
"""

from __future__ import annotations

import io
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformer_lens.model_bridge import TransformerBridge
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from headscope.attention import check_patterns
from headscope.corpus.read import file_sha256
from headscope.errors import ChoiceError, ModelError
from headscope.locate import locate
from headscope.tokenizer import Tokenizer

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class Model:
    """A loaded model and the facts about it that a run records."""

    name: str
    bridge: Any
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


def load_model(
    name: str,
    *,
    revision: str | None = None,
    device: str = "auto",
    dtype: str = "float32",
    bos: str | None = None,
) -> Model:
    """Load a causal language model and check that its patterns are attention patterns.

    Args:
        name: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name such as `gpt2`.
        revision: branch, tag or commit on the hub, e.g. Pythia's `step1000`.
        device: `cpu`, `cuda`, `mps`, …; `auto` takes a GPU when there is one.
        dtype: `float32`, `bfloat16` or `float16`.
        bos: text of the token to put before each document; the tokenizer's own when None.

    Raises:
        ModelError: not found, not loadable, or its patterns do not sum to 1, look ahead, or
            have another number of heads than the configuration says.
        ChoiceError: no such dtype.
    """
    if dtype not in DTYPES:
        raise ChoiceError("dtype", dtype, DTYPES)
    device = _device(device)
    folder, files, commit = _locate(name, revision)
    with _quiet():
        hf_model = _load_weights(name, folder, DTYPES[dtype])
        backend = _load_tokenizer(name, folder)
        tokenizer = Tokenizer(backend, name=name, bos=bos)
        bridge = _boot(name, hf_model.to(device), backend, device, DTYPES[dtype])
    config = hf_model.config
    model = Model(
        name=name,
        bridge=bridge,
        tokenizer=tokenizer,
        architecture=config.architectures[0],
        layers=bridge.cfg.n_layers,
        heads=bridge.cfg.n_heads,
        key_value_heads=bridge.cfg.n_key_value_heads or bridge.cfg.n_heads,
        context=bridge.cfg.n_ctx,
        vocabulary_size=hf_model.get_input_embeddings().weight.shape[0],
        device=device,
        dtype=dtype,
        revision=commit,
        weights_sha256={path.name: file_sha256(path) for path in files},
    )
    check_patterns(model.bridge, model.name, model.layers, model.heads, model.vocabulary_size)
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


def _load_weights(name: str, folder: Path, dtype: torch.dtype) -> Any:
    where: dict[str, Any] = {"pretrained_model_name_or_path": folder}
    if folder.is_file():
        where = {"pretrained_model_name_or_path": folder.parent, "gguf_file": folder.name}
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
            return AutoTokenizer.from_pretrained(folder.parent, gguf_file=folder.name)
        return AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except Exception as error:  # likewise
        reason = str(error).strip().split("\n")[0]
        raise ModelError(f"{name}: transformers cannot load its tokenizer: {reason}") from error


def _boot(name: str, hf_model: Any, backend: Any, device: str, dtype: torch.dtype) -> Any:
    """The bridge over a loaded model. TransformerLens wants a folder for its name: a bare hub
    name asks the hub even when the model is given.
    """
    config = hf_model.config
    if getattr(config, "quantization_config", None) is not None:
        del config.quantization_config  # a GGUF's weights are no longer quantised
    if not config.architectures:
        config.architectures = [type(hf_model).__name__]
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        config.save_pretrained(folder)
        backend.save_pretrained(folder)
        try:
            tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            return TransformerBridge.boot_transformers(
                folder, hf_model=hf_model, tokenizer=tokenizer, device=device, dtype=dtype
            )
        except Exception as error:  # TransformerLens has no family of errors of its own
            reason = str(error).strip().split("\n")[0]
            raise ModelError(
                f"{name}: TransformerLens cannot wrap a {config.architectures[0]}: {reason}"
            ) from error


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
