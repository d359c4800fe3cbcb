"""Effects of heads on logits, read in the same forward pass as their attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.direct_paths import DirectPaths, PathEnd
from headscope.measure.effect_queries import EffectQueries, NamedTokenQueries, TopKeyQueries
from headscope.measure.tally import Tally, grained
from headscope.models.engines.engine import SelfEntries
from headscope.relations.effects import MIN_ATTENTION, Effect

PREDICTED = 0.25
"""A token counts as predicted where at most this share of the text's distinct tokens is likelier
(ours)."""


@dataclass(frozen=True, eq=False)
class _NamedValues:
    """Effects of a layer's heads at queries where the text names tokens, before the last norm."""

    target: Float[Tensor, "ask head"]
    control: Float[Tensor, "ask head"]
    matched: Float[Tensor, "ask head"]
    """Effect on the tokens of the matched control."""
    self_lift: Float[Tensor, "ask head"] | None
    """Part that the query's own position gives; None if it is not read."""


@dataclass(frozen=True, eq=False)
class _TopKeyValues:
    """Effects of a layer's heads on the tokens that they attend to, before the last norm."""

    target: Float[Tensor, "query head"]
    """Weighted, as `control` and `spread` are."""
    control: Float[Tensor, "query head"]
    spread: Float[Tensor, "query head"]
    weight: Float[Tensor, "query head"]
    second: Sequence[Float[Tensor, "query head"]]
    """For each region the weighted effect on another query's token."""
    holds: Sequence[Bool[Tensor, "query head"]]
    """For each region the queries of a head that count."""


class _BatchSums:
    """Sums of a batch by row of its effects, layer and head."""

    def __init__(self, rows: int, layers: int, heads: int) -> None:
        self.target = np.zeros((rows, layers, heads))
        self.control = np.zeros((rows, layers, heads))
        self.weight = np.zeros((rows, layers, heads))

    def add(
        self,
        layer: int,
        rows: Int[ndarray, " query"],
        *,
        target: Float[Tensor, "query head"] | None = None,
        control: Float[Tensor, "query head"] | None = None,
        weight: Float[Tensor, "query head"] | None = None,
    ) -> None:
        """Add values of queries to their rows, but for queries whose row is −1.

        Without a weight each query counts as 1.
        """
        has_row = rows >= 0
        rows = rows[has_row]
        if target is not None:
            targets = _exact(target)[has_row]
            np.add.at(self.target[:, layer], rows, targets)
        if control is not None:
            controls = _exact(control)[has_row]
            np.add.at(self.control[:, layer], rows, controls)
        weights = 1.0 if weight is None else _exact(weight)[has_row]
        np.add.at(self.weight[:, layer], rows, weights)


class EffectReader:
    """Reads what one batch's heads write, layer by layer."""

    def __init__(
        self,
        paths: DirectPaths,
        queries: EffectQueries,
        effects: Sequence[Effect],
        *,
        logarithms: bool,
    ) -> None:
        self.paths, self.queries, self._logarithms = paths, queries, logarithms
        self.requests = queries.requests
        self.regions = [effect.top_key for effect in effects if effect.top_key is not None]
        self.directions = paths.directions(queries.tokens)
        self._strong: list[Tensor] = []
        self._key: list[Tensor] = []
        self._stream: Tensor | None = None
        self._end = PathEnd()
        self._selves: list[tuple[Tensor, Tensor | None]] = []
        self._named_values: list[_NamedValues] = []
        self._top_key_values: list[_TopKeyValues] = []

    @property
    def needs_stream(self) -> bool:
        """True if an effect asks what a layer's input predicts."""
        return self.queries.top_key is not None and any(region.predicted for region in self.regions)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """The context within which a forward pass is read; see `DirectPaths.watching`."""
        stream = self.stream if self.needs_stream else None
        with self.paths.watching(self.queries.queries, self.take, stream) as self._end:
            yield

    def on_rows(self, layer: int, index: int, rows: Any) -> None:
        """Note each row's strongest key, or what named queries take from their own positions."""
        if isinstance(self.requests[index], SelfEntries):
            attention, value = rows
            self._selves.append((self._attention(attention), value))
            return
        # the first key is left out
        strongest, key = rows[0, :, :, 1:].max(-1)
        self._strong.append(self._attention(strongest).T)
        self._key.append(key.T + 1)

    def _attention(self, values: Tensor) -> Tensor:
        return values.float().exp() if self._logarithms else values.float()

    def stream(self, layer: int, stream: Float[Tensor, "query d_model"]) -> None:
        """Note what a layer reads at the asked queries."""
        self._stream = stream

    def take(
        self, layer: int, z: Float[Tensor, "query head d_value"], scale: Float[Tensor, " query"]
    ) -> None:
        """Evaluate one layer's heads, whose rows were looked at before."""
        through = self.paths.through_heads(layer, self.directions.to(z.device))
        named_tokens = self.queries.named_tokens
        if named_tokens is not None:
            self_values = _from_selves(self._selves, z)
            named_values = _at_named(named_tokens, through, z, scale, self_values)
            self._named_values.append(named_values)
        if self.queries.top_key is not None:
            top_key_values = self._at_top_key(self.queries.top_key, through, z, scale)
            self._top_key_values.append(top_key_values)
        # what was kept of this layer's rows makes room for the next layer's
        self._strong = []
        self._key = []
        self._selves = []
        self._stream = None

    def _at_top_key(
        self, queries: TopKeyQueries, through: Tensor, z: Tensor, scale: Tensor
    ) -> _TopKeyValues:
        window = queries.window.to(z.device)
        z = z[: len(window)]
        scale = scale[: len(window), None]
        heads = torch.arange(z.shape[1], device=z.device)
        strength = torch.cat(self._strong).to(z.device)
        key = torch.cat(self._key).to(z.device)
        token = queries.tokens.to(z.device)[window[:, None], key]

        def effect_on(tokens: Int[Tensor, "query head"]) -> Float[Tensor, "query head"]:
            return (z * through[tokens, heads]).sum(-1) * scale

        target = effect_on(token)
        # the mean and the spread over all distinct tokens of the text
        present = (queries.count.to(z.device) > 0).float()
        distinct = present.sum(1)[window, None]
        text_direction = torch.einsum("wt,thd->whd", present, through)
        total = (z * text_direction[window]).sum(-1) * scale
        covariance = torch.einsum("wt,thd,the->whde", present, through, through)
        sizes = [len(request.queries) for request in queries.requests]
        # the variance needs the quadratic form of each query's z, by the matrix of its window;
        # window by window, as a matrix for each query would be far more than the queries
        forms = []
        for part, matrix in zip(torch.split(z, list(sizes)), covariance, strict=True):
            product = torch.einsum("qhd,hde->qhe", part, matrix)
            forms.append((product * part).sum(-1))
        square = torch.cat(forms) * scale.square()
        variance = square / distinct - (total / distinct).square()
        spread = variance.clamp_min(0).sqrt()
        # the mean over the other tokens of the text
        control = (total - target) / (distinct - 1).clamp_min(1)
        # each distinct token of a text counts alike: else a head that happens to raise commas
        # when it looks at commas would raise what it looks at
        count = queries.count.to(z.device)
        weight = 1 / count[window[:, None], token]
        holds = self._holds(queries, strength, token)
        second = []
        for held in holds:
            partner = partners(queries, held)
            # weighted as its own query is, so that both sides hold the same tokens as often
            partner_weight = weight.gather(0, partner)
            partner_token = token.gather(0, partner)
            second.append(partner_weight * effect_on(partner_token))
        return _TopKeyValues(
            target=weight * target,
            control=weight * control,
            spread=weight * spread,
            weight=weight,
            second=second,
            holds=holds,
        )

    def _holds(
        self,
        queries: TopKeyQueries,
        strength: Float[Tensor, "query head"],
        token: Int[Tensor, "query head"],
    ) -> list[Bool[Tensor, "query head"]]:
        """For each region the queries of a head that count."""
        is_strong = strength > MIN_ATTENTION
        if not self.needs_stream or self._stream is None:
            return [is_strong] * len(self.regions)
        stream = self._stream[: len(strength)]
        # a token counts as predicted if few of the text's tokens are likelier by the stream,
        # unembedded
        device = stream.device
        logits = stream.float() @ self.directions.to(device).T
        count = queries.count.to(device)
        present = count[queries.window.to(device)] > 0
        token_logits = logits.gather(1, token.to(device))
        text_logits = logits.masked_fill(~present, -torch.inf)
        larger_counts = []
        # head by head: a count for all at once would be larger than the effects themselves
        for logit in token_logits.unbind(1):
            larger = text_logits > logit[:, None]
            larger_counts.append(larger.sum(1))
        limit = PREDICTED * present.sum(1, keepdim=True)
        is_likely: Tensor = torch.stack(larger_counts, 1) <= limit
        likely = is_likely.to(token.device)
        is_strong_and_likely = is_strong & likely
        holds = []
        for region in self.regions:
            holds.append(is_strong_and_likely if region.predicted else is_strong)
        return holds

    @torch.no_grad()
    def add_to(self, tally: Tally) -> None:
        """Add the batch's sums, once the pass has ended; effects are the last of a tally."""
        queries = self.queries
        scale = self._end.scale
        if scale is None:
            raise RuntimeError("the pass has not reached the last norm")
        sums = _BatchSums(len(queries.block), self.paths.layers, self.paths.heads)
        if queries.named_tokens is not None:
            for layer, named_values in enumerate(self._named_values):
                # rows of the effects, of their matched controls, and of what own positions give
                device = named_values.target.device
                query = queries.named_tokens.query.to(device)
                size = scale.to(device)[query, None]
                target = named_values.target * size
                control = named_values.control * size
                effect_rows, matched_rows, self_rows = queries.named_tokens.rows.cpu().numpy()
                sums.add(layer, effect_rows, target=target, control=control)
                sums.add(layer, matched_rows, control=named_values.matched * size)
                if named_values.self_lift is not None:
                    sums.add(layer, self_rows, target=named_values.self_lift * size)
        if queries.top_key is not None:
            for layer, top_key in enumerate(self._top_key_values):
                # a row for each region, and behind all of them a row of its matched control
                shown_scale = scale.to(top_key.target.device)[: len(queries.top_key.window), None]
                regions = len(self.regions)
                for number in range(regions):
                    holds = top_key.holds[number].float()
                    sums.add(
                        layer,
                        queries.top_key.rows[number],
                        target=top_key.target * shown_scale * holds,
                        control=top_key.control * shown_scale * holds,
                        weight=top_key.weight * holds,
                    )
                    # the row of the matched control: the spread, and queries instead of weights
                    sums.add(
                        layer,
                        queries.top_key.rows[regions + number],
                        target=top_key.spread * shown_scale * holds,
                        control=top_key.second[number] * shown_scale * holds,
                        weight=holds,
                    )
        # one copy into the tally, rounded so that the order of batches changes nothing
        rows = (queries.block, queries.effect)
        np.add.at(tally.target, rows, grained(sums.target))
        np.add.at(tally.control, rows, grained(sums.control))
        np.add.at(tally.hits, rows, grained(sums.weight))
        np.add.at(tally.queries, rows, queries.count)


def partners(
    queries: TopKeyQueries, holds: Bool[Tensor, "query head"]
) -> Int[Tensor, "query head"]:
    """For each asked query of a head another asked query of the same window and head.

    The next in the drawn order, and after the last the first: a head that is asked once is its own
    partner, so that nothing is gained. Rows that are not asked hold any number.
    """
    count = len(holds)
    device = holds.device
    order = queries.order.to(device)
    window = queries.window.to(device)
    position = torch.arange(count, device=device)
    later = torch.where(holds[order], position[:, None].expand_as(holds), count)
    # the first asked place at or after each, and strictly after each
    next_held = later.flip(0).cummin(0).values.flip(0)
    beyond = torch.full_like(next_held[:1], count)
    next_later = torch.cat([next_held[1:], beyond])
    # the first asked place of each window, for the last ones
    windows = torch.arange(int(window[-1]) + 1, device=device)
    starts = torch.searchsorted(window, windows)
    ends = torch.searchsorted(window, window, right=True)
    first_of_window = next_held[starts][window]
    has_later = next_later < ends[:, None]
    partner_order = torch.where(has_later, next_later, first_of_window)
    partner_order = partner_order.clamp_max(count - 1)
    partner = torch.empty_like(partner_order)
    partner[order] = order[partner_order]
    return partner


def _at_named(
    queries: NamedTokenQueries,
    through: Tensor,
    z: Tensor,
    scale: Tensor,
    self_values: Tensor | None,
) -> _NamedValues:
    """Effects on targets, controls and matched controls, and the lift that own positions give."""
    query = queries.query.to(z.device)
    size = scale[query, None]
    flat = through.flatten(1)

    def mean_direction(side: Tensor) -> Float[Tensor, "ask head d_value"]:
        return (side.to(z.device) @ flat).view(-1, *z.shape[1:])

    def effect(values: Tensor, direction: Tensor) -> Float[Tensor, "ask head"]:
        return (direction * values).sum(-1) * size

    # mean directions of each query's tokens, through this layer's heads
    target = mean_direction(queries.target)
    control = mean_direction(queries.control)
    matched = mean_direction(queries.second)
    self_lift = None
    if self_values is not None:
        # the named queries are the last
        others = len(z) - len(self_values)
        self_lift = effect(self_values[query - others], target - control)
    return _NamedValues(
        target=effect(z[query], target),
        control=effect(z[query], control),
        matched=effect(z[query], matched),
        self_lift=self_lift,
    )


def _from_selves(selves: Sequence[tuple[Tensor, Tensor | None]], z: Tensor) -> Tensor | None:
    """The part of z that comes from the queries' own positions, `[query head d_value]`, if seen."""
    heads, width = z.shape[1:]
    parts = []
    for attention, value in selves:
        if value is None:
            return None
        # values that several heads share are repeated; of other shapes the source is unknown
        groups, remainder = divmod(value.shape[1], width)
        if not groups or remainder or heads % groups:
            return None
        by_group = value.to(z).view(len(value), groups, width)
        by_head = by_group.repeat_interleave(heads // groups, 1)
        parts.append(attention.to(z.device)[:, :, None] * by_head)
    return torch.cat(parts) if parts else None


def _exact(values: Tensor) -> ndarray:
    return values.double().cpu().numpy()
