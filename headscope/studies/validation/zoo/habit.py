"""What a habit is: a head without syntax, reference or meaning, and which tags are true of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from headscope.corpus.window import Window
from headscope.relations import relations_of
from headscope.studies.validation.zoo.reading import Look, Reading, Rows

CLASSES: dict[str, tuple[str, ...]] = {
    **{
        upos: (upos,)
        for upos in (
            "VERB", "NOUN", "PROPN", "PRON", "ADJ", "ADV", "AUX", "ADP", "DET", "SCONJ", "CCONJ",
            "NUM", "PART", "PUNCT",
        )
    },
    "verb or auxiliary": ("VERB", "AUX"),
    "noun or name": ("NOUN", "PROPN"),
    "nominal": ("NOUN", "PROPN", "PRON"),
    "content word": ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM"),
    "function word": ("DET", "ADP", "AUX", "PRON", "SCONJ", "CCONJ", "PART"),
}  # fmt: skip
"""Parts of speech of Universal Dependencies, and unions of them."""

BROAD = tuple(relation.id for relation in relations_of() if relation.rule.broad)
REST = ("delimiter/first-token", "sink/*", *BROAD)
"""Resting somewhere is no claim about what a head does, nor is what kind of key gets its attention:
true of any head of which it was measured."""


@dataclass(frozen=True, eq=False)
class Known:
    """A head of which it is known what tags are true."""

    name: str
    own: tuple[str, ...] = ()
    """The tags that it must earn, where there are such relations."""
    may: tuple[str, ...] = ()
    """Patterns of other tags that are true of it."""

    def true(self, relation: str) -> bool:
        """Whether a tag says no more of it than is so."""
        return any(fnmatchcase(relation, each) for each in (*self.own, *self.may, *REST))


@dataclass(frozen=True, eq=False, kw_only=True)
class Habit(Known):
    """A head that follows a simple rule.

    Called with a window it gives its pattern `[query key]`.
    """

    look: Look

    def __call__(self, window: Window) -> Rows:
        return self.look(Reading(window))


def habit(name: str, look: Look, own: tuple[str, ...] = (), may: tuple[str, ...] = ()) -> Habit:
    """A habit, with the tags that it must earn and those that it may."""
    return Habit(name, own, may, look=look)


def lexical(classes: Iterable[str]) -> tuple[str, ...]:
    """Patterns of the lexical tags, and of those for punctuation, that name one of the classes."""
    names = tuple(f"lexical/nearest*{upos}*" for upos in classes)
    return (*names, "delimiter/*") if "PUNCT" in classes else names
