"""A model that answers about sentences: each head on them, and what is lost without some."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.causal.head_set import Head, heads_by_layer, matched_sets, output_norms
from headscope.causal.intervention import Intervention, ablated
from headscope.causal.rerun import CleanRun, Rerunner, TokenRows
from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError, ModelError
from headscope.heads import parse_head
from headscope.models.model import Model
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.models.text_window import check_unicode, special_notes, text_window
from headscope.resolve import text_of
from headscope.statistics.result import Result
from headscope.studies.explain.explanation import WINDOWS
from headscope.studies.explain.feature_model import FeatureModel
from headscope.studies.explain.one_query import PlainTextExplainer, TextExplanation

MOST_TOKENS = 256
"""Longest sentence: the patterns of 1,024 heads on so many tokens are 268 MB."""
BEST = 5
"""Likeliest next tokens that are shown."""
AblationMethod = Literal["mean", "zero"]
"""Ablation methods; one sentence has no other row to exchange with."""


@dataclass(frozen=True, eq=False)
class SentencePredictions:
    """Predictions of a model on a sentence, read as a text that goes on."""

    losses: Float[ndarray, " position"]
    """Loss of each token but the first, in nats."""
    best: list[list[tuple[str, float]]]
    """Likeliest next tokens after each token, with their probabilities."""


@dataclass(frozen=True, eq=False)
class SentenceReading:
    """A sentence as a model read it."""

    tokens: tuple[str, ...]
    patterns: Float[Tensor, "layer head query key"]
    clean: CleanRun | None
    """State of the untouched run; None for a model that does not predict or cannot be edited."""
    predictions: SentencePredictions | None
    notes: tuple[str, ...] = ()
    """A note on the special tokens in the sentence, if there are any."""


@dataclass(frozen=True, eq=False)
class HeadExplanation:
    """A head's feature model, and what it makes of a sentence."""

    fitted: FeatureModel
    on_text: TextExplanation


class Live:
    """A model, with its run if there is one.

    It is used by one thread at a time: the network has hooks while it runs.
    """

    def __init__(self, model: Model, run: Result | None = None) -> None:
        self.model, self.run = model, run
        self.most = min(MOST_TOKENS, model.context)
        self.no_ablation_reason = ""
        """Reason why no head can be ablated, or nothing."""
        self._rerunner: Rerunner | None = None
        if model.attention_kind.predicts_next:
            # the page works without ablation, and states the reason
            try:
                self._rerunner = Rerunner(model)
            except ModelError as error:
                self.no_ablation_reason = str(error)
        else:
            self.no_ablation_reason = "an encoder predicts no next token: no head is ablated here"
        self._last: tuple[str, SentenceReading] | None = None
        self._explainer: PlainTextExplainer | None = None
        self._feature_models: dict[Head, FeatureModel] = {}

    def read(self, text: str) -> SentenceReading:
        """Every head's pattern on a sentence, and what the model predicts there.

        The last reading is kept, for the queries that follow on the same sentence.

        Raises:
            HeadscopeError: the text is empty, too long, or no Unicode.
        """
        if self._last is None or self._last[0] != text:
            reading = self._read(self.window(text))
            self._last = text, replace(reading, notes=special_notes(self.model, [text]))
        return self._last[1]

    def window(self, text: str) -> Window:
        """The tokens of a sentence of at most `most` tokens."""
        check_unicode(text)
        self.model.tokenizer.check_length(text, self.most)
        window = text_window(self.model, text)
        if len(window.tokens) > self.most:
            raise HeadscopeError(
                f"the text has {len(window.tokens):,} tokens with its beginning; this page reads "
                f"{self.most} at most, so shorten it"
            )
        return window

    def head(self, name: str) -> tuple[int, int]:
        """The layer and the number of a head.

        Raises:
            HeadscopeError: it is not the name of a head, or the model has no such head.
        """
        layer, head = parse_head(name)
        self.model.check_head(layer, head)
        return layer, head

    def explain(self, text: str, name: str) -> HeadExplanation:
        """A head's feature model on a sentence; it is fitted at the first call for the head.

        Raises:
            HeadscopeError: see `read`; there is no such head; or the text of the run that the model
                is fitted on cannot be read.
        """
        head = self.head(name)
        window = self.window(text)
        if self._explainer is None:
            corpora = asked_corpora(text_of(self.run, None))
            self._explainer = PlainTextExplainer.of(self.model, corpora, windows=WINDOWS, seed=0)
        if head not in self._feature_models:
            self._feature_models[head] = self._explainer.fit(*head)
        fitted = self._feature_models[head]
        return HeadExplanation(fitted, self._explainer.explain(fitted, window))

    def without(
        self, text: str, heads: Sequence[str], method: AblationMethod = "mean"
    ) -> SentencePredictions:
        """Predictions of the model on a sentence with some heads ablated.

        Args:
            text: the sentence.
            heads: their names; none leaves the model as it is.
            method: `mean`, each head's mean over the sentence without its first token; or `zero`.

        Raises:
            HeadscopeError: no such head; the text cannot be read; or the model has no heads that
                can be ablated.
        """
        rerunner, clean = self._clean(text)
        members = self._members(heads)
        change = ablated(method, clean, heads_by_layer(members)) if members else None
        return self._predictions(rerunner, clean, change)

    def random_sets(
        self, text: str, heads: Sequence[str], method: AblationMethod = "mean"
    ) -> list[float]:
        """Mean loss with each of 20 random sets of as many other heads ablated, in nats.

        Sets are matched by layer and by norm of output on the sentence. If the model has fewer
        other heads than that, there are no sets.

        Raises:
            HeadscopeError: see `without`.
        """
        rerunner, clean = self._clean(text)
        norms = output_norms(rerunner, [clean])
        ablated_heads = self._members(heads)
        if len(norms) < 2 * len(ablated_heads):
            return []
        losses = []
        for members in matched_sets(ablated_heads, norms):
            change = ablated(method, clean, heads_by_layer(members))
            losses.append(-float(rerunner.scores(clean, change).mean()))
        return losses

    def _clean(self, text: str) -> tuple[Rerunner, CleanRun]:
        clean = self.read(text).clean
        if self._rerunner is None or clean is None:
            raise HeadscopeError(self.no_ablation_reason)
        return self._rerunner, clean

    def _members(self, heads: Sequence[str]) -> list[Head]:
        return list(dict.fromkeys(map(self.head, heads)))

    def _read(self, window: Window) -> SentenceReading:
        patterns: list[Tensor] = []

        def add(attention: LayerAttention) -> None:
            patterns.extend(pattern[0].float().cpu() for pattern in attention.probabilities())

        stream_attention(self.model, [window], whole_patterns, add)
        # the untouched run is kept, because each ablation is compared with it
        clean, predictions = None, None
        if self._rerunner is not None:
            ids = torch.from_numpy(window.tokens)[None].to(self.model.device)
            clean = self._rerunner.clean(_rows(ids))
            predictions = self._predictions(self._rerunner, clean, None)
        return SentenceReading(tuple(window.strings), torch.stack(patterns), clean, predictions)

    def _predictions(
        self, rerunner: Rerunner, clean: CleanRun, intervention: Intervention | None
    ) -> SentencePredictions:
        logarithms = rerunner.distributions(clean, intervention)
        ids = clean.rows.tokens[0]
        next_ids = ids[1:, None]
        losses = -logarithms[:-1].gather(1, next_ids)[:, 0]
        best = logarithms.topk(min(BEST, logarithms.shape[1]))
        probabilities = best.values.exp().tolist()
        rows = []
        for token_ids, of_tokens in zip(best.indices.tolist(), probabilities, strict=True):
            words = self.model.tokenizer.spell(token_ids)
            rows.append(list(zip(words, of_tokens, strict=True)))
        return SentencePredictions(losses=losses.double().cpu().numpy(), best=rows)


def _rows(ids: Tensor) -> TokenRows:
    """One row of tokens, all of which but the first are predicted."""
    length = ids.shape[1]
    position = torch.arange(1, length, device=ids.device)
    return TokenRows(ids, torch.tensor([length], device=ids.device), position * 0, position)
