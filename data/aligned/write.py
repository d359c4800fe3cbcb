"""Writes the aligned sentences beside this file: English and German, made from templates by hand.

Run as `python data/aligned/write.py`. The sentences are headscope's own. What makes them a test is
their order: participles and the verbs of subordinate clauses come last in German, an adverb in
front turns subject and verb round, an object may come first, and an owner stands behind.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

DOCUMENTS, SENTENCES, SEED = 48, 10, 0


class Word(NamedTuple):
    """A word with its part of speech, and the mark by which a translation is found."""

    form: str
    upos: str
    mark: str = ""


Sentence = list[Word]
# English, German, gender
PEOPLE = [
    ("king", "König", "m"), ("queen", "Königin", "f"), ("child", "Kind", "n"),
    ("dog", "Hund", "m"), ("cat", "Katze", "f"), ("teacher", "Lehrer", "m"),
    ("doctor", "Ärztin", "f"), ("girl", "Mädchen", "n"), ("painter", "Maler", "m"),
    ("farmer", "Bäuerin", "f"),
]  # fmt: skip
THINGS = [
    ("ring", "Ring", "m"), ("key", "Schlüssel", "m"), ("letter", "Brief", "m"),
    ("book", "Buch", "n"), ("lamp", "Lampe", "f"), ("bread", "Brot", "n"),
    ("coat", "Mantel", "m"), ("picture", "Bild", "n"), ("cup", "Tasse", "f"),
    ("apple", "Apfel", "m"), ("boat", "Boot", "n"), ("clock", "Uhr", "f"),
]  # fmt: skip
# English past and infinitive, German past, participle and infinitive
VERBS = [
    ("saw", "see", "sah", "gesehen", "sehen"), ("found", "find", "fand", "gefunden", "finden"),
    ("bought", "buy", "kaufte", "gekauft", "kaufen"),
    ("sold", "sell", "verkaufte", "verkauft", "verkaufen"),
    ("painted", "paint", "malte", "gemalt", "malen"),
    ("lost", "lose", "verlor", "verloren", "verlieren"),
    ("forgot", "forget", "vergaß", "vergessen", "vergessen"),
    ("took", "take", "nahm", "genommen", "nehmen"),
]  # fmt: skip
RESTING = [("laughed", "lachte"), ("slept", "schlief"), ("waited", "wartete"), ("sang", "sang")]
ADJECTIVES = [
    ("old", "alt"),
    ("new", "neu"),
    ("small", "klein"),
    ("red", "rot"),
    ("heavy", "schwer"),
]
ADVERBS = [("yesterday", "gestern"), ("today", "heute"), ("often", "oft"), ("there", "dort")]
LINKING = [("because", "weil"), ("although", "obwohl"), ("when", "als")]
NOMINATIVE = {"m": "der", "f": "die", "n": "das"}
ACCUSATIVE = {"m": "den", "f": "die", "n": "das"}


class Phrase:
    """A noun with its article and perhaps an adjective, in both languages."""

    def __init__(
        self, rng: random.Random, nouns: Sequence[tuple[str, str, str]], name: str
    ) -> None:
        self.english, self.german, self.gender = rng.choice(nouns)
        self.adjective = rng.choice(ADJECTIVES) if rng.random() < 0.4 else None
        self.name = name

    @property
    def source(self) -> Sentence:
        """The English words."""
        own = [Word("the", "DET", f"{self.name}.the")]
        if self.adjective:
            own.append(Word(self.adjective[0], "ADJ", f"{self.name}.adjective"))
        return [*own, Word(self.english, "NOUN", f"{self.name}.noun")]

    def target(self, articles: dict[str, str]) -> Sentence:
        """The German words."""
        own = [Word(articles[self.gender], "DET", f"{self.name}.the")]
        if self.adjective:
            ending = "en" if articles is ACCUSATIVE and self.gender == "m" else "e"
            own.append(Word(self.adjective[1] + ending, "ADJ", f"{self.name}.adjective"))
        return [*own, Word(self.german, "NOUN", f"{self.name}.noun")]

    @property
    def who(self) -> Sentence:
        """The German words of who does something."""
        return self.target(NOMINATIVE)

    @property
    def whom(self) -> Sentence:
        """The German words of what something is done to."""
        return self.target(ACCUSATIVE)


STOP = Word(".", "PUNCT", "stop")
COMMA = Word(",", "PUNCT")


def yesterday(rng: random.Random) -> tuple[Sentence, Sentence]:
    """An adverb in front: the helping verb second, the participle last."""
    one, two = Phrase(rng, PEOPLE, "a"), Phrase(rng, THINGS, "b")
    verb, adverb = rng.choice(VERBS), rng.choice(ADVERBS)
    source = [Word(adverb[0], "ADV", "adverb"), *one.source, Word(verb[0], "VERB", "verb")]
    target = [Word(adverb[1], "ADV", "adverb"), Word("hat", "AUX", "verb"), *one.who, *two.whom]
    return [*source, *two.source, STOP], [*target, Word(verb[3], "VERB", "verb"), STOP]


def because(rng: random.Random) -> tuple[Sentence, Sentence]:
    """A subordinate clause, whose verb comes last."""
    one, two, three = Phrase(rng, PEOPLE, "a"), Phrase(rng, PEOPLE, "b"), Phrase(rng, THINGS, "c")
    rests, verb, link = rng.choice(RESTING), rng.choice(VERBS), rng.choice(LINKING)
    source = [*one.source, Word(rests[0], "VERB", "rests"), Word(link[0], "SCONJ", "link")]
    target = [*one.who, Word(rests[1], "VERB", "rests"), COMMA, Word(link[1], "SCONJ", "link")]
    source += [*two.source, Word(verb[0], "VERB", "verb"), *three.source, STOP]
    return source, [*target, *two.who, *three.whom, Word(verb[2], "VERB", "verb"), STOP]


def wants(rng: random.Random) -> tuple[Sentence, Sentence]:
    """A modal verb: the infinitive last, behind object and adverb."""
    one, two = Phrase(rng, PEOPLE, "a"), Phrase(rng, THINGS, "b")
    verb, adverb = rng.choice(VERBS), rng.choice(ADVERBS)
    source = [*one.source, Word("must", "AUX", "modal"), Word(verb[1], "VERB", "verb")]
    target = [*one.who, Word("muss", "AUX", "modal"), *two.whom, Word(adverb[1], "ADV", "adverb")]
    source += [*two.source, Word(adverb[0], "ADV", "adverb"), STOP]
    return source, [*target, Word(verb[4], "VERB", "verb"), STOP]


def whom_first(rng: random.Random) -> tuple[Sentence, Sentence]:
    """An object in front of its verb, the subject behind it."""
    one, two = Phrase(rng, PEOPLE, "a"), Phrase(rng, [n for n in THINGS if n[2] == "m"], "b")
    verb = rng.choice(VERBS)
    source = [*one.source, Word(verb[0], "VERB", "verb"), *two.source, STOP]
    return source, [*two.whom, Word(verb[2], "VERB", "verb"), *one.who, STOP]


def owner(rng: random.Random) -> tuple[Sentence, Sentence]:
    """An owner, who stands behind what is his."""
    own = Phrase(rng, [n for n in PEOPLE if n[2] != "f"], "a")
    own.adjective = None
    thing, rests = Phrase(rng, PEOPLE, "b"), rng.choice(RESTING)
    thing.adjective = None
    source = [*own.source, Word("'s", "PART", "of"), Word(thing.english, "NOUN", "b.noun")]
    target = [*thing.who, Word("vom", "ADP", "of"), Word(own.german, "NOUN", "a.noun")]
    last = Word(rests[1], "VERB", "rests")
    return [*source, Word(rests[0], "VERB", "rests"), STOP], [*target, last, STOP]


def that(rng: random.Random) -> tuple[Sentence, Sentence]:
    """A relative clause, whose verb comes last, before the verb of its sentence."""
    one, two = Phrase(rng, THINGS, "a"), Phrase(rng, PEOPLE, "b")
    verb, adverb = rng.choice(VERBS), rng.choice(ADVERBS)
    source = [*one.source, Word("that", "PRON", "that"), *two.source, Word(verb[0], "VERB", "verb")]
    target = [*one.who, COMMA, Word(ACCUSATIVE[one.gender], "PRON", "that"), *two.who]
    source += [Word("is", "AUX", "is"), Word(adverb[0], "ADV", "adverb"), STOP]
    target += [Word(verb[2], "VERB", "verb"), COMMA, Word("ist", "AUX", "is")]
    return source, [*target, Word(adverb[1], "ADV", "adverb"), STOP]


TEMPLATES = (yesterday, because, wants, whom_first, owner, that)


def rows(sentence: Sentence) -> list[str]:
    """A sentence as CoNLL-U without trees."""
    columns = (
        (str(i), w.form, w.form.lower(), w.upos, *"____", "_", "_")
        for i, w in enumerate(sentence, 1)
    )
    return ["# text = " + " ".join(word.form for word in sentence), *map("\t".join, columns), ""]


def links(source: Sentence, target: Sentence) -> str:
    """The words with one mark, as Pharaoh writes them."""
    pairs = [
        f"{i}-{j}"
        for i, one in enumerate(source)
        for j, two in enumerate(target)
        if one.mark and one.mark == two.mark
    ]
    return " ".join(pairs)


def main() -> None:
    """Write the three files."""
    rng, folder = random.Random(SEED), Path(__file__).parent
    texts: dict[str, list[str]] = {"src.conllu": [], "tgt.conllu": [], "align": []}
    for document in range(DOCUMENTS):
        for side in ("src", "tgt"):
            texts[f"{side}.conllu"].append(f"# newdoc id = {side}{document}")
        for _ in range(SENTENCES):
            source, target = rng.choice(TEMPLATES)(rng)
            texts["src.conllu"] += rows(source)
            texts["tgt.conllu"] += rows(target)
            texts["align"].append(links(source, target))
    for name, lines in texts.items():
        (folder / f"english-german.{name}").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
