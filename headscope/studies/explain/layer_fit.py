"""A layer's rules: fitted, given a content term, and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.studies.explain.content_term import fit_content
from headscope.studies.explain.feature import KINDS, kind_in
from headscope.studies.explain.fit import LayerFit, Term, Texts, term_values
from headscope.studies.explain.places import PLACE_RULE
from headscope.studies.explain.select import Selector
from headscope.studies.explain.softmax import Fitted, Target, map_heads, nested, newton
from headscope.studies.explain.surrogate import (
    Judge,
    LayerSurrogates,
    PartialFit,
    Parts,
    Remainder,
    Share,
    Surrogate,
    Weighed,
    bits_by_kind,
    explained,
    unique_bits,
)

REMAINDERS, BEFORE = 3, 24
"""Queries that are kept of each head; tokens before each, and of an encoder behind it."""
SIZES = (1, 2, 4, 8, 12, 16, 24, 32, 48)
"""Features of the smaller rules."""
_Vectors = Float[Tensor, "head window position width"]


def sizes_below(features: int) -> list[int]:
    """The sizes of smaller rules, where one of so many features is asked for.

    >>> sizes_below(8)
    [1, 2, 4]
    """
    return [size for size in SIZES if size < features]


@dataclass(frozen=True)
class Fitting:
    """Inputs of rules: the texts, ready to be weighed, and how large a rule may be."""

    texts: Texts
    selector: Selector
    features: int
    rank: int
    """Of the content term; 0 for none."""
    resting: Mapping[int, frozenset[int]] = field(default_factory=dict)
    """By layer the tokens that it rests on: attention on them counts as sink there."""


def explain_layer(
    fitting: Fitting,
    layer: int,
    attention: Float[Tensor, "head row key"],
    vectors: tuple[_Vectors, _Vectors] | None,
) -> LayerSurrogates:
    """The rules of a layer's heads.

    Args:
        fitting: the texts and how large a rule may be.
        layer: its number.
        attention: of its heads at every row of the texts, rows summing to 1.
        vectors: its heads' queries and keys for the content term, where there are any.
    """
    texts, content, logits = fitting.texts, None, None
    rows = texts.rows
    drafts = LayerFit(texts, fitting.selector, attention, fitting.features).grow()
    if vectors is not None and fitting.rank:
        base = torch.stack(
            [torch.tensordot(draft.weights, term_values(texts, draft.terms), 1) for draft in drafts]
        )
        content = fit_content(
            attention, base, rows, texts.selection_rows, vectors, rank=fitting.rank
        )
        logits = content.logits(*vectors)[:, rows.window, rows.query]
    number = {feature: i for i, feature in enumerate(texts.packed.features)}
    places = [Term(number[feature], -1) for feature in PLACE_RULE if feature in number]
    place_values = term_values(texts, places)  # the same for every head

    def judge(head: int) -> tuple[Surrogate, Parts]:
        head_logits = None if logits is None else logits[head]
        judging = _Head(fitting, (layer, head), attention[head], head_logits)
        start = torch.zeros(len(places))
        by_place = judging.fit(place_values, start, steps=6, tolerance=1e-3).weights
        position = judging.explained(place_values, by_place)
        rule = judging.rule(drafts[head].terms, drafts[head].weights, position)
        return rule, judging.parts(places, by_place)

    heads, place_parts = zip(*map_heads(judge, len(drafts)), strict=True)
    return LayerSurrogates(heads, place_parts, content)


class _Head:
    """One head's attention on the rows that fit and on those that judge."""

    def __init__(
        self,
        fitting: Fitting,
        at: tuple[int, int],
        attention: Float[Tensor, "row key"],
        content: Tensor | None,
    ) -> None:
        texts = fitting.texts
        rows, judged, selection = texts.rows, texts.judged, slice(texts.selection_rows)
        self.fitting, self.texts, self.at, self.content = fitting, texts, at, content
        self.target = Target.of(attention[selection], rows.seen[selection])
        document = np.array([window.document for window in rows.windows])[rows.window.numpy()]
        number = np.unique(document[judged], return_inverse=True)[1]
        self.judge = Judge(attention[judged], rows.seen[judged], number)
        self.uniform = self.judge.uniform()

    def fit(self, values: Tensor, start: Tensor, **options: Any) -> Fitted:
        """Weights of features on the rows that fit."""
        return newton(self.target, values[:, : self.texts.selection_rows], start, **options)

    def explained(self, values: Tensor, weights: Tensor, offset: Tensor | float = 0.0) -> Share:
        """The share that features explain on the rows that judge."""
        logits = torch.tensordot(weights, values[:, self.texts.judged], 1) + offset
        return explained(self.judge.by_document(logits), self.uniform)

    def parts(self, terms: Sequence[Term], weights: Tensor) -> Parts:
        """Terms with their weights."""
        features = self.texts.packed.features
        weighed = zip(terms, weights.tolist(), strict=True)
        return tuple((features[term.feature], term.gate, weight) for term, weight in weighed)

    def rule(self, terms: Sequence[Term], start: Tensor, position: Share) -> Surrogate:
        """The head's rule with all that is said of it."""
        values = term_values(self.texts, terms)
        judged = values[:, self.texts.judged]
        fitted = self.fit(values, start, steps=4)
        parts, content = self.parts(terms, fitted.weights), None
        beside_content = torch.full_like(fitted.weights, torch.nan)
        if self.content is not None:
            offset = self.content[: self.texts.selection_rows]
            beside_content = self.fit(values, fitted.weights, offset=offset, steps=4).weights
            content = self.explained(values, beside_content, self.content[self.texts.judged])
        resting = self.fitting.resting.get(self.at[0], frozenset())
        kinds = [kind_in(feature, resting) for feature, *_ in parts]
        order = [*KINDS, *sorted(set(kinds) - {*KINDS})]
        total = float(self.uniform.sum())
        by_kind = bits_by_kind(self.judge, self.target, values, fitted.weights, kinds, order)
        lost = unique_bits(self.judge, judged, fitted)
        weighed = [
            Weighed(*part, content_weight, explained(self.uniform - bits, self.uniform), kind)
            for part, content_weight, bits, kind in zip(
                parts, beside_content.tolist(), lost, kinds, strict=True
            )
        ]
        logits = torch.tensordot(fitted.weights, judged, 1)
        smaller = nested(
            self.target,
            values[:, : self.texts.selection_rows],
            fitted,
            sizes_below(self.fitting.features),
        )
        return Surrogate(
            *self.at,
            total / len(self.judge.attention),
            tuple(sorted(weighed, key=lambda item: -item.unique.value)),
            position,
            self.explained(values, fitted.weights),
            content,
            tuple(
                self._remainder(*row) for row in self.judge.largest_remainders(logits, REMAINDERS)
            ),
            {kind: bits / total for kind, bits in by_kind.items()} if total > 0 else {},
            tuple(
                PartialFit(
                    len(features),
                    self.explained(values[features], weights).value,
                    self.parts([terms[i] for i in features], weights),
                )
                for features, weights in smaller
            ),
        )

    def _remainder(self, row: int, attended: int, predicted: int, bits: float) -> Remainder:
        rows, row_index = self.texts.rows, self.texts.selection_rows + row
        window, query = rows.windows[int(rows.window[row_index])], int(rows.query[row_index])
        strings = window.strings
        before = "".join(strings[max(1, query - BEFORE) : query])
        looks_at, rule_says = (
            f"{strings[key]} ({key})" if key else "token 0" for key in (attended, predicted)
        )
        text = f"{before}[[{strings[query]}]]"
        if window.attention_kind.sees_future:
            text += "".join(strings[query + 1 : query + 1 + BEFORE])
        return Remainder(window.name, text, looks_at, rule_says, bits)
