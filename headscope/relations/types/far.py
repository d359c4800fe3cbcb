"""Far offsets: attention to the token 9 to 32 tokens back, a relation for each distance.

The relation of a tag states the distance. Nearer offsets are of the type `positional`.
"""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.relations.annotated_links import as_one_word
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, pairs, without
from headscope.relations.relation import Label, Relation, Threshold, draws_nothing
from headscope.relations.types.positional import OFFSETS, at_offset

FAR_OFFSETS = range(OFFSETS.stop, 33)
NEIGHBOURS = np.array([-2, -1, 1, 2])
"""Steps from a target to its controls."""


@draws_nothing
def keys_beside(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the sum over the two keys before and the two after the target.

    A head that attends to a region of two or more tokens has no lift.
    """
    kind = window.attention_kind
    owner = np.repeat(targets.owner, len(NEIGHBOURS))
    neighbours = targets.key[:, None] + NEIGHBOURS
    key: ndarray = neighbours.ravel()
    seen = (key > 0) & kind.sees(owner, key)
    controls = pairs(owner[seen], key[seen], attention_kind=kind)
    return as_one_word(without(controls, targets), len(window))


TYPE = HeadType(
    name="far",
    letter="F",
    order=130,
    colour="#4477aa",
    relations=tuple(
        Relation(
            "far",
            f"offset-{offset}",
            partial(at_offset, offset=offset),
            keys_beside,
            Threshold(0.1, "ours: a tenth of a head's attention", f"the token {offset} back"),
            label=Label(f"offset-{offset}", ("far-offset",)),
        )
        for offset in FAR_OFFSETS
    ),
    looks_at=f"the token {FAR_OFFSETS[0]} to {FAR_OFFSETS[-1]} back",
    control_keys="the two tokens on either side of it, together",
    on_request=True,
)
