"""Parameters of a model by formula, and the size of its key/value cache.

No weight is loaded. The total is compared with the empty model that transformers builds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from headscope.errors import ModelError
from headscope.models.checkpoint import CONFIG
from headscope.models.layout.dimensions import read_dimensions
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
"""Sums that have no row."""

Dimensions = Mapping[str, int | None]
"""Sizes by name: `layers`, `heads`, …; `tied` is 1 if the unembedding is the embedding."""


STUDY = Study(
    rows="number",
    columns=table_columns("""
        section | `dimensions`, `parameters` or `cache` | what the row is about
        name | text | the dimension, part or cache
        formula | text | how the value is computed
        value | parameters or bytes, ≥ 0 | the number; those from `W_Q` to `layer` are of one layer
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
    """Count parameters by formula, and the size of the key/value cache.

    The row `counted` has the number of parameters of the model that transformers builds. Cache
    sizes are those of one sequence in float16, as if every layer attended to the whole context:
    with as many key/value heads as heads (`full`), the model's number (`own`), and one (`single`).

    Raises:
        ModelError: the model cannot be found or read.
    """
    name = str(model)
    path, _ = locate(name, revision, files=[CONFIG])
    config = read_config(name, path)
    dimensions = dimensions_of(name, config)
    counted = sum(weight.numel() for weight in empty_network(name, config).parameters())
    texts = formulas(dimensions, config)
    sizes = {**dimensions, "KV heads": dimensions["key_value_heads"]}
    sizes |= {"none": 0, "the embedding again": 0, "?": None}
    for part, formula in texts.items():
        sizes[part] = evaluate(formula, sizes)
    tokens = context or dimensions["context"] or UNLIMITED_CONTEXT
    rows = (
        *(("dimensions", part, "", size) for part, size in dimensions.items()),
        *(("parameters", p, text, sizes[p]) for p, text in texts.items() if p not in UNLISTED),
        ("parameters", "counted", "entries of the tensors that transformers builds", counted),
        *_cache_rows(dimensions, tokens),
    )
    table = pd.DataFrame(rows, columns=STUDY.names, dtype=object)
    notes = []
    if sizes["total"] != counted:
        notes.append("the formulas of this model type are incomplete: see the row counted")
    heads = f"{dimensions['heads']} heads, {dimensions['key_value_heads']} key/value heads"
    return StudyResult(
        title=f"{name}: {dimensions['layers']} layers × {heads}, {counted:,} parameters",
        table=table,
        notes=notes,
        values={"context": tokens},
    )


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
        "tied": int(getattr(text, "tie_word_embeddings", False)),
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
