"""Explain each head by a feature model: a softmax over keys of weighted features of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.heads import head_name
from headscope.measure.batches import give_back
from headscope.measure.study_windows import evenly
from headscope.models.model import Model
from headscope.options import LARGEST, Device, Paths, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun, model_or_run, run_named, text_of
from headscope.statistics.columns import (
    EXPLAINED_COLUMNS,
    FEATURE_MODEL_COLUMNS,
    HEAD_COLUMNS,
    SCORE_COLUMNS,
)
from headscope.statistics.result import Result, by_name
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.explain.catalogue import SplitWindows, Texts
from headscope.studies.explain.content import LayerRows, stream_rows
from headscope.studies.explain.feature_model import FeatureModel, explain_layer
from headscope.studies.explain.fit import Selector
from headscope.studies.explain.pattern_scores import SCORES
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_result import StudyResult

FEATURES, WINDOWS = 12, 56
TextSource = Annotated[
    Paths | None,
    Field(description="Files or folders of text. Default: those of the run, or gum."),
]
FeatureLimit = Annotated[
    int, Field(ge=1, le=64, description="Maximum number of features of a model.")
]
WindowLimit = Annotated[
    int, Field(ge=8, le=LARGEST, description="Windows of text, for fitting and for testing.")
]
LENGTH = 128
"""Tokens of a window: most attention is nearer, and the number of cells grows as the square."""
SPREAD = 1_200
"""Tokens of text per window, so that windows come from many documents."""
POOR = 0.6
"""Share of the bits below which a head's unexplained attention is listed."""
PARTS = 4
"""Documents of a group: two fit, one chooses and one judges."""
BY_HEAD = [
    *("layer", "head", "bits", "position", "explained", "ci_low", "ci_high"),
    *("explained_rest", "iou", "iou_rest", "feature_model"),
]


STUDY = Study(
    command=Command(
        group="top",
        summary="Fit a small feature model to each head.",
        examples=(
            "headscope explain mini --out feature_model.csv",
            'headscope explain mini L5H1 --at "The king lost his ring, and the king wept."',
            "headscope explain mini --replace --out replaced.csv --figure replaced.png",
        ),
        figure="With --replace: draw the perplexity: a .png, .svg or .pdf file.",
    ),
    rows="head and feature of its model, the feature with the most unique bits first",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        explained | ≤ 1 | share of the bits between uniform attention and the head's own that the
            whole model explains, on documents used neither to fit nor to choose it
        place | count, ≥ 1 | 1 for the feature with the most unique bits
        feature | a name | `token 0`, `offset-1`, `key NOUN`, `nearest-VERB`, a relation such as
            `syntactic/obj:dep>head`, `bigrams` with the pairs of query and key whose attention
            it raises most, …
        kind | `sink`, `position`, `delimiter`, `lexical`, `induction`, `syntactic`, `coreference`,
            `semantic`, or a type of a plugin | type that attention on the feature counts as
        queries | a kind of word | queries at which the feature applies; empty for every query
        weight | logits | weight in the softmax: a key with the feature is preferred by a factor of
            e^weight
        unique | ≤ 1 | share of the bits that is lost without it
        ci_low, ci_high | ≤ 1 | ends of the 95 % interval of `unique`, over documents
    """)
    + SCORES[1:],
    bad_call={"features": 65},
)


@study(STUDY)
def explain(
    model: ModelOrRun,
    corpus: TextSource = None,
    *,
    features: FeatureLimit = FEATURES,
    windows: WindowLimit = WINDOWS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Fit a feature model to each head, and measure how much of the head's attention it explains.

    A feature model is a softmax over keys of a weighted sum of named features of query and key. It
    is fitted to the head's attention by cross-entropy on half of the documents; its features are
    chosen on a quarter, and what it explains is measured on the rest: 1 − KL(head ‖ model) /
    KL(head ‖ uniform), 1 for a feature model that equals the head and 0 for one that is no better
    than uniform attention.

    The terminal shows a row per head: its `bits` per query, the shares of them that sinks and
    distance alone (`position`) and the model (`explained`) explain, and the `feature_model`.

    The scores are also computed without the first token, on which most attention of causal models
    is: patterns are renormalised without it, and a query has the weight of the head's attention on
    the other keys.

    Raises:
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or is too short.
    """
    with progress_bar(progress, "explaining heads", unit="layers") as bar:
        loaded, corpora = model_and_corpora(
            model, corpus, revision=revision, device=device, seed=seed
        )
        split, notes = read_split_windows(loaded, corpora, windows=windows, seed=seed)
        texts = Texts.of(split, relations_of([ALL], loaded.attention_kind))
        steps = Steps(bar, len(loaded.attention_layers))
        models = fit_models(loaded, texts, features, steps)
    # the terminal shows a row for each head; files have one for each of its features
    head_rows = []
    for fitted in models:
        row = {
            "layer": fitted.layer,
            "head": fitted.head,
            "bits": fitted.bits,
            "position": fitted.position,
            "ci_low": fitted.explained.low,
            "ci_high": fitted.explained.high,
            "feature_model": fitted.sentence,
        }
        head_rows.append(row | fitted.scores.columns())
    by_head = pd.DataFrame(head_rows, columns=BY_HEAD)
    term_rows = [row for fitted in models for row in _term_rows(fitted)]
    mean = by_head[["position", "explained", "explained_rest", "iou", "iou_rest"]].mean()
    # what poorly explained heads attend to that no feature names, the worst head first
    poor = [fitted for fitted in models if fitted.explained.value < POOR]
    poor.sort(key=lambda fitted: fitted.explained.value)
    poor_notes = [
        f"{head_name(fitted.layer, fitted.head)}: {fitted.explained.value:.2f} of its bits are "
        f"explained; no feature names {fitted.unexplained}"
        for fitted in poor
    ]
    return StudyResult(
        title=f"{loaded.name}: feature models explain {mean['explained']:.2f} of a head's bits "
        f"(sinks and distance alone {mean['position']:.2f}), and {mean['explained_rest']:.2f} "
        f"without the first token, mean over {len(models)} heads",
        table=pd.DataFrame(term_rows, columns=[*FEATURE_MODEL_COLUMNS, *SCORE_COLUMNS]),
        terminal_table=by_head,
        notes=[*notes, *poor_notes],
        values=mean.to_dict(),
    )


def _term_rows(fitted: FeatureModel) -> list[dict[str, object]]:
    """The rows of a head's features."""
    rows = []
    # the worth of a feature is its own, and the scores are those of the whole model
    for rank, term in enumerate(fitted.terms, start=1):
        row: dict[str, object] = {
            "layer": fitted.layer,
            "head": fitted.head,
            "place": rank,
            "feature": term.name,
            "kind": term.feature.kind,
            "queries": term.queries,
            "weight": term.weight,
            "unique": term.unique.value,
            "ci_low": term.unique.low,
            "ci_high": term.unique.high,
            **fitted.scores.columns(),
        }
        rows.append(row)
    return rows


def model_and_corpora(
    model: ModelOrRun, corpus: TextSource, *, revision: str | None, device: str, seed: int
) -> tuple[Model, list[str | Path]]:
    """The model that is meant, and the corpora that were given or that its run read.

    Raises:
        ModelError: the model cannot be loaded.
        CorpusError: a corpus cannot be read.
    """
    # a text that cannot be read is refused before the model is loaded
    run = run_named(model, revision=revision)
    corpora = asked_corpora(text_of(run, corpus, seed=seed))
    loaded, _ = model_or_run(run or model, revision=revision, device=device)
    return loaded, corpora


def read_split_windows(
    model: Model, corpora: Sequence[str | Path], *, windows: int, seed: int
) -> tuple[SplitWindows, list[str]]:
    """Windows spread over corpora that fit, choose and judge, and notes.

    Raises:
        CorpusError: a corpus cannot be read, or has fewer than four windows.
    """
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=windows * SPREAD,
        max_length=min(LENGTH, model.context),
        seed=seed,
    )
    # windows of two tokens have nothing to explain
    windows_read = [window for window in text if len(window) > 2]
    notes = []
    if len({window.document for window in windows_read}) < 2 * PARTS:
        notes.append(
            f"fewer than {2 * PARTS} documents: each window counts as one, and intervals are too "
            "narrow"
        )
        windows_read = [replace(window, document=i) for i, window in enumerate(windows_read)]
    # three parts of the text must differ: a model that is chosen on what it was fitted to has too
    # many features
    if len(windows_read) < PARTS:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: {len(windows_read)} windows of text; a model needs "
            f"at least {PARTS}, because it is fitted, chosen and judged on different ones"
        )
    # documents are dealt, so that no document both fits and judges
    documents = sorted({window.document for window in windows_read})
    part = {document: number % PARTS for number, document in enumerate(documents)}
    # half of the windows fit, a quarter chooses and a quarter judges
    fit = [window for window in windows_read if part[window.document] in (0, 1)]
    choose = [window for window in windows_read if part[window.document] == 2]
    judge = [window for window in windows_read if part[window.document] == 3]
    split = SplitWindows(
        fit=_spread(fit, windows // 2),
        choose=_spread(choose, windows // 4),
        judge=_spread(judge, windows // 4),
    )
    return split, notes


def _spread(windows: Sequence[Window], count: int) -> list[Window]:
    """Some windows at even distances, at least one."""
    return [windows[number] for number in evenly(len(windows), max(1, count))]


def explained_run(run: Result, explanation: StudyResult) -> Result:
    """A run with its feature models, and their columns in the table of heads."""
    columns = by_name(explanation.printed_table)[EXPLAINED_COLUMNS]
    heads = run.heads[HEAD_COLUMNS].join(columns)
    return replace(run, heads=heads, feature_models=explanation.table)


def fit_models(model: Model, texts: Texts, features: int, steps: Steps) -> list[FeatureModel]:
    """Fit the feature models of every layer while the model runs."""
    selector = Selector(texts)
    models: list[FeatureModel] = []

    def explain_heads(rows: LayerRows) -> None:
        models.extend(explain_layer(texts, selector, rows, features=features))
        give_back()
        steps.advance()

    stream_rows(model, texts, explain_heads)
    return models
