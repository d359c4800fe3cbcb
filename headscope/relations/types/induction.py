"""Induction heads: the token that followed the earlier copy of the current token.

In repeated random tokens a head can use only the repeat (Elhage et al. 2021; Olsson
et al. 2022). The scores differ from `detect_head`'s `mul`, which divides by all rows, so that a
perfect induction head gets about 0.5 there: here the mean runs over the second copy's queries.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from headscope.corpus.window import Window
from headscope.relations.controls import other_keys, same_distance
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, in_second_copy, pairs
from headscope.relations.query_sampling import row_queries
from headscope.relations.relation import Baseline, Relation, Threshold
from headscope.stimuli.repeat import REPEAT

THRESHOLD = 0.4
SOURCE = (
    "nine heads of GPT-2 small score above it in TransformerLens' published scores, from L5H5's "
    "0.94 down to L9H6's 0.42"
)


def follower_of_earlier_same(window: Window) -> Pairs:
    """Every query with the tokens that followed earlier occurrences of its own token."""
    queries = row_queries(window)
    same = window.tokens[queries, None] == window.tokens[None, :]
    same[:, 0] = False
    row, earlier = np.nonzero(same)
    query = queries[row]
    # directly after its own earlier occurrence, the follower is the query itself
    apart = earlier + 1 < query
    return pairs(query[apart], earlier[apart] + 1)


TYPE = HeadType(
    name="induction",
    letter="I",
    order=50,
    colour="#d55e00",
    relations=(
        Relation(
            "induction",
            "repeat",
            partial(in_second_copy, shift=1),
            other_keys,
            Threshold(
                THRESHOLD,
                SOURCE,
                "the token after the earlier copy of the current one, in repeated random tokens",
            ),
            (REPEAT.name,),
        ),
        Relation(
            "induction",
            "natural",
            follower_of_earlier_same,
            same_distance,
            Threshold(
                0.15,
                "ours: a third of the threshold on random repeats: earlier followers are often the "
                "wrong ones; Olsson et al. 2022 set no threshold for natural text",
                "tokens that followed the current one before, in natural text",
                beat_baseline_by=0.10,
            ),
            # near copies are among the baselines: a head may take one word for another
            baseline=Baseline(by_class=False),
        ),
    ),
    stimuli=(REPEAT,),
    looks_at="the token after the earlier copy, in repeated random tokens; in text the token "
    "that followed the same token",
    control_keys="other keys; in text keys at the same distance, and at hard queries all words",
    behaviour=REPEAT.name,
)
