"""The result of an anatomy: what a model is made of."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.studies.anatomy.anatomy_dimensions import CacheSize, Dimensions
from headscope.studies.anatomy.parameters import Parameters
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["section", "name", "layers", "formula", "value", "counted", "holds"]
_IN_LAYERS = ("attention weights", "feed-forward weights")
_SUMS = ("total", "all layers")


@dataclass(frozen=True, eq=False)
class Anatomy(Study):
    """A model's dimensions, parameters and key/value cache."""

    model: str
    counted_from: str
    dimensions: Dimensions
    parameter_rows: tuple[Parameters, ...]
    cache_rows: tuple[CacheSize, ...]
    context: int
    batch: int
    dtype: str
    notes: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row per number, in three sections: dimensions, parameters and cache.

        `value` is a dimension, a size by formula, or bytes; `holds` is True if formula and count
        agree.
        """
        numbers = asdict(self.dimensions)
        del numbers["tensors"]
        rows: list[tuple[object, ...]] = [
            ("dimensions", name, "", "", value, "", "") for name, value in numbers.items()
        ]
        rows += [
            ("parameters", r.part, r.layers, r.formula, r.by_formula, r.counted, r.agrees)
            for r in self.parameter_rows
        ]
        setting = f"{self.context} tokens x {self.batch} {self.dtype}"
        rows += [
            ("cache", r.variant, "", f"{r.key_value_heads} KV heads, {setting}", r.bytes, "", "")
            for r in self.cache_rows
        ]
        return pd.DataFrame(rows, columns=COLUMNS, dtype=object)

    @property
    def parameters(self) -> pd.DataFrame:
        """A row per part: its formula, its size by formula, as counted, and whether they agree."""
        types = {"by_formula": "Int64", "counted": "Int64", "agrees": "boolean"}
        return pd.DataFrame(self._parameters()).astype(types)

    @property
    def cache(self) -> pd.DataFrame:
        """A row per number of key/value heads: full, own, single; in bytes."""
        return pd.DataFrame([asdict(row) for row in self.cache_rows])

    @property
    def agrees(self) -> bool:
        """Formula and count are equal wherever both are known."""
        return all(row.agrees is not False for row in self.parameter_rows)

    def json(self) -> str:
        """A JSON object with a list per section."""
        settings = {"context": self.context, "batch": self.batch, "dtype": self.dtype}
        content = {
            "model": self.model,
            "counted_from": self.counted_from,
            "dimensions": asdict(self.dimensions),
            "parameters": self._parameters(),
            "cache": settings | {"sizes": [asdict(row) for row in self.cache_rows]},
            "notes": list(self.notes),
        }
        return json.dumps(content, indent=1, ensure_ascii=False) + "\n"

    def figure(self) -> Figure:
        """A bar per part of the whole model, the matrices of all layers together."""
        from matplotlib.figure import Figure

        from headscope.views.summary import short_title

        sizes: dict[str, int] = {}
        layers = self.dimensions.layers
        for row in self.parameter_rows:
            size = row.by_formula if row.counted is None else row.counted
            if row.layers == "each" and row.part in _IN_LAYERS and size:
                sizes[f"{row.part}, {layers} layers"] = size * layers
            elif row.layers == "" and row.part not in _SUMS and size:
                sizes[row.part] = size
        figure = Figure(figsize=(5.6, 1 + 0.35 * len(sizes)), layout="constrained")
        axes = figure.subplots()
        axes.barh(list(sizes), list(sizes.values()), color="#0072b2")
        axes.invert_yaxis()
        axes.set_xlabel("parameters")
        axes.tick_params(labelsize=7)
        axes.set_title(short_title(self.model), fontsize=9)
        return figure

    def _parameters(self) -> list[dict[str, object]]:
        return [asdict(row) | {"agrees": row.agrees} for row in self.parameter_rows]

    def __repr__(self) -> str:
        d = self.dimensions
        return f"<headscope anatomy of {self.model}: {d.layers} layers × {d.heads} heads>"
