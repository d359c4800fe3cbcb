"""Heads made of a rule: each looks where the words or the gold links of a window say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

import headscope as hs
from headscope.corpus.window import Window
from headscope.statistics.conditions import failures

Keys = dict[int, int] | dict[int, list[int]]
Look = Callable[[Window], Keys]
"""The keys of each query that a head looks at evenly; elsewhere it attends to the first token."""


def pattern(window: Window, look: Look, noise: float = 0.0) -> np.ndarray:
    """Attention of shape query × key: a share of noise is spread evenly over the keys seen."""
    rows = np.zeros((len(window), len(window)), np.float32)
    rows[:, 0] = 1
    for query, keys in look(window).items():
        seen = len(window) if window.attention_kind.sees_future else query + 1
        rows[query] = 0
        rows[query, :seen] = noise / seen
        rows[query, keys] += (1 - noise) / np.size(keys)
    return rows


def judged(
    looks: Mapping[str, Look | tuple[Look, float]], windows: Sequence[Window], type: str
) -> pd.DataFrame:
    """Evidence on heads of one layer, each with its `name`, and as `refused_alone` whether another
    condition fails than the q value, which says less of each head the more heads one call has."""
    heads = [look if isinstance(look, tuple) else (look, 0.0) for look in looks.values()]

    def patterns(window: Window) -> np.ndarray:
        return np.stack([pattern(window, *head) for head in heads])[None]

    run = hs.score_patterns(patterns, windows, types=[type])
    failed = failures(run.evidence_with_thresholds).drop(columns="q value")
    names = [list(looks)[head] for head in run.evidence["head"]]
    return run.evidence.assign(name=names, refused_alone=failed.any(axis=1).to_numpy())


def knows(kind: str) -> Look:
    """The right key of each arrow of a kind."""

    def look(window: Window) -> Keys:
        own = window.arrows
        kept = (own.kind == kind) & own.right
        return dict(zip(own.query[kept].tolist(), own.last[kept].tolist(), strict=True))

    return look


def candidates(kind: str) -> Look:
    """All candidates of a kind, right or wrong, in the order of the text."""

    def look(window: Window) -> Keys:
        own = window.arrows.take(window.arrows.kind == kind)
        return {
            query: sorted({*own.last[own.query == query].tolist()})
            for query in set(own.query.tolist())
        }

    return look


def candidate(kind: str, number: int) -> Look:
    """A candidate by its place: 0 is the first, −1 the nearest, or the farthest on that way."""

    def look(window: Window) -> Keys:
        return {
            query: keys[max(-len(keys), min(number, len(keys) - 1))]
            for query, keys in candidates(kind)(window).items()
        }

    return look


def same_word(number: int) -> Look:
    """An earlier place of the same word: 0 is the first, 1 the second, −1 the nearest."""

    def look(window: Window) -> Keys:
        seen: dict[str, list[int]] = {}
        found = {}
        rows = zip(window.words.last.tolist(), window.words.lemma.tolist(), strict=True)
        for last, form in rows:
            places = seen.setdefault(form, [])
            if -len(places) <= number < len(places):
                found[last] = places[number]
            places.append(last)
        return found

    return look


def words_back(words: int) -> Look:
    """The last token of the word so many words back."""

    def look(window: Window) -> Keys:
        last = window.words.last.tolist()
        return dict(zip(last[words:], last[:-words], strict=True))

    return look
