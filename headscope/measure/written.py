"""What heads write at the asked queries, read beside their attention in the same forward pass."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.effects import Asked, Named, Own
from headscope.measure.tally import Tally, grained
from headscope.models.direct.paths import DirectPaths, End
from headscope.relations.writes.effect import Effect

PREDICTED = 0.25
"""A token counts as predicted where at most this share of the text's distinct tokens is likelier
(ours)."""


@dataclass(frozen=True, eq=False)
class EffectSums:
    """What a batch adds to the sums of effects."""

    asked: Asked
    target: Float[ndarray, "row layer head"]
    control: Float[ndarray, "row layer head"]
    count: Float[ndarray, "row layer head"]
    """What the sums are divided by. In rows of second controls it is the number of queries, and the
    target is the spread of the head's effects over the text's tokens, 0 where the text names the
    tokens."""

    def add_to(self, tally: Tally) -> None:
        """Add all of it; the names of effects are the last of a tally."""
        first = len(tally.relations) - self.asked.names
        at = (self.asked.block, first + self.asked.effect)
        # the rows are distinct, so that plain indexing adds each of them once
        tally.target[at] += self.target
        tally.control[at] += self.control
        tally.hits[at] += self.count
        tally.queries[at] += self.asked.count


class Written:
    """What one batch's heads write, layer by layer."""

    def __init__(self, paths: DirectPaths, asked: Asked, effects: Sequence[Effect]) -> None:
        self.paths, self.asked = paths, asked
        self.looked = [each.looked for each in effects if each.looked is not None]
        self.directions = paths.directions(asked.tokens)
        self._strong: list[Tensor] = []
        self._key: list[Tensor] = []
        self._rank: Tensor | None = None
        self._stream: Tensor | None = None
        self._selves: list[tuple[Tensor, Tensor | None]] = []
        self._named: list[tuple[Tensor, ...]] = []
        self._own: list[tuple[Tensor, ...]] = []

    @property
    def needs_stream(self) -> bool:
        """Whether an effect asks what a layer's input predicts."""
        return self.asked.own is not None and any(each.predicted for each in self.looked)

    def watching(self) -> AbstractContextManager[End]:
        """The context within which a forward pass is read; see `DirectPaths.watching`."""
        stream = self.stream if self.needs_stream else None
        return self.paths.watching(self.asked.queries, self.take, stream)

    def look(self, rows: Float[Tensor, "one head query key"], *, logarithms: bool) -> None:
        """Note which key is each row's strongest, the first left out, and how strong it is."""
        strongest, key = rows[0, :, :, 1:].max(-1)
        strongest = strongest.float().exp() if logarithms else strongest.float()
        self._strong.append(strongest.T)
        self._key.append(key.T + 1)

    def look_at_selves(
        self,
        attention: Float[Tensor, "query head"],
        value: Float[Tensor, "query width"] | None,
        *,
        logarithms: bool,
    ) -> None:
        """Note what one window's named queries take from their own positions."""
        attention = attention.float().exp() if logarithms else attention.float()
        self._selves.append((attention, value))

    def stream(self, layer: int, stream: Float[Tensor, "query d_model"]) -> None:
        """Note what a layer reads at the asked queries."""
        self._stream = stream

    def take(
        self, layer: int, z: Float[Tensor, "query head d_value"], scale: Float[Tensor, " query"]
    ) -> None:
        """Evaluate one layer's heads, whose rows were looked at before."""
        through = self.paths.through_heads(layer, self.directions.to(z.device))
        if self.asked.named is not None:
            mine = _from_selves(self._selves, z)
            self._named.append(_at_named(self.asked.named, through, z, scale, mine))
        if self.asked.own is not None:
            self._own.append(self._at_own(self.asked.own, through, z, scale))
        self._strong, self._key, self._selves, self._stream = [], [], [], None

    def _at_own(self, own: Own, through: Tensor, z: Tensor, scale: Tensor) -> tuple[Tensor, ...]:
        strength, key = torch.cat(self._strong).to(z.device), torch.cat(self._key).to(z.device)
        window = own.window.to(z.device)
        token = own.tokens.to(z.device)[window[:, None], key]
        z, scale = z[: len(window)], scale[: len(window), None]
        heads = torch.arange(z.shape[1], device=z.device)
        asked = [strength > each.least for each in self.looked]
        if self.needs_stream and self._stream is not None:
            likely = _likely(own, self._stream[: len(window)], self.directions, token)
            asked = [
                some & likely if each.predicted else some
                for some, each in zip(asked, self.looked, strict=True)
            ]

        def at(tokens: Int[Tensor, "query head"]) -> Float[Tensor, "query head"]:
            return (z * through[tokens, heads]).sum(-1) * scale

        target, count = at(token), own.count.to(z.device)
        # each distinct token of a text counts alike: else a head that happens to raise commas
        # when it looks at commas would raise what it looks at
        weight = 1 / count[window[:, None], token]
        there = (count > 0).float()
        distinct = there.sum(1)[window, None]
        text = (z * torch.einsum("wt,thd->whd", there, through)[window]).sum(-1) * scale
        # the mean over the other tokens of the text
        control = (text - target) / (distinct - 1).clamp_min(1)
        covariance = torch.einsum("wt,thd,the->whde", there, through, through)
        # window by window: a matrix for each query would be far more than the queries
        parts = torch.split(z, [len(look.queries) for look in own.looks])
        squares = [
            (torch.einsum("qhd,hde->qhe", part, each) * part).sum(-1)
            for part, each in zip(parts, covariance, strict=True)
        ]
        square = torch.cat(squares) * scale.square()
        spread = (square / distinct - (text / distinct).square()).clamp_min(0).sqrt()
        found = [weight * target, weight * control, weight, weight * spread]
        for some in asked:
            other = partners(own, some)
            # weighted as its own query is, so that both sides hold the same tokens as often
            found.append(weight.gather(0, other) * at(token.gather(0, other)))
        return (*found, *asked)

    @torch.no_grad()
    def sums(self, end: End) -> EffectSums:
        """What the batch adds, when the last norm's scale is known."""
        rows, layers, heads = len(self.asked.block), self.paths.layers, self.paths.heads
        target, control, count = (np.zeros((rows, layers, heads)) for _ in range(3))
        if end.scale is None:
            raise RuntimeError("the pass has not reached the last norm")
        for layer, (one, other, second, *mine) in enumerate(self._named):
            named = self.asked.named
            if named is None:
                break
            row, second_row = named.row.cpu().numpy(), named.second_row.cpu().numpy()
            size = end.scale.to(one.device)[named.place.to(one.device), None]
            np.add.at(target[:, layer], row, _exact(one * size))
            np.add.at(control[:, layer], row, _exact(other * size))
            np.add.at(count[:, layer], row, 1.0)
            having = second_row >= 0
            np.add.at(control[:, layer], second_row[having], _exact(second * size)[having])
            np.add.at(count[:, layer], second_row[having], 1.0)
            self_row = named.self_row.cpu().numpy()
            having = self_row >= 0
            for each in mine:
                np.add.at(target[:, layer], self_row[having], _exact(each * size)[having])
                np.add.at(count[:, layer], self_row[having], 1.0)
        for layer, values in enumerate(self._own):
            own = self.asked.own
            if own is None:
                break
            window = own.window.cpu().numpy()
            size = end.scale.to(values[0].device)[: len(window), None]
            for number, _ in enumerate(self.looked):
                self._add_look(number, layer, window, values, size, (target, control, count))
        return EffectSums(self.asked, *map(grained, (target, control, count)))

    def _add_look(
        self,
        number: int,
        layer: int,
        window: Int[ndarray, " query"],
        values: tuple[Tensor, ...],
        size: Float[Tensor, "query one"],
        to: tuple[ndarray, ndarray, ndarray],
    ) -> None:
        own, looked = self.asked.own, len(self.looked)
        if own is None:
            return
        target, control, weight, spread, *more = values
        second, asked = more[number], more[looked + number].float()
        # the row of the second control holds the spread, and counts queries and not their weights
        for rows, added in (
            (number, (target * size, control * size, weight)),
            (looked + number, (spread * size, second * size, torch.ones_like(weight))),
        ):
            row = np.array(own.rows[rows])[window]
            for sums, each in zip(to, added, strict=True):
                np.add.at(sums[:, layer], row, _exact(each * asked))


def partners(own: Own, asked: Bool[Tensor, "query head"]) -> Int[Tensor, "query head"]:
    """For each asked query of a head another asked query of the same window and head.

    The next in the drawn order, and after the last the first: a head that is asked once is its own
    partner, so that nothing is gained. Rows that are not asked hold any number.
    """
    count, device = len(asked), asked.device
    drawn, window = own.drawn.to(device), own.window.to(device)
    place = torch.arange(count, device=device)[:, None].expand_as(asked)
    later = torch.where(asked[drawn], place, count)
    # the first asked place at or after each, and strictly after each
    coming = later.flip(0).cummin(0).values.flip(0)
    following = torch.cat([coming[1:], torch.full_like(coming[:1], count)])
    starts = torch.searchsorted(window, torch.arange(int(window[-1]) + 1, device=device))
    ends = torch.searchsorted(window, window, right=True)[:, None]
    first = coming[starts][window]
    chosen = torch.where(following < ends, following, first).clamp_max(count - 1)
    found = torch.empty_like(chosen)
    found[drawn] = drawn[chosen]
    return found


def _at_named(
    named: Named, through: Tensor, z: Tensor, scale: Tensor, mine: Tensor | None
) -> tuple[Float[Tensor, "ask head"], ...]:
    """On targets, controls and second controls, and what own positions give of the lift."""
    place = named.place.to(z.device)
    size, flat = scale[place, None], through.flatten(1)
    sides = [
        (side.to(z.device) @ flat).view(-1, *z.shape[1:])
        for side in (named.target, named.control, named.second)
    ]
    found = [(side * z[place]).sum(-1) * size for side in sides]
    if mine is not None:
        # the named queries are the last
        own = mine[place - (len(z) - len(mine))]
        found.append(((sides[0] - sides[1]) * own).sum(-1) * size)
    return tuple(found)


def _from_selves(selves: Sequence[tuple[Tensor, Tensor | None]], z: Tensor) -> Tensor | None:
    """What the named queries' own positions give to z, `[query head d_value]`; None: not seen."""
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
    own: Own, stream: Tensor, directions: Tensor, token: Int[Tensor, "query head"]
) -> Bool[Tensor, "query head"]:
    """Where few of the text's tokens are likelier by the stream, unembedded."""
    logits = stream.float() @ directions.to(stream.device).T
    present = own.count.to(stream.device)[own.window.to(stream.device)] > 0
    mine = logits.gather(1, token.to(stream.device))
    text = logits.masked_fill(~present, -torch.inf)
    # head by head: a count for all at once would be larger than the effects themselves
    larger = torch.stack([(text > own[:, None]).sum(1) for own in mine.unbind(1)], 1)
    found: Tensor = larger <= PREDICTED * present.sum(1, keepdim=True)
    return found.to(token.device)


def _exact(values: Tensor) -> ndarray:
    return values.double().cpu().numpy()
