"""From windows to the rules of all layers: features are found, the model runs once."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.measure.memory import give_back
from headscope.models.engines.modules import by_number
from headscope.models.load import Model
from headscope.studies.explain.catalogue import Catalogue, Rows, pack
from headscope.studies.explain.fit import Texts
from headscope.studies.explain.layer import Fitting, explain_layer
from headscope.studies.explain.patterns import Patterns
from headscope.studies.explain.reading import queries_and_keys, read_layers
from headscope.studies.explain.rules import LayerRules
from headscope.studies.explain.select import Selector
from headscope.studies.explain.texts import LENGTH, STEP, Read


def fit_rules(
    model: Model,
    catalogue: Catalogue,
    fitting: Fitting,
    advance: Callable[[], None],
    *,
    only: Collection[int] | None = None,
) -> Patterns:
    """The rules of every layer, or of some, in one forward pass over all windows."""
    engine: Any = model.engine
    rows = fitting.texts.rows
    modules = by_number(engine.network)
    rules: dict[int, LayerRules] = {}
    means: dict[int, Tensor] = {}

    def take(
        layer: int,
        pattern: Float[Tensor, "window head query key"],
        stream: Float[Tensor, "window position d_model"] | None,
    ) -> None:
        if only is not None and layer not in only:
            return
        vectors = None
        if fitting.rank and stream is not None:
            found = queries_and_keys(modules[layer], engine.stated, stream)
            vectors = (found[0].cpu(), found[1].cpu())
        own = pattern[rows.window, :, rows.query].permute(1, 0, 2).float()
        attention = own / own.sum(-1, keepdim=True)
        rules[layer] = explain_layer(fitting, layer, attention, vectors)
        fitted = int(rows.window[fitting.texts.chosen - 1]) + 1
        means[layer] = _mean(pattern[:fitted].float(), rows)
        give_back()
        advance()

    read_layers(engine, rows.windows, model.device, take)
    return Patterns(catalogue, rules, means, engine.network, engine.stated)


def _mean(pattern: Tensor, rows: Rows) -> Float[Tensor, "head place place"]:
    """The mean over windows that are long enough for the query; even where none is.

    For windows of up to `LENGTH` tokens.
    """
    lengths = torch.tensor([len(window) for window in rows.windows[: len(pattern)]])
    real = (torch.arange(pattern.shape[2]) < lengths[:, None]).float()
    found = torch.einsum("whqk,wq->hqk", pattern, real)
    even = torch.ones(LENGTH, LENGTH).tril()
    means = (even / even.sum(-1, keepdim=True)).repeat(len(found), 1, 1)
    size = pattern.shape[-1]
    total = found.sum(-1, keepdim=True)
    means[:, :size, :size] = torch.where(total > 0, found / total, means[:, :size, :size])
    return means


def fitting_of(catalogue: Catalogue, read: Read, features: int, rank: int) -> Fitting:
    """The features of all windows, ready to be weighed."""
    rows = Rows.of(read.windows, STEP)
    packed = pack(catalogue, rows)
    parts = (read.fitted, (*read.fitted, *read.choosing))
    fitted, chosen = (sum(len(range(1, len(w), STEP)) for w in part) for part in parts)
    texts = Texts(rows, packed, fitted, chosen)
    resting = catalogue.lexicon.resting
    return Fitting(texts, Selector(packed, rows, fitted), features, rank, resting)
