"""The planted heads of models whose heads write: what each looks at, what it writes, what is true.

Beside each kind stand the laziest heads that could be taken for it: they look where it looks and
write something else, or write something like it wherever they look.
"""

from __future__ import annotations

from dataclasses import dataclass

from tests.oracles.planted import MATCH_LOGITS, SINK_LOGITS, BuiltHead

LOGITS = 1.5
"""Effect of a planted head on the token that it is about, in logits, before noise: as much as
the strongest heads of SmolLM2-135M write on the token that they copy."""


@dataclass(frozen=True)
class Writer(BuiltHead):
    """One head. Its score of a query and a key is a sum of terms, in nats."""

    writes: str
    """`copy`, `successor`, … what it makes of the token that it looks at; see `planted_heads`."""
    size: float = 1.0
    """Times `LOGITS`; below 0 it lowers."""
    earns: str = ""
    """The kind of write that it must be tagged for; empty for a lazy head."""
    may: tuple[str, ...] = ()
    """Other kinds that are true of it."""
    near: float = 0.0
    """Score of the distance `offset`; below 0 to avoid it."""
    offset: int = 0
    flags: tuple[tuple[str, float], ...] = ()
    """Traits of a key, and their scores."""
    cued: float = 0.0
    """Score of a key whose last cue is of the property of the query's last cue."""
    match: tuple[str, str, float] | None = None
    """A property of the query, one of the key, and the score if they are the same."""


_BOS = ("bos", SINK_LOGITS)
_DUE = {
    "match": ("named", "word", -2 * MATCH_LOGITS),
    "flags": (("name", 2 * MATCH_LOGITS), _BOS),
}
"""Looks at names that are not the one that was read last. Codes are compared by a sketch of them,
so that words without a flag score some 50 either way: names must stand well above."""
_OF_PERSON = {
    "match": ("named", "named", MATCH_LOGITS),
    "flags": (("value", MATCH_LOGITS), ("bos", 1.5 * MATCH_LOGITS)),
}
"""Looks at the values behind the name that was read last."""
_READING = {**_OF_PERSON, "cued": MATCH_LOGITS}
"""Looks at the one of them that is of the property that is asked for."""
_SUBJECT = {"flags": (("person", MATCH_LOGITS), _BOS), "near": 25.0}
_OF_LAST_NAME = {
    "match": ("named", "word", MATCH_LOGITS),
    "flags": (("name", MATCH_LOGITS), ("bos", 1.5 * MATCH_LOGITS)),
}

_COPIES, _LOWERS = ("copy",), ("suppress",)

WRITERS = (
    Writer("marks the token before", 0, "previous", near=50.0, offset=1),
    Writer(
        "marks the last name",
        0,
        "named",
        near=100.0,
        flags=(("name", 2 * MATCH_LOGITS), ("bos", 2 * SINK_LOGITS)),
    ),
    Writer("copy", 0, "copy", earns="copy", near=50.0, offset=1),
    Writer("copies its own token", 0, "copy", may=_COPIES, near=50.0),
    Writer("raises all that it saw", 0, "copy", 20.0, may=_COPIES),
    Writer("lowers all that it saw", 0, "copy", -20.0, may=_LOWERS),
    Writer("raises what is long ago", 0, "copy", 20.0, may=_COPIES, near=-20.0),
    Writer("raises the frequent", 0, "frequent", near=50.0, offset=1),
    Writer(
        "raises the one token it looks at", 0, "article", flags=(("article", MATCH_LOGITS), _BOS)
    ),
    Writer("writes at random", 0, "random", near=50.0, offset=1),
    Writer("raises the list", 0, "list", near=50.0),
    Writer("raises the predecessor", 0, "predecessor", near=50.0),
    Writer("raises both neighbours", 0, "neighbours", near=50.0),
    Writer("successor", 0, "successor", earns="successor", near=50.0),
    Writer("raises plural verbs", 0, "plural", near=50.0),
    Writer("lowers the token before", 0, "copy", -1.0, may=_LOWERS, near=50.0, offset=1),
    Writer(
        "marks the last cue",
        0,
        "cued",
        near=100.0,
        flags=(("cue", 2 * MATCH_LOGITS), ("bos", 2 * SINK_LOGITS)),
    ),
    Writer("suppress", 1, "copy", -1.0, earns="suppress", near=50.0, offset=1),
    Writer(
        "induction",
        1,
        "copy",
        earns="induction",
        may=_COPIES,
        match=("word", "previous", MATCH_LOGITS),
        flags=(_BOS,),
    ),
    Writer("name mover", 1, "copy", earns="name-mover", may=_COPIES, **_DUE),
    Writer(
        "negative name mover",
        1,
        "copy",
        -1.0,
        earns="negative-name-mover",
        may=_LOWERS,
        **_DUE,
    ),
    Writer("raises the last name", 1, "copy", may=_COPIES, **_OF_LAST_NAME),
    Writer("lowers the last name", 1, "copy", -1.0, may=_LOWERS, **_OF_LAST_NAME),
    Writer("raises all names", 1, "copy", 3.0, may=_COPIES, flags=(("name", MATCH_LOGITS), _BOS)),
    Writer("lowers all names", 1, "copy", -3.0, may=_LOWERS, flags=(("name", MATCH_LOGITS), _BOS)),
    Writer("retrieval", 1, "copy", earns="retrieval", may=_COPIES, **_READING),
    Writer("raises all values", 1, "copy", 3.0, may=_COPIES, flags=(("value", MATCH_LOGITS), _BOS)),
    Writer(
        "lowers all values", 1, "copy", -3.0, may=_LOWERS, flags=(("value", MATCH_LOGITS), _BOS)
    ),
    Writer(
        "raises the last value",
        1,
        "copy",
        may=_COPIES,
        near=25.0,
        flags=(("value", MATCH_LOGITS), _BOS),
    ),
    Writer("agreement", 1, "number", earns="agreement", **_SUBJECT),
    Writer("goes by the last noun", 1, "number", near=25.0, flags=(("noun", MATCH_LOGITS), _BOS)),
    Writer("raises singular verbs", 1, "plural", -1.0, near=50.0),
    Writer("lowers the list", 1, "copy", -3.0, may=_LOWERS, flags=(("member", MATCH_LOGITS), _BOS)),
    Writer("raises the values of the last name", 1, "copy", may=_COPIES, **_OF_PERSON),
)
"""Seventeen heads in each of two layers."""
