"""Patterns that a caller gives as a file, or as what `hs.patterns` read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from headscope.errors import PatternError
from headscope.paths import given_file
from headscope.text_patterns import FORMAT, Patterns, check_whole, npz_arrays
from headscope.user_tables import json_content

NAMES = ("patterns", "attentions", "attention")
"""Names under which a file may hold patterns; `tokens` are the tokens as text."""
LAYER_RANK = 3
"""Axes of a layer's pattern of one text: head, query, key."""


@dataclass(frozen=True, eq=False)
class GivenPatterns:
    """The arguments of `score_patterns`: arrays, and their windows or tokens."""

    patterns: Any
    windows: Any
    tokens: Any


def given_patterns(patterns: Any, windows: Any, tokens: Any) -> GivenPatterns:
    """Arrays with their windows or tokens, taken from a file or from `Patterns` if there is one.

    Windows, documents and tokens that the caller gives come first.

    Raises:
        PatternError: a file cannot be read, or holds no patterns; or `Patterns` lack layers.
    """
    # a file has arrays, or all of what `Patterns.save` wrote
    if isinstance(patterns, str | Path):
        content = read_pattern_file(Path(patterns))
        if isinstance(content, GivenPatterns):
            return replace(
                content, windows=windows, tokens=content.tokens if tokens is None else tokens
            )
        patterns = content
    texts = patterns if isinstance(patterns, list | tuple) else [patterns]
    if not texts or not all(isinstance(text, Patterns) for text in texts):
        return GivenPatterns(patterns, windows, tokens)
    # patterns of single layers or heads would lose their numbers in a run
    for text in texts:
        check_whole(text)
    if windows is None and tokens is None:
        windows = [text.window for text in texts]
    return GivenPatterns([text.array for text in texts], windows, tokens)


def read_pattern_file(path: Path) -> Patterns | GivenPatterns:
    """Patterns of a .npz or .json file, of `Patterns.save` or of another program.

    Raises:
        PatternError: the file is another one, or contains no patterns.
        HeadscopeError: there is no such file.
    """
    # JSON may be the patterns themselves, .npz always has names
    values: Any
    if path.suffix.lower() == ".json":
        raw = given_file(path, "a .npz or .json file of patterns")
        values = json_content(raw, str(path), PatternError)
        if not isinstance(values, Mapping):
            return GivenPatterns(values, None, None)
    else:
        values = npz_arrays(path)
        if FORMAT in values:
            return Patterns.from_arrays(values, path)
    tokens: Any = values.get("tokens")
    if isinstance(tokens, np.ndarray):
        tokens = tokens.tolist()
    return GivenPatterns(_arrays(path, values), None, tokens)


def _arrays(path: Path, values: Mapping[str, Any]) -> Any:
    """The patterns among named values: one array, or one for each layer in the order of numbers.

    Raises:
        PatternError: the file has no patterns.
    """
    for name in NAMES:
        if name in values:
            return values[name]
    layers = [name for name in sorted(values, key=_number) if np.ndim(values[name]) >= LAYER_RANK]
    if not layers:
        raise PatternError(
            f"{path!s:.200} holds {', '.join(values) or 'nothing':.200}; name the patterns "
            f"{' or '.join(NAMES)}, and the tokens as text tokens"
        )
    return values[layers[0]] if len(layers) == 1 else [values[name] for name in layers]


def _number(name: str) -> tuple[int, str]:
    """The first number in a name, so that layer_10 comes after layer_9."""
    digits = re.search(r"\d+", name)
    return (int(digits[0]) if digits else -1, name)
