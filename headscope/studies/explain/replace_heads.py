"""Replace heads' patterns by those of their feature models, and measure the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, expm1
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from jaxtyping import Int
from numpy import ndarray

from headscope.causal.head_set import Head, heads_by_layer
from headscope.causal.intervention import Intervention
from headscope.causal.loss import TextLoss
from headscope.causal.rerun import Rerunner
from headscope.causal.text_losses import TextLosses, loss_score, text_losses_by_batch
from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.measure.study_windows import evenly, token_count
from headscope.models.model import Model
from headscope.options import Device, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun, model_or_run, run_named, text_of
from headscope.runs.recorded_paths import name_of
from headscope.statistics.ratio import rise
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.explanation import (
    FEATURES,
    LENGTH,
    SPREAD,
    WINDOWS,
    FeatureLimit,
    TextSource,
    WindowLimit,
    fit_models,
    read_split_windows,
)
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.feature_model import FeatureModel
from headscope.studies.explain.stand_ins import (
    FEATURE_MODEL,
    FeatureLogits,
    StandIns,
    means_by_distance,
    replacement,
)
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import Lines
from headscope.views.study_result import StudyResult

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHARES = (0.1, 0.25, 0.5, 1.0)
DRAWS = 5
TITLE_SHARE = 0.25
"""Share of heads that the title of the result states."""
RANDOM, BEST = "random", "best explained"
OF_PERPLEXITY = ("perplexity", "lowest", "highest", "increase")
"""Columns that are empty for encoders."""


STUDY = Study(
    rows="replacement × order × share of heads",
    columns=table_columns("""
        replacement | `feature model`, `other head`, `sink and distance`, `distance`, `first token`
            or `uniform` | what replaces the patterns: the head's own feature model, that of the
            next head of its layer, its mean share on the first token and its mean pattern by
            distance on other keys, its mean pattern by distance, all attention on the first token,
            or equal attention on all keys
        order | `random` or `best explained` | the order in which heads are replaced; at random the
            mean over the draws
        share | (0, 1] | share of heads replaced
        heads | count, ≥ 1 | number of replaced heads
        draws | count, ≥ 1 | number of random sets of heads
        loss | nats per token, ≥ 0 | mean loss on documents that are used neither to fit feature
            models nor to choose their features; for an encoder the distance of its last states from
            the untouched model's, in lengths of the latter
        rise | as loss | above the untouched model's
        ci_low, ci_high | as loss | ends of the rise's 95 % interval over documents
        perplexity | ≥ 1 | e^loss; empty for encoders
        lowest, highest | ≥ 1 | range of the perplexity over the draws
        increase | % | of the perplexity above the untouched model's, 100 · (e^rise − 1)
        over_model | as loss | loss above that with the heads' own feature models; empty for those
        over_low, over_high | as loss | ends of its 95 % interval over documents
    """),
    figure=Lines(
        x="share",
        y="perplexity",
        by="replacement",
        panels=("order",),
        band=("lowest", "highest"),
        is_logarithmic=True,
    ),
    bad_call={"features": 65},
)
_OF_ENCODERS = Lines(x="share", y="loss", by="replacement", panels=("order",))


@study(STUDY)
def replace_heads(
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
    """Replace the patterns of 10, 25, 50 and 100 % of the heads by those of their feature models.

    A pattern is computed from the text by the fitted feature model while the model runs; values and
    W_O stay the model's. Heads are replaced in five random orders, and best explained first. The
    same heads are also replaced by simpler patterns and by the feature model of another head.
    Losses are measured on documents that `explain` does not read, or, in a text without further
    documents, on those that judge the feature models.

    The surrogates of `classify` are not among the replacements: they are models of words' last
    tokens and of whole words as keys, and give no pattern over tokens.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        CorpusError: the text cannot be read, or is too short.
    """
    run = run_named(model, revision=revision)
    corpora = asked_corpora(text_of(run, corpus, seed=seed))
    with progress_bar(progress, "replacing heads", unit="steps") as bar:
        loaded, _ = model_or_run(run or model, revision=revision, device=device)
        Rerunner(loaded, loss_score(loaded))  # fails before any text is read
        parts, notes = read_split_windows(loaded, corpora, windows=windows, seed=seed)
        # losses are measured on documents that no model was fitted on
        unseen = _unseen_windows(loaded, corpora, windows=windows, seed=seed)
        if not unseen:
            unseen = parts[2]
            notes.append(
                "the text has no further documents: losses are measured on those that judge the "
                "feature models"
            )
        relations = relations_of([ALL], loaded.attention_kind)
        lexicon = TokenFacts.of(parts[0])
        texts = Texts.of(parts, lexicon, relations)
        models = fit_models(loaded, texts, features, Steps(bar, len(loaded.attention_layers)))
        # what stands in the place of a pattern, feature models first
        stand_ins = StandIns(
            features=FeatureLogits(models, lexicon, relations, loaded),
            means=means_by_distance(loaded, [*parts[0], *parts[1]]),
            attention_kind=loaded.attention_kind,
        )
        # random sets, and the best explained heads
        head_sets = drawn_heads(models, seed=seed)
        changes = len(stand_ins.on(unseen[:1])) * len(head_sets)
        advance = Steps(bar, token_count(unseen) * (1 + changes)).advance
        losses = _losses(loaded, unseen, stand_ins, head_sets, advance)
    documents = np.array([window.document for window in unseen])
    table = _table(losses, head_sets, documents, seed=seed)
    return _result(loaded, table, losses.unchanged, notes)


@dataclass(frozen=True)
class HeadDraw:
    """A set of heads that is replaced."""

    order: str
    share: float
    draw: int = 0


@dataclass(frozen=True)
class _Change:
    """A set of heads, and what replaces their patterns."""

    name: str
    heads: HeadDraw


HeadSets = Mapping[HeadDraw, Sequence[Head]]


def drawn_heads(models: Sequence[FeatureModel], *, seed: int) -> dict[HeadDraw, list[Head]]:
    """Heads of each order, share and draw; all heads are one random set."""
    rng = np.random.default_rng(seed)
    heads = [(model.layer, model.head) for model in models]
    explained = np.array([model.explained.value for model in models])
    best_first = np.argsort(-np.nan_to_num(explained, nan=-np.inf), kind="stable")
    orders = {(RANDOM, draw): rng.permutation(len(heads)) for draw in range(DRAWS)}
    orders[BEST, 0] = best_first
    sets = {HeadDraw(RANDOM, 1.0): heads}
    for (order, draw), numbers in orders.items():
        for share in SHARES[:-1]:
            count = max(1, round(share * len(heads)))
            sets[HeadDraw(order, share, draw)] = [heads[number] for number in numbers[:count]]
    return sets


def _unseen_windows(
    model: Model, corpora: Sequence[str | Path], *, windows: int, seed: int
) -> list[Window]:
    """Windows of documents that follow those which `read_split_windows` reads."""
    # the first documents were read to fit and judge
    tokens_seen = windows * SPREAD
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=2 * tokens_seen,
        max_length=min(LENGTH, model.context),
        seed=seed,
    )
    seen_documents: set[int] = set()
    unseen: list[Window] = []
    tokens = 0
    for window in text:
        if tokens < tokens_seen:
            seen_documents.add(window.document)
        elif window.document not in seen_documents and len(window) > 2:
            unseen.append(window)
        tokens += len(window)
    numbers = evenly(len(unseen), windows // 4)
    spread_windows = [unseen[number] for number in numbers]
    return sorted(spread_windows, key=len, reverse=True)


def _losses(
    model: Model,
    windows: Sequence[Window],
    stand_ins: StandIns,
    head_sets: HeadSets,
    advance: Callable[[int], None],
) -> TextLosses[_Change]:
    """The loss of each window under every replacement of every set of heads."""
    heads_of_draw = {draw: heads_by_layer(heads) for draw, heads in head_sets.items()}

    def changes_of(batch: Sequence[Window]) -> dict[_Change, Intervention]:
        changes: dict[_Change, Intervention] = {}
        for name, logits in stand_ins.on(batch).items():
            for draw, heads in heads_of_draw.items():
                changes[_Change(name, draw)] = replacement(heads, logits)
        return changes

    return text_losses_by_batch(model, windows, changes_of, advance=advance)


def _table(
    losses: TextLosses[_Change],
    head_sets: HeadSets,
    documents: Int[ndarray, " window"],
    *,
    seed: int,
) -> pd.DataFrame:
    """A row per replacement, order and share."""
    # each replacement is compared with feature models in the same heads
    names = dict.fromkeys(change.name for change in losses.changed)
    rows = []
    for name, order, share in product(names, (RANDOM, BEST), SHARES):
        # all heads are the same set in every order
        if share == 1:
            draws = [HeadDraw(RANDOM, share)]
        else:
            draws = [draw for draw in head_sets if (draw.order, draw.share) == (order, share)]
        compared = [] if name == FEATURE_MODEL else draws
        measured = _Measured(
            draws=[losses.changed[_Change(name, draw)] for draw in draws],
            feature_models=[losses.changed[_Change(FEATURE_MODEL, draw)] for draw in compared],
        )
        row = {
            "replacement": name,
            "order": order,
            "share": share,
            "heads": len(head_sets[draws[0]]),
            "draws": len(draws),
        }
        numbers = _numbers(measured, losses.unchanged, documents, seed)
        rows.append(row | numbers)
    return pd.DataFrame(rows, columns=STUDY.names)


def _result(model: Model, table: pd.DataFrame, clean: TextLoss, notes: list[str]) -> StudyResult:
    """The result of a causal model in perplexity, and of an encoder in distances."""
    # a distance of states has no perplexity
    predicts = model.attention_kind.predicts_next
    if not predicts:
        table = table.assign(**dict.fromkeys(OF_PERPLEXITY, np.nan))
    column, unit = ("increase", "% of perplexity") if predicts else ("rise", "distance of states")
    of_models = table[table["replacement"] == FEATURE_MODEL]
    is_stated = (of_models["order"] == RANDOM) & (of_models["share"] == TITLE_SHARE)
    stated = of_models[is_stated].iloc[0]
    before = f"; perplexity {exp(clean.mean):.1f} with their own" if predicts else ""
    # the terminal shows a column for each replacement
    by_replacement = table.pivot_table(
        index=["order", "share"], columns="replacement", values=column, sort=False
    )
    return StudyResult(
        title=f"{name_of(model.name)}: {stated[column]:+.2f} {unit} with feature models in place "
        f"of the patterns of {TITLE_SHARE:.0%} of the heads, drawn at random{before}",
        table=table,
        terminal_table=by_replacement.reset_index(),
        notes=notes,
        values={"loss": clean.mean, "tokens": int(clean.tokens.sum())},
        draw=STUDY.draw if predicts else _draw_distances,
    )


def _draw_distances(result: StudyResult) -> Figure:
    """The figure of an encoder."""
    return _OF_ENCODERS.figure(result.title, result.table)


def _by_document(losses: Sequence[TextLoss], documents: Int[ndarray, " window"]) -> TextLoss:
    """The mean of losses on the same windows, summed over the windows of each document."""
    _, number = np.unique(documents, return_inverse=True)
    nats = np.mean([loss.nats for loss in losses], axis=0)
    return TextLoss(
        nats=np.bincount(number, nats),
        tokens=np.bincount(number, losses[0].tokens).astype(np.int64),
    )


@dataclass(frozen=True, eq=False)
class _Measured:
    """Losses of one row of the table, a loss per draw."""

    draws: Sequence[TextLoss]
    feature_models: Sequence[TextLoss]
    """Draws of the same heads with their own feature models; empty if these are the draws."""


def _numbers(
    measured: _Measured, unchanged: TextLoss, documents: Int[ndarray, " window"], seed: int
) -> dict[str, float]:
    """The numbers of a row."""
    # windows of a document are resampled together
    before = _by_document([unchanged], documents)
    after = _by_document(measured.draws, documents)
    risen = rise(after, before, seed=seed)
    numbers = {
        "loss": after.mean,
        "rise": risen.mean,
        "ci_low": risen.low,
        "ci_high": risen.high,
        "perplexity": exp(after.mean),
        "lowest": exp(min(loss.mean for loss in measured.draws)),
        "highest": exp(max(loss.mean for loss in measured.draws)),
        "increase": 100 * expm1(risen.mean),
    }
    if measured.feature_models:
        of_models = _by_document(measured.feature_models, documents)
        over = rise(after, of_models, seed=seed)
        numbers |= {"over_model": over.mean, "over_low": over.low, "over_high": over.high}
    return numbers
