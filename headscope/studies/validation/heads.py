"""The hand-built heads: what each of them looks at, and which tags it may earn.

A head's score of a query and a key is a sum of terms: what the query is and what the key is, do
they hold the same word, how far apart are they. Heads that look for something rest on the first
token when they do not find it, as trained heads do.
"""

from __future__ import annotations

from dataclasses import dataclass

FIND, REST = 120.0, 60.0
"""Scores, in nats, of a key that fits its query and of the first token."""


@dataclass(frozen=True)
class PlantedHead:
    """One head. All gains are in nats of attention score.

    `fits` are pairs (query feature, key feature), `None` for any query. `same` compares the
    query's word with the key's (`word`) or with the word before the key (`previous`).
    """

    name: str
    layer: int
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


def _looks(
    name: str,
    relation: str | None,
    *fits: tuple[str | None, str],
    near: float = 25.0,
    **more: object,
) -> PlantedHead:
    terms = tuple((query, key, FIND) for query, key in fits)
    return PlantedHead(
        name,
        1,
        relation,
        fits=(*terms, (None, "bos", REST)),
        near=near,
        **more,  # type: ignore[arg-type]
    )


_GENDERS = (("she", "feminine"), ("he", "masculine"), ("it", "thing"), ("they", "plural"))

HEADS = (
    PlantedHead("previous token", 0, "positional/offset-1", near=50.0, offset=1, copies=True),
    PlantedHead("two back", 0, "positional/offset-2", near=50.0, offset=2),
    PlantedHead("current token", 0, "positional/offset-0", near=50.0),
    PlantedHead("first token", 0, "sink/first-token", fits=((None, "bos", FIND),)),
    PlantedHead(
        "punctuation",
        0,
        "delimiter/punctuation",
        may_earn=("delimiter/sentence-end",),
        fits=((None, "punctuation", FIND), (None, "bos", REST)),
    ),
    PlantedHead(
        "duplicate token",
        0,
        "induction/duplicate",
        may_earn=("lexical/duplicate",),
        same="word",
        same_gain=FIND,
        near=-130.0,
        fits=((None, "bos", REST / 2),),
    ),
    PlantedHead("uniform", 0),
    PlantedHead("random", 0, random=1.0),
    # the same word is the current token first, and then its duplicates: these tags are true
    PlantedHead(
        "same word",
        0,
        may_earn=("positional/offset-0", "induction/duplicate", "lexical/duplicate"),
        same="word",
        same_gain=FIND,
    ),
    PlantedHead(
        "nearest noun",
        0,
        near=25.0,
        fits=((None, "noun", FIND), (None, "name", FIND), (None, "bos", REST)),
    ),
    PlantedHead(
        "induction",
        1,
        "induction/repeat",
        may_earn=("induction/natural",),
        same="previous",
        same_gain=FIND,
        fits=((None, "bos", REST),),
    ),
    _looks("nearest verb", "lexical/nearest-VERB", (None, "verb")),
    # habits that find many a determiner, verb or subject without any syntax, and are none of it
    _looks("noun to determiner", None, ("noun", "determiner")),
    _looks("object to verb", None, ("noun", "verb")),
    _looks("verb to subject", None, ("verb", "person")),
    # an antecedent is a part of its pronoun's chain
    _looks(
        "pronoun to antecedent",
        "coreference/pronoun",
        *_GENDERS,
        may_earn=("coreference/chain",),
    ),
    PlantedHead("recency", 1, near=3.0),
    PlantedHead("any noun", 1, fits=((None, "noun", FIND), (None, "name", FIND))),
    _looks("nearest name", None, ("she", "name"), ("he", "name"), ("it", "name"), ("they", "name")),
    PlantedHead("random late", 1, random=1.0),
)
