"""Lengths at which a model answers questions about haystacks."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headscope.statistics.ratio import estimate


def accuracies(answers: pd.DataFrame, *, seed: int) -> pd.DataFrame:
    """Accuracy at each length with its 95 % interval over documents, by length.

    Args:
        answers: as `headscope.causal.haystack_answers.haystack_answers` gives them.
        seed: of the resampling.
    """
    rows: list[dict[str, float]] = []
    for length, of_length in answers.groupby("length"):
        by_document = of_length.groupby("document")["correct"]
        sums, counts = by_document.sum().to_numpy(), by_document.count().to_numpy()
        mean, low, high, _ = estimate(sums, counts, seed=seed)
        rows.append({"length": int(length), "accuracy": mean, "low": low, "high": high})
    return pd.DataFrame(rows).set_index("length")


def refused_lengths(accuracy: pd.DataFrame, chance: float) -> dict[int, str]:
    """Lengths at which the interval includes chance, with a note for each."""
    notes: dict[int, str] = {}
    for row in accuracy.reset_index().itertuples(index=False):
        if not row.low > chance:
            ends = "" if np.isnan(row.low) else f" [{row.low:.2f}, {row.high:.2f}]"
            notes[int(row.length)] = (
                f"at {int(row.length):,} tokens the model answers {row.accuracy:.2f}{ends} of the "
                f"questions about haystacks, not above chance ({chance:.2f}): no head was tested "
                "there"
            )
    return notes
