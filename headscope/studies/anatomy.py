"""Parameters of a model by part, and the size of its key/value cache.

No weight is loaded: the parts are counted in the empty model that transformers builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, PlainValidator
from torch import nn

from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.layout.projections import layer_list
from headscope.models.locate import locate
from headscope.models.weights import empty_network, read_config
from headscope.options import Positive, Revision, check_model
from headscope.runs.resolve import the_model
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_result import StudyResult

UNLIMITED_CONTEXT = 4096
PARTS = {
    "attention weights": "matrices of the layer's attention",
    "attention biases": "vectors of the layer's attention",
    "feed-forward weights": "matrices of the rest of the layer",
    "feed-forward biases": "vectors of the rest of the layer",
    "norms": "norms of the layer",
    "all layers": "all layers",
    "embedding": "vocabulary × d_model",
    "positions": "other embeddings, such as learned positions",
    "unembedding": "0 if it is the embedding",
    "rest": "the final norm, and what has no other row",
    "total": "all layers + embedding + positions + unembedding + rest",
}
"""Counted parts, with what they hold."""
Dimensions = Mapping[str, int | None]
"""Sizes by name: `layers`, `heads`, …; `tied` is 1 if the unembedding is the embedding."""


STUDY = Study(
    rows="number",
    columns=table_columns("""
        section | `dimensions`, `parameters` or `cache` | what the row is about
        name | text | the dimension, part or cache
        formula | text | how the value is computed, or what is counted
        value | parameters or bytes, ≥ 0 | the number; those from `W_Q` to `norms` are of the first
            layer with attention
    """),
    bad_call={"context": 0},
)


@study(STUDY)
def anatomy(
    model: Annotated[
        Any,
        PlainValidator(check_model),
        Field(description="As for classify; also a config.json, or a folder without weights."),
    ],
    *,
    context: Annotated[
        Positive | None,
        Field(description="Tokens in the cache. Default: the model's longest input, or 4,096."),
    ] = None,
    revision: Revision = None,
) -> StudyResult:
    """Count the parameters of each part, and the size of the key/value cache.

    Cache sizes are those of one sequence in float16, as if every layer attended to the whole
    context: with as many key/value heads as heads (`full`), the model's number (`own`), and one
    (`single`).

    Raises:
        ModelError: the model cannot be found or read.
    """
    name, config = _configuration(model, revision)
    dimensions = dimensions_of(name, config)
    layers, heads, key_value_heads, d_model, d_head = (
        int(dimensions[size] or 0)
        for size in ("layers", "heads", "key_value_heads", "d_model", "d_head")
    )
    counts = parameter_counts(empty_network(name, config), layers)
    tokens = context or dimensions["context"] or UNLIMITED_CONTEXT
    shared = "d_model × KV heads × d_head", d_model * key_value_heads * d_head
    rows = (
        *(("dimensions", part, "", size) for part, size in dimensions.items()),
        ("parameters", "W_Q", "d_model × heads × d_head", d_model * heads * d_head),
        ("parameters", "W_K", *shared),
        ("parameters", "W_V", *shared),
        ("parameters", "W_O", "heads × d_head × d_model", d_model * heads * d_head),
        *(("parameters", part, text, counts[part]) for part, text in PARTS.items()),
        *_cache_rows(dimensions, tokens),
    )
    return StudyResult(
        title=f"{name}: {layers} layers × {heads} heads, {key_value_heads} key/value heads, "
        f"{counts['total']:,} parameters",
        table=pd.DataFrame(rows, columns=STUDY.names, dtype=object),
        values={"context": tokens},
    )


def _configuration(model: Any, revision: str | None) -> tuple[str, Any]:
    """The name and the configuration of a model, of whose files no other is read."""
    if isinstance(model, str):
        path, _ = locate(model, revision, files=[CONFIG])
        return model, read_config(model, path)
    loaded = the_model(model, revision=revision)
    network = getattr(loaded.engine, "network", None) or loaded.bridge.original_model
    return loaded.name, network.config


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
    return {
        "layers": attention.layers,
        "heads": attention.heads,
        "key_value_heads": attention.key_value_heads,
        "d_model": attention.d_model,
        "d_head": attention.d_head,
        "d_ff": next((int(size) for size in d_ff if size), None),
        "vocabulary": attention.vocabulary,
        "context": attention.context,
        "tied": int(getattr(text, "tie_word_embeddings", False)),
    }


def parameter_counts(network: nn.Module, layers: int) -> Counter[str]:
    """Parameters of each of `PARTS`; a shared one counts once.

    Raises:
        ModelError: the network has no list of that many layers.
    """
    blocks = layer_list(network, layers)
    norms = {
        weight
        for module in network.modules()
        if "norm" in type(module).__name__.lower()
        for weight in module.parameters(recurse=False)
    }
    with_attention = (b for b in blocks if any("att" in name for name, _ in b.named_parameters()))
    block = next(with_attention, blocks[0])
    counts = Counter[str]()
    for name, weight in block.named_parameters():
        part = "attention" if "att" in name else "feed-forward"
        kind = "weights" if weight.dim() > 1 else "biases"
        counts["norms" if weight in norms else f"{part} {kind}"] += weight.numel()
    embeddings: Any = [module for module in network.modules() if isinstance(module, nn.Embedding)]
    embedding: Any = network.get_input_embeddings()  # type: ignore[operator]
    unembedding: Any = network.get_output_embeddings()  # type: ignore[operator]
    counted = set[nn.Parameter]()
    for part, modules in (
        ("all layers", blocks),
        ("embedding", [embedding]),
        ("positions", embeddings),
        ("unembedding", [unembedding] if unembedding is not None else []),
        ("rest", [network]),
    ):
        weights = {weight for module in modules for weight in module.parameters()} - counted
        counts[part] = sum(weight.numel() for weight in weights)
        counted |= weights
    counts["total"] = sum(weight.numel() for weight in counted)
    return counts


def _cache_rows(dimensions: Dimensions, context: int) -> Iterator[tuple[object, ...]]:
    """Rows of the cache with all heads, the model's key/value heads, and one.

    bytes = 2 (keys and values) × layers × key/value heads × d_head × context × 2 (float16)
    (Shazeer 2019, section 3, for one head; Ainslie et al. 2023, section 2.2, for groups).
    """
    variants = {"full": dimensions["heads"], "own": dimensions["key_value_heads"], "single": 1}
    layers, d_head = int(dimensions["layers"] or 0), int(dimensions["d_head"] or 0)
    for variant, heads in variants.items():
        size = 4 * layers * int(heads or 0) * d_head * context
        yield "cache", variant, f"{heads} KV heads, {context} tokens", size
