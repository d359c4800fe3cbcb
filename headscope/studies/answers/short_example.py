"""An example in one line: what stands around its query and the targets that it looks at most."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headscope.measure.example import Example
from headscope.printing import visible

WIDTH = 68
"""Characters of a line, where the query and one target leave room for them."""
_TARGETS, _CONTEXT = 2, 6


def short_example(example: Example, width: int = WIDTH) -> str:
    """The query in [[ ]], its targets in « », and as much around them as fits; … is left out."""
    row = example.pattern[example.query]
    targets = sorted(example.targets, key=lambda at: -row[at])[:_TARGETS]
    lines = [
        _line(example, targets[:count], context)
        for count in range(len(targets), 0, -1)
        for context in range(_CONTEXT, -1, -1)
    ]
    return next((line for line in lines if len(line) <= width), lines[-1] if lines else "")


def _line(example: Example, targets: Sequence[int], context: int) -> str:
    last = len(example.tokens) - 1
    places_shown = np.unique(
        [
            at
            for centre in (example.query, *targets)
            for at in range(max(0, centre - context), min(last, centre + context) + 1)
        ]
    ).tolist()
    places = example.positions or range(len(example.tokens))
    parts, before = [], -1
    for at in places_shown:
        token = _marked(example, at)
        if places[at] != before + 1:
            token = f" … {token.lstrip(' ')}"
        parts.append(token)
        before = places[at]
    length = example.length or len(example.tokens)
    return "".join([*parts, "" if before + 1 == length else " …"]).strip()


def _marked(example: Example, at: int) -> str:
    """A token, its marks inside of the blank that it begins with."""
    word = visible(example.tokens[at])
    blank = word[: len(word) - len(word.lstrip(" "))]
    if at == example.query:
        return f"{blank}[[{word[len(blank) :]}]]"
    return f"{blank}«{word[len(blank) :]}»" if at in example.targets else word
