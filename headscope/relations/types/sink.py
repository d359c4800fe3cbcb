"""Attention sinks: the first token and other sink positions.

A sink position is a key position in the first half of a window on which the late queries of a layer
put much of their attention. It is found in the patterns. Like the first token, it is excluded from
every arg-max.
"""

from __future__ import annotations

import numpy as np

from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.relations.controls import keys_from
from headscope.relations.head_type import HeadType
from headscope.relations.pairs import Pairs, earlier_keys, no_pairs, pairs
from headscope.relations.relation import Relation, Threshold

FIRST_THRESHOLD = 0.5
FIRST_SOURCE = (
    "more than half of a head's attention; 57 % is the mean over GPT-2 small's heads "
    "(Vig & Belinkov 2019, 5.2.3)"
)


def first_token(window: Window) -> Pairs:
    """Every query with the first token."""
    query = np.arange(1, len(window))
    return pairs(query, np.zeros_like(query))


def separator(window: Window) -> Pairs:
    """Every query with the token that closes an encoder's window, such as `[SEP]`."""
    if not window.ends:
        return no_pairs()
    query = np.arange(1, window.stop)
    key = np.full_like(query, len(window) - 1)
    return pairs(query, key, attention_kind=window.attention_kind)


def template(window: Window) -> Pairs:
    """Every query with all tokens of the chat template before it, the first token left out."""
    return earlier_keys(np.arange(window.begins, window.stop), np.arange(1, window.begins))


def text_keys(window: Window, targets: Pairs, rng: np.random.Generator) -> Pairs:
    """Same query, any earlier key but the first token; in an encoder any other key of the text."""
    pool = np.arange(1, window.stop)
    return keys_from(window, pool, targets, rng)


def sink_positions_of(window: Window) -> Pairs:
    """No cells: they depend on the layer's attention; see `headscope.measure.sink_positions`."""
    return no_pairs()


RELATIONS = (
    Relation(
        "sink",
        "first-token",
        first_token,
        text_keys,
        Threshold(FIRST_THRESHOLD, FIRST_SOURCE, "the first token of a text, an attention sink"),
        has_hits=False,
    ),
    Relation(
        "sink",
        "position",
        sink_positions_of,
        text_keys,
        Threshold(
            0.25,
            "ours: a quarter of a head's attention on one or two columns, whatever the query is; "
            "Xiao et al. 2024 (Efficient Streaming Language Models with Attention Sinks) describe "
            "the first tokens",
            "an early attention sink of the whole layer",
        ),
        has_hits=False,
    ),
)
SEPARATOR = Relation(
    "sink",
    "separator",
    separator,
    text_keys,
    Threshold(
        0.5,
        "more than half of a head's attention; Clark et al. 2019 (3.2) find over half of BERT's "
        "attention in layers 6 to 10 on [SEP], and that changing it there changes little",
        "the separator that closes the text",
    ),
    has_hits=False,
)
"""Asked of encoders alone."""
TEMPLATE = Relation(
    "sink",
    "template",
    template,
    text_keys,
    Threshold(
        FIRST_THRESHOLD,
        FIRST_SOURCE,
        "the chat template, which stands before every text",
        broad=True,
    ),
    has_hits=False,
    of_template=True,
)
"""Asked of texts in a chat template alone."""
TYPE = HeadType(
    name="sink",
    letter="R",
    order=10,
    colour="#b8b8b8",
    relations=RELATIONS,
    relations_by_kind={BIDIRECTIONAL: (*RELATIONS, SEPARATOR)},
    chat_relations=(TEMPLATE,),
    looks_at="an attention sink: the first token, or an early position that its layer attends to",
    control_keys="other keys",
    behaviour="text",
    functional=False,
)
