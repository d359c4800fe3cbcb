"""Models that are classified one after the other, each with a line and a part of the progress."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.classification import classify
from headscope.corpus.shipped import listed
from headscope.measure.progress import OnMessage, Progress
from headscope.statistics.result import Result


@dataclass(frozen=True)
class ModelSeries:
    """The way the models of a calibration are read, and who hears of it."""

    on_message: OnMessage = lambda line: None
    progress: Callable[[], Progress] = lambda: False
    """The progress of the next model."""

    def classify(
        self, model: Path, corpus: str | Path | Iterable[str] | None, **settings: Any
    ) -> Result:
        """Classify the next model, without examples."""
        texts = listed(corpus) or None
        return classify(str(model), texts, progress=self.progress(), examples=False, **settings)

    def classify_planted(
        self,
        corpus: str,
        grid: Iterable[tuple[str, float]],
        save: Callable[[str, float, Path], Path],
        score: Callable[[Result], Iterable[dict[str, Any]]],
        **settings: Any,
    ) -> pd.DataFrame:
        """Classify a planted model of each layout and level of noise.

        Args:
            corpus: the text that they read, as CoNLL-U.
            grid: layouts with noises.
            save: writes the model of a layout and a noise into a folder.
            score: the rows of a run.
            settings: of `classify`.

        Returns:
            `layout` and `noise`, then what `score` says of each head.
        """
        rows: list[dict[str, Any]] = []
        with tempfile.TemporaryDirectory(prefix="headscope-") as folder:
            file = Path(folder) / "controlled.conllu"
            file.write_text(corpus, encoding="utf-8")
            for layout, noise in grid:
                self.on_message(f"planted {layout}, noise {noise:g}")
                model = save(layout, noise, Path(folder) / f"{layout}-{noise}")
                run = self.classify(model, file, **settings)
                rows += [{"layout": layout, "noise": noise, **row} for row in score(run)]
        return pd.DataFrame(rows)


SILENT = ModelSeries()
"""Nobody hears of them."""
