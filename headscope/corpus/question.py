"""The question about the next token that a built text asks."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Int
from numpy import ndarray


@dataclass(frozen=True, eq=False)
class Question:
    """At one token of a window: which tokens fit next, and which do not."""

    kind: str
    """What it is about, e.g. `successor`."""
    query: int
    """The token's position."""
    right: Int[ndarray, " right"]
    """Tokens that fit next, as the model numbers them."""
    wrong: Int[ndarray, " wrong"]
    """Tokens that would fit but for what the question is about."""
    other: Int[ndarray, " other"] = field(default_factory=lambda: np.empty(0, np.int64))
    """Further ones, which are wrong for another reason; none where one kind is enough."""
