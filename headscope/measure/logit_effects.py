"""Effects of heads on logits, read in the same forward pass as their attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.direct_paths import DirectPaths, PathEnd
from headscope.measure.effect_queries import EffectQueries, NamedTokenQueries, TopKeyQueries
from headscope.measure.tally import Tally, grained
from headscope.models.engines.engine import Request, SelfEntries
from headscope.relations.effects import MIN_ATTENTION, Effect

PREDICTED = 0.25
"""A token counts as predicted where at most this share of the text's distinct tokens is likelier
(ours)."""


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
        self._named_values: list[tuple[Tensor, ...]] = []
        self._top_key_values: list[tuple[Tensor, ...]] = []

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

    def on_rows(self, layer: int, request: Request, rows: Any) -> None:
        """Note each row's strongest key, or what named queries take from their own positions."""
        if isinstance(request, SelfEntries):
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
        if self.queries.named_tokens is not None:
            self_values = _from_selves(self._selves, z)
            self._named_values.append(
                _at_named(self.queries.named_tokens, through, z, scale, self_values)
            )
        if self.queries.top_key is not None:
            self._top_key_values.append(self._at_top_key(self.queries.top_key, through, z, scale))
        self._strong, self._key, self._selves, self._stream = [], [], [], None

    def _at_top_key(
        self, queries: TopKeyQueries, through: Tensor, z: Tensor, scale: Tensor
    ) -> tuple[Tensor, ...]:
        strength, key = torch.cat(self._strong).to(z.device), torch.cat(self._key).to(z.device)
        window = queries.window.to(z.device)
        token = queries.tokens.to(z.device)[window[:, None], key]
        z, scale = z[: len(window)], scale[: len(window), None]
        heads = torch.arange(z.shape[1], device=z.device)
        holds = [strength > MIN_ATTENTION] * len(self.regions)
        if self.needs_stream and self._stream is not None:
            likely = _likely(queries, self._stream[: len(window)], self.directions, token)
            holds = [
                held & likely if region.predicted else held
                for held, region in zip(holds, self.regions, strict=True)
            ]

        def effect_on(tokens: Int[Tensor, "query head"]) -> Float[Tensor, "query head"]:
            return (z * through[tokens, heads]).sum(-1) * scale

        target, count = effect_on(token), queries.count.to(z.device)
        # each distinct token of a text counts alike: else a head that happens to raise commas
        # when it looks at commas would raise what it looks at
        weight = 1 / count[window[:, None], token]
        present = (count > 0).float()
        distinct = present.sum(1)[window, None]
        text = (z * torch.einsum("wt,thd->whd", present, through)[window]).sum(-1) * scale
        # the mean over the other tokens of the text
        control = (text - target) / (distinct - 1).clamp_min(1)
        covariance = torch.einsum("wt,thd,the->whde", present, through, through)
        sizes = [len(region.queries) for region in queries.requests]
        square = _squares(z, covariance, sizes) * scale.square()
        spread = (square / distinct - (text / distinct).square()).clamp_min(0).sqrt()
        columns = [weight * target, weight * control, weight, weight * spread]
        for held in holds:
            other = partners(queries, held)
            # weighted as its own query is, so that both sides hold the same tokens as often
            columns.append(weight.gather(0, other) * effect_on(token.gather(0, other)))
        return (*columns, *holds)

    @torch.no_grad()
    def add_to(self, tally: Tally) -> None:
        """Add the batch's sums, once the pass has ended; effects are the last of a tally."""
        queries, scale = self.queries, self._end.scale
        to = tuple(
            np.zeros((len(queries.block), self.paths.layers, self.paths.heads)) for _ in range(3)
        )
        if scale is None:
            raise RuntimeError("the pass has not reached the last norm")
        if queries.named_tokens is not None:
            for layer, values in enumerate(self._named_values):
                _add_named(queries.named_tokens, layer, values, scale.to(values[0].device), to)
        if queries.top_key is not None:
            for layer, values in enumerate(self._top_key_values):
                for number, _ in enumerate(self.regions):
                    size = scale.to(values[0].device)
                    self._add_look(queries.top_key, number, layer, values, size, to)
        rows = (queries.block, queries.effect)
        for array, sums in zip((tally.target, tally.control, tally.hits), to, strict=True):
            np.add.at(array, rows, grained(sums))
        np.add.at(tally.queries, rows, queries.count)

    def _add_look(
        self,
        queries: TopKeyQueries,
        number: int,
        layer: int,
        values: tuple[Tensor, ...],
        scale: Float[Tensor, " query"],
        to: tuple[ndarray, ...],
    ) -> None:
        window, regions = queries.window.cpu().numpy(), len(self.regions)
        size = scale[: len(window), None]
        target, control, weight, spread, *seconds_and_holds = values
        second, holds = seconds_and_holds[number], seconds_and_holds[regions + number].float()
        # the row of the matched control holds the spread, and counts queries and not their weights
        for rows, added in (
            (number, (target * size, control * size, weight)),
            (regions + number, (spread * size, second * size, torch.ones_like(weight))),
        ):
            row = np.array(queries.rows[rows])[window]
            for sums, value in zip(to, added, strict=True):
                np.add.at(sums[:, layer], row, _exact(value * holds))


def _squares(
    z: Float[Tensor, "query head d_value"],
    covariance: Float[Tensor, "window head d_value d_value"],
    sizes: Sequence[int],
) -> Float[Tensor, "query head"]:
    """The quadratic form of each query's z, by the matrix of its window."""
    # window by window: a matrix for each query would be far more than the queries
    parts = zip(torch.split(z, list(sizes)), covariance, strict=True)
    return torch.cat(
        [(torch.einsum("qhd,hde->qhe", part, matrix) * part).sum(-1) for part, matrix in parts]
    )


def _add_named(
    queries: NamedTokenQueries,
    layer: int,
    values: tuple[Tensor, ...],
    scale: Float[Tensor, " query"],
    to: tuple[ndarray, ...],
) -> None:
    """Add one layer's values, as `_at_named` gives them, to targets, controls and counts."""
    target, control, count = (sums[:, layer] for sums in to)
    rows, size = queries.rows.cpu().numpy(), scale[queries.query.to(scale.device), None]
    sides = ((target, 0), (control, 0), (control, 1), (target, 2))
    for (sums, part), value in zip(sides, values, strict=False):
        has_row = rows[part] >= 0
        np.add.at(sums, rows[part][has_row], _exact(value * size)[has_row])
        if sums is not control or part:  # targets and their controls are of the same queries
            np.add.at(count, rows[part][has_row], 1.0)


def partners(
    queries: TopKeyQueries, holds: Bool[Tensor, "query head"]
) -> Int[Tensor, "query head"]:
    """For each asked query of a head another asked query of the same window and head.

    The next in the drawn order, and after the last the first: a head that is asked once is its own
    partner, so that nothing is gained. Rows that are not asked hold any number.
    """
    count, device = len(holds), holds.device
    order, window = queries.order.to(device), queries.window.to(device)
    position = torch.arange(count, device=device)[:, None].expand_as(holds)
    later = torch.where(holds[order], position, count)
    # the first asked place at or after each, and strictly after each
    next_held = later.flip(0).cummin(0).values.flip(0)
    next_later = torch.cat([next_held[1:], torch.full_like(next_held[:1], count)])
    starts = torch.searchsorted(window, torch.arange(int(window[-1]) + 1, device=device))
    ends = torch.searchsorted(window, window, right=True)[:, None]
    first = next_held[starts][window]
    partner_order = torch.where(next_later < ends, next_later, first).clamp_max(count - 1)
    partner = torch.empty_like(partner_order)
    partner[order] = order[partner_order]
    return partner


def _at_named(
    queries: NamedTokenQueries,
    through: Tensor,
    z: Tensor,
    scale: Tensor,
    self_values: Tensor | None,
) -> tuple[Float[Tensor, "ask head"], ...]:
    """Effects on targets, controls and matched controls, and the lift that own positions give."""
    query = queries.query.to(z.device)
    size, flat = scale[query, None], through.flatten(1)
    sides = [
        (side.to(z.device) @ flat).view(-1, *z.shape[1:])
        for side in (queries.target, queries.control, queries.second)
    ]
    values = [(side * z[query]).sum(-1) * size for side in sides]
    if self_values is not None:
        # the named queries are the last
        self_value = self_values[query - (len(z) - len(self_values))]
        values.append(((sides[0] - sides[1]) * self_value).sum(-1) * size)
    return tuple(values)


def _from_selves(selves: Sequence[tuple[Tensor, Tensor | None]], z: Tensor) -> Tensor | None:
    """The part of z that comes from the queries' own positions, `[query head d_value]`, if seen."""
    heads, width = z.shape[1:]
    parts = []
    for attention, value in selves:
        groups = 0 if value is None else value.shape[1] // width
        if value is None or not groups or value.shape[1] % width or heads % groups:
            return None
        value = value.to(z).view(len(value), groups, width).repeat_interleave(heads // groups, 1)
        parts.append(attention.to(z.device)[:, :, None] * value)
    return torch.cat(parts) if parts else None


def _likely(
    queries: TopKeyQueries, stream: Tensor, directions: Tensor, token: Int[Tensor, "query head"]
) -> Bool[Tensor, "query head"]:
    """True if few of the text's tokens are likelier by the stream, unembedded."""
    logits = stream.float() @ directions.to(stream.device).T
    present = queries.count.to(stream.device)[queries.window.to(stream.device)] > 0
    token_logits = logits.gather(1, token.to(stream.device))
    text_logits = logits.masked_fill(~present, -torch.inf)
    # head by head: a count for all at once would be larger than the effects themselves
    larger = torch.stack(
        [(text_logits > logit[:, None]).sum(1) for logit in token_logits.unbind(1)], 1
    )
    is_likely: Tensor = larger <= PREDICTED * present.sum(1, keepdim=True)
    return is_likely.to(token.device)


def _exact(values: Tensor) -> ndarray:
    return values.double().cpu().numpy()
