"""What `headscope anatomy` prints: tables for people."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby
from math import isnan

import pandas as pd
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.studies.anatomy.result import Anatomy
from headscope.studies.anatomy.rows import Check, Parameters
from headscope.views.tables import plain_table

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHAPES = ("layers", "heads", "KV heads", "d_model", "d_head", "d_ff", "attention", "feed-forward")
_TOTAL_SIZES = ("parameters", "stated", "full", "own", "single")
_TOTALS = ("attention weights", "attention biases", "layer", "total")
_NAMES = {"own": "its own", "single": "a single one", "full": "as many as heads"}


def anatomy_lines(anatomy: Anatomy) -> RenderableType:
    """Dimensions, parameters by formula and as counted, the cache, the checks, and notes."""
    parts: list[RenderableType] = [
        Text(f"{anatomy.model}: {_headline(anatomy)}", style="bold"),
        Text(_dimensions(anatomy)),
        Text(f"{anatomy.counted_from}\n", style="dim"),
        _parameters(anatomy.parameter_rows),
        Text(),
        _cache(anatomy),
    ]
    if anatomy.checks:
        parts += [Text(), _checks(anatomy.checks)]
    if not anatomy.agrees:
        apart = dict.fromkeys(r.part for r in anatomy.parameter_rows if r.agrees is False)
        message = f"\nformula and tensors DISAGREE on: {', '.join(apart)}"
        parts.append(Text(message, style="bold red"))
    parts += [Text(f"note: {note}", style="yellow") for note in anatomy.notes]
    return Group(*parts)


def published_lines(table: pd.DataFrame) -> RenderableType:
    """The published shapes with a layer's weights, then their totals and caches, then sources."""
    shapes = plain_table("published", *_SHAPES, right=_SHAPES, whole=("published",))
    totals = plain_table("", *_TOTAL_SIZES, right=_TOTAL_SIZES, whole=("",))
    for row in table.itertuples():
        numbers = (
            row.layers,
            row.heads,
            row.key_value_heads,
            row.d_model,
            row.d_head,
            row.d_ff,
            row.attention_weights_per_layer,
            row.feed_forward_weights_per_layer,
        )
        shapes.add_row(row.model, *(f"{number:,}" for number in numbers))
        sizes = (row.cache_bytes_full, row.cache_bytes_own, row.cache_bytes_single)
        totals.add_row(row.model, f"{row.parameters:,}", row.stated, *map(human_bytes, sizes))
    first = table.iloc[0]
    told = (
        "attention, feed-forward: weights of one layer, without biases\n"
        "parameters: by formula, with biases, norms and embeddings; stated: by the authors\n"
        f"full, own, single: key/value cache of {first['cache_context']:,} tokens × batch "
        f"{first['cache_batch']}, {first['cache_dtype']}, with as many\n"
        "    key/value heads as heads, the model's own number, and one\n"
    )
    sources = [f"{source}: {', '.join(own['model'])}" for source, own in table.groupby("source")]
    return Group(shapes, Text(), totals, Text(), Text(told + "\n".join(sources), style="dim"))


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
    numbers = {
        "d_model": d.d_model,
        "d_head": d.d_head,
        "d_ff": d.d_ff,
        "vocabulary": d.vocabulary,
        "context": d.context,
    }
    told = [f"{name} {_number(value)}" for name, value in numbers.items()]
    return ", ".join([*told, "embeddings tied" if d.tied else "embeddings not tied"])


def _parameters(rows: Sequence[Parameters]) -> Table:
    titles = ("parameters", "formula", "by formula", "counted", "agree")
    table = plain_table(*titles, right=titles[2:4], whole=titles[:1])
    shown = [row for row in rows if row.by_formula or row.counted]
    for whole, group in groupby(shown, key=lambda row: row.layers == ""):
        title = "of the whole model" if whole else "of each layer"
        table.add_row(Text(title, style="dim italic"))
        for row in group:
            table.add_row(*_cells(row), style="bold" if row.part in _TOTALS else None)
        if not whole:
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
    table = plain_table("key/value cache", *sizes, right=sizes, whole=("key/value cache",))
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


def _checks(checks: Sequence[Check]) -> Table:
    """A line per check: its layers together, unless one of them fails."""
    titles = ("check", "layers", "largest difference", "at most", "holds")
    table = plain_table(*titles, right=titles[2:4], whole=titles[:1])
    for (name, holds), group in groupby(checks, key=lambda check: (check.name, check.holds)):
        own = list(group)
        worst = max(own, key=lambda c: (isnan(c.difference), c.difference))
        layers = [str(check.layer) for check in own if check.layer is not None]
        told = layers[0] if len(layers) == 1 else f"{layers[0]}-{layers[-1]}" if layers else "all"
        verdict = Text("yes") if holds else Text("NO", style="bold red")
        difference, tolerance = f"{worst.difference:.2g}", f"{worst.tolerance:g}"
        table.add_row(f"  {name}", told, difference, tolerance, verdict)
    return table


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
