"""Lazy heads: further rules without syntax, reference and meaning that come close to relations.

Places in a clause, words behind or before words of another class, endings, capital letters, and
mixtures of two rules. Neither a tree nor an entity is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from headscope.attention_kind import CAUSAL, AttentionKind
from tests.oracles.baseline_heads import BaselineHead, halves, looking, mirrored_head
from tests.oracles.window_features import Rows, WindowFeatures, mixed, spread_rows

_NEAREST, _SECOND, _FIRST = "nearest {}", "second nearest {}", "first {}"
_BEYOND = (
    ("nominal", ("VERB", "AUX", "DET", "PRON", "SCONJ|PART", "relative word", "ADP")),
    ("noun or name", ("AUX", "VERB", "PRON", "comma")),
    ("VERB", ("DET", "PRON", "AUX", "SCONJ|PART", "relative word")),
    ("content word", ("DET", "AUX", "PRON", "relative word")),
)
"""Nearest words of the first kind before the nearest one of the second."""
_SINCE = (
    ("nominal", ("boundary", "VERB", "ADP", "CCONJ", "relative word")),
    ("VERB", ("boundary", "CCONJ", "comma", "relative word")),
    ("content word", ("boundary", "ADP", "DET", "CCONJ")),
    ("word", ("boundary", "VERB", "comma")),
)
"""First words of the first kind behind the nearest one of the second."""
_BEHIND = (
    ("nominal", ("ADP", "DET", "VERB", "ADJ"), " behind "),
    ("nominal", ("ADP", "ADP|DET|ADJ", "noun or name"), " not behind "),
    ("VERB", ("PART", "AUX", "nominal"), " behind "),
    ("VERB", ("AUX|PART", "PART"), " not behind "),
)
"""Nearest words of the first kind with one of the second before them, or without."""
_OF_QUERIES = (
    ("VERB", _FIRST, "nominal since the nearest boundary"),
    ("VERB", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("VERB", _NEAREST, "nominal beyond the nearest AUX"),
    ("VERB", _NEAREST, "nominal of another phrase"),
    ("VERB", _NEAREST, "VERB beyond the nearest CCONJ"),
    ("VERB", _FIRST, "VERB|AUX since the nearest boundary"),
    ("AUX", _FIRST, "nominal since the nearest boundary"),
    ("ADJ", _NEAREST, "nominal beyond the nearest AUX"),
    ("noun or name", _NEAREST, "VERB beyond the nearest ADP"),
    ("noun or name", _NEAREST, "VERB since the nearest boundary"),
    ("noun or name", _NEAREST, "nominal of another phrase"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest ADP"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest CCONJ"),
    ("noun or name", _NEAREST, "VERB not behind PART"),
    ("noun or name", _FIRST, "VERB since the nearest CCONJ"),
    ("ADP", _NEAREST, "VERB not behind AUX|PART"),
    ("ADV", _FIRST, "VERB|AUX since the nearest boundary"),
    ("PRON", _NEAREST, "word with a capital"),
    ("PRON", _NEAREST, "most frequent noun"),
    ("PRON", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("PRON", _NEAREST, "PROPN beyond the nearest boundary"),
    ("PROPN", _FIRST, "word with a capital"),
    ("mention", _NEAREST, "most frequent noun"),
)
"""Heads that look from words of the first kind alone."""
_MIXED = (
    ("nearest VERB", "second nearest VERB"),
    ("nearest nominal", "second nearest nominal"),
    ("nearest nominal", "nearest nominal beyond the nearest VERB"),
    ("nearest noun or name", "nearest ADP"),
    ("first nominal since the nearest boundary", "nearest VERB"),
    ("nearest VERB beyond the nearest DET", "first VERB since the nearest boundary"),
    ("nearest word behind ADP", "nearest word with a capital"),
)
"""Pairs of rules of which each has half of the attention."""

_BLURRED = (
    ("", _FIRST, "nominal since the nearest boundary"),
    ("", _FIRST, "VERB since the nearest boundary"),
    ("", _NEAREST, "nominal beyond the nearest VERB"),
    ("", _NEAREST, "nominal not behind ADP|DET|ADJ"),
    ("", _NEAREST, "noun or name that closes a run"),
    ("VERB", _FIRST, "nominal since the nearest boundary"),
    ("noun or name", _NEAREST, "VERB not behind PART"),
    ("noun or name", _NEAREST, "noun or name beyond the nearest ADP"),
    ("PRON", _NEAREST, "most frequent noun"),
    ("PRON", _NEAREST, "word with a capital"),
)
"""Heads that follow a rule with `STRENGTH` of their attention, the rest spread as a real head's."""
STRENGTH = 0.6


def lazy_heads(attention_kind: AttentionKind = CAUSAL) -> tuple[BaselineHead, ...]:
    """Every lazy head; of encoders also those that read the text from its end."""
    heads = tuple(_causal())
    return (*heads, *map(mirrored_head, heads)) if attention_kind.sees_future else heads


def _causal() -> Iterator[BaselineHead]:
    for kind, marks in _BEYOND:
        yield from (looking(_NEAREST, f"{kind} beyond the nearest {mark}") for mark in marks)
    for kind, marks in _SINCE:
        yield from (looking(_FIRST, f"{kind} since the nearest {mark}") for mark in marks)
    for kind, marks, where in _BEHIND:
        yield from (looking(_NEAREST, kind + where + mark) for mark in marks)
    for ending in ("ed", "ing", "s", "ly"):
        yield looking(_NEAREST, f"word in -{ending}")
    for kind in ("nominal of another phrase", "most frequent noun", "word behind ADP"):
        yield looking(_NEAREST, kind)
    for queries, pick, kind in _OF_QUERIES:
        yield looking(pick, kind, queries=queries)
    for names in _MIXED:
        yield halves(*map(_named, names))

    yield from (_blurred(looking(pick, kind, queries=queries)) for queries, pick, kind in _BLURRED)


def _blurred(head: BaselineHead) -> BaselineHead:
    def rest(reading: WindowFeatures) -> Rows:
        return spread_rows(reading.window, np.random.default_rng(len(head.name)))

    rule = mixed((STRENGTH, head.attention), (1 - STRENGTH, rest))
    return replace(head, name=f"{head.name}, blurred", attention=rule)


def _named(name: str) -> BaselineHead:
    for pick in (_SECOND, _NEAREST, _FIRST):
        start = pick.format("")
        if name.startswith(start):
            return looking(pick, name.removeprefix(start))
    raise ValueError(name)
