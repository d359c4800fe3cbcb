"""Prompts as windows: only those whose answers a tokenizer tells apart by their first token."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from headscope.corpus.controlled.prompts import Prompt, draws
from headscope.corpus.document import Document
from headscope.corpus.window import Question, Window
from headscope.stimuli.stimulus import MAX_DOCUMENTS, Stimulus, TextTokenizer, frame_of

PROMPTS = Stimulus(name="prompts", contested=None, example_windows=0)
"""Texts built to ask about the next token; effects read it, and no relation."""

BEFORE = "It"
"""A word before another, so that this one is spelled as within a text."""


class Prompts(NamedTuple):
    """The windows of prompts, and how many there are of each kind."""

    windows: list[Window]
    usable: Counter[str]
    sampled: Counter[str]

    @property
    def notes(self) -> list[str]:
        """Notes on prompts that were left out, for the reader of the results."""
        listed = ", ".join(
            f"{self.usable[kind]} of {count} {kind}"
            for kind, count in self.sampled.items()
            if self.usable[kind] < count
        )
        note = (
            "prompts whose answers the tokenizer does not tell apart by their first token were "
            "left out; asked are "
        )
        return [note + listed] if listed else []


def prompt_windows(
    tokenizer: TextTokenizer,
    kinds: Collection[str],
    max_length: int,
    *,
    seed: int,
    count: int = MAX_DOCUMENTS,
) -> Prompts:
    """`count` documents with one prompt of each kind; those longer than a window are left out."""
    spelling, frame = Spelling(tokenizer), frame_of(tokenizer)
    windows: list[Window] = []
    usable, sampled = Counter[str](), Counter[str]()
    for document, texts in draws(count, seed=seed):
        prompts = [prompt for prompt in texts if prompt.kind in kinds]
        sampled.update(prompt.kind for prompt in prompts)
        if not prompts:
            continue
        tokens = spelling.text(prompts[-1].text)
        answered = [spelling.question(prompt, tokens) for prompt in prompts]
        questions = tuple(question for question in answered if question is not None)
        if not questions or len(tokens) + 1 + frame.closing_tokens > max_length:
            continue
        usable.update(question.kind for question in questions)
        window = Window(
            f"prompts#{len(windows)}",
            np.concatenate([[tokenizer.bos], tokens]),
            (tokenizer.bos_string, *tokenizer.spell(tokens.tolist())),
            stimulus=PROMPTS.name,
            document=document,
            questions=questions,
        )
        windows.append(frame.close(window))
    return Prompts(windows, usable, sampled)


class Spelling:
    """Texts and words as a tokenizer spells them, each once."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        self.tokenizer = tokenizer
        self._texts: dict[str, Int[ndarray, " token"]] = {}

    def text(self, text: str) -> Int[ndarray, " token"]:
        """Tokens of a text."""
        if text not in self._texts:
            self._texts[text] = self.tokenizer.encode(Document("prompt", text, ())).tokens
        return self._texts[text]

    def first(self, word: str) -> int | None:
        """The first token of a word within a text; None where it does not spell any of it."""
        pieces = self._pieces(word)
        if not pieces:
            return None
        (spelled,) = self.tokenizer.spell(pieces[:1])
        return pieces[0] if spelled.strip() and word.startswith(spelled.strip()) else None

    def _pieces(self, word: str) -> list[int]:
        before, text = self.text(BEFORE), self.text(f"{BEFORE} {word}")
        if len(text) <= len(before) or (text[: len(before)] != before).any():
            return []
        return [int(token) for token in text[len(before) :]]

    def question(self, prompt: Prompt, tokens: Int[ndarray, " token"]) -> Question | None:
        """The question of a prompt in a window of these tokens; None where it cannot be asked.

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
