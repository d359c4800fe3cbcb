"""Stimuli that show whether a behaviour breaks: tokens, and which predictions count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.corpus.controlled.minimal_pairs import MinimalPair
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.models.rerun import Score
from headscope.models.tokenizer import Tokenizer
from headscope.relations.relation import Relation
from headscope.statistics.causes import AWAY, NEAR
from headscope.stimuli.repeat import REPEAT

MASKED_IN = 7
"""Of so many neighbouring tokens one is masked: 14 %, as encoders are trained (Devlin et al. 2019,
3.1)."""


@dataclass(frozen=True, eq=False)
class ItemScore:
    """A score per item, made of the scores of places, such as a predicted token's log-probability.

    An item is a window or a pair of sentences; its score is the weighted sum of its terms, and
    intervals come from resampling items.
    """

    behaviour: str
    prediction: Int[ndarray, " term"]
    """Each term's row among the places of the stimulus."""
    item: Int[ndarray, " term"]
    weight: Float[ndarray, " term"]
    per_term: bool
    """Whether the score is a mean over terms (nats per token) or over items (log-odds)."""
    label: str = ""
    """The head type whose queries are near, where the behaviour is one of `NEAR` and `AWAY`."""

    def sums(self, scores: Float[ndarray, " place"]) -> tuple[ndarray, ndarray]:
        """Each item's sum, and what it counts."""
        size = int(self.item.max(initial=-1)) + 1
        sums = np.bincount(self.item, self.weight * scores[self.prediction], size)
        counts = np.bincount(self.item, minlength=size)
        return sums, counts if self.per_term else (counts > 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class AblationText:
    """Rows of tokens, padded on the right, the places that are scored in them, and what they tell.

    Places are in the order of their rows.
    """

    name: str
    tokens: Int[ndarray, "row position"]
    lengths: Int[ndarray, " row"]
    row: Int[ndarray, " place"]
    position: Int[ndarray, " place"]
    readings: tuple[ItemScore, ...]
    labels: Int[ndarray, " place"] | None = None
    """The tokens that are masked in the rows; None where none is."""


def repeats(windows: Sequence[Window]) -> AblationText:
    """The second copy of repeated random tokens, but its first token, which nothing predicts."""
    places = [
        (row, position)
        for row, window in enumerate(windows)
        for position in range(window.copy_length + 2, len(window))
    ]
    row, position = np.array(places, np.int64).reshape(-1, 2).T
    reading = ItemScore(REPEAT.name, np.arange(len(row)), row, np.ones(len(row)), per_term=True)
    return AblationText("repeats", *_pad([w.tokens for w in windows]), row, position, (reading,))


def minimal_pairs(name: str, pairs: Sequence[MinimalPair], tokenizer: Tokenizer) -> AblationText:
    """Log-odds of the grammatical sentence; what both sentences begin with cancels out."""
    rows: list[ndarray] = []
    places: list[tuple[int, int]] = []
    items: list[int] = []
    weights: list[float] = []
    for item, pair in enumerate(pairs):
        both = [_encode(text, tokenizer) for text in (pair.good, pair.bad)]
        shared = _shared(*both)
        for tokens, weight in zip(both, (1.0, -1.0), strict=True):
            places += [(len(rows), position) for position in range(shared, len(tokens))]
            items += [item] * (len(tokens) - shared)
            weights += [weight] * (len(tokens) - shared)
            rows.append(tokens)
    row, position = np.array(places, np.int64).reshape(-1, 2).T
    reading = ItemScore(
        name, np.arange(len(row)), np.array(items), np.array(weights), per_term=False
    )
    return AblationText(name, *_pad(rows), row, position, (reading,))


def near_and_away(
    name: str,
    windows: Sequence[Window],
    relations_of: Mapping[str, Sequence[Relation]],
    *,
    score: Score = Score.NEXT,
    mask: int | None = None,
) -> AblationText:
    """Places of the windows, split by whether they are a query's of the relations.

    Args:
        name: of the stimulus.
        windows: text or sentences.
        relations_of: for each label the relations whose queries are near.
        score: what is asked at a place: every token that is predicted from those before it, where
            the one behind a query is near; else the query itself, masked or as it is.
        mask: the token that masks.
    """
    places = [_scored(row, window, score) for row, window in enumerate(windows)]
    row = np.repeat(np.arange(len(windows)), [len(positions) for positions in places])
    position = np.concatenate([np.zeros(0, np.int64), *places])
    rows = [np.array(window.tokens) for window in windows]
    labels = None
    if score is Score.MASKED:
        labels = np.concatenate([tokens[at] for tokens, at in zip(rows, places, strict=True)])
        for tokens, at in zip(rows, places, strict=True):
            tokens[at] = mask
    behaviours = [names[list(Score).index(score)] for names in (NEAR, AWAY)]
    readings = []
    for label, relations in relations_of.items():
        flags = [_near(window, relations, score) for window in windows]
        near = np.concatenate(
            [np.zeros(0, bool), *(of[at] for of, at in zip(flags, places, strict=True))]
        )
        for behaviour, which in zip(behaviours, (near, ~near), strict=True):
            term_index = np.flatnonzero(which)
            if len(term_index):
                weights = np.ones(len(term_index))
                readings.append(
                    ItemScore(behaviour, term_index, row[term_index], weights, True, label)
                )
    return AblationText(name, *_pad(rows), row, position, tuple(readings), labels)


def _scored(row: int, window: Window, score: Score) -> Int[ndarray, " place"]:
    """The positions of a window that are scored; of masked ones some, others in the next window."""
    if score is Score.NEXT:
        return np.arange(window.begins, window.stop)
    step = MASKED_IN if score is Score.MASKED else 1
    return np.arange(window.begins + row % step, window.stop, step)


def _near(
    window: Window, relations: Sequence[Relation], score: Score
) -> Bool[ndarray, " position"]:
    """Flags of the positions that are scored for a query of the relations."""
    near = np.zeros(len(window), bool)
    for relation in relations:
        if window.stimulus in relation.stimuli:
            queries = relation.pairs(window).queries
            if score is Score.NEXT:  # the token after the query is what the query predicts
                queries = queries[queries < len(window) - 1] + 1
            near[queries] = True
    return near


def _encode(text: str, tokenizer: Tokenizer) -> ndarray:
    tokens = tokenizer.encode(Document("pair", text, ())).tokens
    if not len(tokens):
        raise HeadscopeError(f"the tokenizer makes no token of {text!r}")
    return np.concatenate([[tokenizer.bos], tokens])


def _shared(one: ndarray, other: ndarray) -> int:
    """Tokens that both begin with."""
    least = min(len(one), len(other))
    same = one[:least] == other[:least]
    return int(least if same.all() else np.argmin(same))


def _pad(rows: Sequence[ndarray]) -> tuple[Int[ndarray, "row position"], Int[ndarray, " row"]]:
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), rows[0][0])
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths
