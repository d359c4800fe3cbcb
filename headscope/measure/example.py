"""An example of what a head does: one query with what it looks at, cut out of its window.

It shows no stretch of the window, but the tokens near the query's keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.printing import visible

STEPS = 20
"""Bars of the histogram of a relation's queries by their mass."""


@dataclass(frozen=True)
class ExampleRequest:
    """A head, and by its number among a run's relations the one whose queries are asked for."""

    layer: int
    head: int
    relation: int


@dataclass(frozen=True, eq=False)
class Example:
    """One query of one head, with the piece of its pattern that its excerpt shows."""

    layer: int
    head: int
    relation: str
    """`type/relation`; empty for an ordinary text."""
    kind: str
    """`best`, of the first tenth of the queries by mass, `decile 2` to `decile 10`, `ordinary`."""
    mass: float
    """Attention on the targets; NaN for an ordinary text."""
    window: str
    tokens: tuple[str, ...]
    """Shown tokens of the window: the first, and stretches around the query, its targets and its
    strongest keys; of an ordinary text the beginning."""
    query: int
    """Place of the query among the tokens; −1 for an ordinary text."""
    targets: tuple[int, ...]
    """Places of the targets among the tokens."""
    pattern: Float[ndarray, "query key"]
    """Attention among the shown tokens, float16; see `elsewhere` for the rest of each row."""
    positions: tuple[int, ...]
    """Position of each shown token in the window, rising from 0."""
    left_out: tuple[float, ...]
    """The query's attention on each stretch of `gaps`."""
    length: int
    """Tokens of the window."""
    more_targets: int = 0
    """Targets of the query for which the excerpt has no room."""
    masses: tuple[int, ...] = ()
    """Number of the queries, among which it was chosen, by the mass on their targets, in `STEPS`
    equal steps from 0 to 1. Empty for an ordinary text."""

    @property
    def gaps(self) -> list[tuple[int, int, int]]:
        """The stretches that are left out: the place of the token after it, its first position
        and its end.
        """
        return stretches_left_out(self.positions)

    @property
    def elsewhere(self) -> Float[ndarray, " query"]:
        """Attention of each shown query that is not on the shown tokens, in [0, 1].

        For the example's own query it was measured, else it is what the row lacks to 1.
        """
        on_excerpt = self.pattern.astype(np.float64).sum(1)
        outside = np.clip(1 - on_excerpt, 0, 1)
        if self.query >= 0:
            outside[self.query] = sum(self.left_out)
        return np.asarray(outside)

    def __str__(self) -> str:
        """One line: the relation, its mass, and the text with the query and its targets marked.

        A stretch that is left out shows as `…`, and the next one begins with its position.
        """
        # the text with marks; a stretch that is left out shows as `…`
        begins = {index: f" … {end}:" for index, _, end in self.gaps}
        text = ""
        for index in range(len(self.tokens)):
            text += begins.get(index, "") + self.marked(index)
        if self.positions[-1] + 1 < self.length:
            text += " …"
        # what the excerpt does not show, in brackets
        notes = []
        if self.more_targets:
            notes.append(f"{self.more_targets} more targets")
        if self.query >= 0:
            elsewhere = self.elsewhere[self.query]
            notes.append(f"{elsewhere:.2f} elsewhere")
        if notes:
            text += f" ({', '.join(notes)})"
        return f"{self.relation} {self.kind} {self.mass:.2f}: {text}"

    def marked(self, index: int) -> str:
        """A shown token as it stands in the text: the query in [[ ]], a target in « ».

        WordPiece writes no blanks and marks the later tokens of a word with `##` instead.
        """
        token = visible(self.tokens[index])
        # WordPiece marks what continues a word, other tokenizers what begins one
        has_blanks = any(text.startswith(" ") for text in self.tokens)
        has_marks = any(text.startswith("##") for text in self.tokens)
        is_wordpiece = not has_blanks and (has_marks or self.tokens[0] == "[CLS]")
        if is_wordpiece:
            token = token[2:] if token.startswith("##") else f" {token}"
        word = token.lstrip(" ")
        blank = token[: len(token) - len(word)]
        if index == self.query:
            return f"{blank}[[{word}]]"
        if index in self.targets:
            return f"{blank}«{word}»"
        return token


@dataclass(frozen=True, eq=False)
class Picture:
    """A head's mean pattern on another stimulus than text."""

    stimulus: str
    """One of `headscope.measure.tally.pictured`."""
    pattern: Float[ndarray, "query key"]


WIDTH = 28
"""Tokens that an excerpt around a query shows at most: ten of them, a decile each, take no more
room than six of 40, and the query, its target and its strongest keys keep what is beside them."""
BEGINNING = 40
"""Tokens of an ordinary text that are shown."""
STRONGEST = 3
"""Keys that are shown because the query looks there most."""
CONTEXT_TOKENS = 3
"""Tokens that are shown on each side of the query, its targets and its strongest keys."""


def excerpt(
    query: int, targets: Int[ndarray, " target"], row: Float[ndarray, " key"], length: int
) -> Int[ndarray, " shown"]:
    """The positions that are shown of a window, rising from the first token's 0.

    Shown are the first token, the query, its targets (those with the most attention where there
    are more than fit), its strongest keys and what stands beside all these; where room is left,
    the text before the query.
    """
    most_first = np.argsort(-row[targets], kind="stable")
    by_attention = targets[most_first].tolist()
    strongest = np.argsort(-row, kind="stable")[:STRONGEST].tolist()
    # many targets would leave no room for the key with the most attention
    by_importance = [query, 0, *strongest[:1], *by_attention, *strongest]
    # what stands beside them comes step by step, so that each keeps its nearest neighbours
    for step in range(1, CONTEXT_TOKENS + 1):
        for position in (query, *by_attention, *strongest):
            by_importance += [position - step, position + step]
    by_importance += range(query - CONTEXT_TOKENS - 1, 0, -1)
    # a position that came before keeps its place, and takes no more room
    excerpt_positions: dict[int, None] = {}
    for position in by_importance:
        if 0 <= position < length:
            excerpt_positions[position] = None
        if len(excerpt_positions) == WIDTH:
            break
    return np.sort(np.fromiter(excerpt_positions, np.int64))


def stretches_left_out(positions: Sequence[int]) -> list[tuple[int, int, int]]:
    """Each stretch between the shown: the place of what follows it, its first position, its end."""
    return [
        (index, before + 1, after)
        for index, (before, after) in enumerate(pairwise(positions), start=1)
        if after > before + 1
    ]
