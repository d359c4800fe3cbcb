"""CorefUD `Entity=` brackets: `(e1-person` opens a mention, `e1)` closes it, `(e1)` does both."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from headscope.corpus.document import Mention, Word
from headscope.errors import CorpusError

_BRACKET = re.compile(r"\((?P<open>[^()]+)(?P<both>\))?|(?P<close>[^()]+)\)")
_PART = re.compile(r"\[\d+/\d+\]$")  # e5[1/2]: one part of a discontinuous mention


@dataclass
class EntityReader:
    """Collects the mentions of one document while its words are read in order.

    >>> reader = EntityReader("a.conllu")
    >>> reader.read("(e1-person(e2-place)", word=0, line=1)
    >>> reader.read("e1)", word=2, line=3)
    >>> reader.mentions
    [('e2', 0, 0), ('e1', 0, 2)]
    """

    path: str
    """The file, for messages."""
    field_index: int = 0
    """Index of the entity's id among the `-`-separated fields (`global.Entity`)."""
    mentions: list[tuple[str, int, int]] = field(default_factory=list)
    discontinuous: int = 0
    _open: list[tuple[str, int, int]] = field(default_factory=list)

    def read(self, value: str, word: int, line: int) -> None:
        """Take the `Entity=` value of one word.

        Raises:
            CorpusError: a bracket that cannot be read, or one that closes nothing.
        """
        for bracket in self._brackets(value, line):
            if bracket["open"] is not None:
                self._open.append((self._entity(bracket["open"]), word, line))
                if bracket["both"]:
                    self._close(self._open[-1][0], word, line)
            else:
                self._close(bracket["close"].split("-")[0], word, line)

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
        spans = sorted(self.mentions, key=lambda span: (span[1], -span[2]))
        return tuple(Mention(e, first, last, _head(words, first, last)) for e, first, last in spans)

    def _brackets(self, value: str, line: int) -> list[re.Match[str]]:
        brackets: list[re.Match[str]] = []
        position = 0
        while position < len(value):
            bracket = _BRACKET.match(value, position)
            if bracket is None:
                raise CorpusError(
                    f"{self.path}:{line}: cannot read Entity={value:.60}; "
                    "expected brackets such as (e1-person, e1) or (e1-person)"
                )
            brackets.append(bracket)
            position = bracket.end()
        return brackets

    def _entity(self, fields: str) -> str:
        parts = fields.split("-")
        return parts[self.field_index] if self.field_index < len(parts) else parts[0]

    def _close(self, entity: str, word: int, line: int) -> None:
        for i in range(len(self._open) - 1, -1, -1):
            if self._open[i][0] == entity:
                _, first, _ = self._open.pop(i)
                if _PART.search(entity):
                    self.discontinuous += entity.endswith("[1/" + entity.split("/")[-1])
                else:
                    self.mentions.append((entity, first, word))
                return
        raise CorpusError(
            f"{self.path}:{line}: unbalanced entity brackets: {entity:.60}) closes a mention "
            "that is not open in this sentence"
        )


def _head(words: list[Word], first: int, last: int) -> int:
    """The first word of the span whose governor lies outside the span."""
    for i in range(first, last + 1):
        if not first <= words[i].head <= last:
            return i
    return last
