"""Parameters of a model, by formula and as counted in its tensors, and its key/value cache.

No weight is loaded: tensors are those of the empty model that transformers builds for a
configuration.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod
from typing import Annotated, Any, NamedTuple

import pandas as pd
from pydantic import Field

from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.layout.projections import FORMS, OUTPUTS
from headscope.models.layout.table import layer_tensors
from headscope.models.locate import locate
from headscope.models.weights import empty_network, read_config
from headscope.options import PathName, Positive, Revision
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_result import StudyResult

UNLIMITED_CONTEXT = 4096
FOUR_TIMES = ("gpt2", "gpt_bigcode", "gpt_neo", "gptj")
"""Model types whose d_ff is 4 × d_model if the configuration states none."""
SUMS = {
    "attention weights": "W_Q + W_K + W_V + W_O",
    "attention biases": "b_Q + b_K + b_V + b_O",
    "weights": "attention weights + feed-forward weights",
    "biases": "attention biases + feed-forward biases",
    "all of the above": "all layers + embedding + positions + unembedding + final norm",
}
UNLISTED = ("weights", "biases", "all of the above")
OF_THE_MODEL = ("all layers", *SUMS["all of the above"].split(" + "), "total")
"""Parts of the whole model; all others are parts of a layer."""
WEIGHT_OF = {f"b_{letter}": f"W_{letter}" for letter in "QKVO"}
WEIGHT_OF["feed-forward biases"] = "feed-forward weights"
"""Parts that a model may lack, and the part that must be recognised before they count as 0."""

Dimensions = Mapping[str, int | None]
"""Sizes by name: `layers`, `heads`, …; `tied` is True if the unembedding is the embedding."""


class TensorCounts(NamedTuple):
    """Parameters by part, as counted in the tensors."""

    layers: Mapping[int, Counter[str]]
    """Recognised parts of each layer, and `layer`, the sum of all its tensors."""
    model: Counter[str]
    """Parts outside the layers, and `total`."""
    unrecognised: Sequence[str]
    """Names of tensors that belong to no known part; N stands for the number of a layer."""


STUDY = Study(
    rows="number",
    columns=table_columns("""
        section | `dimensions`, `parameters` or `cache` | what the row is about
        name | text | the dimension, part or cache
        layers | text | `each`, or as in `1 of 4` the layers with this number; empty for the model
        formula | text | how the value is computed
        value | parameters or bytes | the number by formula
        counted | parameters, ≥ 0 | the number of entries in the tensors
        holds | `True` or `False` | formula and count agree
    """),
    bad_call={"context": 0},
)


@study(STUDY)
def anatomy(
    model: Annotated[
        PathName,
        Field(description="As for classify; also a config.json, or a folder without weights."),
    ],
    *,
    context: Annotated[
        Positive | None,
        Field(description="Tokens in the cache. Default: the model's longest input, or 4,096."),
    ] = None,
    revision: Revision = None,
) -> StudyResult:
    """Count parameters, by formula and from the tensors, and the size of the key/value cache.

    Cache sizes are those of one sequence in float16, as if every layer attended to the whole
    context: with as many key/value heads as heads (`full`), the model's number (`own`), and one
    (`single`).

    Raises:
        ModelError: the model cannot be found or read.
    """
    name = str(model)
    path, _ = locate(name, revision, files=[CONFIG])
    config = read_config(name, path)
    dimensions = dimensions_of(name, config)
    counts = count_tensors(parameter_shapes(name, config), dimensions)
    texts = formulas(dimensions, config)
    tokens = context or dimensions["context"] or UNLIMITED_CONTEXT
    rows = (
        *(("dimensions", part, "", "", size, "", "") for part, size in dimensions.items()),
        *_parameter_rows(texts, dimensions, counts),
        *_cache_rows(dimensions, tokens),
    )
    table = pd.DataFrame(rows, columns=STUDY.names, dtype=object)
    heads = f"{dimensions['heads']} heads, {dimensions['key_value_heads']} key/value heads"
    return StudyResult(
        title=f"{name}: {dimensions['layers']} layers × {heads}, {counts.model['total']:,} "
        "parameters",
        table=table,
        notes=list(_notes(config, counts)),
        values={"context": tokens},
    )


def parameter_shapes(name: str, config: Any) -> Mapping[str, tuple[int, ...]]:
    """The shapes of the parameters of the empty model, by name; a tied one is there once."""
    parameters = empty_network(name, config).named_parameters()
    return {key: tuple(parameter.shape) for key, parameter in parameters}


def dimensions_of(name: str, config: Any) -> Dimensions:
    """The sizes that a configuration of transformers states.

    Raises:
        ModelError: no attention heads, a number that no model can have, or compressed keys.
    """
    text = config.get_text_config(decoder=True)
    if getattr(text, "kv_lora_rank", None):
        raise ModelError(
            f"{name}: a {text.model_type} compresses keys and values (kv_lora_rank "
            f"{text.kv_lora_rank}), so that it has no W_K and W_V to count"
        )
    attention = read_dimensions(name, config)
    keys = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size")
    d_ff = [getattr(text, key, None) for key in keys]
    unstated = 4 * attention.d_model if text.model_type in FOUR_TIMES else None
    return {
        "layers": attention.layers,
        "heads": attention.heads,
        "key_value_heads": attention.key_value_heads,
        "d_model": attention.d_model,
        "d_head": attention.d_head,
        "d_ff": next((int(size) for size in d_ff if size), unstated),
        "vocabulary": attention.vocabulary,
        "context": attention.context,
        "tied": bool(getattr(text, "tie_word_embeddings", False)),
    }


def formulas(dimensions: Dimensions, config: Any) -> Mapping[str, str]:
    """Formulas by part, `?` if unknown; a part comes before the sums that contain it."""
    qkv = o = feed_forward = positions = None
    weights = biases = norms = final_norm = "?"
    t = layer_tensors(config.get_text_config(decoder=True))
    if t is not None:
        qkv, o = t.qkv_bias, t.o_bias
        positions = t.learned_positions and dimensions["context"] is not None
        norms, final_norm = _vectors(t.norm_vectors), _vectors(t.final_norm_vectors)
        if dimensions["d_ff"] is not None:
            inner = t.feed_forward_matrices - 1  # all matrices but the last lead to d_ff
            feed_forward = t.feed_forward_bias
            weights = f"{t.feed_forward_matrices} × d_model × d_ff"
            biases = "d_ff + d_model" if inner == 1 else f"{inner} × d_ff + d_model"
    untied = "?" if t is None else "d_model × vocabulary"
    return {
        "W_Q": "d_model × heads × d_head",
        "W_K": "d_model × KV heads × d_head",
        "W_V": "d_model × KV heads × d_head",
        "W_O": "heads × d_head × d_model",
        "attention weights": SUMS["attention weights"],
        "b_Q": _if(qkv, "heads × d_head"),
        "b_K": _if(qkv, "KV heads × d_head"),
        "b_V": _if(qkv, "KV heads × d_head"),
        "b_O": _if(o, "d_model"),
        "attention biases": SUMS["attention biases"],
        "feed-forward weights": weights,
        "feed-forward biases": _if(feed_forward, biases),
        "norms": norms,
        "weights": SUMS["weights"],
        "biases": SUMS["biases"],
        "layer": "weights + biases + norms",
        "all layers": "layers × layer",
        "embedding": "vocabulary × d_model",
        "positions": _if(positions, "context × d_model"),
        "unembedding": "the embedding again" if dimensions["tied"] else untied,
        "final norm": final_norm,
        "all of the above": SUMS["all of the above"],
        "total": "all of the above",
    }


def _if(has: bool | None, text: str) -> str:
    return "?" if has is None else text if has else "none"


def _vectors(count: int) -> str:
    return f"{count} × d_model" if count > 1 else "d_model"


def evaluate(formula: str, sizes: Mapping[str, int | None]) -> int | None:
    """The value of a sum of products of sizes; None if one of them is None.

    >>> evaluate("2 × d_ff + d_model", {"d_ff": 8, "d_model": 3})
    19
    """
    total = 0
    for term in formula.split(" + "):
        factors = [int(name) if name.isdigit() else sizes[name] for name in term.split(" × ")]
        known = [factor for factor in factors if factor is not None]
        if len(known) < len(factors):
            return None
        total += prod(known)
    return total


def _parameter_rows(
    texts: Mapping[str, str], dimensions: Dimensions, counts: TensorCounts
) -> Iterator[tuple[object, ...]]:
    sizes = {**dimensions, "KV heads": dimensions["key_value_heads"]}
    sizes |= {"none": 0, "the embedding again": 0, "?": None}
    for part, formula in texts.items():
        value = sizes[part] = evaluate(formula, sizes)
        if part in UNLISTED:
            continue
        if part in OF_THE_MODEL:
            size = counts.model[part]
            # 0 means that no tensor was recognised, unless the formula gives 0
            counted = [("", None if size == 0 and value != 0 else size)]
        else:
            counted = _by_layers(part, counts)
        for layers, count in counted:
            holds = None if value is None or count is None else value == count
            yield "parameters", part, layers, formula, value, count, holds


def _by_layers(part: str, counts: TensorCounts) -> list[tuple[str, int | None]]:
    """The counted size of a part by the number of layers that have this size."""
    sizes = Counter(_size(part, counts, index) for index in counts.layers)
    if len(sizes) < 2:
        return [("each", next(iter(sizes), None))]
    return [(f"{number} of {sizes.total()}", size) for size, number in sizes.items()]


def _size(part: str, counts: TensorCounts, layer: int) -> int | None:
    """A part's size in a layer; None if no tensor of any layer was recognised as this part."""
    if part in SUMS:
        names = SUMS[part].split(" + ")
        return evaluate(SUMS[part], {name: _size(name, counts, layer) for name in names})
    needed = WEIGHT_OF.get(part, part)
    recognised = any(parts[needed] for parts in counts.layers.values())
    return counts.layers[layer][part] if recognised else None


def _cache_rows(dimensions: Dimensions, context: int) -> Iterator[tuple[object, ...]]:
    """Rows of the cache with all heads, the model's key/value heads, and one.

    bytes = 2 (keys and values) × layers × key/value heads × d_head × context × 2 (float16)
    (Shazeer 2019, section 3, for one head; Ainslie et al. 2023, section 2.2, for groups).
    """
    variants = {"full": dimensions["heads"], "own": dimensions["key_value_heads"], "single": 1}
    layers, d_head = int(dimensions["layers"] or 0), int(dimensions["d_head"] or 0)
    for variant, heads in variants.items():
        size = 4 * layers * int(heads or 0) * d_head * context
        yield "cache", variant, "", f"{heads} KV heads, {context} tokens", size, "", ""


def _projection_names() -> Mapping[str, str]:
    """Patterns of the names of modules that hold `QKV`, `Q`, `K`, `V` and `O` in all layouts."""
    names: dict[str, list[str]] = {letters: [] for letters in ("QKV", *"QKV")} | {"O": [*OUTPUTS]}
    for form in FORMS:
        letters = ("QKV",) if len(form.modules) == 1 else tuple("QKV")
        for part, module in zip(letters, form.modules, strict=True):
            names[part].append(module.removeprefix("self."))
    return {part: "|".join(modules) for part, modules in names.items()}


LAYER = re.compile(r"(?:^|\.)(?:h|layers?|blocks)\.(\d+)\.(.+)$")
ATTENTION = r"(?:self_attn|self_attention|attention|attn)(?:\.attention|\.self)?"
LAYER_PARTS = (
    *((part, rf"{ATTENTION}\.(?:{names})") for part, names in _projection_names().items()),
    ("norms", r"(?:.*[._])?(?:ln_\d|\w*layer_?norm|norm(?:_\d)?|\w+_norm|LayerNorm)"),
    ("feed-forward", r"(?:mlp|ffn|feed_forward|block_sparse_moe)\..+|fc[12]"),
    ("feed-forward", r"(?:intermediate|output)\.dense"),
)
"""Parts of a layer, and patterns of names after its number, without .weight or .bias."""
MODEL_PARTS = (
    ("embedding", r"(?:.*\.)?(?:wte|embed_tokens|embed_in|word_embeddings)"),
    ("positions", r"(?:.*\.)?(?:wpe|embed_positions|position_embeddings)"),
    ("unembedding", r"lm_head|embed_out"),
    ("final norm", r"(?:.*\.)?(?:ln_f|norm|norm_f|final_layer_?norm)"),
)


def count_tensors(shapes: Mapping[str, tuple[int, ...]], dimensions: Dimensions) -> TensorCounts:
    """Count the parameters of each part by the names of the tensors.

    A fused query/key/value tensor is split in the proportion heads : KV heads : KV heads.
    """
    layers: defaultdict[int, Counter[str]] = defaultdict(Counter)
    model: Counter[str] = Counter()
    unrecognised = set()
    for key, shape in shapes.items():
        inside = LAYER.search(key)
        part = _part(inside[2], LAYER_PARTS) if inside else _part(key, MODEL_PARTS)
        size = prod(shape)
        model["total"] += size
        if part is None:
            unrecognised.add(re.sub(r"\.\d+\.", ".N.", key))
        if inside is None:
            model[part or "unrecognised"] += size
            continue
        layers[int(inside[1])].update({"layer": size, **_split(part, key, size, dimensions)})
    model["all layers"] = sum(layer["layer"] for layer in layers.values())
    return TensorCounts(dict(sorted(layers.items())), model, sorted(unrecognised))


def _part(name: str, table: Sequence[tuple[str, str]]) -> str | None:
    stem = re.sub(r"\.(?:weight|bias)$", "", name)
    return next((part for part, pattern in table if re.fullmatch(pattern, stem)), None)


def _split(part: str | None, key: str, size: int, dimensions: Dimensions) -> dict[str, int]:
    """Parameters of a layer's tensor by the parts that the formulas name."""
    is_bias = key.endswith("bias")
    if part is None or part == "norms":
        return {} if part is None else {part: size}
    if part == "feed-forward":
        return {f"feed-forward {'biases' if is_bias else 'weights'}": size}
    letter = "b" if is_bias else "W"
    if part != "QKV":
        return {f"{letter}_{part}": size}
    heads, keys = int(dimensions["heads"] or 0), int(dimensions["key_value_heads"] or 0)
    narrow = size * keys // (heads + 2 * keys)
    return {f"{letter}_Q": size - 2 * narrow, f"{letter}_K": narrow, f"{letter}_V": narrow}


def _notes(config: Any, counts: TensorCounts) -> Iterator[str]:
    text = config.get_text_config(decoder=True)
    if layer_tensors(text) is None:
        yield (
            f"model type {text.model_type}: no formula is known for its biases, norms and "
            "feed-forward layers; they are only counted"
        )
    if counts.unrecognised:
        names = ", ".join(counts.unrecognised[:4])
        yield f"{len(counts.unrecognised)} unrecognised tensors, part of the totals only: {names}"
