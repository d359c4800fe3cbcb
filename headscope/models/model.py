"""A loaded model: its engine, its tokenizer, the facts about it that a run records, and whether it
runs in half precision.
"""

from __future__ import annotations

import copy
import platform
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

import torch

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.heads import check_head_exists
from headscope.models.engines.engine import Engine
from headscope.models.tokenizer import Tokenizer
from headscope.models.weight_files import NARROW_BITS, Checkpoint

WIDE, NARROW = "float32", "bfloat16"
IN_MEMORY = "a model in memory stays as it is"
_X86 = ("x86_64", "amd64")
LONGEST_ENCODED = 512
"""Tokens of a window of an encoder's text at most: every row of so short a window is read whole."""


@dataclass(frozen=True, eq=False, repr=False)
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
    """Numbers of the layers that are not read, such as a hybrid's without softmax attention."""
    mixed_layers: tuple[int, ...] = ()
    """Numbers of the layers whose heads' outputs are mixed before W_O reads them."""
    merged: bool = False
    """Wrapped matrices of the user's model, such as adapters, were merged when it was loaded: the
    matrices here do not follow the user's model in training."""
    notes: tuple[str, ...] = ()
    """Notes on how the model was loaded and runs, for the report of a run."""
    checkpoint: Checkpoint | None = None
    """Files of the model; None for a model in memory or spread over devices."""
    origin: Any = None
    """Object that the user passed; None for a model that was loaded by its name."""

    def __repr__(self) -> str:
        size = f"{self.layers} layers × {self.heads} heads"
        return f"<headscope model {self.name}: {size}, {self.dtype} on {self.device}>"

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

        Raises:
            RunError: there is no such layer, or not so many heads, or that layer has no heads.
        """
        layers, heads = self.attention_layers, self.heads
        check_head_exists(layer, head, layers=layers, heads=heads, where=self.name)

    def with_plain_prompts(self, plain: bool) -> Model:
        """The model, for prompts in which a special token's text is plain text if `plain`."""
        if plain == self.tokenizer.plain_prompts:
            return self
        return replace(self, tokenizer=self.tokenizer.with_plain_prompts(plain))

    def in_chat(self, chat: bool = True) -> Model:
        """The model, for texts in its chat template if `chat`, or if they were before.

        Raises:
            ModelError: it has no template, or is an encoder.
        """
        if not chat or self.tokenizer.template is not None:
            return self
        return replace(self, tokenizer=self.tokenizer.in_chat())

    @property
    def bridge(self) -> Any:
        """TransformerLens' view of a model that was loaded for the lens engine."""
        engine: Any = self.engine
        return engine.bridge

    def with_layers(self, numbers: Collection[int]) -> Model:
        """The model, of which some layers alone are read, and none after the last of them is run.

        Args:
            numbers: of layers with softmax attention, at least one.
        """
        read = sorted(set(numbers))
        every = range(self.layers + len(self.others))
        others = sorted(set(every) - set(read))
        engine = copy.copy(self.engine)
        engine.attention_layers = tuple(read)
        return replace(self, engine=engine, layers=len(read), others=tuple(others))


def multiplies_natively(device: str) -> bool:
    """Test if a device has instructions for products of bfloat16 matrices.

    It is what the processor itself reports to torch, so that the answer never changes on one
    machine, as a measured time would.
    """
    kind = torch.device(device).type
    if kind == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    backend: Any = torch.backends.mkldnn
    if kind != "cpu" or not backend.is_available():
        return False
    if platform.machine().lower() in _X86:
        return any(
            getattr(torch.cpu, name, bool)()
            for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
        )
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def narrowed(model: Model) -> Model:
    """The same model with its parameters in half precision, in place.

    Its engine was compared with the model's own attention in single precision, where the two differ
    by their formulas alone. What transformers keeps wide in half precision stays so, and so do
    buffers, such as the frequencies of rotary embeddings.
    """
    engine: Any = model.engine  # the fused one, which has a network
    network = engine.network
    wide_modules: Collection[str] = getattr(network, "_keep_in_fp32_modules_strict", None) or ()
    for name, parameter in network.named_parameters():
        if not any(part in name.split(".") for part in wide_modules):
            parameter.data = parameter.data.to(torch.bfloat16)
    return replace(model, dtype=NARROW)


def reason_for_wide(model: Model) -> str:
    """The reason why a loaded model is not tried in half precision; empty if it is."""
    if model.checkpoint is None:
        return "a model that is spread over devices stays as it is"
    if model.engine.name != "fused":
        return f"the {model.engine.name} engine keeps a model as it is"
    if not multiplies_natively(model.device):
        return f"this {torch.device(model.device).type} has no instructions for bfloat16"
    engine: Any = model.engine
    config = engine.network.config
    bits = getattr(config, "stored_bits", None) or model.checkpoint.stored_bits()
    return f"its weights are stored in {bits} bits" if bits > NARROW_BITS else ""
