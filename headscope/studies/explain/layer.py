"""A layer's rules: fitted, given a content term, and judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch import Tensor

from headscope.studies.explain.content import fit_content
from headscope.studies.explain.feature import KINDS, kind_in
from headscope.studies.explain.fit import LayerFit, Term, Texts, term_values
from headscope.studies.explain.judge import Judge, Share, bits_by_kind, explained, unique_bits
from headscope.studies.explain.positions import PLACE_RULE
from headscope.studies.explain.rules import HeadRule, LayerRules, Place, Remainder, Smaller, Weighed
from headscope.studies.explain.select import Selector
from headscope.studies.explain.smaller import nested, sizes_below
from headscope.studies.explain.softmax import Fitted, Target, newton
from headscope.studies.explain.threads import by_head

REMAINDERS, BEFORE = 3, 24
"""Queries that are kept of each head, and how many tokens before each."""
_Vectors = Float[Tensor, "head window position width"]


@dataclass(frozen=True)
class Fitting:
    """What rules are made with: the texts, ready to be weighed, and how large a rule may be."""

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
) -> LayerRules:
    """The rules of a layer's heads.

    Args:
        fitting: the texts and how large a rule may be.
        layer: its number.
        attention: of its heads at every row of the texts, rows summing to 1.
        vectors: its heads' queries and keys for the content term, where there are any.
    """
    texts = fitting.texts
    drafts = LayerFit(texts, fitting.selector, attention, fitting.features).grow()
    content, logits = None, None
    if vectors is not None and fitting.rank:
        rows = texts.rows
        base = torch.stack(
            [torch.tensordot(each.weights, term_values(texts, each.terms), 1) for each in drafts]
        )
        content = fit_content(attention, base, rows, texts.chosen, vectors, rank=fitting.rank)
        logits = content.logits(*vectors)[:, rows.window, rows.query]
    placed = _Placed(texts)

    def judge(head: int) -> tuple[HeadRule, Place]:
        own = None if logits is None else logits[head]
        judging = _Head(fitting, (layer, head), attention[head], own)
        weights, share = placed.rule(judging)
        rule = judging.rule((drafts[head].terms, drafts[head].weights), share)
        return rule, tuple(zip(PLACE_RULE, weights.tolist(), strict=True))

    heads, places = zip(*by_head(judge, len(drafts)), strict=True)
    return LayerRules(heads, places, content)


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
        rows, judged = texts.rows, texts.judged
        seen = rows.seen
        self.fitting, self.texts, self.at, self.content = fitting, texts, at, content
        self.target = Target.of(attention[: texts.chosen], seen[: texts.chosen])
        document = np.array([window.document for window in rows.windows])[rows.window.numpy()]
        number = np.unique(document[judged], return_inverse=True)[1]
        self.judge = Judge(attention[judged], seen[judged], number)
        self.uniform = self.judge.uniform()

    def rule(self, draft: tuple[Sequence[Term], Tensor], position: Share) -> HeadRule:
        """The head's rule with all that is said of it."""
        terms, start = draft
        features = [self.texts.packed.features[term.feature] for term in terms]
        values = term_values(self.texts, terms)
        own, judged = values[:, : self.texts.chosen], values[:, self.texts.judged]
        fitted = newton(self.target, own, start, steps=4)
        logits = torch.tensordot(fitted.weights, judged, 1)
        rest = self.judge.by_document(logits)
        beside, content = self._with_content(values, fitted.weights)
        resting = self.fitting.resting.get(self.at[0], frozenset())
        kinds = [kind_in(feature, resting) for feature in features]
        order = [*KINDS, *sorted(set(kinds) - {*KINDS})]
        total = float(self.uniform.sum())
        by_kind = bits_by_kind(self.judge, self.target, values, fitted.weights, kinds, order)
        lost = [self._share(each) for each in unique_bits(self.judge, judged, fitted)]
        weighed = [
            Weighed(feature, term.gate, float(w), float(c), unique, kind)
            for feature, term, w, c, unique, kind in zip(
                features, terms, fitted.weights, beside, lost, kinds, strict=True
            )
        ]
        return HeadRule(
            *self.at,
            total / float(self.judge.rows.sum()),
            tuple(sorted(weighed, key=lambda each: -each.unique.value)),
            position,
            explained(rest, self.uniform),
            content,
            tuple(self._remainder(*each) for each in self.judge.most(logits, REMAINDERS)),
            {kind: bits / total for kind, bits in by_kind.items()} if total > 0 else {},
            self._smaller(terms, values, fitted),
        )

    def _smaller(
        self, terms: Sequence[Term], values: Tensor, fitted: Fitted
    ) -> tuple[Smaller, ...]:
        found, sizes = [], sizes_below(self.fitting.features)
        own, judged = values[:, : self.texts.chosen], values[:, self.texts.judged]
        for kept, weights in nested(self.target, own, fitted, sizes):
            rest = self.judge.by_document(torch.tensordot(weights, judged[kept], 1))
            parts = tuple(
                (self.texts.packed.features[terms[i].feature], terms[i].gate, weight)
                for i, weight in zip(kept, weights.tolist(), strict=True)
            )
            found.append(Smaller(len(kept), explained(rest, self.uniform).value, parts))
        return tuple(found)

    def _with_content(self, values: Tensor, weights: Tensor) -> tuple[Tensor, Share | None]:
        """The weights beside the content term, and what both explain together."""
        if self.content is None:
            return torch.full_like(weights, torch.nan), None
        m, judged = self.texts.chosen, self.texts.judged
        offset = self.content[:m]
        both = newton(self.target, values[:, :m], weights, offset=offset, steps=4).weights
        logits = torch.tensordot(both, values[:, judged], 1) + self.content[judged]
        return both, explained(self.judge.by_document(logits), self.uniform)

    def _remainder(self, row: int, own: int, said: int, bits: float) -> Remainder:
        rows, place = self.texts.rows, self.texts.chosen + row
        window, query = rows.windows[int(rows.window[place])], int(rows.query[place])
        strings = window.strings
        before = "".join(strings[max(1, query - BEFORE) : query])
        text = f"{before}[[{strings[query]}]]"
        return Remainder(window.name, text, _at(strings, own), _at(strings, said), bits)

    def _share(self, lost: Float[ndarray, " document"]) -> Share:
        own = explained(self.uniform - lost, self.uniform)
        return Share(own.value, own.low, own.high)


def _at(strings: Sequence[str], place: int) -> str:
    return "token 0" if place == 0 else f"{strings[place]} ({place})"


class _Placed:
    """The rule of token 0 and distance alone, of the same features for every head."""

    def __init__(self, texts: Texts) -> None:
        number = {feature: i for i, feature in enumerate(texts.packed.features)}
        self.values = term_values(texts, [Term(number[each], -1) for each in PLACE_RULE])
        self.texts = texts

    def rule(self, head: _Head) -> tuple[Tensor, Share]:
        """Its weights for a head, and what it explains."""
        own = self.values[:, : self.texts.chosen]
        weights = newton(head.target, own, torch.zeros(len(own)), steps=6, tolerance=1e-3).weights
        logits = torch.tensordot(weights, self.values[:, self.texts.judged], 1)
        return weights, explained(head.judge.by_document(logits), head.uniform)
