"""Binding heads look from a question about one thing to what the text ties to it (on request).

"The red box holds rice": Feng and Steinhardt 2023 (arXiv 2310.17191) ask how a model knows which of
several contents is tied to which container. Four containers here have two colours and two kinds, so
that neither word alone says which is meant; what they hold is said before the name or behind it, at
several distances, and two to a sentence. The same text is asked for all four in turn. What
followed the name the first time, to which induction leads, is never what the container holds: an
earlier layer may find it on the way, and earns no tag for that.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.annotated_links import (
    as_one_word,
    every_candidate,
    of_kind,
    pointed_to,
)
from headscope.relations.pairs import Pairs
from headscope.relations.relation import Baseline, Relation, TagThresholds, draws_nothing
from headscope.relations.types import HeadType
from headscope.stimuli.containers import CONTAINERS_HELD, HALF_RIGHT, HELD

FLOOR = 0.1
SOURCE = "ours: a tenth of a head's attention on one earlier word, as of retrieval"
BEAT_RULE_BY = 0.10


def nearest_to_its_name(window: Window) -> Int[ndarray, " position"]:
    """At each query the content that stands nearest to the container's first mention.

    −1 where nothing is asked. Before or behind it, in its sentence or in another.
    """
    nearest = np.full(len(window), -1)
    links = of_kind(window, HELD)
    name = _first_mention(window)
    if not len(links) or name is None:
        return nearest
    between = np.maximum(name[0] - links.last, links.first - name[1])
    nearest[links.query[0]] = links.last[between.argmin()]
    return nearest


@draws_nothing
def half_right(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, what the containers of the same colour and of the same kind hold, together.

    One of them stands in the same sentence. A head that goes by the colour, by the kind or by the
    sentence has as much there as on what is right.
    """
    return as_one_word(every_candidate(window, targets, rng, kind=HALF_RIGHT), len(window))


def _first_mention(window: Window) -> tuple[int, int] | None:
    """The first and the last token of the container that is asked for, where it is named first."""
    words = window.words
    kinds = np.flatnonzero((words.upos[:-1] == "ADJ") & (words.upos[1:] == "PROPN"))
    if not len(kinds):
        return None
    names = [tuple(words.lemma[row : row + 2].tolist()) for row in kinds]
    row = int(kinds[names.index(names[-1])])
    return int(words.first[row]), int(words.last[row + 1])


RELATIONS = (
    Relation(
        "binding",
        "held",
        partial(pointed_to, kind=HELD),
        partial(every_candidate, kind=HELD),
        TagThresholds(
            FLOOR,
            SOURCE,
            "what the container that is asked for holds",
            beat_baseline_by=BEAT_RULE_BY,
            beats_shadow=True,
        ),
        stimuli=(CONTAINERS_HELD.name,),
        baseline=Baseline(nearest_to_its_name, by_class=False),
        matched=half_right,
    ),
)

TYPE = HeadType(
    name="binding",
    letter="B",
    colour="#aa4499",
    marker="8",
    relations=RELATIONS,
    looks_at="from a question about one of four containers to what the text says that it holds",
    rivals="same query, what the other three hold; what those hold that share the colour, the kind "
    "or the sentence; the content nearest to the name",
    behaviour=CONTAINERS_HELD.name,
    on_request=True,
)
