"""Layouts of planted writers in the residual stream, and as GPT-2 and as Llama."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.corpus.controlled.lists import PROPERTIES
from headscope.studies.validation.planted_network import (
    HeadMaps,
    NetworkSize,
    planted_config,
    save_network,
    wave_positions,
)

LAYOUTS = ("gpt2", "llama")
LAYERS, PER_LAYER, WIDTH, CONTEXT = 2, 17, 64, 256
D_MODEL = PER_LAYER * WIDTH
HALF = D_MODEL // 2
CODE, SKETCH, WAVES, MOST_TRAITS = 256, 24, 16, 4
PROPERTY_TRAITS = tuple(f"of {row.cue}" for row in PROPERTIES)
"""Of the values of a property, and of the word by which a question asks for it."""
TRAITS = (
    *("bos", "name", "value", "member", "article", "person", "noun", "plural", "cue"),
    *PROPERTY_TRAITS,
)
# places in the first half of the residual stream
WORD = slice(0, CODE)
TRAIT = CODE
FILLER = TRAIT + len(TRAITS)
MARKS = {"previous": FILLER + 1, "named": FILLER + 1 + SKETCH}
CUED = FILLER + 1 + 2 * SKETCH
"""The first of as many places as there are properties: the one that was asked for last."""
POSITION = slice(CUED + len(PROPERTIES), CUED + len(PROPERTIES) + 2 * WAVES)
ROTARY_BASE = 1e6
"""So large that the second half of a head's waves stand still within a window."""


def _length(layer: int, rotary: bool) -> int:
    """The squared length of half the stream that a layer reads."""
    return CODE + MOST_TRAITS + (0 if rotary else WAVES) + layer * 2 * SKETCH


def inverse_gain(layer: int, rotary: bool) -> float:
    """The gain that turns a norm's output back into its input; both halves of the stream count."""
    return float(np.sqrt(2 * _length(layer, rotary) / D_MODEL))


def frequencies(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves."""
    step = np.arange(WAVES)
    if rotary:
        return np.asarray(ROTARY_BASE ** (-step / (WIDTH // 2)))
    return np.asarray(np.pi * 2.0 ** (-step / 2))


def save_layout(
    layout: str,
    table: Float[ndarray, "word d_model"],
    parts: dict[str, Float[ndarray, "layer head d_model width"]],
    folder: Path,
) -> None:
    """Write a model with these embeddings and matrices.

    Args:
        layout: `gpt2` or `llama`.
        table: the embedding, which is the unembedding too.
        parts: `q`, `k`, `v`, and `o` transposed.
        folder: where to write.
    """
    rotary = layout == "llama"
    maps = [HeadMaps(LAYERS, PER_LAYER, into=D_MODEL, out=WIDTH) for _ in "qkv"]
    maps.append(HeadMaps(LAYERS, PER_LAYER, into=WIDTH, out=D_MODEL))
    for head_maps, name in zip(maps, "qkvo", strict=True):
        head_maps.weight = parts[name].transpose(0, 1, 3, 2) if name == "o" else parts[name]
    size = NetworkSize(len(table), LAYERS, PER_LAYER, WIDTH, CONTEXT)
    save_network(
        planted_config(layout, size, {"rope_theta": ROTARY_BASE}),
        maps,
        folder,
        embedding=table,
        positions=None
        if rotary
        else wave_positions(size, frequencies(False), POSITION.start, HALF),
        gains=[inverse_gain(layer, rotary) for layer in range(LAYERS)],
    )
