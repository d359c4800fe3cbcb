"""How often tags for writes are right, on models whose heads write what was planted in them."""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.corpus.controlled.lists import IN_ORDER
from headscope.corpus.controlled.prompts import draws
from headscope.corpus.controlled.sentences import controlled_corpus
from headscope.evidence.result import Result
from headscope.measure.stimuli import MOST_DOCUMENTS
from headscope.pipeline import classify
from headscope.studies.validation.planted_writers import planted_heads, save_writers
from headscope.studies.validation.words import vocabulary
from headscope.studies.validation.writer_layouts import LAYOUTS

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
    tell: Callable[[str], None] = lambda _: None,
) -> pd.DataFrame:
    """Classify hand-built models by what their heads write, at several levels of noise.

    Without the twin: the shuffled matrices of a model that is all planted are no baseline.

    Returns:
        A row per layout × noise × head: `layout`, `noise`, `name`, `relation` (the kind of write
        that it must earn, empty for a lazy head), `type`, `lift` over its first control in logits,
        `found`, `tags` and `false` (those that are not true of it), each joined by `;`.
    """
    corpus = controlled_corpus(DOCUMENTS, seed=SEED)
    sentences = [x.removeprefix("# text = ") for x in corpus.split("\n") if x.startswith("# text")]
    words = vocabulary([*sentences, *_asked()])
    counts = Counter(word for text in sentences for word in re.findall(r"\w+|[^\w\s]", text))
    frequent = [word for word, _ in counts.most_common(FREQUENT)]
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
        file = Path(folder) / "controlled.conllu"
        file.write_text(corpus, encoding="utf-8")
        for layout in layouts:
            for noise in noises:
                tell(f"planted {layout}, noise {noise:g}")
                place = Path(folder) / f"{layout}-{noise}"
                run = classify(
                    str(save_writers(layout, words, frequent, place, noise=noise)),
                    file,
                    max_tokens=MAX_TOKENS,
                    max_length=MAX_LENGTH,
                    device=device,
                    examples=False,
                    twin=False,
                    writes=True,
                )
                rows += [{"layout": layout, "noise": noise, **row} for row in score_writers(run)]
    return pd.DataFrame(rows)


def score_writers(run: Result) -> Iterator[dict[str, Any]]:
    """For each planted head what it earned, against what is true of it."""
    table = run.effects
    if table is None:
        raise ValueError("what heads write was not measured")
    for (layer, place), head in planted_heads().items():
        own = table[(table["layer"] == layer) & (table["head"] == place)]
        tags = sorted(set(own.loc[own["tagged"].astype(bool), "type"]))
        asked = own.loc[own["type"] == head.earns, "lift"]
        yield {
            "name": head.name,
            "relation": head.earns,
            "type": head.earns or "lazy",
            "lift": float(asked.iloc[0]) if len(asked) else float("nan"),
            "found": head.earns in tags,
            "tags": ";".join(tags),
            "false": ";".join(tag for tag in tags if tag not in (head.earns, *head.may)),
        }


def _asked() -> Iterator[str]:
    """Texts that hold every word of the prompts."""
    for _, prompts in draws(MOST_DOCUMENTS, seed=0):
        for each in prompts:
            yield " ".join([each.text, *each.right, *each.wrong, *each.other])
    for members in IN_ORDER.values():
        yield " ".join(members)
