"""An artificial language whose syntax stands in its words, and heads that follow it or only look as
if they did.

Words are stems without endings. Each verb has one of four genders, and so have the nouns that it
governs and their adjectives; whether a noun is a subject or an object is a matter of its stem. A
sentence has three clauses of different genders, all words of which stand in random order. So gender
and case tell the governor of each word, and neither nearness nor order does.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from tests.oracles.planted import MATCH_LOGITS, SINK_LOGITS, PlantedHead
from tests.oracles.words import BOS, UNKNOWN, Traits

GENDERS, CLAUSES = 4, 3
STEMS = 8
"""Words of each class and gender."""
WITH_ADJECTIVE = 0.7
"""Share of nouns that have one."""
PER_DOCUMENT = 8
VERB, SUBJECT, OBJECT = "verb", "subject", "object"
OF_SUBJECT, OF_OBJECT = "adjective of subject", "adjective of object"
CLASSES = {
    VERB: {"verb"},
    SUBJECT: {"noun"},
    OBJECT: {"noun"},
    OF_SUBJECT: {"adjective"},
    OF_OBJECT: {"adjective"},
}
"""Classes of words that a gender parts further, with the part of speech of each."""
NAMES = (
    "bos",
    *sorted({*CLASSES, *(coarse for names in CLASSES.values() for coarse in names)}),
    *(f"gender {gender}" for gender in range(GENDERS)),
    *(f"{name} {gender}" for name in CLASSES for gender in range(GENDERS)),
)


def _agreeing(query: str, key: str) -> tuple[tuple[str, str], ...]:
    """A class of words and another, gender by gender."""
    return tuple((f"{query} {gender}", f"{key} {gender}") for gender in range(GENDERS))


def _head(
    name: str, relation: str | None, *fits: tuple[str, str], may_earn: tuple[str, ...] = ()
) -> PlantedHead:
    """A head that takes the nearest of the keys that fit, and rests on the first token."""
    terms = tuple((query, key, MATCH_LOGITS) for query, key in fits)
    return PlantedHead(
        name, 0, relation, may_earn, fits=(*terms, (None, "bos", SINK_LOGITS)), near=25.0
    )


SYNTAX_HEADS = (
    _head("object to its verb", "syntactic/obj:dep>head", *_agreeing(OBJECT, VERB)),
    _head("verb to its subject", "syntactic/nsubj:head>dep", *_agreeing(VERB, SUBJECT)),
    _head(
        "adjective to its noun",
        "syntactic/amod:dep>head",
        *_agreeing(OF_SUBJECT, SUBJECT),
        *_agreeing(OF_OBJECT, OBJECT),
    ),
    # a lazy double of each, which knows parts of speech alone
    _head("object to the nearest verb", None, (OBJECT, VERB)),
    _head("verb to the nearest noun", None, (VERB, "noun")),
    _head("adjective to the nearest noun", None, ("adjective", "noun")),
    # gender without class, which begins with the word itself, and two words that no tree links
    _head(
        "same gender",
        None,
        *((f"gender {gender}", f"gender {gender}") for gender in range(GENDERS)),
        may_earn=("positional/offset-0",),
    ),
    _head("object to its subject", None, *_agreeing(OBJECT, SUBJECT)),
    # half of the syntax: it knows the case of its noun but not the gender, and nothing that it is
    # compared with knows case
    _head(
        "verb to the nearest subject", None, (VERB, SUBJECT), may_earn=("syntactic/nsubj:head>dep",)
    ),
)


class _Word(NamedTuple):
    form: str
    upos: str
    deprel: str
    governor: int
    """Number of the word that governs it, −1 of the root."""


class Language:
    """The stems of each class and gender, and texts of them.

    Args:
        seed: of the stems.
    """

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        syllables = [consonant + vowel for consonant in "bdfgklmnprstvz" for vowel in "aeiou"]
        count = STEMS * GENDERS * len(CLASSES)
        forms = {"".join(rng.choice(syllables, 3)) for _ in range(2 * count)}
        drawn = iter(sorted(forms, key=lambda form: rng.random()))
        self.stems = {
            (name, gender): [next(drawn) for _ in range(STEMS)]
            for name in CLASSES
            for gender in range(GENDERS)
        }

    @property
    def words(self) -> list[str]:
        """The vocabulary, special tokens first."""
        stems = [stem for stems in self.stems.values() for stem in stems]
        return [BOS, UNKNOWN, ".", *sorted(stems)]

    @property
    def traits(self) -> Traits:
        """Class and gender of each word."""
        known = {BOS: {"bos"}}
        for (name, gender), stems in self.stems.items():
            for stem in stems:
                known[stem] = {name, *CLASSES[name], f"gender {gender}", f"{name} {gender}"}
        return Traits.of(self.words, known, NAMES)

    def corpus(self, documents: int, seed: int) -> str:
        """Documents of CoNLL-U."""
        rng = np.random.default_rng(seed)
        lines = []
        for document in range(documents):
            lines.append(f"# newdoc id = artificial_{document}")
            for _ in range(PER_DOCUMENT):
                lines += [*self._sentence(rng), ""]
        return "\n".join(lines) + "\n"

    def _sentence(self, rng: np.random.Generator) -> Iterator[str]:
        words: list[_Word] = []

        def add(name: str, gender: int, upos: str, deprel: str, governor: int) -> int:
            words.append(_Word(str(rng.choice(self.stems[name, gender])), upos, deprel, governor))
            return len(words) - 1

        for gender in rng.permutation(GENDERS)[:CLAUSES].tolist():
            # the first verb is the root, and governs those of the other clauses
            verb = add(VERB, gender, "VERB", "parataxis" if words else "root", 0 if words else -1)
            for name, adjective, deprel in (
                (SUBJECT, OF_SUBJECT, "nsubj"),
                (OBJECT, OF_OBJECT, "obj"),
            ):
                noun = add(name, gender, "NOUN", deprel, verb)
                if rng.random() < WITH_ADJECTIVE:
                    add(adjective, gender, "ADJ", "amod", noun)

        # all words in random order, then the full stop
        order = rng.permutation(len(words)).tolist()
        row_of_word = {number: row for row, number in enumerate(order, start=1)} | {-1: 0}
        ordered = [words[number] for number in order]
        yield f"# text = {' '.join(word.form for word in ordered)}."
        for row, word in enumerate(ordered, start=1):
            space = "SpaceAfter=No" if row == len(ordered) else "_"
            head = row_of_word[word.governor]
            columns = row, word.form, word.form, word.upos, "_", "_", head, word.deprel, "_", space
            yield "\t".join(map(str, columns))
        end = len(ordered) + 1, ".", ".", "PUNCT", "_", "_", row_of_word[0], "punct", "_", "_"
        yield "\t".join(map(str, end))
