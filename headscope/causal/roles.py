"""Roles: names for positions that hold over the prompts of a task, such as `end` and `repeat`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import regex
from jaxtyping import Bool, Int
from numpy import ndarray

from headscope.stimuli.tasks import TaskRow

END, START, REPEAT, FIRST = "end", "start", "repeat", "first"
ANSWER, WRONG, AFTER_FIRST, OTHER = "answer", "wrong", "after first", "other"
COMMON = 0.5
"""Least share of a template's prompts that give a position its role, if the others have none."""
LEAST_CONSTANT = 0.5
"""Least share of equal tokens that makes prompts of one length a template."""
_SPACED = r"[\p{Latin}\p{Greek}\p{Cyrillic}\p{N}]"  # scripts that write spaces between words
_WORD = regex.compile(rf"{_SPACED}+")

Span = tuple[int, int]
"""Characters of a text: first, and the one after the last."""


@dataclass(frozen=True, eq=False)
class PromptText:
    """A prompt of a task as a tokenizer reads it, the beginning-of-text token first."""

    row: TaskRow
    strings: tuple[str, ...]
    """Text of each token."""
    offsets: Int[ndarray, "position 2"]
    """Characters of the prompt that each token holds; none for the first."""

    def positions(self, span: Span) -> list[int]:
        """The tokens that hold some of these characters."""
        start, stop = span
        has_some = (self.offsets[:, 0] < stop) & (self.offsets[:, 1] > start)
        return (np.flatnonzero(has_some[1:]) + 1).tolist()

    def spans(self, word: str) -> list[Span]:
        """Places of a whole word in the prompt."""
        bare = word.strip()
        if not bare:
            return []
        before = rf"(?<!{_SPACED})" if regex.match(_SPACED, bare[0]) else ""
        after = rf"(?!{_SPACED})" if regex.match(_SPACED, bare[-1]) else ""
        matches = regex.finditer(before + regex.escape(bare) + after, self.row.prompt)
        return [match.span() for match in matches]


@dataclass(frozen=True)
class Role:
    """A name for positions, and how many prompts have it."""

    name: str
    prompts: int
    """Prompts with such a position."""
    missing: int
    """Prompts in which its text does not occur."""
    ambiguous: int
    """Prompts in which its text occurs several times, so that it has no position."""


@dataclass(frozen=True, eq=False)
class PromptRoles:
    """The role of every position of a task's prompts."""

    roles: tuple[Role, ...]
    """The roles that some prompt has; `other` is the last."""
    of_prompt: Sequence[Sequence[str]]
    """The role of each position of each prompt."""
    template: str | None
    """The text that all prompts share, with roles in braces; None if they share none."""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the roles, in order."""
        return tuple(role.name for role in self.roles)

    def masks(self, width: int) -> Bool[ndarray, "role prompt position"]:
        """Positions of each role, padded with False up to a width."""
        masks = np.zeros((len(self.names), len(self.of_prompt), width), bool)
        number = {name: index for index, name in enumerate(self.names)}
        for prompt, names in enumerate(self.of_prompt):
            for position, name in enumerate(names):
                masks[number[name], prompt, position] = True
        return masks

    @classmethod
    def of(cls, prompts: Sequence[PromptText]) -> PromptRoles:
        """Find the roles: `end`, `start`, the columns' own, `repeat`, `first`, and the answers'.

        A word that occurs twice is the wrong answer, the answer, the last token, or the only
        repeated word that is not in every prompt; its first occurrence is `first`, the second
        `repeat`. A position has the first role of this order that fits.
        """
        in_all = set.intersection(*(set(_WORD.findall(text.row.prompt)) for text in prompts))
        missing: Counter[str] = Counter()
        ambiguous: Counter[str] = Counter()
        of_prompt = []
        for text in prompts:
            # the columns' own: text that the prompt has once
            names = [OTHER] * len(text.strings)
            candidates = {END: [len(names) - 1], START: [0]}
            for name, word in text.row.roles.items():
                spans = text.spans(word)
                if len(spans) == 1:
                    candidates[name] = text.positions(spans[0])
                elif word.strip():
                    (ambiguous if spans else missing)[name] += 1

            # a word that occurs twice, and the answers
            repeated, several = _repeated(text, in_all)
            ambiguous[REPEAT] += several
            missing[REPEAT] += not repeated and not several
            if repeated:
                candidates[REPEAT], candidates[FIRST] = repeated[1], repeated[0]
            for name, word in ((ANSWER, text.row.answer), (WRONG, text.row.wrong)):
                spans = text.spans(word)
                if len(spans) == 1:
                    candidates[name] = text.positions(spans[0])
                elif len(spans) != 2 or not repeated:  # a repeated word has roles of its own
                    (ambiguous if spans else missing)[name] += 1
            if repeated and repeated[0][-1] + 1 < len(names):
                candidates[AFTER_FIRST] = [repeated[0][-1] + 1]

            # the first role that fits stays
            for name, positions in candidates.items():
                for position in positions:
                    if names[position] == OTHER:
                        names[position] = name
            of_prompt.append(names)

        # prompts of one template share their positions; roles in their order, slots last
        template = _aligned_by_template(prompts, of_prompt)
        counts: Counter[str] = Counter()
        for names in of_prompt:
            counts.update(set(names))
        order = [END, START, *prompts[0].row.roles, REPEAT, FIRST, ANSWER, WRONG, AFTER_FIRST]
        order += sorted(set(counts) - {*order, OTHER})
        roles = [
            Role(name, counts[name], missing[name], ambiguous[name])
            for name in [*order, OTHER]
            if counts[name]
        ]
        return cls(tuple(roles), of_prompt, template)

    def notes(self, columns: Iterable[str]) -> list[str]:
        """A sentence on each role that prompts lack, or that none has."""
        notes = []
        for role in self.roles:
            if role.ambiguous:
                notes.append(
                    f"role {role.name}: its text is ambiguous in {role.ambiguous} prompts, which "
                    "have no such position"
                )
            if role.missing and role.name not in (ANSWER, WRONG):
                notes.append(f"role {role.name}: missing in {role.missing} prompts")
        for column in columns:
            if column not in self.names:
                notes.append(
                    f"role {column}: no prompt has its text exactly once and where no other role is"
                )
        return notes


def _repeated(text: PromptText, in_all: set[str]) -> tuple[tuple[list[int], list[int]] | None, int]:
    """Positions of a word's first and second occurrence, if there is one; 1 if it is ambiguous."""
    for word in (text.row.wrong, text.row.answer):
        spans = text.spans(word)
        if len(spans) == 2:
            first, second = map(text.positions, spans)
            return (first, second), 0
        if len(spans) > 2:
            return None, 1
    # the last token, if it stood once before, as for induction
    last = text.strings[-1].strip()
    in_prompt = text.offsets[-1, 0] < text.offsets[-1, 1]  # a chat template is not
    if last and in_prompt and last not in in_all:
        same = [i for i, token in enumerate(text.strings[1:-1], 1) if token.strip() == last]
        if same:
            end = len(text.strings) - 1
            return (None, 1) if len(same) > 1 else (([same[0]], [end]), 0)
    # words of the template occur twice in every prompt
    counts = Counter(word for word in _WORD.findall(text.row.prompt) if word not in in_all)
    twice = [word for word, count in counts.items() if count == 2]
    if len(twice) != 1:
        return None, int(len(twice) > 1)
    first, second = map(text.positions, text.spans(twice[0]))
    return (first, second), 0


def _aligned_by_template(prompts: Sequence[PromptText], of_prompt: list[list[str]]) -> str | None:
    """The template that prompts share; what varies in it and has no role becomes a slot.

    A role that most prompts have at a position is given to the others, and one that few have is
    none; changes `of_prompt`.
    """
    if len({len(names) for names in of_prompt}) > 1:
        return None
    columns = [set(tokens) for tokens in zip(*(text.strings for text in prompts), strict=True)]
    # prompts of one length of which most tokens are equal come from a template
    is_constant = [len(tokens) == 1 for tokens in columns]
    if np.mean(is_constant) < LEAST_CONSTANT:
        return None
    # a position that varies has one role in all prompts, or is a slot of its own
    parts = []
    slots = 0
    for position, constant in enumerate(is_constant):
        counts = Counter(names[position] for names in of_prompt)
        of_some = [name for name in counts if name != OTHER]
        if not of_some and not constant:
            slots += 1
            of_some = [f"slot {slots}"]
        if len(of_some) == 1:
            is_common = not counts[of_some[0]] or counts[of_some[0]] >= COMMON * len(of_prompt)
            for names in of_prompt:
                names[position] = of_some[0] if is_common else OTHER
        # the template begins after the beginning-of-text token
        token = prompts[0].strings[position]
        if position and constant:
            parts.append(token)
        elif position:
            space = " " if token.startswith(" ") else ""
            role_names = sorted({names[position] for names in of_prompt})
            parts.append(f"{space}{{{'/'.join(role_names)}}}")
    return "".join(parts).strip()
