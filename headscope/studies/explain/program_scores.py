"""Score a user's programs, a function per head, beside feature models and the first token alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from pydantic import Field
from torch import Tensor

from headscope.causal.head_set import Head
from headscope.corpus.shipped import asked_corpora
from headscope.measure.batches import give_back
from headscope.options import Device, PathName, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun, model_or_run, run_named, text_of
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.content import LayerRows, stream_rows
from headscope.studies.explain.explanation import (
    FEATURES,
    WINDOWS,
    FeatureLimit,
    TextSource,
    WindowLimit,
    read_split_windows,
)
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.feature_model import explain_layer
from headscope.studies.explain.fit import Selector
from headscope.studies.explain.pattern_scores import SCORES, PatternPair, PatternScores, scores
from headscope.studies.explain.programs import Program, read_programs
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_result import StudyResult

SMOOTHING = 0.01
"""Share of uniform attention in the patterns whose bits are scored, except for feature models."""

STUDY = Study(
    rows="head and explanation",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        explanation | `program`, `feature model` or `first token` | what gives the pattern
    """)
    + SCORES,
    bad_call={"programs": "no-such-file.py"},
)


@study(STUDY)
def score_programs(
    model: ModelOrRun,
    programs: Annotated[
        PathName,
        Field(
            description="A Python file of your own, which is run: a function per head, named such "
            "as L5H1, from a list of tokens to a pattern, query by key."
        ),
    ],
    corpus: TextSource = None,
    *,
    features: FeatureLimit = FEATURES,
    windows: WindowLimit = WINDOWS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Score programs of heads beside their feature models, with and without the first token.

    The file is run as Python code: use only files that you trust. Its functions are called with the
    tokens of a window as text, of which the first is usually the beginning-of-text token. They
    return an array `[query key]` ≥ 0. Later keys than the query are ignored and rows are
    normalised; a row of zeros counts as uniform in `explained`, and has no attention in the other
    scores. Other functions of the file are helpers.

    For `explained`, programs and the first token are mixed with 1 % of uniform attention, because
    the divergence is infinite where an explanation has no attention and the head has.

    Raises:
        HeadscopeError: the file cannot be run, has no function for a head, or a function returns no
            such array.
        RunError: the model has no such head.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or is too short.
    """
    run = run_named(model, revision=revision)
    corpora = asked_corpora(text_of(run, corpus, seed=seed))
    program_of_head = read_programs(Path(programs))
    loaded, _ = model_or_run(run or model, revision=revision, device=device)
    for head in program_of_head:
        loaded.check_head(*head)
    parts, notes = read_split_windows(loaded, corpora, windows=windows, seed=seed)
    relations = relations_of([ALL], loaded.attention_kind)
    texts = Texts.of(parts, TokenFacts.of(parts[0]), relations)
    scorer = _Scorer(texts, Selector(texts), program_of_head, features)
    rows: list[dict[str, object]] = []
    with progress_bar(progress, "scoring programs", unit="layers") as bar:
        steps = Steps(bar, len(loaded.attention_layers))

        def score(layer: LayerRows) -> None:
            rows.extend(scorer.rows(layer))
            give_back()
            steps.advance()

        stream_rows(loaded, texts, score)
    table = pd.DataFrame(rows, columns=STUDY.names)
    of_programs = table[table["explanation"] == "program"]
    mean = of_programs[["iou", "iou_rest"]].mean()
    return StudyResult(
        title=f"{loaded.name}: programs have an intersection over union of {mean['iou']:.2f}, and "
        f"of {mean['iou_rest']:.2f} without the first token, mean over {len(of_programs)} heads",
        table=table,
        notes=notes,
        values=mean.to_dict(),
    )


@dataclass(frozen=True, eq=False)
class _Scorer:
    """Explanations of the heads that have a program, scored layer by layer."""

    texts: Texts
    selector: Selector
    programs: Mapping[Head, Program]
    features: int

    def rows(self, all_heads: LayerRows) -> list[dict[str, object]]:
        """The rows of the heads of a layer that have programs."""
        layer = all_heads.layer
        heads = sorted(head for of_layer, head in self.programs if of_layer == layer)
        if not heads:
            return []
        of_heads = all_heads.of(heads)
        models = explain_layer(self.texts, self.selector, of_heads, features=self.features)
        rows = []
        for head, attention_of_head, fitted in zip(heads, of_heads.attention, models, strict=True):
            judged = attention_of_head[self.texts.judged]
            by_explanation = {
                "program": self._scores(judged, self._by_program((layer, head))),
                "feature model": fitted.scores,
                "first token": self._scores(judged, _on_first_token(judged)),
            }
            for explanation, agreement in by_explanation.items():
                names = {"layer": layer, "head": head, "explanation": explanation}
                rows.append(names | agreement.columns())
        return rows

    def _scores(self, attention: Tensor, pattern: Tensor) -> PatternScores:
        seen = self.texts.seen[self.texts.judged]
        return scores(PatternPair(attention, pattern, seen), smoothing=SMOOTHING)

    def _by_program(self, head: Head) -> Float[Tensor, "row key"]:
        """The program's pattern on the rows that judge."""
        texts = self.texts
        window_of_row = texts.window[texts.judged].numpy()
        query_of_row = texts.query[texts.judged].numpy()
        pattern = np.zeros((len(window_of_row), texts.width))
        for index in np.unique(window_of_row):
            window = texts.windows[index]
            is_here = window_of_row == index
            of_window = self.programs[head].pattern(window)
            pattern[is_here, : len(window)] = of_window[query_of_row[is_here]]
        return torch.from_numpy(pattern).float()


def _on_first_token(attention: Float[Tensor, "row key"]) -> Float[Tensor, "row key"]:
    pattern = torch.zeros_like(attention)
    pattern[:, 0] = 1
    return pattern
