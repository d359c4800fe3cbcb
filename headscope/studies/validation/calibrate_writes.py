"""Calibration of tags for writes, on models whose heads write what was planted in them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.corpus.controlled.lists import IN_ORDER
from headscope.corpus.controlled.prompts import draws
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.statistics.result import Result
from headscope.stimuli.stimulus import MAX_DOCUMENTS
from headscope.studies.validation.model_series import SILENT, ModelSeries
from headscope.studies.validation.planted_words import sentence_texts, vocabulary
from headscope.studies.validation.planted_writers import LAYOUTS, planted_heads, save_writers

NOISES = (0.0, 0.1, 0.2)
DOCUMENTS, SEED = 24, 21
MAX_TOKENS, MAX_LENGTH = 4_000, 128
FREQUENT = 8
"""Words of the text that a head raises wherever it looks."""


def calibrate_planted_writers(
    *,
    layouts: Sequence[str] = LAYOUTS,
    noises: Sequence[float] = NOISES,
    device: str = "auto",
    series: ModelSeries = SILENT,
) -> pd.DataFrame:
    """Classify hand-built models by what their heads write, at several levels of noise.

    Without the twin: the shuffled matrices of a model that is all planted are no baseline.

    Returns:
        A row per layout × noise × head: `layout`, `noise`, `name`, `relation` (the kind of write
        that it must earn, empty for a lazy head), `type`, `lift` over its first control in logits,
        `found`, `tags` and `false` (those that are not true of it), each joined by `;`.
    """
    corpus = controlled_corpus(DOCUMENTS, seed=SEED)
    sentences = sentence_texts(corpus)
    words = vocabulary([*sentences, *_query_words()])
    counts = Counter(word for text in sentences for word in re.findall(r"\w+|[^\w\s]", text))
    frequent = [word for word, _ in counts.most_common(FREQUENT)]

    def save(layout: str, noise: float, folder: Path) -> Path:
        return save_writers(layout, words, frequent, folder, noise=noise)

    return series.classify_planted(
        corpus,
        product(layouts, noises),
        save,
        score_writers,
        max_tokens=MAX_TOKENS,
        max_length=MAX_LENGTH,
        device=device,
        twin=False,
        writes=True,
    )


def score_writers(run: Result) -> Iterator[dict[str, Any]]:
    """For each planted head what it earned, against what is true of it."""
    table = run.effects
    if table is None:
        raise ValueError("what heads write was not measured")
    for (layer, index), head in planted_heads().items():
        evidence = table[(table["layer"] == layer) & (table["head"] == index)]
        tags = sorted(set(evidence.loc[evidence["tagged"].astype(bool), "type"]))
        lift = evidence.loc[evidence["type"] == head.earns, "lift"]
        yield {
            "name": head.name,
            "relation": head.earns,
            "type": head.earns or "lazy",
            "lift": float(lift.iloc[0]) if len(lift) else float("nan"),
            "found": head.earns in tags,
            "tags": ";".join(tags),
            "false": ";".join(tag for tag in tags if tag not in (head.earns, *head.may)),
        }


def _query_words() -> Iterator[str]:
    """Texts that hold every word of the prompts."""
    for _, prompts in draws(MAX_DOCUMENTS, seed=0):
        for prompt in prompts:
            yield " ".join([prompt.text, *prompt.right, *prompt.wrong, *prompt.other])
    for members in IN_ORDER.values():
        yield " ".join(members)
