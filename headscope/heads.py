"""Names of heads: `L5H1` is layer 5, head 1, both counted from 0; `5.1` means the same.

A model with an encoder and a decoder has three stacks of them, and each is named by its own letter:
`E2H3` in the encoder, `D2H3` in the decoder, and `X2H3` from the decoder to the encoder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headscope.attention_kind import KINDS
from headscope.errors import HeadscopeError

_HEAD = re.compile(r"[Ll]?(\d{1,6})[Hh.](\d{1,6})")
_IN_A_STACK = re.compile(r"([A-Za-z])(\d{1,6})[Hh](\d{1,6})")
STACKS = {kind.letter: kind.stack for kind in KINDS.values()}
"""The letters of stacks, and what they are."""
ASKED_OF = "@"
"""What stands between a relation's name and the stack that it is asked of, where several are."""


@dataclass(frozen=True)
class HeadNames:
    """Names of a model's heads; of several stacks the layers are counted through, in their order.

    >>> both = HeadNames(("E", "D"), (2, 3))
    >>> both.name(1, 0), both.name(2, 5), both.parse("D1H4"), both.last(8)
    ('E1H0', 'D0H5', (3, 4), 'D2H7')
    >>> PLAIN_NAMES.name(5, 1), PLAIN_NAMES.parse("5.1"), len(PLAIN_NAMES)
    ('L5H1', (5, 1), 0)
    """

    letters: tuple[str, ...] = ()
    layers: tuple[int, ...] = ()
    """Of each stack."""

    def __len__(self) -> int:
        return len(self.letters)

    @classmethod
    def of(cls, facts: Mapping[str, int] | None) -> HeadNames:
        """Names by the letters of stacks with the layers of each, as `run.json` keeps them."""
        return cls(tuple(facts), tuple(facts.values())) if facts else PLAIN_NAMES

    def row(self, layer: int) -> str:
        """A layer's name, e.g. `L5`, or `D2`."""
        letter, stack_layer = self._stack_layer(layer)
        return f"{letter}{stack_layer}"

    def name(self, layer: int, head: int) -> str:
        """A head's name."""
        return f"{self.row(layer)}H{head}"

    def last(self, heads: int) -> str:
        """The name of the last head of the last layer of several stacks."""
        return self.name(sum(self.layers) - 1, heads - 1)

    def starts(self) -> Iterator[tuple[str, int, int]]:
        """Letter, first layer and the one after the last layer of each stack."""
        start = 0
        for letter, count in zip(self.letters, self.layers, strict=True):
            yield letter, start, start + count
            start += count

    def parse(self, text: str) -> tuple[int, int]:
        """`(layer, head)` of a name, the layer counted through all stacks.

        Raises:
            HeadscopeError: it is no name of a head, or its stack has no such layer.
        """
        if not self.letters:
            return _parse(text)
        match = _IN_A_STACK.fullmatch(text.strip())
        for letter, start, stop in self.starts() if match else ():
            layer = start + int(match[2]) if match else stop
            if match and match[1].upper() == letter and layer < stop:
                return layer, int(match[3])
        first = self.name(0, 0)
        known = ", ".join(f"{a}0 to {a}{b - s - 1}" for a, s, b in self.starts())
        raise HeadscopeError(
            f"{text!r:.60} is not a head of this model, whose layers are {known}; write for "
            f"example {first}"
        )

    def _stack_layer(self, layer: int) -> tuple[str, int]:
        for letter, start, stop in self.starts():
            if start <= layer < stop:
                return letter, layer - start
        return "L", layer


PLAIN_NAMES = HeadNames()
"""Those of a model with one kind of attention: `L5H1`."""


def head_name(layer: int, head: int, head_names: HeadNames = PLAIN_NAMES) -> str:
    """The printed name of a head, e.g. `L5H1`.

    >>> head_name(5, 1)
    'L5H1'
    """
    return head_names.name(layer, head)


def parse_head(text: str, head_names: HeadNames = PLAIN_NAMES) -> tuple[int, int]:
    """`(layer, head)` of a name such as `L5H1` or `5.1`, or `E2H3` where there are several stacks.

    Raises:
        HeadscopeError: the text is neither form.

    >>> parse_head("L5H1"), parse_head("5.1")
    ((5, 1), (5, 1))
    >>> parse_head("5")
    Traceback (most recent call last):
    headscope.errors.HeadscopeError: '5' is not a head; write L5H1 or 5.1 for layer 5, head 1
    """
    return head_names.parse(text)


def check_head(text: str) -> None:
    """Refuse what is the name of a head in no model, before any is loaded.

    Raises:
        HeadscopeError: it is not.
    """
    if _IN_A_STACK.fullmatch(text.strip()) is None or text.strip()[:1] in "Ll":
        _parse(text)


def relation_of(relation: str) -> str:
    """A relation's name without the stack that it is asked of.

    >>> relation_of("obj:dep>head@D"), relation_of("obj:dep>head")
    ('obj:dep>head', 'obj:dep>head')
    """
    name, mark, stack = relation.rpartition(ASKED_OF)
    return name if mark and stack in STACKS else relation


def _parse(text: str) -> tuple[int, int]:
    match = _HEAD.fullmatch(text.strip())
    if match is None:
        raise HeadscopeError(f"{text!r:.60} is not a head; write L5H1 or 5.1 for layer 5, head 1")
    return int(match[1]), int(match[2])


def told_of(others: Sequence[int]) -> str:
    """A clause that names the layers without softmax attention.

    >>> told_of((0, 1, 2, 4))
    'layers 0–2, 4 have no softmax attention'
    >>> told_of((3,))
    'layer 3 has no softmax attention'
    """
    stretches: list[list[int]] = []
    for layer in sorted(others):
        if stretches and layer == stretches[-1][-1] + 1:
            stretches[-1].append(layer)
        else:
            stretches.append([layer])
    spans = [str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in stretches]
    subject, verb = ("layer", "has") if len(others) == 1 else ("layers", "have")
    return f"{subject} {', '.join(spans)} {verb} no softmax attention"
