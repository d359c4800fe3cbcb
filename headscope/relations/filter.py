"""Filter heads look from a question about a list to the item that fits it (on request).

Sharma et al. 2025 (arXiv 2510.26784) find heads that hold what is asked for as a predicate in the
query of a prompt's last token, and pick out the items of a list that satisfy it, however the list
is written. Here a list is asked for each of its four categories in turn, so that each member is
right as often as the others, the first, the last, the longest or the commonest. What remains is to
be near the category in meaning: beside each member stands a word of its field that is none, such as
"orchard" for fruit, which the tag must beat; and to be like its name in letters, which is the
relation's simple rule. Lists within a line and lists in lines have questions of their own; a tag on
one family asks for the floor and a sure lift on the other one too.
"""

from __future__ import annotations

import itertools
from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.annotated_links import every_candidate, of_kind, pointed_to
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation, TagThresholds, draws_nothing
from headscope.relations.types import HeadType
from headscope.stimuli.item_lists import CATEGORIES, FAMILIES, INLINE, ITEM_LISTS, LINES, LURE

FLOOR = 0.1
SOURCE = "ours: a tenth of a head's attention on one earlier word, as of retrieval"
BEAT_RULE_BY = 0.10


def most_alike(window: Window, *, kind: str) -> Int[ndarray, " position"]:
    """At each query the member that is spelled most like what is asked for, −1 elsewhere.

    Likeness is the share of pairs of letters in common (Dice 1945); of equal ones the nearest.
    """
    items = of_kind(window, kind)
    picks = np.full(len(window), -1)
    category = _category(window)
    for query in dict.fromkeys(items.query.tolist()):
        of_query = np.flatnonzero(items.query == query)
        words = ["".join(window.strings[items.first[i] : items.last[i] + 1]) for i in of_query]
        scores = [
            (_dice(word.strip(), category), items.last[i])
            for word, i in zip(words, of_query, strict=True)
        ]
        picks[query] = max(scores)[1]
    return picks


@draws_nothing
def word_of_its_field(
    window: Window, targets: Pairs, rng: np.random.Generator, *, kind: str
) -> Pairs:
    """Same query, the item that is of the category's field and no member of it.

    A head that matches meanings, whatever is asked of them, has as much there as on what fits.
    """
    return every_candidate(window, targets, rng, kind=f"{kind}-{LURE}")


def _category(window: Window) -> str:
    """What a window asks for: it is named last."""
    categories = [lemma for lemma in window.words.lemma.tolist() if lemma in CATEGORIES]
    return categories[-1] if categories else ""


def _dice(word: str, other: str) -> float:
    pairs, other_pairs = ({*itertools.pairwise(form)} for form in (word, other))
    return 2 * len(pairs & other_pairs) / max(1, len(pairs) + len(other_pairs))


_MEANINGS = {
    INLINE.kind: "the item that fits the question, of a list within a line",
    LINES.kind: "the item that fits the question, of a list in lines",
}
_OTHER = {INLINE.kind: LINES.kind, LINES.kind: INLINE.kind}

RELATIONS = tuple(
    Relation(
        "filter",
        family.kind,
        partial(pointed_to, kind=family.kind),
        partial(every_candidate, kind=family.kind),
        TagThresholds(
            FLOOR,
            SOURCE,
            _MEANINGS[family.kind],
            beat_baseline_by=BEAT_RULE_BY,
            beats_shadow=True,
            companion=f"filter/{_OTHER[family.kind]}",
        ),
        stimuli=(ITEM_LISTS.name,),
        baseline=Baseline(partial(most_alike, kind=family.kind), by_class=False),
        matched=partial(word_of_its_field, kind=family.kind),
    )
    for family in FAMILIES
)

TYPE = HeadType(
    name="filter",
    letter="F",
    colour="#117733",
    marker="<",
    relations=RELATIONS,
    looks_at="from a question about a list to the item that fits it",
    rivals="same query, the members of other categories; the item of the category's field that is "
    "no member",
    behaviour=ITEM_LISTS.name,
    on_request=True,
)
