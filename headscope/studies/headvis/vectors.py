"""The third pass: queries, keys, values and outputs of heads where they attend strongly, and three
principal components of them, the same ones each time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.attention_kind import AttentionKind
from headscope.corpus.window import Window
from headscope.models.engines.engine import QueryRows, Tile
from headscope.models.engines.engine import Vectors as VectorRequest
from headscope.models.engines.fused import FusedEngine
from headscope.models.engines.log_attention import Scores, log_probabilities
from headscope.models.load import Model
from headscope.models.stream import LayerAttention, stream_attention
from headscope.studies.headvis.scan import Advance, HeadSelection, Points

AXES = 3
"""Principal components of a cloud."""
Vectors = dict[str, Float[Tensor, "point width"]]
"""By their letters, as HeadVis has them: `Q` at the query and `K` at the key as they meet in the
score, that is after rotary embedding; `V` at the key; and `O` at the query, the head's mean of
values weighted by its attention, before W_O, so that O and V lie in one space."""


def shows_vectors(model: Model) -> bool:
    """Tells whether a model's queries, keys and values can be read: the fused engine's can."""
    return isinstance(model.engine, FusedEngine)


def read_vectors(
    model: Model,
    windows: Sequence[Window],
    selection: HeadSelection,
    points: Sequence[Points],
    advance: Advance,
) -> list[Vectors]:
    """The vectors of each head at its points, in their order; no letters of a head without any.

    Args:
        model: of the fused engine.
        windows: all that there are.
        selection: the heads.
        points: of each head.
        advance: told the tokens of each window when they are done.
    """
    vectors: list[dict[str, list[Tensor]]] = [{} for _ in selection.heads]
    for number, window in enumerate(windows):
        in_window = [head_points.of(number) for head_points in points]
        here = {i: head_points for i, head_points in enumerate(in_window) if len(head_points)}
        if here:
            for i, head_vectors in _read_window(model, window, selection, here).items():
                for letter, values in head_vectors.items():
                    vectors[i].setdefault(letter, []).append(values.float().cpu())
        advance(len(window))
    return [{letter: torch.cat(parts) for letter, parts in values.items()} for values in vectors]


@dataclass(frozen=True, eq=False)
class Rotation:
    """The map of a vector onto the axes: (vector − mean) · axesᵀ."""

    mean: Float[Tensor, " width"]
    axes: Float[Tensor, "3 width"]
    """Orthonormal rows, the one of most variance first; zero where the vectors span fewer."""

    def of(self, vectors: Float[Tensor, "point width"]) -> Float[Tensor, "point 3"]:
        """Coordinates of vectors on the axes."""
        return (vectors.double() - self.mean) @ self.axes.T


def principal_axes(vectors: Float[Tensor, "point width"]) -> Rotation:
    """The axes of most variance, by the singular values of the centred vectors.

    An axis and its opposite serve alike: the entry of largest size is made positive, the first of
    equals, so that the same vectors always give the same axes.

    >>> found = principal_axes(torch.tensor([[0.0, -1.0], [0.0, 1.0], [0.0, 3.0]]))
    >>> found.axes.round(decimals=6).tolist()
    [[0.0, 1.0], [0.0, 0.0], [0.0, 0.0]]
    """
    exact = vectors.double().cpu()
    mean = exact.mean(0)
    _, sizes, rows = torch.linalg.svd(exact - mean, full_matrices=False)
    directions = rows[:AXES][sizes[:AXES] > sizes[:1] * 1e-9]
    largest = directions.gather(1, directions.abs().argmax(1, keepdim=True))
    axes = exact.new_zeros(AXES, exact.shape[1])
    axes[: len(directions)] = directions * largest.sign()
    return Rotation(mean, axes)


def _read_window(
    model: Model, window: Window, selection: HeadSelection, points: Mapping[int, Points]
) -> dict[int, Vectors]:
    """The vectors of some of the selected heads, by their places."""
    vectors: dict[int, Vectors] = {}

    def add(attention: LayerAttention) -> None:
        (scores,) = attention.rows
        places, numbers = selection.by_layer.get(attention.layer, (slice(0, 0), []))
        for i, head in zip(range(places.start, places.stop), numbers, strict=True):
            if i in points:
                one = scores.of_head(head)
                vectors[i] = _vectors(one, points[i], model.attention_kind)

    stream_attention(model, [window], lambda _: [VectorRequest()], add, layers=selection.last + 1)
    return vectors


def _vectors(scores: Scores, points: Points, attention_kind: AttentionKind) -> Vectors:
    """The vectors of one head at its points in a window that runs alone."""
    length = scores.query.shape[2]
    rows: Tensor
    if attention_kind.sees_future:
        rows = log_probabilities(scores, Tile(slice(0, 1), slice(0, length), length))[0, 0]
        rows = rows[torch.from_numpy(points.query).to(rows.device)]
    else:
        rows = log_probabilities(scores, QueryRows(0, points.query))[0, 0]
    value: Any = scores.value
    values = value[0, 0].to(rows.dtype)
    return {
        "Q": scores.query[0, 0, points.query],
        "K": scores.key[0, 0, points.key],
        "V": values[points.key],
        "O": rows.exp() @ values[: rows.shape[1]],
    }
