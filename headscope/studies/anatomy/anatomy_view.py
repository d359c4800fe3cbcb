"""Output of `headscope study anatomy`: tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.studies.anatomy.anatomy_result import Anatomy
from headscope.studies.anatomy.parameters import Parameters
from headscope.views.tables import plain_table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHAPES = {
    "layers": "layers",
    "heads": "heads",
    "KV heads": "key_value_heads",
    "d_model": "d_model",
    "d_head": "d_head",
    "d_ff": "d_ff",
    "attention": "attention_weights_per_layer",
    "feed-forward": "feed_forward_weights_per_layer",
}
_TOTAL_SIZES = ("parameters", "stated", "full", "own", "single")
_TOTALS = ("attention weights", "attention biases", "layer", "total")
_NAMES = {"own": "its own", "single": "a single one", "full": "as many as heads"}


def anatomy_lines(anatomy: Anatomy) -> RenderableType:
    """Dimensions, parameters by formula and as counted, the cache, and notes."""
    parts: list[RenderableType] = [
        Text(f"{anatomy.model}: {_headline(anatomy)}", style="bold"),
        Text(_dimensions(anatomy)),
        Text(f"{anatomy.counted_from}\n", style="dim"),
        _parameters(anatomy.parameter_rows),
        Text(),
        _cache(anatomy),
    ]
    if not anatomy.agrees:
        apart = dict.fromkeys(r.part for r in anatomy.parameter_rows if r.agrees is False)
        message = f"\nformula and tensors DISAGREE on: {', '.join(apart)}"
        parts.append(Text(message, style="bold red"))
    parts += [Text(f"note: {note}", style="yellow") for note in anatomy.notes]
    return Group(*parts)


def published_lines(table: pd.DataFrame) -> RenderableType:
    """The published shapes with a layer's weights, then their totals and caches, then sources."""
    shapes = plain_table("published", *_SHAPES, right=_SHAPES, unwrapped=("published",))
    totals = plain_table("", *_TOTAL_SIZES, right=_TOTAL_SIZES, unwrapped=("",))
    for row in table.itertuples():
        shapes.add_row(row.model, *(f"{getattr(row, name):,}" for name in _SHAPES.values()))
        sizes = (row.cache_bytes_full, row.cache_bytes_own, row.cache_bytes_single)
        totals.add_row(row.model, f"{row.parameters:,}", row.stated, *map(human_bytes, sizes))
    first = table.iloc[0]
    lines = (
        "attention, feed-forward: weights of one layer, without biases\n"
        "parameters: by formula, with biases, norms and embeddings; stated: by the authors\n"
        f"full, own, single: key/value cache of {first['cache_context']:,} tokens × batch "
        f"{first['cache_batch']}, {first['cache_dtype']}, with as many\n"
        "    key/value heads as heads, the model's own number, and one\n"
    )
    sources = [f"{source}: {', '.join(rows['model'])}" for source, rows in table.groupby("source")]
    return Group(shapes, Text(), totals, Text(), Text(lines + "\n".join(sources), style="dim"))


def human_bytes(size: int) -> str:
    """`1.25 GiB`: four digits at most, in powers of 1,024."""
    power = min((max(size, 1).bit_length() - 1) // 10, len(_UNITS) - 1)
    return f"{size / 1024**power:.4g} {_UNITS[power]}"


def _headline(anatomy: Anatomy) -> str:
    d = anatomy.dimensions
    counted = anatomy.parameter_rows[-1].counted
    heads = f"{d.layers} layers × {d.heads} heads, {d.key_value_heads} key/value heads"
    return f"{heads}, {_number(counted)} parameters"


def _dimensions(anatomy: Anatomy) -> str:
    d = anatomy.dimensions
    names = ("d_model", "d_head", "d_ff", "vocabulary", "context")
    labels = [f"{name} {_number(getattr(d, name))}" for name in names]
    return ", ".join([*labels, "embeddings tied" if d.tied else "embeddings not tied"])


def _parameters(rows: Sequence[Parameters]) -> Table:
    titles = ("parameters", "formula", "by formula", "counted", "agree")
    table = plain_table(*titles, right=titles[2:4], unwrapped=titles[:1])
    visible_rows = [row for row in rows if row.by_formula or row.counted]
    for is_total, group in groupby(visible_rows, key=lambda row: row.layers == ""):
        title = "of the whole model" if is_total else "of each layer"
        table.add_row(Text(title, style="dim italic"))
        for row in group:
            table.add_row(*_cells(row), style="bold" if row.part in _TOTALS else None)
        if not is_total:
            table.add_row()
    return table


def _cells(row: Parameters) -> Iterable[Text | str]:
    name = row.part if row.layers in ("", "each") else f"{row.part}, in layers {row.layers}"
    agree = {True: Text("yes"), False: Text("NO", style="bold red"), None: Text("–")}
    return (
        f"  {name}",
        row.formula,
        _number(row.by_formula),
        _number(row.counted),
        agree[row.agrees],
    )


def _cache(anatomy: Anatomy) -> Table:
    setting = f"{anatomy.context:,} tokens × batch {anatomy.batch}, {anatomy.dtype}"
    sizes = ("KV heads", "a token", setting, "of full")
    table = plain_table("key/value cache", *sizes, right=sizes, unwrapped=("key/value cache",))
    full = anatomy.cache_rows[0].bytes
    for row in anatomy.cache_rows:
        table.add_row(
            f"  {_NAMES[row.variant]}",
            str(row.key_value_heads),
            human_bytes(row.bytes_per_token),
            human_bytes(row.bytes),
            f"{row.bytes / full:.3g}",
            style="bold" if row.variant == "own" else None,
        )
    return table


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
