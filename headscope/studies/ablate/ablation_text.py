"""Stimuli that show whether a behaviour breaks: tokens, and which predictions count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.corpus.controlled.minimal_pairs import MinimalPair
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.models.tokenizer import Tokenizer
from headscope.relations.relation import Relation
from headscope.stimuli.repeat import REPEAT


@dataclass(frozen=True, eq=False)
class ItemScore:
    """A score per item, made of the log-probabilities of predicted tokens.

    An item is a window or a pair of sentences; its score is the weighted sum of its terms, and
    intervals come from resampling items.
    """

    behaviour: str
    prediction: Int[ndarray, " term"]
    """Each term's row among the predicted tokens of the stimulus."""
    item: Int[ndarray, " term"]
    weight: Float[ndarray, " term"]
    per_term: bool
    """Whether the score is a mean over terms (nats per token) or over items (log-odds)."""

    def sums(self, logp: Float[ndarray, " place"]) -> tuple[ndarray, ndarray]:
        """Each item's sum, and what it counts."""
        size = int(self.item.max(initial=-1)) + 1
        sums = np.bincount(self.item, self.weight * logp[self.prediction], size)
        counts = np.bincount(self.item, minlength=size)
        return sums, counts if self.per_term else (counts > 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class AblationText:
    """Rows of tokens, padded on the right, the tokens to predict in them, and what they tell.

    Predicted tokens are in the order of their rows.
    """

    name: str
    tokens: Int[ndarray, "row position"]
    lengths: Int[ndarray, " row"]
    row: Int[ndarray, " place"]
    position: Int[ndarray, " place"]
    readings: tuple[ItemScore, ...]


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
    name: str, windows: Sequence[Window], relations_of: Mapping[str, Sequence[Relation]]
) -> AblationText:
    """Every prediction of the windows, split by whether it is made at a query of the relations.

    Args:
        name: of the stimulus.
        windows: text or sentences.
        relations_of: for each label the relations whose queries are near; the readings are called
            `near LABEL` and `away LABEL`.
    """
    places = [
        (row, position) for row, window in enumerate(windows) for position in range(1, len(window))
    ]
    row, position = np.array(places, np.int64).reshape(-1, 2).T
    start = np.concatenate([[0], np.cumsum([len(window) - 1 for window in windows])])
    readings = []
    for label, relations in relations_of.items():
        near = np.zeros(len(row), bool)
        for index, window in enumerate(windows):
            for relation in relations:
                if window.stimulus in relation.stimuli:
                    queries = relation.pairs(window).queries
                    # the token after the query is what the query predicts
                    near[start[index] + queries[queries < len(window) - 1]] = True
        for behaviour, which in (("near", near), ("away", ~near)):
            term_index = np.flatnonzero(which)
            if len(term_index):
                terms = ItemScore(
                    f"{behaviour} {label}",
                    term_index,
                    row[term_index],
                    np.ones(len(term_index)),
                    per_term=True,
                )
                readings.append(terms)
    return AblationText(name, *_pad([w.tokens for w in windows]), row, position, tuple(readings))


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
