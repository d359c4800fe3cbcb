"""Models whose heads write what is planted in them, by hand, in GPT-2's and Llama's layout.

Each word has a code of ±1, which is its unembedding too, so that a head that hands codes on
copies, and one that hands them on with the other sign suppresses. Each coordinate comes again with
the other sign, so that norms only scale. A first layer marks each token with the token before it,
the name that was read last and the cue of a property that was read last, by which heads of the
second look.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float
from numpy import ndarray

from headscope.stimuli import word_lists
from headscope.stimuli.facts import DOMAINS
from headscope.stimuli.word_lists import CYCLIC, IN_ORDER
from tests.oracles.network import (
    HeadMaps,
    NetworkSize,
    planted_config,
    save_network,
    wave_positions,
)
from tests.oracles.planted import by_place
from tests.oracles.words import BOS, save_tokenizer
from tests.oracles.writer_heads import LOGITS, WRITERS, Writer

LAYOUTS = ("gpt2", "llama")
LAYERS, PER_LAYER, WIDTH, CONTEXT = 2, 17, 64, 256
D_MODEL = PER_LAYER * WIDTH
HALF = D_MODEL // 2
CODE, SKETCH, WAVES, MOST_TRAITS = 256, 24, 16, 4
CUES = {
    "first": "lives home gives teaches writes ink starts morning comes born",
    "second": "works job takes learns dresses coat ends night buys sells",
}
"""Words of statements and questions that tell the two properties of a domain apart."""
TRAITS = (
    *("bos", "name", "value", "member", "article", "person", "noun", "plural", "cue"),
    *CUES,
)
# places in the first half of the residual stream
WORD = slice(0, CODE)
TRAIT = CODE
FILLER = TRAIT + len(TRAITS)
MARKS = {"previous": FILLER + 1, "named": FILLER + 1 + SKETCH}
CUED = FILLER + 1 + 2 * SKETCH
"""The first of a place for each property: the one whose cue was read last."""
POSITION = slice(CUED + len(CUES), CUED + len(CUES) + 2 * WAVES)
ROTARY_BASE = 1e6
"""So large that the second half of a head's waves stand still within a window."""
_CUED = CUED + np.arange(len(CUES))
_CUE_TRAITS = TRAIT + np.array([TRAITS.index(trait) for trait in CUES])
ROTARY_GAIN = 2.0
"""Rotary waves are longer, so that the same score is less sharp."""
CHANNELS = np.r_[WAVES : WIDTH // 2, WIDTH // 2 + WAVES : WIDTH]
"""Channels of a head that positions do not turn."""


def save_writers(
    layout: str,
    words: list[str],
    frequent: Sequence[str],
    folder: Path,
    *,
    noise: float = 0.0,
    seed: int = 0,
) -> Path:
    """Write a planted model and its tokenizer in Hugging Face layout.

    Args:
        layout: `gpt2` or `llama`.
        words: the vocabulary, special tokens first.
        frequent: the most frequent words of the text.
        folder: where to write.
        noise: standard deviation of normal noise on every Q, K, V and O weight, in units of the
            root mean square of the planted weights of that kind and layer.
        seed: seeds codes and noise.
    """
    rng, rotary = np.random.default_rng(seed), layout == "llama"
    table, plan = _embedding(words, rng), _Plan(words, frequent, rotary, rng)
    plan.codes = table[:, WORD].copy()
    maps = [HeadMaps(LAYERS, PER_LAYER, into=D_MODEL, out=WIDTH) for _ in "qkv"]
    q, k, v = (head_maps.weight for head_maps in maps)
    o = np.zeros_like(v)  # transposed
    for at, head in planted_heads().items():
        plan.set_attention(head, q[at], k[at])
        v[at], o[at] = plan.write(head)
    table[:, HALF:] = -table[:, :HALF]
    o[:, :, HALF:] = -o[:, :, :HALF]
    for part in (q, k, v, o):
        for layer in range(LAYERS):
            spread = noise * np.sqrt((part[layer] ** 2).mean())
            part[layer] += rng.normal(0, spread, part[layer].shape)
    maps.append(HeadMaps(LAYERS, PER_LAYER, into=WIDTH, out=D_MODEL))
    maps[-1].weight = o.transpose(0, 1, 3, 2)
    size = NetworkSize(len(words), LAYERS, PER_LAYER, WIDTH, CONTEXT)
    waves = None if rotary else wave_positions(size, frequencies(False), POSITION.start, HALF)
    save_network(
        planted_config(layout, size, {"rope_theta": ROTARY_BASE}),
        maps,
        folder,
        embedding=table,
        positions=waves,
        gains=[inverse_gain(layer, rotary) for layer in range(LAYERS)],
    )
    save_tokenizer(words, folder, context=CONTEXT)
    return folder


def inverse_gain(layer: int, rotary: bool) -> float:
    """The gain that turns a norm's output back into its input; both halves of the stream count."""
    half_length = CODE + MOST_TRAITS + (0 if rotary else WAVES) + layer * 2 * SKETCH  # squared
    return float(np.sqrt(2 * half_length / D_MODEL))


def frequencies(rotary: bool) -> Float[ndarray, " wave"]:
    """Angular frequencies of the position waves."""
    step = np.arange(WAVES)
    if rotary:
        return np.asarray(ROTARY_BASE ** (-step / (WIDTH // 2)))
    return np.asarray(np.pi * 2.0 ** (-step / 2))


def planted_heads() -> dict[tuple[int, int], Writer]:
    """Each planted head by its layer and its place there."""
    return by_place(WRITERS)


class _Plan:
    """Matrices of what heads look at and write."""

    def __init__(
        self, words: list[str], frequent: Sequence[str], rotary: bool, rng: np.random.Generator
    ) -> None:
        self.words, self.frequent, self.rotary, self.rng = words, frequent, rotary, rng
        self.codes = np.zeros((len(words), CODE))
        self.sketch = np.linalg.qr(rng.normal(size=(CODE, SKETCH)))[0]

    def set_attention(self, head: Writer, q: ndarray, k: ndarray) -> None:
        """Fill one head's queries and keys: first the distance, then what stands still."""
        step = frequencies(self.rotary)
        waves, near = np.arange(WAVES), head.near / WAVES * np.sqrt(WIDTH)
        far, half = head.offset * step, WIDTH // 2
        if self.rotary:
            near = near * ROTARY_GAIN
            _plain(k)[waves] = 1.0
            _plain(q)[waves], _plain(q)[half + waves] = near * np.cos(far), -near * np.sin(far)
        else:
            cos, sin = POSITION.start + waves, POSITION.start + WAVES + waves
            k[cos, waves] = k[sin, half + waves] = 1.0
            # the addition theorems of cos(w(p − d)) and sin(w(p − d))
            q[cos, waves] = q[sin, half + waves] = near * np.cos(far)
            q[sin, waves], q[cos, half + waves] = near * np.sin(far), -near * np.sin(far)
        if head.match is not None:
            query_source, key_source, score = head.match
            size = score / SKETCH * np.sqrt(WIDTH)
            q[:, CHANNELS[:SKETCH]] = self._read(query_source) * size
            k[:, CHANNELS[:SKETCH]] = self._read(key_source)
        properties, flags = np.split(CHANNELS[SKETCH:], [len(CUES)])
        for channel, (trait, score) in zip(flags, head.flags, strict=False):
            k[TRAIT + TRAITS.index(trait), channel] = 1.0
            _plain(q)[channel] += score * np.sqrt(WIDTH)
        if head.cued:
            q[_CUED, properties] = head.cued * np.sqrt(WIDTH)
            k[_CUED, properties] = 1.0

    def _read(self, source: str) -> Float[ndarray, "d_model sketch"]:
        directions = np.zeros((D_MODEL, SKETCH))
        if source == "word":
            directions[WORD] = self.sketch
        else:
            directions[MARKS[source] : MARKS[source] + SKETCH] = np.eye(SKETCH)
        return directions

    def write(self, head: Writer) -> tuple[ndarray, ndarray]:
        """One head's V and the transpose of its O."""
        v, o = np.zeros((2, D_MODEL, WIDTH))
        if head.writes == "cued":
            channels = np.arange(len(CUES))
            v[_CUE_TRAITS, channels] = o[_CUED, channels] = 1.0
            return v, o
        if head.writes in MARKS:
            v[WORD, :SKETCH] = self.sketch
            o[MARKS[head.writes] : MARKS[head.writes] + SKETCH, :SKETCH] = np.eye(SKETCH)
            return v, o
        # a code that is written with this factor raises its token by as many logits as planned: it
        # is met by both halves of the unembedding, behind the last norm
        size = head.size * LOGITS * inverse_gain(LAYERS, self.rotary) / (2 * CODE)
        if head.writes == "random":
            v[WORD] = self.rng.normal(size=(CODE, WIDTH)) / np.sqrt(CODE)
            o[WORD] = self.rng.normal(size=(CODE, WIDTH)) * size * np.sqrt(CODE / WIDTH)
        elif head.writes == "number":
            v[TRAIT + TRAITS.index("plural"), 0] = 1.0
            _plain(v)[0] -= 0.5
            o[WORD, 0] = 2 * size * self._verbs()
        elif (constant := self._fixed(head.writes)) is not None:
            _plain(v)[0] += 1.0
            o[WORD, 0] = size * constant
        else:
            value_factor, output_factor = self._factors(head.writes)
            v[WORD], o[WORD] = value_factor, output_factor * size
        return v, o

    def _factors(self, writes: str) -> tuple[ndarray, ndarray]:
        """A map of codes onto codes, as far as a head's width can hold it."""
        if writes == "copy":
            handed = np.linalg.qr(self.rng.normal(size=(CODE, WIDTH)))[0]
            return handed, handed * (CODE / WIDTH)
        pairs = [
            (member, other, sign)
            for name, members in IN_ORDER.items()
            for member, other, sign in _steps(members, name in CYCLIC, writes)
            if member in self.words and other in self.words
        ]
        table = np.zeros((CODE, CODE))
        for member, other, sign in pairs:
            one, two = (self.codes[self.words.index(word)] for word in (member, other))
            table += sign * np.outer(one, two) / CODE
        left_vectors, sizes, right_vectors = np.linalg.svd(table)
        root = np.sqrt(sizes[:WIDTH])
        return left_vectors[:, :WIDTH] * root, right_vectors[:WIDTH].T * root

    def _fixed(self, writes: str) -> Float[ndarray, " code"] | None:
        """The code of a head that writes the same wherever it looks; None for others."""
        words: list[str] = []
        if writes == "frequent":
            words = list(self.frequent)
        elif writes == "article":
            words = ["the"]
        elif writes == "list":
            words = [word for members in IN_ORDER.values() for word in members]
        elif writes == "plural":
            return self._verbs()
        if not words:
            return None
        rows = [self.codes[self.words.index(word)] for word in words if word in self.words]
        constant: ndarray = np.sum(rows, axis=0)
        return constant

    def _verbs(self) -> Float[ndarray, " code"]:
        """All plural forms less all singular ones."""
        forms = [entry.split("/")[:2] for entry in word_lists.ON_THINGS]
        rows = (self.codes[[self.words.index(form[i]) for form in forms]].sum(0) for i in (0, 1))
        plural, singular = rows
        difference: ndarray = (plural - singular) / 2
        return difference


def _steps(members: Sequence[str], cyclic: bool, writes: str) -> list[tuple[str, str, float]]:
    """Each member with its successor, its predecessor, or both."""
    pairs = list(pairwise(members))
    if cyclic:
        pairs.append((members[-1], members[0]))
    steps = []
    if writes in ("successor", "neighbours"):
        steps += [(one, two, 1.0) for one, two in pairs]
    if writes in ("predecessor", "neighbours"):
        steps += [(two, one, 1.0) for one, two in pairs]
    return steps


def _plain(matrix: ndarray) -> Any:
    """The row of a matrix that all tokens read alike, up to their traits."""
    return matrix[FILLER]


def _embedding(words: list[str], rng: np.random.Generator) -> Float[ndarray, "word d_model"]:
    table = np.zeros((len(words), D_MODEL))
    table[:, WORD] = rng.choice([-1.0, 1.0], (len(words), CODE))
    marked = _marked()
    for row, word in enumerate(words):
        for trait in {"bos"} if word == BOS else marked.get(word, set()):
            table[row, TRAIT + TRAITS.index(trait)] = 1.0
    table[:, FILLER] = 1.0
    return table


def _marked() -> dict[str, set[str]]:
    marked_words: dict[str, set[str]] = {}

    def mark(words: Sequence[str], *traits: str) -> None:
        for word in words:
            marked_words.setdefault(word, set()).update(traits)

    mark([*word_lists.WOMEN, *word_lists.MEN], "name")
    for domain in DOMAINS:
        mark(domain.values.split(), "value")
    for trait, words in CUES.items():
        mark(words.split(), "cue", trait)
    mark([word for members in IN_ORDER.values() for word in members], "member")
    mark(["the"], "article")
    for deck, kinds in ((word_lists.PEOPLE, ("person", "noun")), (word_lists.THINGS, ("noun",))):
        mark([entry.split("/")[0] for entry in deck], *kinds)
        mark([entry.split("/")[1] for entry in deck], *kinds, "plural")
    return marked_words
