"""Features of structure: sentences, trees by one and two steps, entities, related words."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.pairs import span_pairs
from headscope.studies.explain.feature import Cells, Feature, Lexicon, after, cells, lower


def sentences(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """The query's sentence and the one before, their first words, and any sentence's first."""
    own, words = window.sentence_of_token, window.words
    if not len(words):
        return
    query, key = lower(len(window))
    seen = key > 0
    query, key = query[seen], key[seen]
    back = own[query] - own[key]
    for name, meaning, mask in (
        ("same sentence", "the same sentence", back == 0),
        ("sentence before", "the sentence before", back == 1),
    ):
        yield cells(Feature(name, meaning, "syntactic"), query[mask], key[mask])
    starts = words.first[np.flatnonzero(np.diff(words.sentence, prepend=-1))]
    any_start = Feature("sentence start", "the first token of any sentence", "syntactic")
    yield cells(any_start, *after(len(window), starts))
    place = np.searchsorted(starts, np.arange(len(window)), side="right") - 1
    own_start = np.flatnonzero(place >= 0)
    feature = Feature("own sentence start", "the first token of its sentence", "syntactic")
    yield cells(feature, own_start, starts[place[own_start]])


def trees(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Links of the dependency tree whatever their label, one and two steps; words' own pieces."""
    words = window.words
    head = words.head
    has = np.flatnonzero(head >= 0)
    up = np.where(head >= 0, head[head], -1)
    two = np.flatnonzero((head >= 0) & (up >= 0))
    same = (head[:, None] == head[None, :]) & (head >= 0)[:, None]
    np.fill_diagonal(same, False)
    between = np.nonzero(same)
    links: tuple[tuple[str, str, ndarray, ndarray], ...] = (
        ("head", "the word that governs it", has, head[has]),
        ("dependent", "a word that it governs", head[has], has),
        ("head of head", "the word that governs its governor", two, up[two]),
        ("dependent of dependent", "a word two steps below it", up[two], two),
        ("sibling", "a word of the same governor", between[0], between[1]),
    )
    for name, meaning, query, key in links:
        yield _between(window, Feature(f"tree {name}", meaning, "syntactic"), query, key)
    depth = np.flatnonzero(head < 0)
    roots = Feature("key root", "any main word of a sentence", "syntactic")
    yield cells(roots, *after(len(window), words.last[depth]))


def entities(window: Window, lexicon: Lexicon) -> Iterator[Cells]:
    """Any mention; those of one entity are relations of the table."""
    mentions = window.mentions
    if not len(mentions):
        return
    anything = Feature("key mention", "the head word of any mention", "coreference")
    yield cells(anything, *after(len(window), np.unique(mentions.last)))


def _between(window: Window, feature: Feature, query: ndarray, key: ndarray) -> Cells:
    """From a word's last token to all tokens of another word that came before it."""
    words = window.words
    earlier = words.last[key] < words.last[query]
    query, key = query[earlier], key[earlier]
    found = span_pairs(words.last[query], words.first[key], words.last[key])
    return _once(feature, found.query, found.key)


def _once(feature: Feature, query: ndarray, key: ndarray) -> Cells:
    if not len(query):
        return cells(feature, query, key)
    cell = np.unique(np.stack([query, key]), axis=1)
    return cells(feature, cell[0], cell[1])


STRUCTURE = (sentences, trees, entities)
