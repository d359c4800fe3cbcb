"""Discourse heads attend from a connective to the clause that it links its own clause to.

Pairs come from GUM's `Discourse=` annotation in CoNLL-U: rhetorical relations of a satellite
("because it rained") to its nucleus ("they stayed"). Text without the annotation has no pairs.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.conllu import AHEAD, CAUSAL, OTHER, UNIT
from headscope.corpus.window import Window
from headscope.relations.annotated_links import of_kind
from headscope.relations.controls import WordPairs, word_cells, word_pairs
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, without
from headscope.relations.relation import Baseline, Relation, above_baseline, draws_nothing


def nuclei(window: Window, kind: str) -> Pairs:
    """The word that opens a satellite with the head of its earlier nucleus; in an encoder of a
    later one too.
    """
    return word_cells(window, *_links(window, kind))


@draws_nothing
def other_units(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, heads of other units: for each nucleus the next one nearer and farther."""
    links = [_links(window, kind) for kind in (CAUSAL, OTHER)]
    satellites = np.concatenate([of_kind.query for of_kind in links])
    nuclei_of_satellites = np.concatenate([of_kind.key for of_kind in links])
    query_rows: list[int] = []
    key_rows: list[int] = []
    linked = word_pairs(window.words, targets)
    for query, nucleus in zip(linked.query.tolist(), linked.key.tolist(), strict=True):
        heads = _other_heads(window, query)
        # nuclei of the other kind of relation are right answers too, and no controls
        nuclei_of_query = nuclei_of_satellites[satellites == query]
        others = heads[~np.isin(heads, nuclei_of_query)]
        farther = others[others < nucleus]
        nearer = others[others > nucleus]
        neighbours = [*farther[-1:], *nearer[:1]]
        key_rows += neighbours
        query_rows += [query] * len(neighbours)
    controls = word_cells(window, np.array(query_rows, np.int64), np.array(key_rows, np.int64))
    return without(controls, targets)  # two words can share a token


def nearest_unit(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """The head of the unit before each satellite; in an encoder the nearest on either side."""
    last = window.words.last
    pick = np.full(len(window), -1)
    for query in _links(window, kind).query.tolist():
        heads = _other_heads(window, query)
        if len(heads):
            position = last[query]
            distance = np.abs(last[heads] - position)
            nearest = heads[distance.argmin()]
            pick[position] = last[nearest]
    return pick


def _links(window: Window, kind: str) -> WordPairs:
    """The words that open satellites, with the heads of their nuclei."""
    return window.once(_links_by_kind)[kind]


def _links_by_kind(window: Window) -> dict[str, WordPairs]:
    last = window.words.last
    links = {}
    for kind in (CAUSAL, OTHER):
        # arrows lead back: one from a nucleus to an earlier satellite is turned round
        back = of_kind(window, kind)
        ahead = of_kind(window, kind + AHEAD)
        satellites = np.append(back.query, ahead.last)
        nuclei_positions = np.append(back.last, ahead.query)
        links[kind] = WordPairs(
            query=np.searchsorted(last, satellites),
            key=np.searchsorted(last, nuclei_positions),
        )
    return links


def _other_heads(window: Window, query: int) -> Int[ndarray, " unit"]:
    """Rows of the heads of other units, in order, that the word in a row sees."""
    words = window.words
    units = of_kind(window, UNIT)
    positions = np.unique(np.append(units.last, units.query))
    heads = np.searchsorted(words.last, positions)
    unit_head = query if query in heads else words.head[query]
    query_span = words.first[[query]], words.last[[query]]
    head_spans = words.first[heads], words.last[heads]
    is_seen = window.attention_kind.sees_apart(query_span, head_spans)
    is_other = is_seen & (heads != unit_head)
    return np.asarray(heads[is_other])


_MEANINGS = {
    "causal": (CAUSAL, "the head word of the cause or effect of the word's clause"),
    "other": (OTHER, "the head word of the clause that the word's clause explains"),
}

TYPE = HeadType(
    name="discourse",
    letter="B",
    order=140,
    colour="#882255",
    relations=tuple(
        Relation(
            "discourse",
            name,
            partial(nuclei, kind=kind),
            other_units,
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one earlier word, as for syntactic heads",
                meaning,
                beats_surrogate=True,
            ),
            baseline=Baseline(partial(nearest_unit, kind=kind)),
        )
        for name, (kind, meaning) in _MEANINGS.items()
    ),
    looks_at="from a connective: the head of the clause that it links its clause to",
    control_keys="head words of other clauses, nearer and farther; that of the clause before",
    on_request=True,
)
