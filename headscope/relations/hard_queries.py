"""Hard queries, where the baseline of a relation is wrong, and easy queries, where it is right.

At a hard query, attention on the targets competes with attention on other candidates: the words of
the parts of speech that targets have, and the distractor, which is the key that the baseline picks.
The same comparison at easy queries of the window shows whether a head follows another baseline,
which is right at some hard queries and wrong at easy ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import CLASS_COUNT, picks, query_class
from headscope.relations.pairs import Pairs, distinct_values
from headscope.relations.query_sampling import turns
from headscope.relations.relation import (
    EASY,
    HARD,
    MATCHED_CONTROL,
    Relation,
    part_name,
    targets_of,
)
from headscope.stimuli.challenge import CHALLENGE

MAX_COMPARED = 8
"""Maximum number of hard queries of a window, drawn at random. There are as many easy queries, and
at least one."""


@dataclass(frozen=True, eq=False)
class ChosenBaseline:
    """The baseline of each class of query words, and the classes of candidates."""

    baseline: Int[ndarray, " class"]
    """Indices into `headscope.relations.baselines.BASELINES`."""
    candidates: Bool[ndarray, " class"]
    """Classes of the words that targets belong to."""

    def picks(self, relation: Relation, window: Window) -> Int[ndarray, " position"]:
        """The key that the baseline picks at each query, −1 if it picks none."""
        baseline = self.baseline[query_class(window)]
        pick = picks(window)[baseline, np.arange(len(window))]
        find_own = None if relation.baseline is None else relation.baseline.find
        if find_own is not None and not baseline.all():
            pick = np.where(
                baseline == 0, find_own(window), pick
            )  # the relation's own baseline has number 0
        return np.asarray(pick)


def baseline_picks(
    relation: Relation, window: Window, queries: Int[ndarray, " query"]
) -> Int[ndarray, "baseline query"]:
    """Picks of every baseline at some queries, those of the relation's own in the first row."""
    pick = picks(window)[:, queries]
    if relation.baseline is not None and relation.baseline.find is not None:
        pick[0] = relation.baseline.find(window)[queries]
    return pick


def compared_targets(
    window: Window, *, relation: Relation, baseline: ChosenBaseline, part: str
) -> Pairs:
    """Targets of the queries of a window that are compared, those of the part `HARD` or `EASY`.

    Queries at which the baseline picks no key are neither.
    """
    return _compared_targets(window, relation, baseline)[part == EASY]


@lru_cache(maxsize=2**13)
def _compared_targets(
    window: Window, relation: Relation, baseline: ChosenBaseline
) -> tuple[Pairs, Pairs]:
    targets = targets_of(relation, window)
    pick = baseline.picks(relation, window)
    hard = is_hard(targets, pick)
    hard_queries = _first_in_turn(window, targets.owner[hard], MAX_COMPARED)
    easy = targets.owner[~hard & (pick[targets.query] >= 0)]
    easy_queries = _first_in_turn(window, easy, max(1, len(hard_queries)))
    return (
        targets.of_queries(hard_queries, len(window)),
        targets.of_queries(easy_queries, len(window)),
    )


def _first_in_turn(
    window: Window, queries: Int[ndarray, " pair"], limit: int
) -> Int[ndarray, " query"]:
    queries = distinct_values(queries)
    return queries[np.argsort(turns(window)[queries], kind="stable")[:limit]]


def is_hard(targets: Pairs, pick: Int[ndarray, " position"]) -> Bool[ndarray, " pair"]:
    """Mask of the targets of queries at which the baseline picks a key that is not a target."""
    right = np.zeros(len(pick), bool)
    right[targets.query[pick[targets.query] == targets.key]] = True
    return np.asarray(~right[targets.query] & (pick[targets.query] >= 0))


def candidates(
    window: Window, targets: Pairs, _: object, *, relation: Relation, baseline: ChosenBaseline
) -> Pairs:
    """Cells of the other candidates of each query, and of the distractor."""
    token_class, word_of = _classes_of_tokens(window)
    pick = baseline.picks(relation, window)
    queries, position = targets.queries, np.arange(len(window))
    competes = np.repeat(baseline.candidates[token_class][None], len(queries), axis=0)
    picked_word = word_of[pick[queries]][:, None]
    competes |= (word_of == picked_word) & (picked_word >= 0)
    competes |= position == pick[queries][:, None]
    competes &= (position >= window.begins) & (position < window.stop)
    competes &= window.attention_kind.sees(queries[:, None], position)
    own_word = word_of[queries][:, None]
    competes &= (position != queries[:, None]) & ((word_of != own_word) | (own_word < 0))
    competes[np.searchsorted(queries, targets.owner), targets.key] = False
    row, key = np.nonzero(competes)
    weight = np.ones(len(key))
    return Pairs(queries[row], key, queries[row], weight, weight)


@lru_cache(maxsize=32)
def _classes_of_tokens(
    window: Window,
) -> tuple[Int[ndarray, " position"], Int[ndarray, " position"]]:
    """The class and the number of the word that each token belongs to; −1 for no word."""
    words = window.words
    word_of = np.full(len(window), -1)
    length = words.last - words.first + 1
    offset = np.arange(length.sum()) - np.repeat(np.cumsum(length) - length, length)
    word_of[np.repeat(words.first, length) + offset] = np.repeat(np.arange(len(words)), length)
    class_of_word = np.append(query_class(window)[words.last], CLASS_COUNT - 1)
    return class_of_word[word_of], word_of


def target_classes(window: Window, targets: Pairs) -> Int[ndarray, " class"]:
    """Number of targets by the class of the word that they belong to."""
    classes, _ = _classes_of_tokens(window)
    return np.bincount(classes[targets.key], minlength=CLASS_COUNT)


def with_parts(
    relations: Sequence[Relation], baselines: dict[str, ChosenBaseline]
) -> list[Relation]:
    """The relations, followed by the parts of each that are summed separately."""
    parts = []
    for relation in relations:
        if relation.matched_control is not None:
            parts.append(_part(relation, MATCHED_CONTROL, control=relation.matched_control))
        if relation.id in baselines:
            baseline = baselines[relation.id]
            for name in (HARD, EASY):
                find = partial(compared_targets, relation=relation, baseline=baseline, part=name)
                control = partial(candidates, relation=relation, baseline=baseline)
                stimuli = (*relation.stimuli, CHALLENGE.name)
                parts.append(_part(relation, name, pairs=find, control=control, stimuli=stimuli))
    return [*relations, *parts]


def _part(relation: Relation, name: str, **changes: object) -> Relation:
    part = replace(relation, baseline=None, matched_control=None, **changes)  # type: ignore[arg-type]
    return replace(part, name=part_name(relation.name, name))
