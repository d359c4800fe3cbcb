"""Parameters as counted from the tensors: each tensor's name says which part it belongs to."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from math import prod

from headscope.models.checkpoint import Shapes
from headscope.models.layout.model_layout import BUFFER, Split
from headscope.models.layout.table import LAYOUTS
from headscope.studies.anatomy.anatomy_dimensions import Dimensions


def _projection_names() -> dict[str, tuple[str, ...]]:
    """Names of the tensors by the letters of what they hold: `QKV`, `Q`, `K`, `V` and `O`.

    They follow the name of the attention; that of BERT's has two parts, `attention.self`.
    """
    names: dict[str, dict[str, None]] = {letters: {} for letters in ("QKV", *"QKVO")}
    for row in LAYOUTS:
        names["O"][row.output] = None
        form = row.projections
        if form is None or form.split is Split.FACTORS:
            continue
        letters = ("QKV",) if len(form.modules) == 1 else tuple("QKV")
        for part, module in zip(letters, form.modules, strict=True):
            names[part][module.removeprefix("self.")] = None
    return {part: tuple(modules) for part, modules in names.items()}


_LAYER = re.compile(r"(?:^|\.)(?:h|layers?|blocks|blk)\.(\d+)\.(.+)$")
_ATTENTION = r"(?:self_attn|self_attention|attention|attn)(?:\.attention|\.self)?"
_OTHER_NAMES = {
    "QKV": rf"{_ATTENTION}\.qkv|attn_qkv",
    "Q": "attn_q",
    "K": "attn_k",
    "V": "attn_v",
    "O": "attn_output",
}
"""GGUF's names, and one of eyes."""
# what follows the layer's number, without .weight or .bias
_IN_A_LAYER = (
    *(
        (letters, rf"{_ATTENTION}\.(?:{'|'.join(names)})|{_OTHER_NAMES[letters]}")
        for letters, names in _projection_names().items()
    ),
    ("norms", r"(?:.*[._])?(?:ln_\d|\w*layer_?norm|norm(?:_\d)?|\w+_norm|LayerNorm)"),
    ("feed-forward", r"(?:mlp|ffn|feed_forward|block_sparse_moe)\..+|fc[12]|ffn_\w+"),
    ("feed-forward", r"(?:intermediate|output)\.dense"),
)
_IN_THE_MODEL = (
    ("embedding", r"(?:.*\.)?(?:wte|embed_tokens|embed_in|word_embeddings|token_embd)"),
    ("positions", r"(?:.*\.)?(?:wpe|embed_positions|position_embeddings|position_embd)"),
    ("unembedding", r"lm_head|embed_out|output"),
    ("final norm", r"(?:.*\.)?(?:ln_f|norm|norm_f|final_layer_?norm|output_norm)"),
)


@dataclass(frozen=True)
class TensorCounts:
    """Counted tensors. Sizes are in parameters."""

    layers: dict[int, Counter[str]]
    """By number: a layer's parts, as far as recognised, and `layer`, all that is in it."""
    model: Counter[str]
    """The parts outside the layers, and `total`."""
    unrecognised: tuple[str, ...]
    """Names that are no known part; a number of a layer is written N."""
    left_out: tuple[str, ...]
    """Names of stored tensors that are no parameters, or are a tied tensor again."""
    fused: bool
    """W_Q, W_K and W_V are one tensor."""


def count(shapes: Shapes, dimensions: Dimensions) -> TensorCounts:
    """Count the tensors of a model by part.

    A fused query/key/value tensor is split in the proportion heads : KV heads : KV heads.

    Args:
        shapes: of all tensors, by name.
        dimensions: say whether embeddings are tied, and how a fused tensor is split.
    """
    layers: defaultdict[int, Counter[str]] = defaultdict(Counter)
    model: Counter[str] = Counter()
    unrecognised: dict[str, None] = {}
    left_out = [key for key in shapes if _is_left_out(key, shapes, dimensions)]
    fused = False
    for key in shapes.keys() - set(left_out):
        size = prod(shapes[key])
        model["total"] += size
        inside = _LAYER.search(key)
        part = _part(inside[2], _IN_A_LAYER) if inside else _part(key, _IN_THE_MODEL)
        if part is None:
            unrecognised[re.sub(r"\.\d+\.", ".N.", key)] = None
        if inside is None:
            model[part or "unrecognised"] += size
            continue
        layer = layers[int(inside[1])]
        layer["layer"] += size
        fused = fused or part == "QKV"
        for name, share in _split(part, key, size, dimensions).items():
            layer[name] += share
    model["all layers"] = sum(layer["layer"] for layer in layers.values())
    return TensorCounts(
        dict(sorted(layers.items())),
        model,
        tuple(sorted(unrecognised)),
        tuple(left_out),
        fused,
    )


def _is_left_out(key: str, shapes: Shapes, dimensions: Dimensions) -> bool:
    if BUFFER.fullmatch(key):
        return True
    unembedding = _LAYER.search(key) is None and _part(key, _IN_THE_MODEL) == "unembedding"
    return unembedding and dimensions.tied and key.endswith(".weight")


def _part(name: str, table: tuple[tuple[str, str], ...]) -> str | None:
    stem = re.sub(r"\.(?:weight|bias)$", "", name)
    return next((part for part, pattern in table if re.fullmatch(pattern, stem)), None)


def _split(part: str | None, key: str, size: int, d: Dimensions) -> dict[str, int]:
    """The parts that a layer's tensor belongs to, by the names that formulas use."""
    if part is None:
        return {}
    bias = key.endswith("bias")
    if part == "norms":
        return {part: size}
    if part == "feed-forward":
        return {f"feed-forward {'biases' if bias else 'weights'}": size}
    letter = "b" if bias else "W"
    if part != "QKV":
        return {f"{letter}_{part}": size}
    narrow = size * d.key_value_heads // (d.heads + 2 * d.key_value_heads)
    return {f"{letter}_Q": size - 2 * narrow, f"{letter}_K": narrow, f"{letter}_V": narrow}
