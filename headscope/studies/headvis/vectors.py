"""The third pass: queries, keys, values and outputs of heads where they attend strongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.models.engines.engine import Picked, StoppedError, Tile
from headscope.models.engines.fused import FusedEngine, stopped
from headscope.models.engines.interface import reading
from headscope.models.engines.probe import only_forward
from headscope.models.engines.rows import Scores, log_probabilities
from headscope.models.load import Model
from headscope.studies.headvis.chosen import Chosen
from headscope.studies.headvis.scan import Advance, Points

Vectors = dict[str, Float[Tensor, "point width"]]
"""By their letters, as HeadVis has them: `Q` at the query and `K` at the key as they meet in the
score, that is after rotary embedding; `V` at the key; and `O` at the query, the head's mean of
values weighted by its attention, before W_O, so that O and V lie in one space."""


def shows_vectors(model: Model) -> bool:
    """Whether a model's queries, keys and values can be read: those of the fused engine's."""
    return isinstance(model.engine, FusedEngine)


@torch.inference_mode()
def read_vectors(
    model: Model,
    windows: Sequence[Window],
    chosen: Chosen,
    points: Sequence[Points],
    advance: Advance,
) -> list[Vectors]:
    """The vectors of each head at its points, in their order; no letters of a head without any.

    Args:
        model: of the fused engine.
        windows: all that there are.
        chosen: the heads.
        points: of each head.
        advance: told the tokens of each window when they are done.
    """
    found: list[dict[str, list[Tensor]]] = [{} for _ in chosen.heads]
    for number, window in enumerate(windows):
        here = {i: each for i, each in enumerate(_in_window(points, number)) if len(each)}
        if here:
            for i, own in _read_window(model, window, chosen, here).items():
                for letter, each in own.items():
                    found[i].setdefault(letter, []).append(each.float().cpu())
        advance(len(window))
    return [{letter: torch.cat(parts) for letter, parts in each.items()} for each in found]


def _in_window(points: Sequence[Points], number: int) -> list[Points]:
    """Of each head its points in one window."""
    parts = [(each, each.of(number)) for each in points]
    return [Points(each.window[at], each.query[at], each.key[at]) for each, at in parts]


def _read_window(
    model: Model, window: Window, chosen: Chosen, points: Mapping[int, Points]
) -> dict[int, Vectors]:
    """The vectors of some of the chosen heads, by their places."""
    engine: Any = model.engine
    found: dict[int, Vectors] = {}

    def take(layer: int, scores: Scores) -> None:
        places, numbers = chosen.by_layer.get(layer, (slice(0, 0), []))
        own = {i: n for i, n in zip(_range(places), numbers, strict=True) if i in points}
        if own:
            queries = np.unique(np.concatenate([points[i].query for i in own]))
            rows = _rows(scores, queries, both_ways=engine.both_ways)
        for i, head in own.items():
            at = rows[head, np.searchsorted(queries, points[i].query)]
            found[i] = _vectors(scores, head, points[i], at)
        if layer == chosen.last:
            raise StoppedError

    tokens = torch.from_numpy(window.tokens)[None].to(model.device)
    with reading(take), stopped():
        engine.network.base_model(tokens, **only_forward(engine.stated))
    return found


def _range(places: slice) -> range:
    return range(places.start, places.stop)


def _rows(
    scores: Scores, queries: Int[ndarray, " query"], *, both_ways: bool
) -> Float[Tensor, "head query key"]:
    """The attention of all heads at some queries of a window that runs alone."""
    if not both_ways:
        picked: Tensor = log_probabilities(scores, Picked(0, queries))
        return picked.exp()[0]
    length = scores.query.shape[2]
    whole: Tensor = log_probabilities(scores, Tile(slice(0, 1), slice(0, length), length))
    return whole.exp()[0][:, torch.from_numpy(queries).to(whole.device)]


def _vectors(
    scores: Scores, head: int, points: Points, attention: Float[Tensor, "point key"]
) -> Vectors:
    """A head's vectors; query heads of a group share keys and values."""
    group = head // (scores.query.shape[1] // scores.key.shape[1])
    value: Any = scores.value
    values = value[0, group].to(attention.dtype)
    return {
        "Q": scores.query[0, head, points.query],
        "K": scores.key[0, group, points.key],
        "V": values[points.key],
        "O": attention @ values[: attention.shape[1]],
    }
