"""Attention patterns as other tools give them, each beside its window, checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.document import Document
from headscope.corpus.from_tokens import window_of_tokens
from headscope.corpus.window import Window
from headscope.errors import PatternError, first_line
from headscope.models.engines.engine import attends_to_hidden
from headscope.options import described

TOLERANCE = 1e-2
"""How far a row's sum may be from 1: what half-precision storage loses over a long row."""
_EAGER = (
    "transformers returns attention patterns only for a model loaded with "
    'attn_implementation="eager"'
)
Pattern = Float[Tensor, "layer head query key"]
Reader = Callable[[int, Window], Any]


def pattern_windows(text: Any, tokens: Any) -> list[Window]:
    """The windows that patterns are of: given as such, or as documents beside their tokens.

    Raises:
        PatternError: they are neither, or the tokens do not spell the documents.
    """
    if tokens is None:
        windows = (
            [text]
            if isinstance(text, Window)
            else _list("windows", text, "those of hs.windows, or documents beside their tokens")
        )
        for window in windows:
            if not isinstance(window, Window):
                raise PatternError(
                    f"a window is {described(window)}, expected those of hs.windows, or documents "
                    "of read_corpus beside their tokens"
                )
        return windows
    tokens = _list("tokens", tokens, "a list of tokens as text, or one for each document")
    if tokens and isinstance(tokens[0], str):
        text, tokens = [text], [tokens]
    documents: list[Document | None] = [None] * len(tokens)
    if text is not None:
        documents = _list("document", text, "a document of read_corpus for each array, or None")
    if len(documents) != len(tokens):
        raise PatternError(
            f"{len(documents)} documents and {len(tokens)} token lists; there must be one of each"
        )
    return [_window(i, t, d) for i, (t, d) in enumerate(zip(tokens, documents, strict=True))]


def arrays_of(
    patterns: Any, windows: Sequence[Window], numbers: Iterable[int] | None = None
) -> Iterator[tuple[Pattern, Window]]:
    """Each window with its pattern; a window that is longer than its pattern is cut.

    Args:
        patterns: a function of a window; TransformerLens' ActivationCache; a tuple or list with an
            array `[batch head query key]` of each layer, as transformers gives it; a list with an
            array `[layer head query key]` for each window; or one such array for one window.
        windows: the windows, in the order of the patterns.
        numbers: those of them that are wanted; all when None.

    Raises:
        PatternError: an array does not fit its window, or holds no causal attention; or a list can
            be read both by layer and by window.
    """
    read, batched = _reader(patterns, windows)
    first: tuple[int, int] | None = None
    for i in range(len(windows)) if numbers is None else numbers:
        window = windows[i]
        where = f"patterns of document {i} ({window.name})"
        array = _array(f"patterns of document {i}", read(i, window))
        if array.ndim == 4 and array.shape[2] == array.shape[3]:
            if batched:  # a batch is padded on the right
                array = array[..., : len(window), : len(window)]
            window = window.cut(array.shape[3])
        _check(array, window, where)
        first = first or (array.shape[0], array.shape[1])
        if first != tuple(array.shape[:2]):
            layers, heads = array.shape[:2]
            raise PatternError(f"{where}: {layers} layers × {heads} heads, unlike the first array")
        yield array, window


def _reader(patterns: Any, windows: Sequence[Window]) -> tuple[Reader, bool]:
    """Getter of a window's array, and whether windows are rows of padded batches."""
    if callable(patterns):
        return lambda i, window: patterns(window), False
    if hasattr(patterns, "cache_dict"):
        layers = list(_cached_layers(patterns))
        _same_number(len(layers[0]), windows)
        return lambda i, window: _stacked(layers, i), True
    if patterns is None or _lacks_layers(patterns):
        raise PatternError(f"there are no patterns: {described(patterns)}. {_EAGER}")
    if isinstance(patterns, tuple):
        _check_layers(patterns)
        _same_number(len(patterns[0]), windows)
        return lambda i, window: _stacked(patterns, i), True
    if len(windows) == 1 and not _holds_arrays(patterns):
        return lambda i, window: patterns, False
    words = "an array [layer head query key] for each window"
    return _listed(_list("patterns", patterns, words), windows)


def _lacks_layers(patterns: Any) -> bool:
    """Whether this is what transformers returns in place of patterns that it does not compute."""
    if not isinstance(patterns, tuple | list):
        return False
    return patterns == () or any(part is None for part in patterns)


def _holds_arrays(patterns: Any) -> bool:
    """Whether each part is an array of four axes."""
    if not isinstance(patterns, list):
        return len(_shape(patterns)) == 5
    return all(len(_shape(part)) == 4 for part in patterns)


def _check_layers(layers: tuple[Any, ...]) -> None:
    """Refuse a tuple other than the one that transformers gives."""
    shapes = {_shape(layer) for layer in layers}
    if len(shapes) != 1 or len(next(iter(shapes))) != 4:
        raise PatternError(
            "a tuple of patterns has an array [batch head query key] of each layer, as "
            f"transformers gives it; these have the shapes {sorted(shapes)!s:.200}. A list has "
            "an array [layer head query key] for each window"
        )


def _listed(arrays: list[Any], windows: Sequence[Window]) -> tuple[Reader, bool]:
    """Reader of a list with an array for each window, or with one for each layer.

    Raises:
        PatternError: the list can be read in both ways, or in none.
    """
    shapes = [_shape(array) for array in arrays]
    is_by_layer = len(set(shapes)) == 1 and len(shapes[0]) == 4 and shapes[0][0] == len(windows) > 0
    if not is_by_layer or len(arrays) == len(windows) == 1:
        _same_number(len(arrays), windows)
        return lambda i, window: arrays[i], False
    if len(arrays) == len(windows) and all(shapes[0][2] <= len(window) for window in windows):
        count = len(windows)
        raise PatternError(
            f"a list of {count} arrays {shapes[0]} for {count} windows can hold an array [layer "
            "head query key] of each window, or an array [batch head query key] of each layer. "
            "For the second give tuple(patterns); for the first give a function that returns the "
            "array of a window"
        )
    return lambda i, window: _stacked(arrays, i), True


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array or nested lists; none of what is no array."""
    try:
        return tuple(np.shape(value))
    except Exception:  # rows of several lengths, and objects that cannot be asked
        return ()


def _stacked(layers: Sequence[Any], row: int) -> Tensor:
    return torch.stack(
        [_array(f"layer {i}", layer_patterns[row]) for i, layer_patterns in enumerate(layers)]
    )


def _cached_layers(cache: Any) -> Iterator[Tensor]:
    layer = 0
    while (name := f"blocks.{layer}.attn.hook_pattern") in cache.cache_dict:
        yield cache.cache_dict[name]
        layer += 1
    if not layer:
        raise PatternError(
            "this cache holds no blocks.0.attn.hook_pattern; run the model with a names_filter "
            "that keeps hook_pattern"
        )


def _same_number(count: int, windows: Sequence[Window]) -> None:
    if count != len(windows) or not windows:
        raise PatternError(
            f"{count} pattern arrays and {len(windows)} documents; there must be one of each for "
            "every document"
        )


def _list(name: str, value: Any, words: str) -> list[Any]:
    """The parts of an argument that is a list or something like it."""
    if isinstance(value, str | bytes | dict | Document):
        raise PatternError(f"{name} is {described(value)}, expected {words}")
    try:
        return list(value)
    except Exception as error:  # an object may fail in any way when it is asked
        raise PatternError(f"{name} is {described(value)}, expected {words}") from error


def _window(number: int, tokens: Any, document: Any) -> Window:
    words = "text: each token as it is spelled, not its id"
    strings = _list(f"tokens of document {number}", tokens, "a list of tokens as text")
    for string in strings:
        if not isinstance(string, str):
            raise PatternError(
                f"a token of document {number} is {described(string)}, expected {words}"
            )
    if not strings:
        raise PatternError(f"document {number} has no tokens; the first stands at position 0")
    if not isinstance(document, Document | None):
        raise PatternError(
            f"document {number} is {described(document)}, expected a document of read_corpus, "
            "or None"
        )
    return window_of_tokens(strings, document)


def _array(where: str, values: Any) -> Tensor:
    """An array as given by NumPy, torch or lists; of real numbers."""
    if values is None:
        raise PatternError(f"{where}: None is no array of numbers. {_EAGER}")
    try:
        if isinstance(values, Tensor) and values.is_complex():
            raise TypeError("complex numbers")
        array = np.asarray(values.detach().float().cpu() if isinstance(values, Tensor) else values)
        if array.dtype.kind not in "fiub":
            raise TypeError(f"numbers of the kind {array.dtype}")
        return torch.as_tensor(array, dtype=torch.float32)
    except Exception as error:
        reason = first_line(error)
        raise PatternError(
            f"{where}: {described(values)} is no array of numbers [layer head query key]: "
            f"{reason:.200}"
        ) from error


def _check(array: Tensor, window: Window, where: str) -> None:
    shape = tuple(array.shape)
    if array.ndim != 4 or 0 in shape or shape[2:] != (len(window), len(window)):
        raise PatternError(
            f"{where}: shape {shape}, but {len(window)} tokens need [layer head {len(window)} "
            f"{len(window)}]"
        )
    worst = float((array.sum(-1) - 1).abs().nan_to_num(nan=torch.inf).max())
    if worst > TOLERANCE or bool((array < 0).any()):
        raise PatternError(
            f"{where}: rows must be probabilities that sum to 1 over keys (off by {worst:.3g}); "
            "a batch of several texts must be padded on the right"
        )
    if attends_to_hidden(array, window.attention_kind):
        raise PatternError(
            f"{where}: a query attends to a later key; for an encoder's patterns take the windows "
            "of hs.windows(…, attention_kind='bidirectional')"
        )
