"""Sentences of a text that hold what it has too little of, the scarcest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

import numpy as np

from headscope.corpus.code.excerpts import holds_code
from headscope.corpus.window import Window
from headscope.relations.contested import ChosenBaseline, contested_pairs
from headscope.relations.relation import MIN_QUERIES, Relation
from headscope.stimuli.natural_text import EXCERPT
from headscope.stimuli.synthetic import SYNTHETIC

MAX_CONTESTED = 100
"""Contested queries of a relation; when there are so many no more text is read for them."""
GOALS = (12, 24, MIN_QUERIES, MAX_CONTESTED)
"""Contested queries to which all relations are brought before any gets more: a dozen lie in as many
documents as a test needs, and more make it surer."""
REACH = 64
"""Tokens from a query to what it needs; farther ones would take room from many others."""
MIN_BASELINE_QUERIES = 20
"""Queries of a relation by which its simple rule can be chosen."""
MOST_PASSED = 500
"""Windows that are passed over while excerpts are looked for, and are in memory until then."""


Span = tuple[int, int]


class _Taking:
    """The sentences that are taken of a window."""

    def __init__(
        self,
        window: Window,
        relations: Sequence[Relation],
        heuristics: Mapping[str, ChosenBaseline],
    ) -> None:
        self.window, self._relations, self._heuristics = window, relations, heuristics
        self.spans: set[Span] = set()
        self.parts: list[Window] = []
        self.queries: Counter[str] = Counter()
        """Contested queries in the parts, by relation."""
        self._needed: dict[str, list[Span]] = {}
        self._counted: dict[Span, Counter[str]] = {}
        """Contested queries of stretches that were taken before, by first and last sentence."""

    def needed_spans(self, relation: Relation) -> list[Span]:
        """First and last token that each contested query of a relation needs."""
        if relation.id not in self._needed:
            spans = _spans_of(relation, self.window, self._heuristics[relation.id])
            self._needed[relation.id] = list(spans)
        return self._needed[relation.id]

    def take(self, spans: set[Span], parts: list[Window]) -> None:
        """Take the stretches of these spans; one that stays is not counted anew."""
        self.spans, self.parts, self.queries = spans, parts, Counter()
        for run, part in zip(_sentences(self.window, spans), parts, strict=True):
            if run not in self._counted:
                # what rules pick of a window is kept for the next relation
                self._counted[run] = Counter(
                    {
                        r.id: len(contested_pairs(r, part, self._heuristics[r.id]).queries)
                        for r in self._relations
                    }
                )
            self.queries.update(self._counted[run])


def first_excerpts(
    relations: Sequence[Relation],
    windows: Sequence[Window],
    remaining_text: Iterable[Window],
    budget: int,
) -> tuple[list[Window], Iterator[Window]]:
    """Excerpts until each relation has enough queries to choose its simple rule by.

    Returns:
        The excerpts, and what is left of `remaining_text`.
    """
    remaining = iter(remaining_text)
    if not any(holds_code(window.arrows) for window in windows):
        return [], remaining
    counts = Counter({r.id: sum(len(r.pairs(w).queries) for w in windows) for r in relations})
    excerpts: list[Window] = []
    passed: list[Window] = []
    for window in remaining:
        short = [r for r in relations if counts[r.id] < MIN_BASELINE_QUERIES]
        if not short or len(passed) >= MOST_PASSED:
            return excerpts, chain(passed, [window], remaining)
        is_needed = window.stimulus == EXCERPT.name and any(len(r.pairs(window)) for r in short)
        if not is_needed or len(window) > budget:
            passed.append(window)
            continue
        budget -= len(window)
        excerpts.append(window)
        counts.update({r.id: len(r.pairs(window).queries) for r in relations})
    return excerpts, iter(passed)


def take_contested(
    relations: Sequence[Relation],
    counts: Mapping[str, int],
    heuristics: Mapping[str, ChosenBaseline],
    windows: Iterable[Window],
    budget: int,
) -> list[Window]:
    """Sentences with contested queries of which there are not enough yet.

    First those of relations that have too few to be decided, then those of relations that would be
    surer with more; see `GOALS`.
    """
    queries = Counter({relation.id: int(counts[relation.id]) for relation in relations})
    takings: list[_Taking] = []
    unseen = iter(windows if relations and budget else ())

    def tried_then_new() -> Iterator[_Taking]:
        yield from list(takings)
        for window in unseen:
            takings.append(_Taking(window, relations, heuristics))
            yield takings[-1]

    for fewest in GOALS:
        for taking in tried_then_new():
            short = [r for r in relations if queries[r.id] < fewest]
            if not short:
                break
            spans = taking.spans.union(*(taking.needed_spans(relation) for relation in short))
            if spans == taking.spans:
                continue
            parts = list(stretches(taking.window, spans))
            budget -= sum(map(len, parts)) - sum(map(len, taking.parts))
            if budget < 0:
                return [part for taking in takings for part in taking.parts]
            queries.subtract(taking.queries)
            taking.take(spans, parts)
            queries.update(taking.queries)
    return [part for taking in takings for part in taking.parts]


def _spans_of(relation: Relation, window: Window, heuristic: ChosenBaseline) -> Iterator[Span]:
    """First and last token that each contested query needs: its targets, the rule's choice.

    Excerpts of code, and made code, are needed whole: what else they have makes more rules wrong.
    """
    targets = contested_pairs(relation, window, heuristic)
    if not len(targets):
        return
    if window.stimulus == EXCERPT.name or (
        window.stimulus == SYNTHETIC.name and len(window.arrows)
    ):
        yield 0, len(window) - 1
        return
    picks, places = heuristic.picks(relation, window), np.arange(len(window))
    first, last = np.minimum(picks, places), np.maximum(picks, places)
    np.minimum.at(first, targets.query, targets.key)
    np.maximum.at(last, targets.query, targets.key)
    query = targets.queries
    query = query[last[query] - first[query] <= REACH]
    yield from zip(first[query].tolist(), last[query].tolist(), strict=True)


def stretches(window: Window, spans: Iterable[Span]) -> Iterator[Window]:
    """The whole sentences that cover each span, and one before; those that meet are one stretch.

    Each begins with the beginning-of-text token, and ends with what closes the window.
    """
    sentence = window.sentence_of_token
    for number, (first, last) in enumerate(_sentences(window, spans)):
        inside = np.flatnonzero((sentence >= first) & (sentence <= last))
        stop = min(int(inside[-1]) + 1, window.stop)
        yield stretch(window, max(window.begins, int(inside[0])), stop, number)


def _sentences(window: Window, spans: Iterable[Span]) -> list[Span]:
    sentence = window.sentence_of_token
    runs: list[Span] = []
    for first, last in sorted(
        (int(sentence[start]) - 1, int(sentence[stop])) for start, stop in spans
    ):
        if runs and first <= runs[-1][1] + 1:
            runs[-1] = (runs[-1][0], max(runs[-1][1], last))
        else:
            runs.append((first, last))
    return runs


def stretch(window: Window, start: int, stop: int, number: int) -> Window:
    """The tokens of `[start, stop)` behind what begins a text, with what lies among them whole."""
    begins = window.begins
    inner = window.inner[(window.inner >= start) & (window.inner < stop)]
    return replace(
        window,
        name=f"{window.name}.{number}",
        tokens=np.concatenate(
            [window.tokens[:begins], window.tokens[start:stop], window.tokens[window.stop :]]
        ),
        strings=(
            *window.strings[:begins],
            *window.strings[start:stop],
            *window.strings[window.stop :],
        ),
        words=window.words.between(start, stop, begins),
        mentions=window.mentions.between(start, stop, begins),
        inner=inner - start + begins,
        arrows=window.arrows.between(start, stop, begins),
    )
