"""Replace heads' patterns by those of their feature models, and measure the loss.

What stands in the place of a pattern is computed from tokens, annotation and what was fitted on
other documents, never from the attention of the model on the windows that are run.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from math import exp, expm1
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.attention_kind import AttentionKind
from headscope.causal.head_set import Head, heads_by_layer
from headscope.causal.intervention import (
    HeadPatterns,
    Intervention,
    Replacement,
    softmax_over_visible,
)
from headscope.causal.loss import TextLoss
from headscope.causal.rerun import Rerunner
from headscope.causal.text_losses import TextLosses, loss_score, text_losses_by_batch
from headscope.corpus.window import Window
from headscope.measure.study_windows import evenly, token_count
from headscope.models.engines.attention import AttentionCall
from headscope.models.model import Model
from headscope.models.stream import (
    LayerAttention,
    batch_tokens_on,
    stream_attention,
    whole_patterns,
)
from headscope.options import Device, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun
from headscope.runs.recorded_paths import name_of
from headscope.statistics.ratio import rise
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.explain.catalogue import Texts
from headscope.studies.explain.content import contents_of
from headscope.studies.explain.explanation import (
    FEATURES,
    LENGTH,
    SPREAD,
    WINDOWS,
    FeatureLimit,
    TextSource,
    WindowLimit,
    fit_models,
    model_and_corpora,
    read_split_windows,
)
from headscope.studies.explain.feature_model import FeatureModel, term_logits
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
    with progress_bar(progress, "replacing heads", unit="steps") as bar:
        loaded, corpora = model_and_corpora(
            model, corpus, revision=revision, device=device, seed=seed
        )
        Rerunner(loaded, loss_score(loaded))  # fails before any text is read
        split, notes = read_split_windows(loaded, corpora, windows=windows, seed=seed)
        # losses are measured on documents that no model was fitted on
        unseen = _unseen_windows(loaded, corpora, windows=windows, seed=seed)
        if not unseen:
            unseen = list(split.judge)
            notes.append(
                "the text has no further documents: losses are measured on those that judge the "
                "feature models"
            )
        texts = Texts.of(split, relations_of([ALL], loaded.attention_kind))
        models = fit_models(loaded, texts, features, Steps(bar, len(loaded.attention_layers)))
        # what stands in the place of a pattern, feature models first
        stand_ins = StandIns(
            features=FeatureLogits(models, texts, loaded),
            means=means_by_distance(loaded, [*split.fit, *split.choose]),
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
    # with all heads replaced every order is the same set, which is run once
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
    # a document that was begun there is left out whole, because its windows resemble each other
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
        measured = [losses.changed[_Change(name, draw)] for draw in draws]
        of_models = [losses.changed[_Change(FEATURE_MODEL, draw)] for draw in draws]
        row = {
            "replacement": name,
            "order": order,
            "share": share,
            "heads": len(head_sets[draws[0]]),
            "draws": len(draws),
        }
        # windows of a document are resampled together
        before = _by_document([losses.unchanged], documents)
        after = _by_document(measured, documents)
        risen = rise(after, before, seed=seed)
        row |= {
            "loss": after.mean,
            "rise": risen.mean,
            "ci_low": risen.low,
            "ci_high": risen.high,
            "perplexity": exp(after.mean),
            "lowest": exp(min(loss.mean for loss in measured)),
            "highest": exp(max(loss.mean for loss in measured)),
            "increase": 100 * expm1(risen.mean),
        }
        # the same heads with their own feature models
        if name != FEATURE_MODEL:
            over = rise(after, _by_document(of_models, documents), seed=seed)
            row |= {"over_model": over.mean, "over_low": over.low, "over_high": over.high}
        rows.append(row)
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

    def draw_distances(result: StudyResult) -> Figure:
        return _OF_ENCODERS.figure(result.title, result.table)

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
        draw=STUDY.draw if predicts else draw_distances,
    )


def _by_document(losses: Sequence[TextLoss], documents: Int[ndarray, " window"]) -> TextLoss:
    """The mean of losses on the same windows, summed over the windows of each document."""
    _, number = np.unique(documents, return_inverse=True)
    nats = np.mean([loss.nats for loss in losses], axis=0)
    return TextLoss(
        nats=np.bincount(number, nats),
        tokens=np.bincount(number, losses[0].tokens).astype(np.int64),
    )


HeadLogits = Float[Tensor, "window _ query key"]
"""Logits of all heads of a layer, or one table for all of them; of all windows if that is 1."""
LogitsByLayer = Mapping[int, HeadLogits]
FEATURE_MODEL, OTHER_HEAD = "feature model", "other head"
SINK_AND_DISTANCE, DISTANCE = "sink and distance", "distance"
FIRST_TOKEN, UNIFORM = "first token", "uniform"
_ONLY_KEY = 1e4
"""Logit of the only key that has attention."""
_TINY = 1e-9


def replacement(heads: Mapping[int, Sequence[int]], logits: LogitsByLayer) -> Replacement:
    """Heads by layer that attend by a softmax of these logits over the keys that they see."""

    def pattern(call: AttentionCall) -> HeadPatterns:
        of_layer = logits[call.layer]
        if of_layer.shape[1] > 1:
            of_layer = of_layer[:, list(heads[call.layer])]
        visible = call.visible[:, :1]  # all heads of a layer see the same keys
        return softmax_over_visible(of_layer.to(visible.device), visible)

    return Replacement(heads, pattern)


@dataclass(frozen=True, eq=False)
class FeatureLogits:
    """Logits of feature models on any windows."""

    models: Sequence[FeatureModel]
    """One per head of the model, layer by layer and head by head."""
    fitted_on: Texts
    model: Model
    """Model that is run for the heads' values of `BIGRAMS`."""

    def on(self, windows: Sequence[Window]) -> LogitsByLayer:
        """The logits at all cells of windows that run together, by layer."""
        texts = self.fitted_on.on(windows)
        layers = {model.layer for model in self.models if model.has_content}
        contents = contents_of(self.model, texts, layers)
        heads_of_layer: dict[int, list[Tensor]] = {}
        for model in self.models:
            content = contents[model.layer][model.head] if model.has_content else None
            logits = torch.zeros(len(windows), texts.width, texts.width)
            logits[texts.window, texts.query] = term_logits(model, texts, content).logits.sum(0)
            heads = heads_of_layer.setdefault(model.layer, [])
            heads.append(logits)
        return {layer: torch.stack(heads, 1) for layer, heads in heads_of_layer.items()}


@dataclass(frozen=True, eq=False)
class StandIns:
    """All replacements of patterns."""

    features: FeatureLogits
    means: Mapping[int, MeanByDistance]
    """By layer."""
    attention_kind: AttentionKind

    def on(self, windows: Sequence[Window]) -> dict[str, LogitsByLayer]:
        """The logits of every replacement on windows that run together, by its name."""
        width = max(map(len, windows))
        of_models = self.features.on(windows)
        layers = list(self.means)
        kind = self.attention_kind
        by_sink = {layer: m.logits_with_sink(width, kind) for layer, m in self.means.items()}
        by_distance = {layer: m.logits(width) for layer, m in self.means.items()}
        return {
            FEATURE_MODEL: of_models,
            OTHER_HEAD: of_next_head(of_models),
            SINK_AND_DISTANCE: by_sink,
            DISTANCE: by_distance,
            FIRST_TOKEN: first_token_logits(layers, width),
            UNIFORM: uniform_logits(layers, width),
        }


def of_next_head(logits: LogitsByLayer) -> LogitsByLayer:
    """The logits of the next head of each layer; of the first head for the last one."""
    return {layer: heads.roll(-1, dims=1) for layer, heads in logits.items()}


def uniform_logits(layers: Sequence[int], width: int) -> LogitsByLayer:
    """Equal logits of all keys."""
    return dict.fromkeys(layers, torch.zeros(1, 1, width, width))


def first_token_logits(layers: Sequence[int], width: int) -> LogitsByLayer:
    """All attention on the first token."""
    logits = torch.zeros(1, 1, width, width)
    logits[..., 0] = _ONLY_KEY
    return dict.fromkeys(layers, logits)


@dataclass(frozen=True, eq=False)
class MeanByDistance:
    """Mean attention of each head of a layer by distance, on the windows that fit.

    The entry at `longest` + d is the mean over all pairs of a query and a key d tokens before it;
    of encoders d may be below 0.
    """

    longest: int
    """Largest distance."""
    all_keys: Float[Tensor, "head distance"]
    """Mean attention."""
    later_keys: Float[Tensor, "head distance"]
    """Mean attention on keys other than the first token."""
    first_token: Float[Tensor, " head"]
    """Mean share of the first token over the queries after it."""

    def logits(self, width: int) -> HeadLogits:
        """Logarithms of the mean pattern by distance."""
        return self._at_cells(self.all_keys, width).clamp_min(_TINY).log()[None]

    def logits_with_sink(self, width: int, attention_kind: AttentionKind) -> HeadLogits:
        """Logarithms of a pattern in which the first token has its mean share.

        Other keys share the rest by their distance.
        """
        hidden = torch.from_numpy(attention_kind.hidden(width))
        pattern = self._at_cells(self.later_keys, width).masked_fill(hidden, 0)
        pattern[..., 0] = 0
        total = pattern.sum(-1, keepdim=True).clamp_min(_TINY)
        later_share = 1 - self.first_token[:, None, None]
        pattern = pattern * later_share / total
        pattern[..., 0] = self.first_token[:, None]
        return pattern.clamp_min(_TINY).log()[None]

    def _at_cells(
        self, by_distance: Float[Tensor, "head distance"], width: int
    ) -> Float[Tensor, "head query key"]:
        position = torch.arange(width)
        distance = position[:, None] - position[None, :]
        offset = (distance + self.longest).clamp(0, 2 * self.longest)
        return by_distance[:, offset]


def means_by_distance(model: Model, windows: Sequence[Window]) -> dict[int, MeanByDistance]:
    """Mean attention by distance of every layer on windows."""
    longest = max(len(window) for window in windows) - 1
    sums: dict[int, _DistanceSums] = {}

    def add(attention: LayerAttention) -> None:
        of_layer = sums.setdefault(attention.layer, _DistanceSums(longest, model.heads))
        patterns = next(attention.probabilities()).float().cpu()
        for pattern, window in zip(patterns, attention.windows, strict=True):
            of_layer.add(pattern, window)

    batch_tokens = batch_tokens_on(model.device)
    stream_attention(model, windows, whole_patterns, add, batch_tokens=batch_tokens)
    return {layer: of_layer.means() for layer, of_layer in sums.items()}


class _DistanceSums:
    """Sums of a layer's attention by distance."""

    def __init__(self, longest: int, heads: int) -> None:
        self.longest = longest
        distances = 2 * longest + 1
        self.all_keys = torch.zeros(distances, heads)
        self.later_keys = torch.zeros(distances, heads)
        self.count = torch.zeros(distances)
        self.later_count = torch.zeros(distances)
        self.first_token = torch.zeros(heads)
        self.queries = 0

    def add(self, pattern: Float[Tensor, "head query key"], window: Window) -> None:
        """Add the visible cells of a window; `pattern` may be padded."""
        hidden = torch.from_numpy(window.attention_kind.hidden(len(window)))
        query, key = torch.nonzero(~hidden, as_tuple=True)
        attention = pattern[:, query, key].T
        offset = query - key + self.longest
        is_later = key > 0
        self.all_keys.index_add_(0, offset, attention)
        self.later_keys.index_add_(0, offset[is_later], attention[is_later])
        self.count += torch.bincount(offset, minlength=len(self.count))
        self.later_count += torch.bincount(offset[is_later], minlength=len(self.count))
        self.first_token += pattern[:, 1 : len(window), 0].sum(1)
        self.queries += len(window) - 1

    def means(self) -> MeanByDistance:
        """Sums divided by the number of pairs, or of queries."""
        pairs = self.count.clamp_min(1)[:, None]
        later_pairs = self.later_count.clamp_min(1)[:, None]
        return MeanByDistance(
            longest=self.longest,
            all_keys=(self.all_keys / pairs).T,
            later_keys=(self.later_keys / later_pairs).T,
            first_token=self.first_token / self.queries,
        )
