"""Models built weight by weight, in GPT-2's and GPT-NeoX's layout, so that the answer is known; the
heads that are planted in them, what each looks at, and which tags it may earn.

A head's score of a query and a key is a sum of terms: what the query is and what the key is, do
they hold the same word, how far apart are they. Heads that look for something rest on the first
token when they do not find it, as trained heads do.

Each word's embedding holds a random code of its own, its traits, and what keeps all embeddings
of one length; every coordinate comes again with the other sign, so that a layer norm is only a
constant factor. GPT-2's positions are waves of many lengths; GPT-NeoX's are its rotary ones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from tests.oracles.network import (
    HeadMaps,
    NetworkSize,
    mirrored,
    planted_config,
    save_network,
    wave_positions,
)
from tests.oracles.words import Traits, english_traits, save_tokenizer

MATCH_LOGITS, SINK_LOGITS = 120.0, 60.0
"""Scores, in nats, of a key that fits its query and of the first token."""


@dataclass(frozen=True)
class BuiltHead:
    """A head that is built by hand."""

    name: str
    layer: int


_Head = TypeVar("_Head", bound=BuiltHead)


def by_place(heads: Sequence[_Head]) -> dict[tuple[int, int], _Head]:
    """Each head by its layer and its number there, in the order in which they are listed."""
    counts: Counter[int] = Counter()
    placed: dict[tuple[int, int], _Head] = {}
    for head in heads:
        placed[head.layer, counts[head.layer]] = head
        counts[head.layer] += 1
    return placed


@dataclass(frozen=True)
class PlantedHead(BuiltHead):
    """One head. All gains are in nats of attention score.

    `fits` are pairs (query trait, key trait), `None` for any query. `same` compares the
    query's word with the key's (`word`) or with the word before the key (`previous`).
    """

    relation: str | None = None
    """The tag that it must earn; None for a distractor, which must earn none."""
    may_earn: tuple[str, ...] = ()
    """Other tags that are true of it."""
    fits: tuple[tuple[str | None, str, float], ...] = ()
    same: str | None = None
    same_gain: float = 0.0
    near: float = 0.0
    """Score of the distance that `offset` names; it falls off with the logarithm of the difference
    from it. Negative to avoid that distance."""
    offset: int = 0
    random: float = 0.0
    """Standard deviation of random entries of Q and K, in units of the other heads' entries."""
    copies: bool = False
    """Writes the word that it looks at into the residual stream, for the next layer."""


def _attention_head(
    name: str,
    relation: str | None,
    *fits: tuple[str | None, str],
    near: float = 25.0,
    **fields: object,
) -> PlantedHead:
    terms = tuple((query, key, MATCH_LOGITS) for query, key in fits)
    return PlantedHead(
        name,
        1,
        relation,
        fits=(*terms, (None, "bos", SINK_LOGITS)),
        near=near,
        **fields,  # type: ignore[arg-type]
    )


_GENDERS = (("she", "feminine"), ("he", "masculine"), ("it", "thing"), ("they", "plural"))

HEADS = (
    PlantedHead("previous token", 0, "positional/offset-1", near=50.0, offset=1, copies=True),
    PlantedHead("two back", 0, "positional/offset-2", near=50.0, offset=2),
    PlantedHead("current token", 0, "positional/offset-0", near=50.0),
    PlantedHead("first token", 0, "sink/first-token", fits=((None, "bos", MATCH_LOGITS),)),
    PlantedHead(
        "punctuation",
        0,
        "delimiter/punctuation",
        may_earn=("delimiter/sentence-end",),
        fits=((None, "punctuation", MATCH_LOGITS), (None, "bos", SINK_LOGITS)),
    ),
    PlantedHead(
        "duplicate token",
        0,
        "duplicate-token/repeat",
        may_earn=("lexical/duplicate",),
        same="word",
        same_gain=MATCH_LOGITS,
        near=-130.0,
        fits=((None, "bos", SINK_LOGITS / 2),),
    ),
    PlantedHead("uniform", 0),
    PlantedHead("random", 0, random=1.0),
    # the same word is the current token first, and then its duplicates: these tags are true
    PlantedHead(
        "same word",
        0,
        may_earn=("positional/offset-0", "duplicate-token/repeat", "lexical/duplicate"),
        same="word",
        same_gain=MATCH_LOGITS,
    ),
    PlantedHead(
        "nearest noun",
        0,
        near=25.0,
        fits=(
            (None, "noun", MATCH_LOGITS),
            (None, "name", MATCH_LOGITS),
            (None, "bos", SINK_LOGITS),
        ),
    ),
    PlantedHead(
        "induction",
        1,
        "induction/repeat",
        may_earn=("induction/natural",),
        same="previous",
        same_gain=MATCH_LOGITS,
        fits=((None, "bos", SINK_LOGITS),),
    ),
    _attention_head("nearest verb", "lexical/nearest-VERB", (None, "verb")),
    # baselines that find many determiners, verbs or subjects without any syntax
    _attention_head("noun to determiner", None, ("noun", "determiner")),
    _attention_head("object to verb", None, ("noun", "verb")),
    _attention_head("verb to subject", None, ("verb", "person")),
    # an antecedent is a part of its pronoun's chain
    _attention_head(
        "pronoun to antecedent",
        "coreference/pronoun",
        *_GENDERS,
        may_earn=("coreference/chain",),
    ),
    PlantedHead("recency", 1, near=3.0),
    PlantedHead("any noun", 1, fits=((None, "noun", MATCH_LOGITS), (None, "name", MATCH_LOGITS))),
    _attention_head(
        "nearest name", None, ("she", "name"), ("he", "name"), ("it", "name"), ("they", "name")
    ),
    PlantedHead("random late", 1, random=1.0),
)


LAYOUTS = ("gpt2", "gpt_neox")
LAYERS, PER_LAYER, D_HEAD, CONTEXT = 2, 10, 104, 256
D_MODEL = PER_LAYER * D_HEAD
CODE, WAVES = 64, 16
MOST_AT_ONCE = 6
"""Traits that one word may have."""
MOST_TRAITS = 32
"""Traits that a language may have."""
# places in the first half of the residual stream
WORD = slice(0, CODE)
FILLER = CODE + MOST_TRAITS
SCRATCH = slice(FILLER + 1, FILLER + 1 + CODE)
POSITION = slice(FILLER + 1 + CODE, FILLER + 1 + CODE + 2 * WAVES)
HALF = POSITION.stop


def save_planted(
    layout: str,
    words: list[str],
    folder: Path,
    *,
    heads: Sequence[PlantedHead] = HEADS,
    traits: Traits | None = None,
    noise: float = 0.0,
    seed: int = 0,
) -> Path:
    """Write a planted model and its tokenizer in Hugging Face layout.

    Args:
        layout: `gpt2` or `gpt_neox`.
        words: the vocabulary, special tokens first.
        folder: where to write.
        heads: at most `PER_LAYER` of each layer.
        traits: of each word; those of controlled English if None.
        noise: standard deviation of normal noise on every Q, K, V and O weight, in units of the
            root mean square of the first layer's weights of that kind.
        seed: seeds the word codes, the random heads and the noise.
    """
    rng = np.random.default_rng(seed)
    rotary = layout == "gpt_neox"
    known = english_traits(words) if traits is None else traits
    q, k, v, o = _attention(heads, known.names, rng, rotary)
    for part in (q, k, v, o):
        size = np.sqrt((part.weight[0] ** 2).mean())
        part.weight += rng.normal(0, noise * size, part.weight.shape)
    rope = {"rope_theta": ROTARY_BASE, "partial_rotary_factor": 2 * WAVES / D_HEAD}
    size = NetworkSize(len(words), LAYERS, PER_LAYER, D_HEAD, CONTEXT)
    save_network(
        planted_config(layout, size, rope),
        (q, k, v, o),
        folder,
        embedding=_embedding(known, rng),
        positions=None
        if rotary
        else wave_positions(size, wave_lengths(False), POSITION.start, HALF),
        gains=_norm_gains(rotary),
    )
    save_tokenizer(words, folder, context=CONTEXT)
    return folder


def _attention(
    heads: Sequence[PlantedHead], names: Sequence[str], rng: np.random.Generator, rotary: bool
) -> tuple[HeadMaps, ...]:
    q, k, v = (HeadMaps(LAYERS, PER_LAYER, into=D_MODEL, out=D_HEAD) for _ in range(3))
    o = HeadMaps(LAYERS, PER_LAYER, into=D_HEAD, out=D_MODEL)
    for at, head in by_place(heads).items():
        _set_scores(head, at, q, k, names, rng, rotary)
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
    names: Sequence[str],
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
        k.weight[at][CODE + names.index(key), channel] = 1
        if query is None:
            q.bias[at][channel] = score
        else:
            q.weight[at][CODE + names.index(query), channel] = score
        channel += 1
    if head.random:
        for part in (q, k):
            part.weight[at] = rng.normal(0, head.random / 8, part.weight[at].shape)


def wave_lengths(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves, from the shortest to the longest."""
    step = np.arange(WAVES)
    return np.asarray(ROTARY_BASE ** (-step / WAVES) if rotary else np.pi * 2.0 ** (-step / 2))


ROTARY_BASE, ROTARY_GAIN = 256.0, 2.0


def _embedding(traits: Traits, rng: np.random.Generator) -> Float[ndarray, "word d_model"]:
    count = len(traits.table)
    table = np.zeros((count, D_MODEL))
    table[:, WORD] = rng.choice([-1.0, 1.0], (count, CODE))
    table[:, CODE : CODE + len(traits.names)] = traits.table
    table[:, FILLER] = np.sqrt(MOST_AT_ONCE + 1 - traits.table.sum(1))
    return mirrored(table, HALF)


def _norm_gains(rotary: bool) -> list[float]:
    """Gains that turn a layer norm's output back into its input, layer by layer."""
    length = CODE + MOST_AT_ONCE + 1 + (0 if rotary else WAVES)
    # what the previous-token head writes has the length of one code
    return [float(np.sqrt(2 * (length + CODE * layer) / D_MODEL)) for layer in range(LAYERS)]
