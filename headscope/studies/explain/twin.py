"""Rules of the twin, whose attention weights are shuffled: what they explain of nothing learned."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from headscope.models.load import Model
from headscope.models.shuffled import EVERY, shuffled
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.fitting import fit_rules, fitting_of
from headscope.studies.explain.layer import Fitting
from headscope.studies.explain.rules import LayerRules
from headscope.studies.explain.texts import Read

LAYERS = 4
"""Layers that are asked, spread over the depth: heads of a twin differ by chance alone."""


def twin_rules(
    model: Model, catalogue: Catalogue, read: Read, fitting: Fitting, *, seed: int
) -> Mapping[int, LayerRules]:
    """The rules of some layers of the twin, made as the model's own are but on fewer windows.

    Args:
        model: whose attention weights are shuffled meanwhile; afterwards they are as they were.
        catalogue: where features come from.
        read: the windows of the model's own rules, of which every so many are taken.
        fitting: how large the model's own rules may be.
        seed: seeds the shuffle.
    """
    some = replace(
        read,
        fitted=read.fitted[::EVERY],
        choosing=read.choosing[::EVERY],
        judging=read.judging[::EVERY],
    )
    spread = np.linspace(0, model.layers - 1, min(LAYERS, model.layers)).astype(int)
    layers = {model.attention_layers[place] for place in spread}
    own = fitting_of(catalogue, some, fitting.features, fitting.rank)
    with shuffled(model.engine, seed=seed):
        return fit_rules(model, catalogue, own, lambda: None, only=layers).rules
