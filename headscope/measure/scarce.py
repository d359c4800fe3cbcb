"""Sentences of a text that hold what it has too little of, the scarcest first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from headscope.corpus.code.excerpts import holds_code
from headscope.corpus.stretch import stretches
from headscope.corpus.window import EXCERPT, Window
from headscope.relations.contested import Chosen, contested_pairs
from headscope.relations.relation import MIN_QUERIES, Relation

ENOUGH = 100
"""Contested queries of a relation; when there are so many no more text is read for them."""
REACH = 64
"""Tokens from a query to what it needs; farther ones would take room from many others."""
SEEN = 20
"""Queries of a relation by which its simple rule can be chosen."""
MOST_PASSED = 500
"""Windows that are passed over while excerpts are looked for, and are in memory until then."""


@dataclass(eq=False)
class _Taken:
    """What is taken of a window."""

    window: Window
    spans: set[tuple[int, int]] = field(default_factory=set)
    parts: list[Window] = field(default_factory=list)
    queries: Counter[str] = field(default_factory=Counter)
    """Contested queries in the parts, by relation."""


def first_excerpts(
    relations: Sequence[Relation],
    windows: Sequence[Window],
    further: Iterable[Window],
    room: int,
) -> tuple[list[Window], Iterator[Window]]:
    """Excerpts until each relation has enough queries to choose its simple rule by.

    Args:
        relations: those that excerpts are put together for.
        windows: what is read in any case; without annotated code nothing is taken.
        further: what to choose from.
        room: tokens that may be taken.

    Returns:
        The excerpts, and what is left of `further`.
    """
    coming = iter(further)
    if not any(holds_code(window.arrows) for window in windows):
        return [], coming
    have = Counter({r.id: sum(len(r.pairs(w).queries) for w in windows) for r in relations})
    taken: list[Window] = []
    passed: list[Window] = []
    for window in coming:
        short = [r for r in relations if have[r.id] < SEEN]
        if not short or len(passed) >= MOST_PASSED:
            return taken, chain(passed, [window], coming)
        wanted = window.stimulus == EXCERPT and any(len(r.pairs(window)) for r in short)
        if not wanted or len(window) > room:
            passed.append(window)
            continue
        room -= len(window)
        taken.append(window)
        have.update({r.id: len(r.pairs(window).queries) for r in relations})
    return taken, iter(passed)


def take_contested(
    relations: Sequence[Relation],
    have: Mapping[str, int],
    chosen: Mapping[str, Chosen],
    windows: Iterable[Window],
    room: int,
) -> list[Window]:
    """Sentences with contested queries of which there are not enough yet.

    First those of relations that have too few to be decided, then those of relations that would be
    surer with more.

    Args:
        relations: the relations that lack some.
        have: how many contested queries each has so far, by its name.
        chosen: the rules to beat, likewise.
        windows: what to choose from; they are looked at as long as anything is wanted.
        room: tokens that may be taken.
    """
    queries = Counter({relation.id: int(have[relation.id]) for relation in relations})
    seen: list[_Taken] = []
    coming = iter(windows if relations and room else ())
    for fewest in (MIN_QUERIES, ENOUGH):
        for taken in _again(seen, coming):
            short = [r for r in relations if queries[r.id] < fewest]
            if not short:
                break
            spans = taken.spans.union(_wanted_spans(short, taken.window, chosen))
            if not spans:
                continue
            parts = list(stretches(taken.window, spans)) if spans > taken.spans else taken.parts
            room -= sum(map(len, parts)) - sum(map(len, taken.parts))
            if room < 0:
                return _parts(seen)
            if parts is not taken.parts:
                queries.subtract(taken.queries)
                taken.spans, taken.parts = spans, parts
                taken.queries = _queries(relations, parts, chosen)
                queries.update(taken.queries)
    return _parts(seen)


def _again(seen: list[_Taken], coming: Iterator[Window]) -> Iterator[_Taken]:
    """What was looked at before, then what is new, which is remembered."""
    yield from list(seen)
    for window in coming:
        seen.append(_Taken(window))
        yield seen[-1]


def _parts(seen: Sequence[_Taken]) -> list[Window]:
    return [part for taken in seen for part in taken.parts]


def _queries(
    relations: Sequence[Relation], parts: Sequence[Window], chosen: Mapping[str, Chosen]
) -> Counter[str]:
    found: Counter[str] = Counter()
    for part in parts:  # what rules pick of a window is kept for the next relation
        for relation in relations:
            found[relation.id] += len(contested_pairs(relation, part, chosen[relation.id]).queries)
    return found


def _wanted_spans(
    relations: Sequence[Relation], window: Window, chosen: Mapping[str, Chosen]
) -> Iterator[tuple[int, int]]:
    """First and last token that each contested query needs: its targets, the rule's choice.

    Excerpts of code, and made code, are needed whole: what else they have makes more rules wrong.
    """
    for relation in relations:
        targets = contested_pairs(relation, window, chosen[relation.id])
        if not len(targets):
            continue
        picks, places = chosen[relation.id].picks(relation, window), np.arange(len(window))
        first, last = np.minimum(picks, places), np.maximum(picks, places)
        np.minimum.at(first, targets.query, targets.key)
        np.maximum.at(last, targets.query, targets.key)
        if window.stimulus == EXCERPT or (window.stimulus == "built" and len(window.arrows)):
            yield 0, len(window) - 1
            return
        query = targets.queries
        query = query[last[query] - first[query] <= REACH]
        yield from zip(first[query].tolist(), last[query].tolist(), strict=True)
