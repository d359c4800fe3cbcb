"""Profiles of heads' patterns: entropy, variability, shape."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.measure.batches import Batch
from headscope.measure.layer_reader import MakeReader, ReaderConfig
from headscope.measure.selection import ROW_CELLS
from headscope.measure.tally import CORNER, OFFSETS, SIDE, Profile, Tally, grained
from headscope.models.engines.engine import Rows, Tile, row_sums
from headscope.relations.query_sampling import LONG

STRIPE_SHARE = 1 / 16
"""Share of a window's keys that count as a vertical stripe when most attention falls on them."""
# A shape is named when it holds half of the attention; a uniform head gives the diagonal at most
# 2 % of a 256-token window, the stripes about 24 %, its own sentence about 10 %.
FORWARD_OFFSETS = OFFSETS // 2
"""Offsets ahead of the query that are summed of an encoder, in place of as many back."""
DIAGONAL_THRESHOLD = STRIPE_THRESHOLD = 0.5
SENTENCE_THRESHOLD = 0.75
SPREAD_THRESHOLD = 0.75


def profile_reader(batch: Batch, tiles: Sequence[Tile], config: ReaderConfig) -> MakeReader | None:
    """Reader of the profiled windows of a batch, of long ones of their first `LONG` tokens."""
    if not batch.profiled:
        return None
    if max(map(len, batch.windows)) > LONG:
        step = max(1, ROW_CELLS // (config.heads * LONG))
        lengths = {row: min(LONG, len(batch.windows[row])) for row in sorted(batch.profiled)}
        tiles = [
            Tile(slice(row, row + 1), slice(start, min(start + step, length)))
            for row, length in lengths.items()
            for start in range(0, length, step)
        ]
    return partial(ProfileReader, batch, tiles, config)


class ProfileReader:
    """Sums of the profile over a batch's profiled windows, tile by tile."""

    def __init__(self, batch: Batch, tiles: Sequence[Tile], config: ReaderConfig) -> None:
        self.batch, self.requests, self.config = batch, tiles, config
        self.profile = Profile.zeros(config.layers, config.heads)
        self.columns: dict[int, Float[Tensor, "head key"]] = {}
        self._terms: list[tuple[ndarray, Tensor]] = []
        """Arrays of the profile, each with values that are added when all layers are read."""

    def add_to(self, tally: Tally) -> None:
        """Add the profile."""
        for sums, values in self._terms:
            sums += grained(values.cpu().double().numpy())
        tally.profile += self.profile

    def _add(self, sums: ndarray, values: Tensor) -> None:
        self._terms.append((sums, values))

    def on_rows(self, layer: int, tile: Any, rows: Rows) -> None:
        """Add the rows of one tile."""
        for row in self.batch.profiled:
            if not tile.windows.start <= row < tile.windows.stop:
                continue
            length = min(LONG, len(self.batch.windows[row]))
            # the first token has nowhere to look
            first, end = max(1, tile.queries.start), min(length, tile.queries.stop)
            if first >= end:
                continue
            queries = slice(first - tile.queries.start, end - tile.queries.start)
            seen = end if tile.width is None else length
            pattern = rows[row - tile.windows.start, :, queries, :seen].float()
            if self.config.logarithms:
                # −∞ for later keys; no probability that is left is as small as this
                self._add_window(layer, row, first, (pattern.exp(), pattern.clamp_min(-1e3)))
            else:
                tiny = torch.finfo(pattern.dtype).tiny
                self._add_window(layer, row, first, (pattern, pattern.clamp_min(tiny).log()))

    def _add_window(
        self, layer: int, row: int, first: int, pattern_and_logs: tuple[Tensor, Tensor]
    ) -> None:
        (pattern, logs), profile = pattern_and_logs, self.profile
        window, index = self.batch.windows[row], self.batch.profiled[row]
        length, end = min(LONG, len(window)), first + pattern.shape[1]
        sums, entropy = row_sums(pattern), -(pattern * logs).sum(-1)
        sentences = window.sentence_of_token[: pattern.shape[-1]]
        distance, inside = _by_key(pattern, sums, first, sentences)
        if window.attention_kind.sees_future:
            queries = first + torch.arange(pattern.shape[1], device=pattern.device)
            keys = torch.arange(pattern.shape[2], device=pattern.device)
            distance = (pattern * (queries[:, None] - keys).abs()).sum(-1)
        row_end = window.attention_kind.row_end(np.arange(first, end), length)
        others = torch.from_numpy(row_end - 1).to(pattern)
        self._add(profile.distance[layer], distance.sum(-1))
        self._add(profile.sentence[layer], inside.sum(-1))
        self._add(profile.entropy[layer], entropy.sum(-1))
        self._add(profile.first_token[layer], pattern[..., 0].sum(-1))
        self._add(profile.spread[layer], _spread(entropy, pattern[..., 0], sums, others).sum(-1))
        if self.config.sinks:
            self._add(profile.sink[layer], (1 - pattern.sum(-1)).sum(-1))
        later_keys = pattern[..., 1:]
        # diagonal d of `rest` starts where both the query and the key are past the first token
        forward = FORWARD_OFFSETS if window.attention_kind.sees_future else 0
        for offset in range(min(OFFSETS, end - 1)):
            diagonal = later_keys.diagonal(first - 1 - offset + forward, -2, -1)
            self._add(profile.diagonal[layer, :, offset], diagonal.sum(-1))
        count = min(SIDE - first, pattern.shape[1])
        if count > 0:
            part = pattern[:, :count, :SIDE].clone()
            mean = profile.mean[layer].reshape(-1, SIDE, SIDE)  # a view
            self._add(mean[:, first : first + count, : part.shape[-1]], part)
        if layer == 0:
            profile.queries += end - first
            profile.mean_queries[first : first + max(0, count)] += 1
        if first < CORNER <= length:
            corner = pattern.new_zeros(pattern.shape[0], CORNER, CORNER)
            corner[:, 0, 0] = first == 1  # the first token sees itself alone
            part = pattern[:, : CORNER - first, :CORNER]
            corner[:, first : first + part.shape[1], : part.shape[2]] = part
            self._add(profile.corner[index, layer], corner.flatten(1))
            profile.corners[index] += layer == 0 and first == 1
        self._add_stripe(layer, row, (length, end), later_keys.sum(-2))

    def _add_stripe(
        self, layer: int, row: int, bounds: tuple[int, int], columns: Float[Tensor, "head key"]
    ) -> None:
        """Keys' sums are known when the last query has come."""
        length, end = bounds
        before = self.columns.pop(row, None)
        if before is not None:
            columns = columns.clone()
            columns[:, : before.shape[1]] += before
        if end < length:
            self.columns[row] = columns
            return
        count = max(1, round((length - 1) * STRIPE_SHARE))
        self._add(self.profile.stripe[layer], columns.topk(count, dim=-1).values.sum(-1))


def _by_key(
    pattern: Float[Tensor, "head query key"],
    row_mass: Float[Tensor, "head query"],
    start: int,
    sentences: Int[ndarray, " key"],
) -> tuple[Float[Tensor, "head query"], Float[Tensor, "head query"]]:
    """Each query's mean distance, and its attention within its sentence, by one product."""
    number = torch.from_numpy(np.unique(sentences, return_inverse=True)[1]).to(pattern.device)
    keys = torch.arange(pattern.shape[-1], device=pattern.device)
    weights = pattern.new_zeros(pattern.shape[-1], 1 + int(number.max()) + 1)
    weights[:, 0] = keys
    weights[keys[1:], 1 + number[1:]] = 1  # the first token is in no sentence
    sums = pattern @ weights
    inside = sums.gather(-1, (1 + number[start:, None]).expand(*sums.shape[:2], 1))[..., 0]
    return keys[start:] * row_mass - sums[..., 0], inside


def _spread(
    entropy: Float[Tensor, "head query"],
    first: Float[Tensor, "head query"],
    row_mass: Float[Tensor, "head query"],
    others: Float[Tensor, " query"],
) -> Float[Tensor, "head query"]:
    """The attention beyond the first token, times its entropy as a share of the largest.

    The entropy beyond the first token is that of the row, by algebra rather than a second pass.
    """
    outside = (row_mass - first).clamp_min(
        1e-6
    )  # below a millionth there is nothing left to spread
    within = (entropy - torch.special.entr(first)) / outside + outside.log()
    spread = torch.where(others > 1, within / others.log().clamp_min(1e-9), 0)
    return spread.clamp(0, 1) * outside


def describe(profile: Profile, numbers: Sequence[int]) -> pd.DataFrame:
    """The descriptive columns, a row per head: layer, head, and

    - `entropy`: mean of −Σ p ln p over queries, in nats; 0 for one key, ln n for n even keys.
    - `mean_distance`: mean of Σ p · |query − key|, in tokens; of a target on its source both are
      counted from their beginnings.
    - `first_token_mass`: mean attention on the first token, in [0, 1].
    - `sink_share`: mean of 1 − Σ p, what a learned sink takes (GPT-OSS), in [0, 1]; missing where
      no head of the model has one.
    - `variability`: Σ|p − p̄| / 2 Σp over the first 10 tokens, the first key left out, p̄ the mean
      over windows (Vig & Belinkov 2019, section 5.1): 0 for a pattern that does not depend on
      content, towards 1 for one that does.
    - `shape`: of the attention beyond the first token: `diagonal` (half of it at one offset of 0
      to 8, in an encoder of −4 to 4), `vertical` (half of it on a sixteenth of the keys), `block`
      (evenly spread, three quarters inside the query's sentence), `horizontal` (evenly spread), or
      `mixed`.

    All are measured on up to 16 text windows, of long ones on their first 512 tokens; without text
    they are missing.
    """
    index = [(layer, head) for layer in numbers for head in range(profile.entropy.shape[1])]
    table = pd.DataFrame(index, columns=["layer", "head"])
    queries = float(profile.queries)
    with np.errstate(invalid="ignore", divide="ignore"):
        table["first_token_mass"] = (profile.first_token / queries).ravel()
        table["entropy"] = (profile.entropy / queries).ravel()
        table["mean_distance"] = (profile.distance / queries).ravel()
        share = (profile.sink / queries).ravel()
        table["sink_share"] = share if profile.sink.any() else np.nan
        table["variability"] = _variability(profile).ravel()
    table["shape"] = _shapes(profile)
    return table


def _variability(profile: Profile) -> Float[ndarray, "layer head"]:
    windows = profile.corner[profile.corners == 1]
    cells = np.arange(CORNER * CORNER) % CORNER > 0
    windows = windows[..., cells]
    if len(windows) < 2:
        return np.full(profile.entropy.shape, np.nan)
    deviation = np.abs(windows - windows.mean(0)).sum((0, -1))
    return np.asarray(deviation / (2 * windows.sum((0, -1))))


def _shapes(profile: Profile) -> list[str | float]:
    queries = float(profile.queries)
    if queries == 0:
        return [np.nan] * profile.entropy.size
    outside = np.maximum(queries - profile.first_token, 1e-9)
    diagonal = profile.diagonal.max(-1) / outside
    spread = profile.spread / outside
    even = spread >= SPREAD_THRESHOLD
    choices = [
        (diagonal >= DIAGONAL_THRESHOLD, "diagonal"),
        (profile.stripe / outside >= STRIPE_THRESHOLD, "vertical"),
        (even & (profile.sentence / outside >= SENTENCE_THRESHOLD), "block"),
        (even, "horizontal"),
    ]
    conditions, names = zip(*choices, strict=True)
    return [str(name) for name in np.select(conditions, names, default="mixed").ravel()]
