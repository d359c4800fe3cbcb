"""Gates of key/value heads that somebody else has published, as DuoAttention trains them.

Xiao et al. 2024 (arXiv 2410.10819) learn a gate for each key/value head: the larger, the more it
loses by streaming. Their files are a row per layer and a column per key/value head.
"""

from __future__ import annotations

import csv
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import HeadscopeError
from headscope.runs.user_file import given_file

METRIC = "duo_attention_gate_kv_head"
_NEEDED = ["layer", "head", "value"]
_WOULD_DO = (
    "a row per layer with a number per key/value head, apart by tabs or commas, or a table with "
    "the columns layer, head, value"
)


def read_gates(
    path: str | Path, name: str, layers: int, heads: int
) -> Float[ndarray, " key_value"]:
    """The gates of a model's key/value heads, numbered through all layers.

    Args:
        path: numbers alone, a row per layer; or a table, of which the rows of this model's name
            and of the metric `duo_attention_gate_kv_head` count where it has such columns: one that
            names other models alone is refused.
        name: the model's, as a path or a name on the hub.
        layers: its layers with attention.
        heads: its key/value heads in each.

    Raises:
        HeadscopeError: it cannot be read, is of another shape, or of other models.
    """
    raw = given_file(path, _WOULD_DO)
    try:
        text = raw.decode("utf-8-sig")
    except ValueError as error:
        raise HeadscopeError(f"{path}: cannot be read (no text); give {_WOULD_DO}") from error
    delimiter = "\t" if "\t" in text.partition("\n")[0] else ","
    rows = [row for row in csv.reader(StringIO(text), delimiter=delimiter) if row]
    try:
        if rows and set(_NEEDED) <= set(rows[0]):
            gates = _of_table(pd.DataFrame(rows[1:], columns=rows[0]), name, path)
        else:
            gates = np.array(rows, float)
    except ValueError as error:
        raise HeadscopeError(f"{path}: {error!s:.200}; give {_WOULD_DO}") from error
    if gates.shape != (layers, heads):
        has = " × ".join(map(str, gates.shape)) or "no"
        raise HeadscopeError(
            f"{path}: holds {has} gates, and {name} has {layers} layers × {heads} key/value heads"
        )
    if not np.isfinite(gates).all():
        raise HeadscopeError(f"{path}: a gate is no finite number; give {_WOULD_DO}")
    return gates.ravel()


def _of_table(table: pd.DataFrame, name: str, path: str | Path) -> Float[ndarray, "layer head"]:
    if "metric" in table:
        table = table[table["metric"] == METRIC]
    models = sorted({*table["model"]} - {""}) if "model" in table else []
    if models:
        last = table["model"].str.rsplit("/").str[-1].str.lower()
        table = table[last == Path(name).name.lower()]
        if table.empty:
            raise HeadscopeError(
                f"{path}: has gates of {', '.join(models):.300}, none of {name}; if those of one "
                "are this model's under another name, keep its rows without the column model"
            )
    wide = table.astype({"layer": int, "head": int, "value": float})
    if wide.duplicated(["layer", "head"]).any():
        raise ValueError("a head has two gates")
    return np.asarray(wide.pivot(index="layer", columns="head", values="value"))
