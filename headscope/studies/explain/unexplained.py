"""Attention that a feature model does not explain, by the keys that it is on."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.printing import one_line
from headscope.studies.explain.catalogue import GATES, Texts, kinds_of_tokens

LISTED = 3
"""Number of tokens and of classes that are listed."""
FIRST_TOKEN = "first token"


@dataclass(frozen=True)
class Unexplained:
    """Attention above that of the feature model, mean per query, in [0, 1]."""

    total: float
    by_class: dict[str, float]
    """By the key's kind: `first token` or one of `GATES`; the `LISTED` largest."""
    by_token: dict[str, float]
    """By the key's token, without the first one; the `LISTED` largest."""

    def __str__(self) -> str:
        classes = ", ".join(f"{name} {mass:.2f}" for name, mass in self.by_class.items())
        tokens = ", ".join(
            f"“{one_line(token.strip()) or 'space'}” {mass:.2f}"
            for token, mass in self.by_token.items()
        )
        return f"{self.total:.2f} of its attention ({classes}; tokens {tokens})"


def unexplained(
    texts: Texts, attention: Float[Tensor, "row key"], pattern: Float[Tensor, "row key"]
) -> Unexplained:
    """Attention of a head above its feature model's, on the rows that judge.

    Args:
        texts: windows and their rows.
        attention: the head's attention on the rows that judge.
        pattern: the feature model's.
    """
    excess = (attention - pattern).clamp_min(0).double().numpy()
    window_of_row = texts.window[texts.judged].numpy()
    by_class: dict[str, float] = defaultdict(float)
    by_token: dict[str, float] = defaultdict(float)
    for index in np.unique(window_of_row):
        window = texts.windows[index]
        of_key = excess[window_of_row == index].sum(0)[: len(window)]
        kinds = [GATES[kind] for kind in kinds_of_tokens(window).tolist()]
        kinds[0] = FIRST_TOKEN
        _add(by_class, kinds, of_key)
        _add(by_token, window.strings[1:], of_key[1:])
    rows = len(excess)
    return Unexplained(
        total=float(excess.sum()) / rows,
        by_class=_largest(by_class, rows),
        by_token=_largest(by_token, rows),
    )


def _add(masses: dict[str, float], names: Sequence[str], values: Float[ndarray, " key"]) -> None:
    for name, value in zip(names, values.tolist(), strict=True):
        masses[name] += value


def _largest(masses: Mapping[str, float], rows: int) -> dict[str, float]:
    """The `LISTED` largest masses, mean per row."""
    order = sorted(masses, key=lambda name: -masses[name])
    return {name: masses[name] / rows for name in order[:LISTED]}
