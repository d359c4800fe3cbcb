"""The hand-built heads: what each of them looks at, and which tags it may earn.

A head's score of a query and a key is a sum of terms: what the query is and what the key is, do
they hold the same word, how far apart are they. Heads that look for something rest on the first
token when they do not find it, as trained heads do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

MATCH_LOGITS, SINK_LOGITS = 120.0, 60.0
"""Scores, in nats, of a key that fits its query and of the first token."""


@dataclass(frozen=True)
class BuiltHead:
    """A head that is built by hand."""

    name: str
    layer: int


_Head = TypeVar("_Head", bound=BuiltHead)


def by_place(heads: Sequence[_Head]) -> dict[tuple[int, int], _Head]:
    """Each head by its layer and its number there, in the order in which they are listed."""
    counts: Counter[int] = Counter()
    placed: dict[tuple[int, int], _Head] = {}
    for head in heads:
        placed[head.layer, counts[head.layer]] = head
        counts[head.layer] += 1
    return placed


@dataclass(frozen=True)
class PlantedHead(BuiltHead):
    """One head. All gains are in nats of attention score.

    `fits` are pairs (query feature, key feature), `None` for any query. `same` compares the
    query's word with the key's (`word`) or with the word before the key (`previous`).
    """

    relation: str | None = None
    """The tag that it must earn; None for a distractor, which must earn none."""
    may_earn: tuple[str, ...] = ()
    """Other tags that are true of it."""
    fits: tuple[tuple[str | None, str, float], ...] = ()
    same: str | None = None
    same_gain: float = 0.0
    near: float = 0.0
    """Score of the distance that `offset` names; it falls off with the logarithm of the difference
    from it. Negative to avoid that distance."""
    offset: int = 0
    random: float = 0.0
    """Standard deviation of random entries of Q and K, in units of the other heads' entries."""
    copies: bool = False
    """Writes the word that it looks at into the residual stream, for the next layer."""


def _attention_head(
    name: str,
    relation: str | None,
    *fits: tuple[str | None, str],
    near: float = 25.0,
    **fields: object,
) -> PlantedHead:
    terms = tuple((query, key, MATCH_LOGITS) for query, key in fits)
    return PlantedHead(
        name,
        1,
        relation,
        fits=(*terms, (None, "bos", SINK_LOGITS)),
        near=near,
        **fields,  # type: ignore[arg-type]
    )


_GENDERS = (("she", "feminine"), ("he", "masculine"), ("it", "thing"), ("they", "plural"))

HEADS = (
    PlantedHead("previous token", 0, "positional/offset-1", near=50.0, offset=1, copies=True),
    PlantedHead("two back", 0, "positional/offset-2", near=50.0, offset=2),
    PlantedHead("current token", 0, "positional/offset-0", near=50.0),
    PlantedHead("first token", 0, "sink/first-token", fits=((None, "bos", MATCH_LOGITS),)),
    PlantedHead(
        "punctuation",
        0,
        "delimiter/punctuation",
        may_earn=("delimiter/sentence-end",),
        fits=((None, "punctuation", MATCH_LOGITS), (None, "bos", SINK_LOGITS)),
    ),
    PlantedHead(
        "duplicate token",
        0,
        "induction/duplicate",
        may_earn=("lexical/duplicate",),
        same="word",
        same_gain=MATCH_LOGITS,
        near=-130.0,
        fits=((None, "bos", SINK_LOGITS / 2),),
    ),
    PlantedHead("uniform", 0),
    PlantedHead("random", 0, random=1.0),
    # the same word is the current token first, and then its duplicates: these tags are true
    PlantedHead(
        "same word",
        0,
        may_earn=("positional/offset-0", "induction/duplicate", "lexical/duplicate"),
        same="word",
        same_gain=MATCH_LOGITS,
    ),
    PlantedHead(
        "nearest noun",
        0,
        near=25.0,
        fits=(
            (None, "noun", MATCH_LOGITS),
            (None, "name", MATCH_LOGITS),
            (None, "bos", SINK_LOGITS),
        ),
    ),
    PlantedHead(
        "induction",
        1,
        "induction/repeat",
        may_earn=("induction/natural",),
        same="previous",
        same_gain=MATCH_LOGITS,
        fits=((None, "bos", SINK_LOGITS),),
    ),
    _attention_head("nearest verb", "lexical/nearest-VERB", (None, "verb")),
    # habits that find many a determiner, verb or subject without any syntax, and are none of it
    _attention_head("noun to determiner", None, ("noun", "determiner")),
    _attention_head("object to verb", None, ("noun", "verb")),
    _attention_head("verb to subject", None, ("verb", "person")),
    # an antecedent is a part of its pronoun's chain
    _attention_head(
        "pronoun to antecedent",
        "coreference/pronoun",
        *_GENDERS,
        may_earn=("coreference/chain",),
    ),
    PlantedHead("recency", 1, near=3.0),
    PlantedHead("any noun", 1, fits=((None, "noun", MATCH_LOGITS), (None, "name", MATCH_LOGITS))),
    _attention_head(
        "nearest name", None, ("she", "name"), ("he", "name"), ("it", "name"), ("they", "name")
    ),
    PlantedHead("random late", 1, random=1.0),
)
