"""The third pass: queries, keys, values and outputs of heads where they attend strongly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float
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
        for i, head in zip(_range(places), numbers, strict=True):
            if i in points:
                found[i] = _vectors(_of_head(scores, head), points[i], both_ways=engine.both_ways)
        if layer == chosen.last:
            raise StoppedError

    tokens = torch.from_numpy(window.tokens)[None].to(model.device)
    with reading(take), stopped():
        engine.network.base_model(tokens, **only_forward(engine.stated))
    return found


def _range(places: slice) -> range:
    return range(places.start, places.stop)


def _of_head(scores: Scores, head: int) -> Scores:
    """One head's, with the keys and values of its group: the same numbers whatever else is read."""
    group = head // (scores.query.shape[1] // scores.key.shape[1])
    bias, sink, value = scores.beside.bias, scores.beside.sink, scores.value
    if bias is not None and bias.shape[1] > 1:
        bias = bias[:, head : head + 1]
    return scores._replace(
        query=scores.query[:, head : head + 1],
        key=scores.key[:, group : group + 1],
        value=None if value is None else value[:, group : group + 1],
        normaliser=scores.normaliser[:, head : head + 1],
        beside=scores.beside._replace(bias=bias, sink=None if sink is None else sink[head][None]),
    )


def _vectors(scores: Scores, points: Points, *, both_ways: bool) -> Vectors:
    """Of a head alone, at its points in a window that runs alone."""
    length = scores.query.shape[2]
    rows: Tensor
    if both_ways:
        rows = log_probabilities(scores, Tile(slice(0, 1), slice(0, length), length))[0, 0]
        rows = rows[torch.from_numpy(points.query).to(rows.device)]
    else:
        rows = log_probabilities(scores, Picked(0, points.query))[0, 0]
    value: Any = scores.value
    values = value[0, 0].to(rows.dtype)
    return {
        "Q": scores.query[0, 0, points.query],
        "K": scores.key[0, 0, points.key],
        "V": values[points.key],
        "O": rows.exp() @ values[: rows.shape[1]],
    }
