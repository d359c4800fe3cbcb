"""Explain single queries of a text: each key's share, and the features that made it.

A user's text has no annotation. Feature models for it are fitted on text whose annotation is
removed, so that no weight belongs to a feature that such a text cannot have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field

from headscope.corpus.window import Window, no_mentions
from headscope.errors import ArgumentError
from headscope.heads import head_name, parse_head
from headscope.models.model import Model
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.models.text_window import check_unicode, special_notes, text_window
from headscope.options import Device, Head, Plain, Revision, Seed, Text
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.resolve import ModelOrRun
from headscope.studies.explain.catalogue import SplitWindows, Texts
from headscope.studies.explain.content import LayerRows, contents_of, stream_rows
from headscope.studies.explain.explanation import (
    FEATURES,
    WINDOWS,
    FeatureLimit,
    TextSource,
    WindowLimit,
    model_and_corpora,
    read_split_windows,
)
from headscope.studies.explain.feature_model import (
    FeatureModel,
    WeightedFeature,
    explain_layer,
    term_logits,
)
from headscope.studies.explain.fit import Selector
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_result import StudyResult

LISTED = 0.01
"""Attention or share from which on the terminal lists a key."""
_SMALL = 0.05
"""Logits below which a term of a key is not listed."""
NOTE = "features of word classes, syntax and coreference are left out: this text has no annotation"

STUDY = Study(
    rows="key that the query sees, in order",
    columns=table_columns("""
        key | count, ≥ 0 | position of the key in the text; 0 is the model's first token
        token | text | the key as text
        attention | [0, 1] | the head's attention
        share | [0, 1] | attention of the feature model
        logit | logits | sum of the terms
        terms | `feature +weight; …` | logits that each feature adds at this key, the largest first
    """),
    bad_call={"query": -1, "head": "L0H0", "text": "a"},
)


@dataclass(frozen=True, eq=False)
class TextExplanation:
    """A head's feature model on every query of a text."""

    terms: tuple[WeightedFeature, ...]
    logits: Float[ndarray, "term query key"]
    """Logits that each term adds."""
    shares: Float[ndarray, "query key"]
    """The feature model's pattern; a row sums to 1."""

    def terms_at(self, query: int, key: int) -> str:
        """The terms of a key, the largest first, such as `follower +5.2; early-1 -0.4`."""
        at_key = self.logits[:, query, key]
        order = np.argsort(-abs(at_key), kind="stable")
        # pairs of bigrams are those of other texts
        labels = [term._replace(pairs="").label for term in self.terms]
        listed = [
            f"{labels[term]} {at_key[term]:+.1f}"
            for term in order.tolist()
            if abs(at_key[term]) >= _SMALL
        ]
        return "; ".join(listed)


@dataclass(frozen=True, eq=False)
class PlainTextExplainer:
    """Fits feature models for texts without annotation, and applies them."""

    model: Model
    texts: Texts
    selector: Selector

    @classmethod
    def of(
        cls, model: Model, corpora: Sequence[str | Path], *, windows: int, seed: int
    ) -> PlainTextExplainer:
        """Read windows of corpora without their annotation.

        Raises:
            CorpusError: a corpus cannot be read, or is too short.
        """
        split, _ = read_split_windows(model, corpora, windows=windows, seed=seed)
        plain = SplitWindows(*(list(map(without_annotation, part)) for part in split))
        texts = Texts.of(plain, relations_of([ALL], model.attention_kind))
        return cls(model, texts, Selector(texts))

    def fit(self, layer: int, head: int, *, features: int = FEATURES) -> FeatureModel:
        """The feature model of a head."""
        fitted: list[FeatureModel] = []

        def explain_head(rows: LayerRows) -> None:
            if rows.layer == layer:
                of_head = rows.of([head])
                fitted.extend(explain_layer(self.texts, self.selector, of_head, features=features))

        stream_rows(self.model, self.texts, explain_head, layers=layer + 1)
        return fitted[0]._replace(head=head)

    def explain(self, fitted: FeatureModel, window: Window) -> TextExplanation:
        """The terms of a head's feature model at every query and key of a text."""
        texts = self.texts.on([window])
        # the head's values of bigrams, if its model has this feature
        content = None
        if fitted.has_content:
            contents = contents_of(self.model, texts, {fitted.layer})
            content = contents[fitted.layer][fitted.head]
        terms = term_logits(fitted, texts, content)
        size = len(window)
        logits = torch.zeros(len(terms.features), size, size)
        logits[:, texts.query] = terms.logits
        hidden = torch.from_numpy(window.attention_kind.hidden(len(window)))
        shares: ndarray = logits.sum(0).masked_fill(hidden, -torch.inf).softmax(-1).numpy()
        return TextExplanation(terms.features, logits.numpy(), shares)


def without_annotation(window: Window) -> Window:
    """A window as of plain text: no word classes, no trees and no mentions."""
    words = window.words
    empty = np.full(len(words), "")
    plain_words = replace(
        words, head=np.full(len(words), -1), deprel=empty, upos=empty, tense=empty
    )
    return replace(window, words=plain_words, mentions=no_mentions())


def text_pattern(
    model: Model, window: Window, layer: int, head: int
) -> Float[ndarray, "query key"]:
    """A head's pattern on a text."""
    patterns: list[ndarray] = []

    def keep(attention: LayerAttention) -> None:
        if attention.layer == layer:
            patterns.append(next(attention.probabilities())[0, head].float().cpu().numpy())

    stream_attention(model, [window], whole_patterns, keep, layers=layer + 1)
    return patterns[0]


@study(STUDY)
def explain_at(
    model: ModelOrRun,
    head: Head,
    text: Text,
    corpus: TextSource = None,
    *,
    query: Annotated[
        Annotated[int, Field(ge=0)] | None,
        Field(description="Position of the query, from 0. Default: the last token of the text."),
    ] = None,
    features: FeatureLimit = FEATURES,
    windows: WindowLimit = WINDOWS,
    seed: Seed = 0,
    plain: Plain = False,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Explain why a query attends where it does: each key's share, and the terms that made it.

    A feature model is fitted to the head on other documents. The share of a key is the softmax of
    the sum of its terms over all keys that the query sees. A term that is equal at all keys changes
    no share. Your text has no annotation, so that the model has no features of word classes, syntax
    or coreference.

    The terminal lists keys with an attention or share of at least 0.01.

    Raises:
        ArgumentError: the text has no such token.
        HeadscopeError: the text is empty or too long, or there is no such head.
        ModelError: the model cannot be loaded.
        CorpusError: the corpus cannot be read, or is too short.
    """
    # what can be refused is refused before the model is fitted
    check_unicode(text)
    layer, number = parse_head(head)
    loaded, corpora = model_and_corpora(model, corpus, revision=revision, device=device, seed=seed)
    loaded.check_head(layer, number)
    loaded = loaded.with_plain_prompts(plain)
    window = text_window(loaded, text)
    position = window.stop - 1 if query is None else query
    if position >= len(window):
        raise ArgumentError(f"query is {position}; the text has the tokens 0 to {len(window) - 1}")
    # fitted on other documents, and applied to this text
    explainer = PlainTextExplainer.of(loaded, corpora, windows=windows, seed=seed)
    fitted = explainer.fit(layer, number, features=features)
    explanation = explainer.explain(fitted, window)
    attention = text_pattern(loaded, window, layer, number)[position]
    table = key_table(window, position, attention, explanation)
    is_listed = table[["attention", "share"]].max(axis=1) >= LISTED
    name = head_name(layer, number)
    return StudyResult(
        title=f"{loaded.name}, {name}: attention of token {position}, "
        f"{window.strings[position].strip()!r}; on other documents the feature model explains "
        f"{fitted.explained.value:.2f} of the head's bits",
        table=table,
        terminal_table=table[is_listed],
        notes=[*special_notes(loaded, [text]), NOTE],
        values={"head": name, "query": position, "explained": fitted.explained.value},
    )


def key_table(
    window: Window,
    query: int,
    attention: Float[ndarray, " key"],
    explanation: TextExplanation,
) -> pd.DataFrame:
    """A row per key that a query sees."""
    seen: Int[ndarray, " key"] = np.flatnonzero(~window.attention_kind.hidden(len(window))[query])
    rows = []
    for key in seen.tolist():
        row = {
            "key": key,
            "token": window.strings[key],
            "attention": float(attention[key]),
            "share": float(explanation.shares[query, key]),
            "logit": float(explanation.logits[:, query, key].sum()),
            "terms": explanation.terms_at(query, key),
        }
        rows.append(row)
    return pd.DataFrame(rows, columns=STUDY.names)
