"""An engine: a way to run a model and read its attention, layer by layer.

Three engines give the same sums: `fused` never builds a pattern, `eager` reads those that the
model's own code computes, and `lens` hooks those that TransformerLens builds. All hand on attention
rows tile by tile, so that what is summed from them is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, cast, runtime_checkable

import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.attention_kind import AttentionKind
from headscope.models.layout.dimensions import AttentionDimensions

Rows = Float[Tensor, "window head query key"]
OnLayer = Callable[[int, Iterable[Any]], None]
"""Called with a layer, by its number in the model, and what it shows at each place that was asked
for: rows, or cells."""
ROUNDING = 1e-2
"""Largest distance of a row's sum from 1 by the rounding of half precision."""
OnPattern = Callable[[int, Float[Tensor, "batch head query key"]], None]


@dataclass(frozen=True)
class Tile:
    """A stretch of attention rows: whole windows of a batch, or some queries of one window.

    Its keys are those up to its last query, or as many as `width` says.
    """

    windows: slice
    queries: slice
    width: int | None = None
    """Keys of a row where a query sees those after it too."""

    @property
    def keys(self) -> int:
        """Number of keys in a row of this tile."""
        return int(self.queries.stop) if self.width is None else self.width

    @property
    def shape(self) -> tuple[int, int]:
        """Number of windows and of queries."""
        return (
            self.windows.stop - self.windows.start,
            self.queries.stop - self.queries.start,
        )


class OnDevice:
    """Index arrays that are copied to a device once, however many layers are read by them."""

    @cached_property
    def _tensors(self) -> dict[tuple[str, str], Tensor]:
        return {}

    def tensor(self, name: str, device: torch.device) -> Int[Tensor, " _"]:
        """The array of this attribute as a tensor."""
        array_and_device = name, str(device)
        if array_and_device not in self._tensors:
            copied = torch.from_numpy(getattr(self, name)).to(device)
            self._tensors[array_and_device] = copied
        return self._tensors[array_and_device]


@dataclass(frozen=True, eq=False)
class QueryRows(OnDevice):
    """Some rows of one window, the queries in order; keys up to the last of them."""

    window: int
    queries: Int[ndarray, " query"]

    @property
    def keys(self) -> int:
        """Number of keys in a row."""
        return int(self.queries[-1]) + 1

    @property
    def shape(self) -> tuple[int, int]:
        """Number of windows and of queries."""
        return 1, len(self.queries)


@dataclass(frozen=True, eq=False)
class Entries(OnDevice):
    """Single cells of one window; what is read of them is `[cell head]`."""

    window: int
    queries: Int[ndarray, " cell"]
    keys: Int[ndarray, " cell"]


@dataclass(frozen=True, eq=False)
class SelfEntries:
    """Attention of queries of one window to their own positions, and the values there.

    What is read is their attention to themselves `[query head]`, and the values there
    `[query width]`, those of all key/value heads side by side; by the fused engine alone.
    """

    window: int
    queries: Int[ndarray, " query"]

    @cached_property
    def entries(self) -> Entries:
        """The cells alone."""
        return Entries(self.window, self.queries, self.queries)


PatternRegion = Tile | QueryRows | Entries
Request = PatternRegion | SelfEntries
"""All that an engine hands on."""


def slice_pattern(
    pattern: Float[Tensor, "window head query key"], region: Request
) -> Float[Tensor, ...]:
    """The part of a whole pattern that is requested."""
    if isinstance(region, Tile):
        return pattern[region.windows, :, region.queries, : region.keys]
    in_window = pattern[region.window]
    cells = cast(QueryRows | Entries, region)  # none that builds patterns reads `SelfEntries`
    queries = cells.tensor("queries", pattern.device)
    if isinstance(cells, QueryRows):
        rows = in_window[:, queries, : cells.keys]
        return rows[None]
    keys = cells.tensor("keys", pattern.device)
    return in_window[:, queries, keys].T


class StoppedError(Exception):
    """Everything that was asked for has been read; a run ends where it is raised."""


@runtime_checkable  # shapes and types are checked while tests run
class Engine(Protocol):
    """A model that shows its attention."""

    name: str
    attention_layers: tuple[int, ...]
    """Numbers of the layers whose attention is read, in order."""
    logarithms: bool
    """Rows are logarithms of probabilities instead of probabilities."""
    attention_kind: AttentionKind

    def layout(self, windows: int, length: int) -> list[Tile]:
        """The tiles in which the rows of such a batch come, in order."""

    def run(
        self,
        tokens: Int[Tensor, "window position"],
        requests: Sequence[Request],
        on_layer: OnLayer,
        layers: int | None = None,
        *,
        on: bool = False,
    ) -> None:
        """Run right-padded tokens and hand on each layer's rows, request by request.

        Right padding needs no mask: a causal model's earlier positions never see it. An encoder's
        padding is below 0, and nothing sees it. The run stops after the last rows of the model's
        first `layers` layers (all when None); with `on` it goes on, until a hook raises
        `StoppedError`. Only `attention_layers` have rows.
        """

    def matrices(self) -> list[Float[Tensor, ...]]:
        """Q, K, V and O of each layer as views into the weights that the model uses."""


def model_inputs(
    dimensions: AttentionDimensions, tokens: Int[Tensor, "window position"]
) -> dict[str, Any]:
    """The inputs and options of a forward pass; nothing sees the padding of an encoder.

    Args:
        dimensions: of the model.
        tokens: right-padded; an encoder's padding is below 0.
    """
    if not dimensions.attention_kind.sees_future:
        return {"input_ids": tokens, **dimensions.forward_options}
    visible = tokens >= 0
    mask = None if visible.all() else visible
    return {"input_ids": tokens.clamp_min(0), "attention_mask": mask}


def row_sums(rows: Float[Tensor, "*_ key"]) -> Float[Tensor, "*_"]:
    """Sums of probabilities of whole rows: 1, or what a learned sink leaves of it.

    >>> row_sums(torch.tensor([[0.2, 0.8001], [0.2, 0.3]])).tolist()
    [1.0, 0.5]
    """
    sums = rows.sum(-1)
    return torch.where((sums - 1).abs() < ROUNDING, torch.ones_like(sums), sums)


def attends_to_hidden(pattern: Float[Tensor, "*_ query key"], kind: AttentionKind) -> bool:
    """Test if a query of whole patterns has attention on a key that it does not see.

    >>> from headscope.attention_kind import CAUSAL
    >>> attends_to_hidden(torch.eye(2), CAUSAL), attends_to_hidden(torch.ones(2, 2), CAUSAL)
    (False, True)
    """
    hidden = torch.from_numpy(kind.hidden(pattern.shape[-1])).to(pattern.device)
    return bool(pattern[..., hidden].any())


def full_tile(windows: int, length: int) -> Tile:
    """All rows of a batch as one tile."""
    return Tile(slice(0, windows), slice(0, length))


def stream_patterns(
    engine: Engine,
    tokens: Int[Tensor, "batch position"],
    on_pattern: OnPattern,
    layers: int | None = None,
) -> None:
    """Run the model and give `on_pattern(layer, pattern)` each layer's pattern, one at a time."""

    def on_layer(layer: int, rows: Iterable[Rows]) -> None:
        for pattern in rows:
            on_pattern(layer, pattern.exp() if engine.logarithms else pattern)

    engine.run(tokens, [full_tile(*tokens.shape)], on_layer, layers)
