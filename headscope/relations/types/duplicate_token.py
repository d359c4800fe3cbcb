"""Duplicate-token heads: the earlier copy of the current token (Wang et al. 2022).

In repeated random tokens a head can use only the repeat. In text `lexical/duplicate` asks for
earlier words of the same lemma, which a head can find by their meaning too.
"""

from __future__ import annotations

from functools import partial

from headscope.relations.controls import other_keys
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import in_second_copy
from headscope.relations.relation import Relation, Threshold
from headscope.relations.types.induction import SOURCE, THRESHOLD
from headscope.stimuli.repeat import REPEAT

TYPE = HeadType(
    name="duplicate-token",
    letter="E",
    order=55,
    colour="#f0e442",
    relations=(
        Relation(
            "duplicate-token",
            "repeat",
            partial(in_second_copy, shift=0),
            other_keys,
            Threshold(
                THRESHOLD,
                f"that of induction, its neighbour in the same text: {SOURCE}",
                "the earlier copy of the current token, in repeated random tokens",
            ),
            (REPEAT.name,),
        ),
    ),
    stimuli=(REPEAT,),
    looks_at="the earlier copy of the current token, in repeated random tokens",
    control_keys="other keys",
    behaviour=REPEAT.name,
)
