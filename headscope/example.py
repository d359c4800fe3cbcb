"""An example of what a head does: one query with the piece of the head's pattern around it."""

from __future__ import annotations

from dataclasses import dataclass

from jaxtyping import Float
from numpy import ndarray

from headscope.visible import visible

CONTEXT = 6  # tokens that a line shows before the first marked one


@dataclass(frozen=True, eq=False)
class Example:
    """One query of one head, with the piece of its pattern around it."""

    layer: int
    head: int
    relation: str
    """`type/relation`; empty for an ordinary text."""
    kind: str
    """`best`, `quarter 1` (the highest) to `quarter 4`, or `ordinary`."""
    mass: float
    """Attention on the targets; NaN for an ordinary text."""
    window: str
    tokens: tuple[str, ...]
    """The first token of the window, then a stretch of it."""
    query: int
    """Place of the query among the tokens; −1 for an ordinary text."""
    targets: tuple[int, ...]
    pattern: Float[ndarray, "query key"]
    """Attention among the shown tokens, float16; the rest of each row lies outside."""

    def __str__(self) -> str:
        """One line: the relation, its mass, and the text with the query and its targets marked."""
        shown = []
        for i, token in enumerate(self.tokens):
            word = visible(token)
            if i == self.query:
                word = f"[[{word}]]"
            elif i in self.targets:
                word = f"«{word}»"
            shown.append(word)
        first = max(1, min([self.query, *self.targets]) - CONTEXT) if self.query >= 0 else 0
        if 0 in (self.query, *self.targets):
            first = 0
        text = "".join(shown[first:])
        return f"{self.relation} {self.kind} {self.mass:.2f}: {'…' if first else ''}{text}"
