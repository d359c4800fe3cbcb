"""Profiles of heads' patterns: entropy, variability, shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

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
    """Maker of the reader of profiled windows, of long ones of their first `LONG` tokens."""
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


@dataclass(frozen=True, eq=False)
class _WindowRows:
    """Consecutive rows of a profiled window in one layer."""

    layer: int
    row: int
    """Number of the window in its batch."""
    first: int
    """Query of the first row."""
    length: int
    """Tokens of the window that are profiled."""
    pattern: Float[Tensor, "head query key"]
    logs: Float[Tensor, "head query key"]
    """Natural logarithms of the pattern, all finite."""

    @property
    def end(self) -> int:
        """The query after the last row."""
        return self.first + self.pattern.shape[1]


class ProfileReader:
    """Sums of the profile over a batch's profiled windows, tile by tile."""

    def __init__(self, batch: Batch, tiles: Sequence[Tile], config: ReaderConfig) -> None:
        self.batch = batch
        self.requests = tiles
        self.config = config
        self.profile = Profile.zeros(config.layers, config.heads)
        self.columns: dict[int, Float[Tensor, "head key"]] = {}
        self._keys_of: dict[tuple[int, int], _ProfiledKeys] = {}
        """Facts on the keys of some rows, by their window and first query."""
        self._terms: list[tuple[ndarray, Tensor]] = []
        """Arrays of the profile, each with values that are added when all layers are read."""

    def add_to(self, tally: Tally) -> None:
        """Add the profile."""
        if self._terms:
            # what was summed comes back from the device in one copy
            joined = torch.cat([values.flatten() for _, values in self._terms])
            added = grained(joined.cpu().double().numpy())
            start = 0
            for sums, _ in self._terms:
                sums += added[start : start + sums.size].reshape(sums.shape)
                start += sums.size
        tally.profile += self.profile

    def _add(self, sums: ndarray, values: Tensor) -> None:
        self._terms.append((sums, values))

    def on_rows(self, layer: int, index: int, rows: Rows) -> None:
        """Add the rows of one tile."""
        tile = self.requests[index]
        for row in self.batch.profiled:
            if not tile.windows.start <= row < tile.windows.stop:
                continue
            length = min(LONG, len(self.batch.windows[row]))
            # the first token has nowhere to look
            first = max(1, tile.queries.start)
            end = min(length, tile.queries.stop)
            if first >= end:
                continue
            queries = slice(first - tile.queries.start, end - tile.queries.start)
            seen = end if tile.width is None else length
            values = rows[row - tile.windows.start, :, queries, :seen].float()
            if self.config.logarithms:
                pattern = values.exp()
                # −∞ for later keys; no probability that is left is as small as this
                logs = values.clamp_min(-1e3)
            else:
                pattern = values
                tiny = torch.finfo(values.dtype).tiny
                logs = values.clamp_min(tiny).log()
            self._add_window(
                _WindowRows(
                    layer=layer,
                    row=row,
                    first=first,
                    length=length,
                    pattern=pattern,
                    logs=logs,
                )
            )

    def _add_window(self, part: _WindowRows) -> None:
        if part.layer == 0:
            self.profile.queries += part.end - part.first
        # what is measured query by query
        profile = self.profile
        layer = part.layer
        pattern = part.pattern
        window = self.batch.windows[part.row]
        kind = window.attention_kind
        first_key = pattern[..., 0]
        row_mass = row_sums(pattern)
        entropy = -(pattern * part.logs).sum(-1)
        # sums that weigh keys, by one product
        keys = self._keys(part)
        by_key = _by_key(pattern, row_mass, part.first, keys)
        distance = by_key.distance
        if kind.sees_future:
            # queries of an encoder may attend to later keys too
            queries = torch.arange(part.first, part.end, device=pattern.device)
            key_positions = torch.arange(pattern.shape[2], device=pattern.device)
            steps = (queries[:, None] - key_positions).abs()
            distance = (pattern * steps).sum(-1)
        spread = _spread(entropy, first_key, row_mass, keys.others)
        self._add(profile.distance[layer], distance.sum(-1))
        self._add(profile.sentence[layer], by_key.in_sentence.sum(-1))
        self._add(profile.entropy[layer], entropy.sum(-1))
        self._add(profile.first_token[layer], first_key.sum(-1))
        self._add(profile.spread[layer], spread.sum(-1))
        if self.config.sinks:
            sink = 1 - pattern.sum(-1)
            self._add(profile.sink[layer], sink.sum(-1))
        # attention at each offset
        later_keys = part.pattern[..., 1:]
        # both the query and the key of a diagonal are past the first token
        current = part.first - 1
        if kind.sees_future:
            current += FORWARD_OFFSETS
        sums = self.profile.diagonal[part.layer]
        offsets = min(OFFSETS, part.end - 1)
        for offset in range(offsets):
            diagonal = later_keys.diagonal(current - offset, -2, -1)
            self._add(sums[:, offset], diagonal.sum(-1))
        # parts of the pattern that are kept as they are, and the heaviest keys
        self._add_mean(part)
        if part.first < CORNER <= part.length:
            self._add_corner(part)
        self._add_stripe(part)

    def _keys(self, part: _WindowRows) -> _ProfiledKeys:
        """What weighs the keys of these rows, made for the first layer and kept for the others."""
        rows = part.row, part.first
        if rows not in self._keys_of:
            window = self.batch.windows[part.row]
            queries = np.arange(part.first, part.end)
            # keys beyond the first token, over which a head can spread its attention
            row_end = window.attention_kind.row_end(queries, part.length)
            sentences = window.sentence_of_token[: part.pattern.shape[-1]]
            _, sentence = np.unique(sentences, return_inverse=True)
            self._keys_of[rows] = _ProfiledKeys(
                others=torch.from_numpy(row_end - 1).to(part.pattern),
                sentence=torch.from_numpy(sentence).to(part.pattern.device),
                sentence_count=1 + int(sentence.max()),
            )
        return self._keys_of[rows]

    def _add_mean(self, part: _WindowRows) -> None:
        """Add the rows that the mean pattern shows."""
        rows = part.pattern.shape[1]
        count = min(SIDE - part.first, rows)
        if count <= 0:
            return
        queries = slice(part.first, part.first + count)
        pixels = part.pattern[:, :count, :SIDE].clone()
        keys = pixels.shape[-1]
        sums = self.profile.mean[part.layer]
        mean = sums.reshape(-1, SIDE, SIDE)  # a view
        self._add(mean[:, queries, :keys], pixels)
        if part.layer == 0:
            self.profile.mean_queries[queries] += 1

    def _add_corner(self, part: _WindowRows) -> None:
        """Add the rows on which variability is measured."""
        pattern = part.pattern
        index = self.batch.profiled[part.row]
        starts_window = part.first == 1
        cells = pattern[:, : CORNER - part.first, :CORNER]
        heads, rows, keys = cells.shape
        queries = slice(part.first, part.first + rows)
        corner = pattern.new_zeros(heads, CORNER, CORNER)
        corner[:, 0, 0] = starts_window  # the first token sees itself alone
        corner[:, queries, :keys] = cells
        sums = self.profile.corner[index, part.layer]
        self._add(sums, corner.flatten(1))
        # windows are counted once, not layer by layer
        if part.layer == 0 and starts_window:
            self.profile.corners[index] += 1

    def _add_stripe(self, part: _WindowRows) -> None:
        """Add the largest sums of keys, which are known when the last query has come."""
        columns = part.pattern[..., 1:].sum(-2)
        before = self.columns.pop(part.row, None)
        if before is not None:
            columns[:, : before.shape[1]] += before
        if part.end < part.length:
            self.columns[part.row] = columns
            return
        share = (part.length - 1) * STRIPE_SHARE
        count = max(1, round(share))
        largest = columns.topk(count, dim=-1).values
        self._add(self.profile.stripe[part.layer], largest.sum(-1))


class _ProfiledKeys(NamedTuple):
    """Facts on the keys of some rows of a window."""

    others: Float[Tensor, " query"]
    """Number of keys that each query sees, without the first token."""
    sentence: Int[Tensor, " key"]
    """Number of each key's sentence in the window."""
    sentence_count: int


class _KeySums(NamedTuple):
    """Sums of a row that weigh its keys."""

    distance: Float[Tensor, "head query"]
    in_sentence: Float[Tensor, "head query"]
    """Attention within the query's sentence, the first token left out."""


def _by_key(
    pattern: Float[Tensor, "head query key"],
    row_mass: Float[Tensor, "head query"],
    start: int,
    profiled: _ProfiledKeys,
) -> _KeySums:
    """Each query's mean distance, and its attention within its sentence, by one product."""
    sentence = profiled.sentence
    keys = torch.arange(pattern.shape[-1], device=pattern.device)
    # column 0 weighs a key by its position, the others hold a sentence each
    weights = pattern.new_zeros(len(keys), 1 + profiled.sentence_count)
    weights[:, 0] = keys
    weights[keys[1:], 1 + sentence[1:]] = 1  # the first token is in no sentence
    sums = pattern @ weights
    # an encoder's rows have keys after the last query of a tile
    queries = slice(start, start + pattern.shape[1])
    column = 1 + sentence[queries, None]
    in_sentence = sums.gather(-1, column.expand(*sums.shape[:2], 1))
    return _KeySums(
        distance=keys[queries] * row_mass - sums[..., 0],
        in_sentence=in_sentence[..., 0],
    )


def _spread(
    entropy: Float[Tensor, "head query"],
    first: Float[Tensor, "head query"],
    row_mass: Float[Tensor, "head query"],
    others: Float[Tensor, " query"],
) -> Float[Tensor, "head query"]:
    """The attention beyond the first token, times its entropy as a share of the largest.

    The entropy beyond the first token is that of the row, by algebra rather than a second pass.
    """
    # below a millionth there is nothing left to spread
    outside = (row_mass - first).clamp_min(1e-6)
    entropy_outside = entropy - torch.special.entr(first)
    within = entropy_outside / outside + outside.log()
    largest = others.log().clamp_min(1e-9)
    spread = torch.where(others > 1, within / largest, 0)
    return spread.clamp(0, 1) * outside


def describe(profile: Profile, numbers: Sequence[int]) -> pd.DataFrame:
    """The descriptive columns, a row per head: layer, head, and

    - `entropy`: mean of −Σ p ln p over queries, in nats; 0 for one key, ln n for n even keys.
    - `mean_distance`: mean of Σ p · |query − key|, in tokens; from a translation to its
      source, both positions count from the beginning of their sentence.
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
    heads = range(profile.entropy.shape[1])
    index = [(layer, head) for layer in numbers for head in heads]
    table = pd.DataFrame(index, columns=["layer", "head"])
    # sums over queries, without which all are missing
    queries = float(profile.queries)
    sums = {
        "first_token_mass": profile.first_token,
        "entropy": profile.entropy,
        "mean_distance": profile.distance,
        "sink_share": profile.sink,
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        for name, values in sums.items():
            table[name] = (values / queries).ravel()
        # the first key is left out; a single window does not differ from the mean over windows
        variability = np.full(profile.entropy.shape, np.nan)
        is_later_key = np.arange(CORNER * CORNER) % CORNER > 0
        windows = profile.corner[profile.corners == 1][..., is_later_key]
        if len(windows) > 1:
            differences = np.abs(windows - windows.mean(0))
            deviation = differences.sum((0, -1))
            mass = windows.sum((0, -1))
            variability = deviation / (2 * mass)
        table["variability"] = variability.ravel()
    # models without learned sinks have no such share
    if not profile.sink.any():
        table["sink_share"] = np.nan
    table["shape"] = _shapes(profile)
    return table


def _shapes(profile: Profile) -> list[str | float]:
    queries = float(profile.queries)
    if queries == 0:
        return [np.nan] * profile.entropy.size
    # shares of what lies beyond the first token, as many heads rest there
    outside = np.maximum(queries - profile.first_token, 1e-9)
    # the first that fits gives the name
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
