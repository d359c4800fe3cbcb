"""Prompts as windows: only those whose answers a tokenizer tells apart by their first token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.controlled.prompts import Prompt, draws
from headscope.corpus.document import Document
from headscope.corpus.question import Question
from headscope.corpus.window import Window
from headscope.measure.stimuli import MOST_DOCUMENTS, Encoder, frame_of
from headscope.relations.writes.effect import Effect

BEFORE = "It"
"""A word before another, so that this one is spelled as within a text."""


class Prompts(NamedTuple):
    """The windows of prompts, and how many there are of each kind."""

    windows: list[Window]
    kept: dict[str, int]
    drawn: dict[str, int]

    @property
    def notes(self) -> list[str]:
        """What the reader of the results should know about them."""
        few = [
            f"{self.kept.get(kind, 0)} of {count} {kind}"
            for kind, count in self.drawn.items()
            if self.kept.get(kind, 0) < count
        ]
        if not few:
            return []
        return [
            "prompts whose answers the tokenizer does not tell apart by their first token were "
            "left out; asked are " + ", ".join(few)
        ]


def plan_prompts(
    encoder: Encoder,
    effects: Sequence[Effect],
    max_length: int,
    *,
    seed: int,
    count: int = MOST_DOCUMENTS,
) -> Prompts:
    """The prompts that effects ask for, each a window; those of one document are one block.

    Args:
        encoder: the model's tokenizer.
        effects: those that ask by prompts say which.
        max_length: longest window in tokens; longer prompts are left out.
        seed: seeds what is drawn.
        count: documents, each with one prompt of each kind.
    """
    spelled = Spelled(encoder)
    windows: list[Window] = []
    kinds = {effect.prompt for effect in effects if effect.prompt}
    if not kinds:
        return Prompts([], {}, {})
    kept, drawn = Counter[str](), Counter[str]()
    for document, texts in draws(count, seed=seed):
        asked = [prompt for prompt in texts if prompt.kind in kinds]
        drawn.update(prompt.kind for prompt in asked)
        if not asked:
            continue
        tokens = spelled.text(asked[-1].text)
        questions = [spelled.question(prompt, tokens) for prompt in asked]
        found = tuple(each for each in questions if each is not None)
        if not found or len(tokens) + 1 + frame_of(encoder).room > max_length:
            continue
        kept.update(each.kind for each in found)
        window = Window(
            f"prompts#{len(windows)}",
            np.concatenate([[encoder.bos], tokens]),
            (encoder.bos_string, *encoder.spell(tokens.tolist())),
            stimulus="prompts",
            document=document,
            questions=found,
        )
        windows.append(frame_of(encoder).close(window))
    return Prompts(windows, dict(kept), dict(drawn))


class Spelled:
    """Texts and words as a tokenizer spells them, each once."""

    def __init__(self, encoder: Encoder) -> None:
        self.encoder = encoder
        self._texts: dict[str, Int[ndarray, " token"]] = {}

    def text(self, text: str) -> Int[ndarray, " token"]:
        """Its tokens."""
        if text not in self._texts:
            self._texts[text] = self.encoder.encode(Document("prompt", text, ())).tokens
        return self._texts[text]

    def first(self, word: str) -> int | None:
        """The first token of a word within a text; None where it does not spell any of it."""
        pieces = self._pieces(word)
        if not pieces:
            return None
        (spelled,) = self.encoder.spell(pieces[:1])
        return pieces[0] if spelled.strip() and word.startswith(spelled.strip()) else None

    def only(self, word: str) -> int | None:
        """The token of a word within a text; None where it is not one token alone."""
        pieces = self._pieces(word)
        if len(pieces) != 1 or self.encoder.spell(pieces)[0].strip() != word:
            return None
        return pieces[0]

    def _pieces(self, word: str) -> list[int]:
        before, whole = self.text(BEFORE), self.text(f"{BEFORE} {word}")
        if len(whole) <= len(before) or (whole[: len(before)] != before).any():
            return []
        return [int(token) for token in whole[len(before) :]]

    def question(self, prompt: Prompt, tokens: Int[ndarray, " token"]) -> Question | None:
        """What a prompt asks in a window of these tokens; None where it cannot be asked.

        Words whose first token is another's on the other side fall away.
        """
        text = self.text(prompt.text)
        if not 0 < len(text) <= len(tokens) or (tokens[: len(text)] != text).any():
            return None
        right, wrong, other = map(self._firsts, (prompt.right, prompt.wrong, prompt.other))
        shared = right & (wrong | other)
        right, wrong, other = right - shared, wrong - shared, other - shared
        if not right or not wrong or (prompt.other and not other):
            return None
        # the text begins behind the beginning-of-text token
        return Question(prompt.kind, len(text), *map(_sorted, (right, wrong, other)))

    def _firsts(self, words: Sequence[str]) -> set[int]:
        return {token for word in words if (token := self.first(word)) is not None}


def _sorted(tokens: set[int]) -> Int[ndarray, " token"]:
    return np.array(sorted(tokens), np.int64)
