"""What a model is made of."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import pandas as pd

from headscope.studies.anatomy.dimensions import Dimensions
from headscope.studies.anatomy.rows import CacheSize, Check, Parameters
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLUMNS = ["section", "name", "layers", "formula", "value", "counted", "holds"]


@dataclass(frozen=True, eq=False)
class Anatomy(Study):
    """A model's dimensions, parameters and key/value cache, and the checks if asked for."""

    model: str
    counted_from: str
    dimensions: Dimensions
    parameter_rows: tuple[Parameters, ...]
    cache_rows: tuple[CacheSize, ...]
    context: int
    batch: int
    dtype: str
    checks: tuple[Check, ...]
    notes: tuple[str, ...]

    @property
    def table(self) -> pd.DataFrame:
        """A row per number, in four sections: dimensions, parameters, cache and checks.

        `value` is a dimension, a size by formula, bytes, or a check's largest difference; `holds`
        says whether formula and count agree, or whether the check holds.
        """
        numbers = asdict(self.dimensions)
        del numbers["layout"]
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
        rows += [
            ("checks", c.name, c.layer, f"at most {c.tolerance:g}", c.difference, "", c.holds)
            for c in self.checks
        ]
        return pd.DataFrame(rows, columns=COLUMNS, dtype=object)

    @property
    def parameters(self) -> pd.DataFrame:
        """A row per part: its formula, its size by formula, as counted, and whether they agree."""
        rows = [asdict(row) | {"agrees": row.agrees} for row in self.parameter_rows]
        types = {"by_formula": "Int64", "counted": "Int64", "agrees": "boolean"}
        return pd.DataFrame(rows).astype(types)

    @property
    def cache(self) -> pd.DataFrame:
        """A row per number of key/value heads: full, own, single; in bytes."""
        return pd.DataFrame([asdict(row) for row in self.cache_rows])

    @property
    def agrees(self) -> bool:
        """Formula and count are equal wherever both are known."""
        return all(row.agrees is not False for row in self.parameter_rows)

    @property
    def holds(self) -> bool:
        """Every check that was made holds."""
        return all(check.holds for check in self.checks)

    def figure(self) -> Figure:
        """The parameters of each part, in all layers together."""
        from headscope.studies.anatomy.figure import parameters_figure

        return parameters_figure(self)

    def __repr__(self) -> str:
        d = self.dimensions
        return f"<headscope anatomy of {self.model}: {d.layers} layers × {d.heads} heads>"
