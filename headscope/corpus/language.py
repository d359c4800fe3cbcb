"""The language of a text, as far as headscope needs it: whether the text is known to be English.

What headscope knows about English, such as baselines that were chosen on English text, does not
fit other text. The text itself decides, not the name of its file, unless the user states it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any

from headscope.corpus.document import Document
from headscope.corpus.python_files import KINDS, is_code
from headscope.corpus.window import Window

ENGLISH = "en"
"""The language of the sentences and word lists that ship with headscope."""
_FREQUENT = (
    "the of and to that it our we be with this by are not which you but from all their or has they "
    "can been its there his she who if these them what would were when those should must than any "
    "your every such most about some into because then could how where more other very only him "
    "himself itself themselves through between while though upon own both each many much just here "
    "out said"
)
FUNCTION_WORDS = frozenset(_FREQUENT.split())
"""Frequent words of English, a third of the words of a text. Words that another language writes
often are left out: "a", "in", "on", and "is", "was", "had" and "for", which relatives share."""
STRETCH, LEAST = 20, 2
"""Words of a stretch, and how many function words an English one has. `python -m
tests.oracles.known_english` prints the errors."""
_WORD = re.compile(r"[^\W\d_]+")
_CODE = re.compile(r"[A-Za-z]{2,3}(?:[-_][A-Za-z0-9]+)*")


def language_code(code: str) -> str:
    """The language of a code of ISO 639 with or without a region, two letters for English.

    Raises:
        ValueError: it is another text.

    >>> language_code("de"), language_code("en-GB"), language_code("eng")
    ('de', 'en', 'en')
    """
    if not _CODE.fullmatch(code):
        raise ValueError("be a code of ISO 639, such as en or de")
    language = re.split("[-_]", code.lower())[0]
    return ENGLISH if language == "eng" else language


@dataclass
class Language:
    """The language of a text, from its documents, which are added one after the other.

    >>> from headscope.corpus.text import read_text
    >>> language = Language()
    >>> language.add(read_text("ring", "He was the last of those who had been to the island."))
    >>> language.add(read_text("insel", "Er war der letzte von denen, die auf der Insel waren."))
    >>> language.stretches, language.english, language.is_english
    (1, 1, True)
    """

    stated: str | None = None
    """The language as the user states it, which the text does not change."""
    stretches: int = 0
    """Stretches of `STRETCH` words, which may go on in the next document."""
    english: int = 0
    """The stretches with at least `LEAST` function words."""
    first_other: str = ""
    """Document in which the first stretch without them ends."""
    _stretch: list[bool] = field(default_factory=list, repr=False)
    """For each word of a stretch that has not ended, whether it is a function word."""

    def add(self, document: Document) -> None:
        """Add a document of text; code is in no language, although its keywords are English."""
        self._count(document.text, document.name, is_code=is_code(document))

    def add_window(self, window: Window) -> None:
        """Add the text of a window, if its document is not at hand."""
        spans = zip(window.words.first, window.words.last, strict=True)
        words = ["".join(window.strings[first : last + 1]) for first, last in spans]
        # a window of bare tokens has no words; BERT's pieces inside a word begin with ##
        text = " ".join(words).replace("##", "") or "".join(window.strings[1:])
        has_code = not set(window.arrows.kind.tolist()).isdisjoint(KINDS)
        self._count(text, window.name, is_code=has_code)

    def _count(self, text: str, name: str, *, is_code: bool) -> None:
        for word in _WORD.findall(text):
            self._stretch.append(not is_code and word.lower() in FUNCTION_WORDS)
            # the last stretch goes on in the next document, so that short ones count too
            if len(self._stretch) < STRETCH:
                continue
            self.stretches += 1
            if sum(self._stretch) >= LEAST:
                self.english += 1
            else:
                self.first_other = self.first_other or name
            self._stretch.clear()

    @property
    def is_english(self) -> bool:
        """True if the text is known to be English: all stretches are, but for a tenth and one.

        One stretch in 400 of English text has too few function words. False for a text without a
        whole stretch.
        """
        if self.stated is not None:
            return self.stated == ENGLISH
        others = self.stretches - self.english
        return others < self.english and others <= 1 + self.stretches / 10

    @property
    def record(self) -> dict[str, Any]:
        """The language as `run.json` states it."""
        entries: dict[str, Any] = {"english": self.is_english, "stated": self.stated}
        return entries | {"stretches": self.stretches, "english_stretches": self.english}

    @property
    def notes(self) -> list[str]:
        """A note if the text is not known to be English."""
        if self.is_english:
            return []
        instead = "baselines were chosen on it, and the English challenge set is left out"
        if self.stated is not None:
            return [f"the text is stated to be {self.stated}: {instead}"]
        # the reason why it is not known, for which the text itself gives numbers
        reason = f"it has fewer than {STRETCH} words"
        if self.stretches:
            reason = (
                f"{self.stretches - self.english:,} of {self.stretches:,} stretches of {STRETCH} "
                f"words are code or have fewer than {LEAST} frequent English words, first in "
                f"{self.first_other}"
            )
        return [
            f"the text is not known to be English ({reason}): {instead}; if it is English, state "
            "the language en"
        ]
