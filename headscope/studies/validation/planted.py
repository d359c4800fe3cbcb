"""Models built weight by weight, in GPT-2's and GPT-NeoX's layout, so that the answer is known.

Each word's embedding holds a random code of its own, its features, and what keeps all embeddings
of one length; every coordinate comes again with the other sign, so that a layer norm is only a
constant factor. GPT-2's positions are waves of many lengths; GPT-NeoX's are its rotary ones.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.studies.validation.heads import HEADS, PlantedHead, by_place
from headscope.studies.validation.planted_network import (
    HeadMaps,
    NetworkSize,
    mirrored,
    planted_config,
    save_network,
    wave_positions,
)
from headscope.studies.validation.planted_words import FEATURES, features, save_tokenizer

LAYOUTS = ("gpt2", "gpt_neox")
LAYERS, PER_LAYER, D_HEAD, CONTEXT = 2, 10, 104, 256
D_MODEL = PER_LAYER * D_HEAD
CODE, WAVES = 64, 16
MOST_FEATURES = 6
HALF = CODE + len(FEATURES) + 1 + CODE + 2 * WAVES
# places in the first half of the residual stream
WORD = slice(0, CODE)
TRAITS = slice(CODE, CODE + len(FEATURES))
FILLER = CODE + len(FEATURES)
SCRATCH = slice(FILLER + 1, FILLER + 1 + CODE)
POSITION = slice(FILLER + 1 + CODE, HALF)


def save_planted(
    layout: str, words: list[str], folder: Path, *, noise: float = 0.0, seed: int = 0
) -> Path:
    """Write a planted model and its tokenizer in Hugging Face layout.

    Args:
        layout: `gpt2` or `gpt_neox`.
        words: the vocabulary, special tokens first.
        folder: where to write.
        noise: standard deviation of normal noise on every Q, K, V and O weight, in units of the
            root mean square of the first layer's weights of that kind.
        seed: seeds the word codes, the random heads and the noise.
    """
    rng = np.random.default_rng(seed)
    rotary = layout == "gpt_neox"
    q, k, v, o = _attention(rng, rotary)
    for part in (q, k, v, o):
        size = np.sqrt((part.weight[0] ** 2).mean())
        part.weight += rng.normal(0, noise * size, part.weight.shape)
    rope = {"rope_theta": ROTARY_BASE, "partial_rotary_factor": 2 * WAVES / D_HEAD}
    size = NetworkSize(len(words), LAYERS, PER_LAYER, D_HEAD, CONTEXT)
    save_network(
        planted_config(layout, size, rope),
        (q, k, v, o),
        folder,
        embedding=_embedding(words, rng),
        positions=None
        if rotary
        else wave_positions(size, wave_lengths(False), POSITION.start, HALF),
        gains=_norm_gains(rotary),
    )
    save_tokenizer(words, folder, context=CONTEXT)
    return folder


def _attention(rng: np.random.Generator, rotary: bool) -> tuple[HeadMaps, ...]:
    q, k, v = (HeadMaps(LAYERS, PER_LAYER, into=D_MODEL, out=D_HEAD) for _ in range(3))
    o = HeadMaps(LAYERS, PER_LAYER, into=D_HEAD, out=D_MODEL)
    for at, head in by_place(HEADS).items():
        _set_scores(head, at, q, k, rng, rotary)
        if head.copies:
            v.weight[at][WORD, :CODE] = np.eye(CODE)
            o.weight[at][:CODE, SCRATCH] = np.eye(CODE)
            o.weight[at][:CODE, HALF + SCRATCH.start : HALF + SCRATCH.stop] = -np.eye(CODE)
    # Hugging Face divides scores by the root of d_head
    q.weight *= np.sqrt(D_HEAD)
    q.bias *= np.sqrt(D_HEAD)
    return q, k, v, o


def _set_scores(
    head: PlantedHead,
    at: tuple[int, int],
    q: HeadMaps,
    k: HeadMaps,
    rng: np.random.Generator,
    rotary: bool,
) -> None:
    """Fill a head's channels: first the distance, which rotary embedding turns, then the rest."""
    far = head.offset * wave_lengths(rotary)
    # rotary waves are longer, so the same gain is less sharp
    gain = head.near / WAVES * (ROTARY_GAIN if rotary else 1)
    if rotary:
        k.bias[at][:WAVES] = 1
        q.bias[at][:WAVES], q.bias[at][WAVES : 2 * WAVES] = gain * np.cos(far), -gain * np.sin(far)
    else:
        cos, sin = np.arange(WAVES), np.arange(WAVES, 2 * WAVES)
        k.weight[at][POSITION, : 2 * WAVES] = np.eye(2 * WAVES)
        rotation = np.zeros((2 * WAVES, 2 * WAVES))
        rotation[cos, cos] = rotation[sin, sin] = gain * np.cos(far)
        # the addition theorems of cos(w(p − d)) and sin(w(p − d))
        rotation[sin, cos], rotation[cos, sin] = gain * np.sin(far), -gain * np.sin(far)
        q.weight[at][POSITION, : 2 * WAVES] = rotation
    channel = 2 * WAVES
    if head.same:
        q.weight[at][WORD, channel : channel + CODE] = np.eye(CODE) * head.same_gain / CODE
        source = SCRATCH if head.same == "previous" else WORD
        k.weight[at][source, channel : channel + CODE] = np.eye(CODE)
        channel += CODE
    for query, key, score in head.fits:
        k.weight[at][TRAITS.start + FEATURES.index(key), channel] = 1
        if query is None:
            q.bias[at][channel] = score
        else:
            q.weight[at][TRAITS.start + FEATURES.index(query), channel] = score
        channel += 1
    if head.random:
        for part in (q, k):
            part.weight[at] = rng.normal(0, head.random / 8, part.weight[at].shape)


def wave_lengths(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves, from the shortest to the longest."""
    step = np.arange(WAVES)
    return np.asarray(ROTARY_BASE ** (-step / WAVES) if rotary else np.pi * 2.0 ** (-step / 2))


ROTARY_BASE, ROTARY_GAIN = 256.0, 2.0


def _embedding(words: list[str], rng: np.random.Generator) -> Float[ndarray, "word d_model"]:
    table = np.zeros((len(words), D_MODEL))
    table[:, WORD] = rng.choice([-1.0, 1.0], (len(words), CODE))
    traits = features(words)
    table[:, TRAITS] = traits
    table[:, FILLER] = np.sqrt(MOST_FEATURES + 1 - traits.sum(1))
    return mirrored(table, HALF)


def _norm_gains(rotary: bool) -> list[float]:
    """Gains that turn a layer norm's output back into its input, layer by layer."""
    length = CODE + MOST_FEATURES + 1 + (0 if rotary else WAVES)
    # what the previous-token head writes has the length of one code
    return [float(np.sqrt(2 * (length + CODE * layer) / D_MODEL)) for layer in range(LAYERS)]
