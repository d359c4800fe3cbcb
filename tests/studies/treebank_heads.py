"""Heads that look at words by a rule, for texts of which no model knows the language."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

import headscope as hs
from headscope.corpus.window import Window

Look = Callable[[Window], dict[int, int]]


def knows(deprel: str) -> Look:
    """From the later of a word and its governor to the earlier."""

    def look(window: Window) -> dict[int, int]:
        words, found = window.words, {}
        for own in np.flatnonzero((words.deprel == deprel) & (words.head >= 0)):
            ends = sorted((int(words.last[own]), int(words.last[words.head[own]])))
            found[ends[1]] = ends[0]
        return found

    return look


def noun(number: int) -> Look:
    """From a verb to a noun of its sentence by its place: 0 the first, −1 the nearest.

    Where there are fewer, the farthest that there is on that way.
    """

    def look(window: Window) -> dict[int, int]:
        words, found = window.words, {}
        for verb in np.flatnonzero(words.upos == "VERB"):
            before = np.arange(len(words)) < verb
            before &= (words.upos == "NOUN") & (words.sentence == words.sentence[verb])
            nouns = words.last[before].tolist()
            if nouns:
                found[int(words.last[verb])] = nouns[max(-len(nouns), min(number, len(nouns) - 1))]
        return found

    return look


def words_back(count: int) -> Look:
    """To the word so many words back."""

    def look(window: Window) -> dict[int, int]:
        last = window.words.last.tolist()
        return dict(zip(last[count:], last[:-count], strict=True))

    return look


def rests(window: Window) -> dict[int, int]:
    """Always to the first token."""
    return {}


def patterns(heads: Sequence[Look], share: float = 0.9) -> Callable[[Window], np.ndarray]:
    """Attention of shape layer × head × query × key: a share of it by the rule, the rest on BOS."""

    def of(window: Window) -> np.ndarray:
        found = np.zeros((1, len(heads), len(window), len(window)))
        for place, look in enumerate(heads):
            found[0, place, :, 0] = 1
            for query, key in look(window).items():
                found[0, place, query, 0] = 1 - share
                found[0, place, query, key] += share
        return found

    return of


def read(folder: Path, language: str, heads: Sequence[Look], encoder: object) -> hs.Run:
    """What such heads hold in a language of `tests.helpers.treebanks`."""
    windows = hs.windows(folder / f"{language}_pud-ud-test.conllu", encoder)
    return hs.score_patterns(patterns(heads), windows, types=["syntactic"], name="planted")
