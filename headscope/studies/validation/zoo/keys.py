"""Which earlier words a habit likes, and which of these it picks. No tree and no entity is read."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy import ndarray

from headscope.studies.validation.zoo.reading import Look, Reading, Table, Weights

Keys = Callable[[Reading], Table]
Score = Callable[[Reading], ndarray]
"""A number for each word, or for each query word and key word."""
FADE = 3.0
"""Words over which attention that fades falls to 1/e."""


def any_word(reading: Reading) -> Table:
    """All earlier words."""
    return reading.earlier


def of(*classes: str) -> Keys:
    """Earlier words of these parts of speech."""
    return lambda reading: reading.earlier & np.isin(reading.words.upos, classes)


def formed(test: Callable[[str], bool]) -> Keys:
    """Earlier words whose form passes a test."""
    return lambda reading: reading.earlier & np.array([test(f) for f in reading.forms], bool)


def ending(letters: str) -> Keys:
    """Earlier words that end so."""
    return formed(lambda form: form.lower().endswith(letters))


def mentions(reading: Reading) -> Table:
    """Earlier words that head a mention, of whatever entity."""
    return np.asarray(reading.earlier & reading.mentioned)


def alike(mark: Callable[[str], str]) -> Keys:
    """Earlier words that have something of their form in common with the query."""

    def table(reading: Reading) -> Table:
        marks = np.array([mark(form) for form in reading.forms], "U")
        return np.asarray(reading.earlier & (marks[:, None] == marks[None, :]))

    return table


def same_class(reading: Reading) -> Table:
    """Earlier words of the query's part of speech."""
    upos = reading.words.upos
    return np.asarray(reading.earlier & (upos[:, None] == upos[None, :]))


def same_lemma(reading: Reading) -> Table:
    """Earlier forms of the query's word."""
    return np.asarray(reading.earlier & reading.same_lemma)


def within(keys: Keys) -> Keys:
    """Those in the query's sentence."""
    return lambda reading: keys(reading) & reading.same_sentence


def sentences_back(keys: Keys, count: int) -> Keys:
    """Those so many sentences before the query's."""

    def table(reading: Reading) -> Table:
        sentence = reading.words.sentence
        return np.asarray(keys(reading) & (sentence[:, None] - sentence[None, :] == count))

    return table


def asked_by(classes: tuple[str, ...], keys: Keys) -> Keys:
    """Those of queries of these parts of speech; all other queries rest."""
    return lambda reading: keys(reading) & np.isin(reading.words.upos, classes)[:, None]


def asked_by_mentions(keys: Keys) -> Keys:
    """Those of queries that head a mention."""
    return lambda reading: keys(reading) & reading.mentioned[:, None]


def beside(keys: Keys, step: int) -> Keys:
    """The words so many places after these (before them, if negative)."""

    def table(reading: Reading) -> Table:
        moved = np.roll(keys(reading), step, axis=1)
        moved[:, slice(step) if step > 0 else slice(step, None)] = False
        return np.asarray(moved & reading.earlier)

    return table


def nearest(keys: Keys, rank: int = 1) -> Look:
    """The last of them before the query, or the last but `rank` − 1."""
    return _picked(keys, lambda table: _ranked(table[:, ::-1], rank)[:, ::-1])


def first(keys: Keys, rank: int = 1) -> Look:
    """The first of them."""
    return _picked(keys, lambda table: _ranked(table, rank))


def second_or_only(keys: Keys, *, from_the_end: bool) -> Look:
    """The second of them from either end; where there is one alone, that one."""

    def weights(table: Table) -> Weights:
        turned = table[:, ::-1] if from_the_end else table
        rank = np.minimum(table.sum(1), 2)
        picked = np.where((rank == 2)[:, None], _ranked(turned, 2), _ranked(turned, 1))
        return picked[:, ::-1] if from_the_end else picked

    return _picked(keys, weights)


def every(keys: Keys) -> Look:
    """All of them alike."""
    return _picked(keys, lambda table: table.astype(float))


def fading(keys: Keys) -> Look:
    """All of them, near ones more: e-fold less for every `FADE` words."""

    def weights(table: Table) -> Weights:
        place = np.arange(len(table))
        return np.asarray(table * np.exp((place[None, :] - place[:, None]) / FADE))

    return _picked(keys, weights)


def most(keys: Keys, score: Score) -> Look:
    """The one with the largest score; of equals the nearest."""

    def look(reading: Reading) -> ndarray:
        table = keys(reading)
        if not table.any():
            return reading.rows(np.zeros(table.shape))
        values = np.where(table, score(reading), -np.inf)
        best = values.shape[1] - 1 - values[:, ::-1].argmax(1)
        chosen = table & (np.arange(len(table)) == best[:, None])
        return reading.rows(chosen.astype(float))

    return look


def cases(*parts: Keys) -> Look:
    """The nearest key by several rules, each for queries of its own."""

    def look(reading: Reading) -> ndarray:
        tables = [_ranked(keys(reading)[:, ::-1], 1)[:, ::-1] for keys in parts]
        return reading.rows(np.sum(tables, axis=0))

    return look


def times_so_far(reading: Reading) -> ndarray:
    """How often each key's word has been read before each query."""
    return np.asarray(reading.earlier.astype(int) @ reading.same_lemma.astype(int))


def drawn(reading: Reading) -> ndarray:
    """A number at random for each query word and key word, the same whenever it is asked."""
    size = len(reading.words)
    return np.random.default_rng(reading.window.tokens.tolist()).random((size, size))


def _picked(keys: Keys, weights: Callable[[Table], Weights]) -> Look:
    return lambda reading: reading.rows(weights(keys(reading)))


def _ranked(table: Table, rank: int) -> Weights:
    """1 for the key of that rank in each row, counted from the left."""
    return np.asarray(table & (table.cumsum(1) == rank), float)
