"""Hard queries, where the baseline of a relation is wrong, and easy queries, where it is right.

At a hard query, attention on the targets competes with attention on other candidates: the words of
the parts of speech that targets have, and the distractor, which is the key that the baseline picks.
The same comparison at easy queries of the window shows whether a head follows another baseline,
which is right at some hard queries and wrong at easy ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.baselines import (
    CLASS_COUNT,
    NUMBER_OF,
    UNION_BASELINES,
    UNION_BASELINES_AHEAD,
    query_class,
    union_picks,
)
from headscope.relations.pairs import Pairs, distinct_values
from headscope.relations.query_sampling import turns
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.relations.word_rows import UPOS

MAX_COMPARED = 8
"""Maximum number of hard queries of a window, drawn at random. There are as many easy queries, and
at least one."""
LEAST_ATTENTION = 0.05
"""Least attention of a query on its targets, where candidates are words of some parts of speech:
with less the preference is 0. Among candidates that get next to nothing some word always has the
most, and that says nothing of the head."""

_OF_RELATION = [NUMBER_OF[name] for name in ("own", *UNION_BASELINES, *UNION_BASELINES_AHEAD)]
"""Baselines whose picks depend on the relation."""


@dataclass(frozen=True, eq=False)
class ComparedTargets:
    """Targets of the queries of a window that are compared.

    Queries at which the baseline picks no key are neither hard nor easy.
    """

    hard: Pairs
    easy: Pairs
    pick: Int[ndarray, " position"]
    """The key that the baseline picks at each query, −1 if it picks none."""


@dataclass(frozen=True, eq=False)
class ChosenBaseline:
    """The baseline of each class of query words, and the classes of candidates."""

    baseline: Int[ndarray, " class"]
    """Indices into `headscope.relations.baselines.ALL_BASELINES`."""
    candidates: Bool[ndarray, " class"]
    """Classes of the words that targets belong to."""
    target_classes: tuple[str, ...] = ()
    """Parts of speech of the targets, the most frequent first."""

    def picks(self, relation: Relation, window_pairs: WindowPairs) -> Int[ndarray, " position"]:
        """The key that the baseline picks at each query, −1 if it picks none."""
        baseline = self.baseline[window_pairs.query_class]
        pick = window_pairs.picks[baseline, np.arange(len(baseline))]
        depends_on_relation = np.isin(baseline, _OF_RELATION)
        if depends_on_relation.any():
            queries = np.flatnonzero(depends_on_relation)
            of_relation = baseline_picks(relation, window_pairs, queries, self.target_classes)
            pick[queries] = of_relation[baseline[queries], np.arange(len(queries))]
        return np.asarray(pick)

    def compare(self, relation: Relation, window_pairs: WindowPairs) -> ComparedTargets:
        """Hard and easy queries of a relation; `WindowPairs.compared` finds them once."""
        window, targets = window_pairs.window, window_pairs.targets(relation)
        if not len(targets):
            return ComparedTargets(targets, targets, np.full(len(window), -1))
        pick = self.picks(relation, window_pairs)
        hard = is_hard(targets, pick)
        # one order for all relations, so that many of them share the rows that are read
        hard_queries = _first_in_turn(window, targets.owner[hard], MAX_COMPARED)
        easy = targets.owner[~hard & (pick[targets.query] >= 0)]
        easy_queries = _first_in_turn(window, easy, max(1, len(hard_queries)))
        return ComparedTargets(
            hard=targets.of_queries(hard_queries, len(window)),
            easy=targets.of_queries(easy_queries, len(window)),
            pick=pick,
        )

    def other_candidates(
        self, relation: Relation, window_pairs: WindowPairs, targets: Pairs
    ) -> Pairs:
        """Cells that compete with the targets of compared queries, the distractor among them."""
        classes = self.candidates
        if relation.baseline is not None and relation.baseline.any_word:
            classes = np.arange(CLASS_COUNT) < len(UPOS)
        pick = window_pairs.compared(relation, self).pick
        return candidates(window_pairs.window, targets, pick, classes)


def least_attention(relation: Relation) -> float:
    """Least attention on targets for a preference above 0; 0 where every word competes."""
    competes_with_all = relation.baseline is not None and relation.baseline.any_word
    return 0.0 if competes_with_all else LEAST_ATTENTION


def baseline_picks(
    relation: Relation,
    window_pairs: WindowPairs,
    queries: Int[ndarray, " query"],
    target_classes: Sequence[str] = (),
) -> Int[ndarray, "baseline query"]:
    """Picks of every baseline at some queries, with those that depend on the relation.

    Args:
        relation: the relation.
        window_pairs: the window.
        queries: positions of the queries.
        target_classes: parts of speech of the relation's targets, the most frequent first. Without
            them the baselines of unions of classes pick nothing.
    """
    pick = window_pairs.picks[:, queries]
    own_picks = window_pairs.own_picks(relation)
    if own_picks is not None:
        pick[NUMBER_OF["own"]] = own_picks[queries]
    for name, picked in union_picks(pick, queries, target_classes).items():
        pick[NUMBER_OF[name]] = picked
    return pick


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
    window: Window,
    targets: Pairs,
    pick: Int[ndarray, " position"],
    classes: Bool[ndarray, " class"],
) -> Pairs:
    """Cells of the other candidates of each query: words of some classes, and the picked key."""
    token_class, word_of = window.once(_classes_of_tokens)
    position = np.arange(len(window))
    # a column: rows are queries, columns are positions
    query = targets.queries[:, None]
    picked = pick[query]
    picked_word = word_of[picked]
    query_word = word_of[query]
    # words of the classes of targets compete, and the whole word that the baseline picks
    is_of_classes = classes[token_class]
    is_picked_word = (word_of == picked_word) & (picked_word >= 0)
    is_query_word = (word_of == query_word) & (query_word >= 0)
    is_in_text = (position >= window.begins) & (position < window.stop)
    # the query's own word and the frame of a window compete with nothing
    competes = is_of_classes | is_picked_word | (position == picked)
    competes &= is_in_text & window.attention_kind.sees(query, position)
    competes &= ~is_query_word & (position != query)
    # targets do not compete with themselves
    queries = targets.queries
    row_of_target = np.searchsorted(queries, targets.owner)
    competes[row_of_target, targets.key] = False
    row, key = np.nonzero(competes)
    weight = np.ones(len(key))
    return Pairs(queries[row], key, queries[row], weight, weight)


def _classes_of_tokens(
    window: Window,
) -> tuple[Int[ndarray, " position"], Int[ndarray, " position"]]:
    """The class and the number of the word that each token belongs to; −1 for no word."""
    words = window.words
    length = words.last - words.first + 1
    number = np.repeat(np.arange(len(words)), length)
    # the tokens of a word follow each other from its first
    before = np.cumsum(length) - length
    offset = np.arange(length.sum()) - before[number]
    word_of = np.full(len(window), -1)
    word_of[words.first[number] + offset] = number
    class_of_word = query_class(window)[words.last]
    # the last class is that of tokens of no word, whose number is −1
    class_of_word = np.append(class_of_word, CLASS_COUNT - 1)
    return class_of_word[word_of], word_of


def target_classes(window: Window, targets: Pairs) -> Int[ndarray, " class"]:
    """Number of targets by the class of the word that they belong to."""
    classes, _ = window.once(_classes_of_tokens)
    return np.bincount(classes[targets.key], minlength=CLASS_COUNT)
