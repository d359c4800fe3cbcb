"""Code heads: from a position in a Python file to what its grammar says that it points back to.

The annotation is Python's own (`ast`, `tokenize`). The baseline is the nearest candidate of the
same kind: names of the same scope, other brackets, other blocks.
"""

from __future__ import annotations

from functools import partial

from headscope.corpus.python_files import KINDS
from headscope.relations.annotated_links import nearest_candidate, other_candidates, pointed_to
from headscope.relations.head_type import HeadType
from headscope.relations.relation import Baseline, Relation, above_baseline
from headscope.stimuli.natural_text import TEXT

_MEANINGS = {
    "definition": "where the name was last bound",
    "bracket": "the bracket that the closing one closes",
    "block": "the line that opened the block",
}

TYPE = HeadType(
    name="code",
    letter="K",
    order=90,
    colour="#44aa99",
    relations=tuple(
        Relation(
            "code",
            kind,
            partial(pointed_to, kind=kind),
            partial(other_candidates, kind=kind),
            above_baseline(
                0.1,
                "ours: a tenth of a head's attention on one place, as for syntactic heads, besides "
                "the best baseline plus 10 points where that baseline is wrong",
                _MEANINGS[kind],
                beats_surrogate=True,
            ),
            stimuli=(TEXT.name,),
            baseline=Baseline(partial(nearest_candidate, kind=kind), by_class=False),
        )
        for kind in KINDS
    ),
    looks_at="in Python files: where a name was last bound, an opening bracket, the line that "
    "opened a block",
    control_keys="other candidates of the same kind, nearer and farther; the nearest one",
    on_request=True,
    behaviour="text",
)
