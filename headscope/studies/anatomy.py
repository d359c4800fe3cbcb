"""Parameters of a model by part, and the size of its key/value cache.

No weight is loaded: the parts are counted in the empty model that transformers builds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import pandas as pd
from pydantic import Field, PlainValidator
from torch import nn

from headscope.errors import ModelError
from headscope.models.layout.dimensions import read_dimensions
from headscope.models.layout.projections import layer_list
from headscope.models.locate import locate
from headscope.models.weight_files import CONFIG
from headscope.models.weights import empty_network, read_config
from headscope.options import Positive, Revision, check_model
from headscope.resolve import the_model
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_result import StudyResult

UNLIMITED_CONTEXT = 4096
BYTES = 2
"""Bytes of a number in the cache, which is in float16."""
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
UNITS = {"vocabulary": "tokens", "context": "tokens", "tied": "1 for yes"}
"""Units of dimensions that are not plain counts."""
Row = tuple[str, str, str, int | None, str]
"""Section, name, formula, value and unit."""


STUDY = Study(
    command=Command(
        group="study",
        summary="Count parameters and the size of the key/value cache.",
        examples=(
            "headscope study anatomy gpt2 --context 4096 --out anatomy.csv",
            "headscope study anatomy smollm2 --batch 16",
        ),
        figure="",
    ),
    rows="number",
    columns=table_columns("""
        section | `dimensions`, `parameters`, `head count` or `cache` | what the row is about
        name | text | the dimension, part or cache
        formula | text | how the value is computed, or what is counted
        value | ≥ 0 | the number; those from `W_Q` to `norms` are of the first layer with attention
        unit | text | unit of the value, such as `parameters` or `bytes`
    """),
    bad_call={"context": 0},
)


@dataclass(frozen=True)
class Dimensions:
    """Sizes of a model."""

    layers: int
    heads: int
    key_value_heads: int
    d_model: int
    d_head: int
    d_ff: int | None
    """Width of the feed-forward layer; None if the configuration states no single one."""
    vocabulary: int
    context: int | None
    """Longest input in tokens."""
    tied: int
    """1 if the unembedding is the embedding, else 0."""


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
    batch: Annotated[Positive, Field(description="Sequences in the cache.")] = 1,
    revision: Revision = None,
) -> StudyResult:
    """Count the parameters of each part, and the size of the key/value cache.

    Cache sizes are in float16, as if every layer attended to the whole context: with as many
    key/value heads as heads (`MHA`, multi-head attention), the model's number (`own`), and one
    (`MQA`, multi-query attention). A number between is `GQA`, grouped-query attention.

    The section `head count` compares the model's heads with one head that is as wide as all of
    them: the number of parameters is the same, except for W_O, which one head does not need.

    Raises:
        ModelError: the model cannot be found or read.
    """
    # the configuration alone states all sizes: of a model's files no other is read
    if isinstance(model, str):
        path, _ = locate(model, revision, files=[CONFIG])
        name, config = model, read_config(model, path)
    else:
        loaded = the_model(model, revision=revision)
        network = getattr(loaded.engine, "network", None) or loaded.bridge.original_model
        name, config = loaded.name, network.config

    # parameters are counted in the empty network
    network = empty_network(name, config)
    dimensions = dimensions_of(name, config, network)
    counts = parameter_counts(network, dimensions.layers)
    # some configurations state no longest input
    tokens = context or dimensions.context or UNLIMITED_CONTEXT
    rows = [*_rows(dimensions, counts, tokens, batch)]
    table = pd.DataFrame(rows, columns=STUDY.names, dtype=object)
    kind = sharing(dimensions.heads, dimensions.key_value_heads)
    return StudyResult(
        title=f"{name}: {dimensions.layers} layers × {dimensions.heads} heads, {kind} with "
        f"{dimensions.key_value_heads} key/value heads, {counts['total']:,} parameters",
        table=table,
        terminal_table=_in_terminal(table),
        values={"context": tokens, "batch": batch, "attention": kind},
    )


def sharing(heads: int, key_value_heads: int) -> str:
    """The short name for how many heads share a key and a value.

    Source: MHA, Vaswani et al. 2017; MQA, Shazeer 2019; GQA, Ainslie et al. 2023.

    >>> sharing(32, 32), sharing(32, 8), sharing(32, 1)
    ('MHA', 'GQA', 'MQA')
    """
    if key_value_heads == heads:
        return "MHA"
    return "MQA" if key_value_heads == 1 else "GQA"


def cache_bytes(layers: int, key_value_heads: int, d_head: int, tokens: int) -> int:
    """Bytes of the keys and values of so many tokens in float16.

    Source: Shazeer 2019, section 3, for one head; Ainslie et al. 2023, section 2.2, for groups.
    """
    keys_and_values = 2
    numbers = keys_and_values * layers * key_value_heads * d_head * tokens
    return numbers * BYTES


def dimensions_of(name: str, config: Any, network: nn.Module) -> Dimensions:
    """The sizes that a configuration of transformers states.

    Args:
        name: of the model, for messages.
        config: of the model.
        network: the empty model, which has d_ff if the configuration leaves it out.

    Raises:
        ModelError: no attention heads, a number that no model can have, or compressed keys.
    """
    # compressed keys and values have no matrices of each head
    text = config.get_text_config(decoder=True)
    if getattr(text, "kv_lora_rank", None):
        raise ModelError(
            f"{name}: a {text.model_type} compresses keys and values (kv_lora_rank "
            f"{text.kv_lora_rank}), so that it has no W_K and W_V to count"
        )
    # the configuration states most sizes, and the empty network shows the others
    attention = read_dimensions(name, config)
    block = first_block(network, attention.layers)
    return Dimensions(
        layers=attention.layers,
        heads=attention.heads,
        key_value_heads=attention.key_value_heads,
        d_model=attention.d_model,
        d_head=attention.d_head,
        d_ff=_d_ff(text, block),
        vocabulary=attention.vocabulary,
        context=attention.context,
        tied=int(getattr(text, "tie_word_embeddings", False)),
    )


def _d_ff(config: Any, block: nn.Module) -> int | None:
    """The width that a configuration states, or that a layer has if it states no single one."""
    for key in ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size"):
        size = getattr(config, key, None)
        if isinstance(size, int) and size > 0:
            return size
    # GPT-2 states none; the last matrix of a layer is W_out, d_ff × d_model
    matrices = [
        weight
        for name, weight in block.named_parameters()
        if "att" not in name and weight.dim() > 1
    ]
    return max(matrices[-1].shape[-2:]) if matrices else None


def first_block(network: nn.Module, layers: int) -> nn.Module:
    """The first layer with attention.

    Raises:
        ModelError: the network has no list of that many layers.
    """
    blocks = layer_list(network, layers)
    for block in blocks:
        if any("att" in name for name, _ in block.named_parameters()):
            return block
    return blocks[0]


def parameter_counts(network: nn.Module, layers: int) -> Counter[str]:
    """Parameters of each of `PARTS`; a shared one counts once.

    Raises:
        ModelError: the network has no list of that many layers.
    """
    # parameters of norms, wherever they stand in the layer
    norms = set[nn.Parameter]()
    for module in network.modules():
        if "norm" in type(module).__name__.lower():
            norms |= {*module.parameters(recurse=False)}
    counts = Counter[str]()
    # the first layer stands for all: sizes of other layers would need a row each
    for name, weight in first_block(network, layers).named_parameters():
        part = "attention" if "att" in name else "feed-forward"
        kind = "weights" if weight.dim() > 1 else "biases"
        row = "norms" if weight in norms else f"{part} {kind}"
        counts[row] += weight.numel()
    # each parameter counts once, in the first part that has it
    embeddings = [module for module in network.modules() if isinstance(module, nn.Embedding)]
    embedding: Any = network.get_input_embeddings()  # type: ignore[operator]
    unembedding: Any = network.get_output_embeddings()  # type: ignore[operator]
    parts: dict[str, list[Any]] = {
        "all layers": [layer_list(network, layers)],
        "embedding": [embedding],
        "positions": embeddings,
        "unembedding": [] if unembedding is None else [unembedding],
        "rest": [network],
    }
    model_counts = Counter[str]()
    counted = set[nn.Parameter]()
    for model_part, modules in parts.items():
        of_part = {weight for module in modules for weight in module.parameters()}
        new = of_part - counted
        model_counts[model_part] = sum(weight.numel() for weight in new)
        counted |= new
    model_counts["total"] = sum(weight.numel() for weight in counted)
    return counts + model_counts


def _rows(
    dimensions: Dimensions, counts: Mapping[str, int], context: int, batch: int
) -> Iterator[Row]:
    """The rows of the table, section by section."""
    heads, key_heads = dimensions.heads, dimensions.key_value_heads
    d_model, d_head = dimensions.d_model, dimensions.d_head
    width = heads * d_head
    for name, size in asdict(dimensions).items():
        formula = ""
        if name == "key_value_heads":
            formula = f"{sharing(heads, key_heads)}; heads per KV head: {heads // key_heads}"
        yield "dimensions", name, formula, size, UNITS.get(name, "count")

    # matrices of attention by their shapes, then the counted parts of the whole model
    by_heads, by_key_heads = "d_model × heads × d_head", "d_model × KV heads × d_head"
    yield "parameters", "W_Q", by_heads, d_model * width, "parameters"
    yield "parameters", "W_K", by_key_heads, d_model * key_heads * d_head, "parameters"
    yield "parameters", "W_V", by_key_heads, d_model * key_heads * d_head, "parameters"
    yield "parameters", "W_O", "heads × d_head × d_model", d_model * width, "parameters"
    for part, words in PARTS.items():
        yield "parameters", part, words, counts[part], "parameters"

    # narrow heads beside one wide head, with a key and a value each (Vaswani et al. 2017, section
    # 3.2.2): the number of heads costs W_O alone
    of_heads = f"{heads} × 3 × d_model × {d_head}: W_Q, W_K and W_V of MHA"
    of_one = f"1 × 3 × d_model × {width}: the same for any number of heads"
    of_output = "d_model × heads × d_head: a third more, to mix the heads"
    yield "head count", f"{heads} heads", of_heads, heads * 3 * d_model * d_head, "parameters"
    yield "head count", "one wide head", of_one, 3 * d_model * width, "parameters"
    yield "head count", "W_O", of_output, width * d_model, "parameters"

    # what sharing keys and values saves, beside none shared and all
    for variant, cached in (("MHA", heads), ("own", key_heads), ("MQA", 1)):
        formula = f"KV heads: {cached}; tokens: {context} × {batch}"
        size = cache_bytes(dimensions.layers, cached, d_head, context * batch)
        yield "cache", variant, formula, size, "bytes"


def _in_terminal(table: pd.DataFrame) -> pd.DataFrame:
    """The table with values that people read, such as `1.25 GiB`."""
    texts = []
    for row in table.itertuples():
        if row.unit == "bytes":
            texts.append(readable_bytes(row.value))
        else:
            texts.append("–" if row.value is None else f"{row.value:,}")
    units = table["unit"].where(table["unit"] != "bytes", "")
    return table.assign(value=texts, unit=units)


def readable_bytes(size: int) -> str:
    """Bytes in the largest binary unit that is not larger than the size.

    >>> readable_bytes(1342177280), readable_bytes(196608), readable_bytes(12)
    ('1.25 GiB', '192 KiB', '12 B')
    """
    units = ("B", "KiB", "MiB", "GiB", "TiB")
    power = 0
    while power < len(units) - 1 and size >= 1024 ** (power + 1):
        power += 1
    return f"{size / 1024**power:.4g} {units[power]}"
