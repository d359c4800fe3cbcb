"""Memory of the key/value cache of one text, and the share of it that streaming heads save."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.models.layout.dimensions import bytes_per_key
from headscope.models.load import Model
from headscope.studies.streaming.streaming_heads import SinkWindow

DTYPE = "float16"
"""In which caches are reckoned, as `anatomy` does."""


@dataclass(frozen=True)
class Cache:
    """Cache of one text of `length` tokens; key/value heads are numbered through all layers."""

    length: int
    per_key: int
    """Bytes of one token in one key/value head: a key and a value, in half precision."""
    full_keys: Int[ndarray, " key_value"]
    """Keys that each head keeps now: all of them, or as many as its layer's own window has."""
    streaming_keys: Int[ndarray, " key_value"]
    """Keys that it keeps when it streams."""

    @property
    def bytes(self) -> int:
        """Bytes of the whole cache, with no head streaming."""
        return int(self.full_keys.sum()) * self.per_key

    def saved_bytes(self, heads: Int[ndarray, " streaming"]) -> int:
        """Bytes that are not needed when these heads stream."""
        return int((self.full_keys - self.streaming_keys)[heads].sum()) * self.per_key

    def saved(self, heads: Int[ndarray, " streaming"]) -> float:
        """The same as a share of the cache, in [0, 1)."""
        return self.saved_bytes(heads) / self.bytes


def cache_of(
    model: Model, window: SinkWindow, visible_keys: Int[ndarray, " layer"], *, length: int
) -> Cache:
    """The cache of a text of so many tokens.

    Args:
        model: of the fused engine, whose layers and heads they are.
        window: the keys that a streaming head keeps.
        visible_keys: keys that a query of each layer sees at most.
        length: in tokens.
    """
    engine: Any = model.engine
    per_key = bytes_per_key(engine.dimensions.d_head, DTYPE)
    full_keys = np.minimum(visible_keys, length).repeat(model.key_value_heads)
    return Cache(length, per_key, full_keys, np.minimum(full_keys, window.reach))
