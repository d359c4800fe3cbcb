"""What an anatomy says, one row each: plain values that tables, CSV and JSON are made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameters:
    """The parameters of one part, by formula from the configuration and as counted from tensors."""

    part: str
    layers: str
    """`each`, a range such as `0-4`, or empty for a part of the whole model."""
    formula: str
    by_formula: int | None
    """None where no formula is known for this model type."""
    counted: int | None
    """None where no tensor's name was recognised as this part."""

    @property
    def agrees(self) -> bool | None:
        """Whether formula and count are equal; None where one of them is missing."""
        if self.by_formula is None or self.counted is None:
            return None
        return self.by_formula == self.counted


@dataclass(frozen=True)
class CacheSize:
    """What keys and values of past tokens take, for a number of key/value heads."""

    variant: str
    """`full`: as many key/value heads as heads; `own`: the model's own number; `single`: one."""
    key_value_heads: int
    bytes_per_token: int
    bytes: int


@dataclass(frozen=True)
class Check:
    """One thing asked of a model, and how far it was from holding."""

    name: str
    layer: int | None
    """None for a check of the whole model."""
    difference: float
    """The largest that was found."""
    tolerance: float

    @property
    def holds(self) -> bool:
        """NaN holds nothing."""
        return self.difference <= self.tolerance
