"""Positional heads: attention at a fixed distance, independent of the tokens.

Natural text and random tokens are scored separately, and a tag requires both: on text only, a
head that follows words can look positional.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.relations.controls import other_keys
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, pairs
from headscope.relations.relation import FindPairs, Relation, Threshold, draws_nothing
from headscope.stimuli.repeat import REPEAT

OFFSETS = range(9)
THRESHOLD = 0.4
SOURCE = (
    "the strongest previous-token heads of GPT-2 small reach it on random tokens in "
    "TransformerLens' published scores: L4H11 0.99, L3H7 0.53, L6H8 0.49, L2H2 0.48, L5H6 0.40; "
    "Voita et al. 2019 require the arg-max in 90 % of the cases, in a model without a sink"
)
NEAR = 4


def at_offset(window: Window, offset: int) -> Pairs:
    """Every query with the key `offset` positions back, or ahead if negative; no special token.

    >>> window = Window("w", np.arange(5), ("a",) * 5)
    >>> found = at_offset(window, 2)
    >>> list(zip(found.query.tolist(), found.key.tolist()))
    [(3, 1), (4, 2)]
    >>> window = Window("w", np.arange(5), ("a",) * 5, attention_kind=BIDIRECTIONAL, ends=1)
    >>> found = at_offset(window, -1)
    >>> list(zip(found.query.tolist(), found.key.tolist()))
    [(1, 2), (2, 3)]
    """
    # on repeated random tokens only the first copy is random: the second can be predicted
    end = window.copy_length + 1 if window.copy_length else window.stop
    first_query = 1 + max(offset, 0)
    query_end = end + min(offset, 0)
    query = np.arange(first_query, query_end)
    return pairs(query, query - offset, attention_kind=window.attention_kind)


def near_tokens(window: Window) -> Pairs:
    """Every query with the keys 1 to 4 back, in an encoder 1 to 4 ahead too; no special token."""
    return _at_distances(window, np.arange(1, window.stop), range(1, NEAR + 1))


@draws_nothing
def tokens_before_those(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, the keys 5 to 12 back, in an encoder 5 to 12 ahead too."""
    return _at_distances(window, targets.queries, range(NEAR + 1, 3 * NEAR + 1))


def _at_distances(window: Window, queries: Int[ndarray, " query"], distances: range) -> Pairs:
    back = [-distance for distance in distances]
    steps = np.array([*back, *distances])
    query, step = np.meshgrid(queries, steps, indexing="ij")
    key = query + step
    is_in_text = (key > 0) & (key < window.stop)
    return pairs(query[is_in_text], key[is_in_text], attention_kind=window.attention_kind)


def _rows(offsets: Iterable[tuple[str, FindPairs, str]]) -> list[Relation]:
    rows = []
    for name, find, meaning in offsets:
        on_text = Threshold(THRESHOLD, SOURCE, meaning, paired_relation=f"positional/{name}-random")
        on_random = Threshold(
            THRESHOLD, SOURCE, f"{meaning}, in random tokens", paired_relation=f"positional/{name}"
        )
        rows.append(Relation("positional", name, find, other_keys, on_text))
        rows.append(
            Relation("positional", f"{name}-random", find, other_keys, on_random, (REPEAT.name,))
        )
    return rows


_PLACES = {0: "the current token", 1: "the previous token"}
_AHEAD = {1: "the next token"}

_BACK = _rows(
    (f"offset-{n}", partial(at_offset, offset=n), _PLACES.get(n, f"the token {n} back"))
    for n in OFFSETS
)


def _local(meaning: str) -> Relation:
    thresholds = Threshold(
        0.3,
        "ours: nearly a third of a head's attention on the four tokens before, and 1.5 times the "
        "control",
        meaning,
        broad=True,
    )
    return Relation("positional", "local", near_tokens, tokens_before_those, thresholds)


AHEAD = _rows(
    (f"offset+{n}", partial(at_offset, offset=-n), _AHEAD.get(n, f"the token {n} ahead"))
    for n in OFFSETS[1:]
)
"""Asked of encoders alone."""

TYPE = HeadType(
    name="positional",
    letter="P",
    order=20,
    colour="#0072b2",
    relations=(*_BACK, _local(f"the {NEAR} tokens before")),
    stimuli=(REPEAT,),
    relations_by_kind={
        BIDIRECTIONAL: (*_BACK, _local(f"the {NEAR} tokens before and the {NEAR} after"), *AHEAD),
    },
    looks_at="the token 0 to 8 back, in text and in random tokens; the four tokens before",
    control_keys="other keys; for the four tokens before, the four before those",
    behaviour="text",
)
