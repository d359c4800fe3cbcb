"""Mentions of entities: CorefUD `Entity=` brackets, and which mentions agree or share a word.

`(e1-person` opens a mention, `e1)` closes it, `(e1)` does both.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from headscope.corpus.document import Document, Mention, Word
from headscope.errors import CorpusError

_BRACKET = re.compile(r"\((?P<open>[^()]++)(?P<both>\))?+|(?P<close>[^()]++)\)")
_BRACKETS = re.compile(rf"(?:{_BRACKET.pattern})*+")
_PART = re.compile(r"\[\d+/\d+\]$")  # e5[1/2]: one part of a discontinuous mention


@dataclass
class EntityReader:
    """Collects the mentions of one document while its words are read in order.

    >>> reader = EntityReader("a.conllu")
    >>> reader.read("(e1-person(e2-place)", first=0, last=0, line=1)
    >>> reader.read("e1)", first=2, last=2, line=3)
    >>> reader.mentions
    [('e2', 0, 0), ('e1', 0, 2)]
    """

    path: str
    """The file, for messages."""
    field_index: int = 0
    """Index of the entity's id among the `-`-separated fields (`global.Entity`)."""
    mentions: list[tuple[str, int, int]] = field(default_factory=list)
    discontinuous: int = 0
    zeros: int = 0
    """Mentions of empty nodes alone, without any word of the text."""
    _open: list[tuple[str, int, int]] = field(default_factory=list)

    def read(self, value: str, *, first: int, last: int, line: int) -> None:
        """Take the `Entity=` value of one word or empty node.

        Args:
            value: the brackets.
            first: the word that a mention begins with if it opens here: the word itself, or the
                next one after an empty node.
            last: the word that a mention ends with if it closes here: the word itself, or the last
                one before an empty node.
            line: the number of the line, for messages.

        Raises:
            CorpusError: a bracket that cannot be read, or one that closes nothing.
        """
        # brackets are matched whole before any of them is taken, so that a fault changes nothing
        if not _BRACKETS.fullmatch(value):
            raise CorpusError(
                f"{self.path}:{line}: cannot read Entity={value:.60}; "
                "expected brackets such as (e1-person, e1) or (e1-person)"
            )
        for bracket in _BRACKET.finditer(value):
            if bracket["open"] is not None:
                parts = bracket["open"].split("-")
                entity = parts[self.field_index] if self.field_index < len(parts) else parts[0]
                self._open.append((entity, first, line))
                if bracket["both"]:
                    self._close(self._open[-1][0], last, line)
            else:
                self._close(bracket["close"].split("-")[0], last, line)

    def end_sentence(self) -> None:
        """Mentions end where their sentence ends.

        Raises:
            CorpusError: a mention is still open; the message names the line that opened it.
        """
        if self._open:
            entity, _, line = self._open[0]
            raise CorpusError(
                f"{self.path}:{line}: unbalanced entity brackets: ({entity:.60} opens here and "
                f"its sentence ends without {entity:.60})"
            )

    def finish(self, words: list[Word]) -> tuple[Mention, ...]:
        """The mentions in the order of their first words, each with its syntactic head."""
        mentions = []
        for entity, first, last in sorted(self.mentions, key=lambda span: (span[1], -span[2])):
            # the head is the first word whose governor lies outside the mention
            heads = (i for i in range(first, last + 1) if not first <= words[i].head <= last)
            mentions.append(Mention(entity, first, last, next(heads, last)))
        return tuple(mentions)

    def _close(self, entity: str, last: int, line: int) -> None:
        # of mentions of one entity the innermost closes first
        for i in range(len(self._open) - 1, -1, -1):
            if self._open[i][0] == entity:
                _, first, _ = self._open.pop(i)
                # parts of one mention count once, and an empty node has no word
                if _PART.search(entity):
                    self.discontinuous += entity.endswith("[1/" + entity.split("/")[-1])
                elif first > last:
                    self.zeros += 1
                else:
                    self.mentions.append((entity, first, last))
                return
        raise CorpusError(
            f"{self.path}:{line}: unbalanced entity brackets: {entity:.60}) closes a mention "
            "that is not open in this sentence"
        )


FEATURES = ("Number", "Gender", "Person")
"""Features that must agree (https://universaldependencies.org/u/feat/) if both are known.
A noun counts as third person."""


def agreeing_mentions(
    document: Document, mentions: Sequence[Mention]
) -> Bool[ndarray, "mention mention"]:
    """Mask of mentions that do not contradict each other in number, gender and person.

    >>> from headscope.corpus.document import Word
    >>> feats = {"Ann": "Number=Sing", "he": "Gender=Masc", "she": "Gender=Fem"}
    >>> words = tuple(Word(form, 0, 1, 0, feats=feats[form]) for form in feats)
    >>> mentions = [Mention("e", i, i, i) for i in range(3)]
    >>> agreeing_mentions(Document("d", "", words), mentions).astype(int).tolist()
    [[1, 1, 1], [1, 1, 0], [1, 0, 1]]
    """
    known = []
    for mention in mentions:
        head = document.words[mention.head]
        features = parsed_features(head.feats)
        # nouns have no person in the annotation
        if head.upos in ("NOUN", "PROPN"):
            features["Person"] = "3"
        # Tom and Ann are two, and each of them is one
        inside = document.words[mention.first : mention.last + 1]
        if any(word.head == mention.head and word.deprel == "conj" for word in inside):
            features["Number"] = "Plur"
        known.append(features)
    # a feature that is not known of both cannot contradict
    agrees = np.ones((len(known),) * 2, bool)
    for feature in FEATURES:
        value = np.array([features.get(feature, "") for features in known], "U")
        is_unknown = value == ""
        is_either_unknown = is_unknown[:, None] | is_unknown[None, :]
        is_same = value[:, None] == value[None, :]
        agrees &= is_either_unknown | is_same
    return np.asarray(agrees)


def parsed_features(feats: str) -> dict[str, str]:
    """The features of a word by name, from the column FEATS of CoNLL-U.

    >>> parsed_features("Number=Sing|Person=3")
    {'Number': 'Sing', 'Person': '3'}
    """
    pairs = (part.partition("=") for part in feats.split("|"))
    return {name: value for name, _, value in pairs if value}


_CONTENT = frozenset(("NOUN", "PROPN", "VERB", "ADJ", "NUM", "X"))
"""Word classes by which a mention can be recognised again; in Universal Dependencies' names."""


def shared_words(
    document: Document, mentions: Sequence[Mention]
) -> Bool[ndarray, "mention mention"]:
    """Mentions that share a word: "Margit Solheim" and "Solheim", or "a mayor" and "the mayor".

    Words are the same when they have the same form or lemma, whatever their case. A mention's head
    counts whatever its class, its other words when they have content: "the" is shared by too many.
    """
    words = [_words(document, mention) for mention in mentions]
    vocabulary = sorted(set().union(*words))
    column_of = {word: column for column, word in enumerate(vocabulary)}
    holds = np.zeros((len(mentions), len(vocabulary)), np.float32)
    for row, mention_words in enumerate(words):
        columns = [column_of[word] for word in mention_words]
        holds[row, columns] = 1
    shared = holds @ holds.T
    return np.asarray(shared > 0)


def _words(document: Document, mention: Mention) -> set[str]:
    """The forms and lemmas of a mention's words of content, in lower case."""
    texts = set()
    for i in range(mention.first, mention.last + 1):
        word = document.words[i]
        if i == mention.head or word.upos in _CONTENT:
            texts.add(word.form.lower())
            texts.add((word.lemma or word.form).lower())
    return texts
