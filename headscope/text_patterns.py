"""Attention patterns of a model on one text, as one array with its tokens and words.

They are read from a model or from a file: of `Patterns.save`, or of another program.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any
from zipfile import is_zipfile

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field, PlainValidator

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.window import Window, WordTable
from headscope.errors import PatternError, reported_as
from headscope.heads import head_name, layer_name, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.models.model import Model
from headscope.models.text_window import check_unicode, special_notes, text_window
from headscope.options import (
    Device,
    Overwrite,
    PathName,
    Plain,
    Revision,
    Source,
    Text,
    check_head,
    checked,
    described,
    not_allowed,
)
from headscope.paths import given_file
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.write import check_suffix, write_file
from headscope.user_tables import json_content

FORMAT = "headscope_patterns"
"""Name of the array that only a file of `Patterns.save` has; it holds the record as JSON."""
TOLERANCE = 1e-2
"""Largest distance of a row's sum from 1: half precision loses as much over a long row."""
ARRAY_NAMES = ("patterns", "attentions", "attention")
"""Names under which a file may hold patterns; `tokens` are the tokens as text."""
LAYER_RANK = 3
"""Axes of a layer's pattern of one text: head, query, key."""


@dataclass(frozen=True)
class WordSpan:
    """A word of a text, and the positions of its first and last token."""

    word: str
    first: int
    last: int


@dataclass(frozen=True, eq=False, repr=False)
class Patterns:
    """Attention patterns of some heads of a model on one text.

    NumPy takes it as its array: `np.asarray(patterns)`.
    """

    name: str
    """Name of the model."""
    array: Float[ndarray, "layer head query key"]
    """Attention in [0, 1] as float16; each row sums to 1."""
    layers: tuple[int, ...]
    """Number in the model of each layer of the array."""
    heads: tuple[int, ...]
    """Number within its layer of each head of the array."""
    words: tuple[WordSpan, ...]
    """Words of the text, without annotation; a mark is a word."""
    window: Window
    """The text as the model read it."""
    notes: tuple[str, ...] = ()
    """A note on the special tokens in the text, if there are any; `save` does not keep it."""

    @property
    def tokens(self) -> list[str]:
        """Each token as text, the beginning-of-text token included."""
        return list(self.window.strings)

    def __getitem__(self, name: Any) -> Float[ndarray, "*head query key"]:
        """The patterns of a layer such as `L5`, `[head query key]`, or of a head, `[query key]`.

        Raises:
            PatternError: the array holds no such layer or head.
        """
        for layer, number in enumerate(self.layers):
            if name == layer_name(number):
                return np.asarray(self.array[layer])
        # a number could be that of a layer in the model or in the array
        with reported_as(PatternError, f"no patterns[{name!r:.60}]; the key should", ValueError):
            layer, head = parse_head(check_head(name))
        if layer not in self.layers or head not in self.heads:
            raise PatternError(f"no head {name!r:.60} here; {self._extent()}")
        return np.asarray(self.array[self.layers.index(layer), self.heads.index(head)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<attention patterns of {self.name}: {self._extent()}; {len(self.window):,} tokens>"

    def _extent(self) -> str:
        first = head_name(self.layers[0], self.heads[0])
        last = head_name(self.layers[-1], self.heads[-1])
        return f"{len(self.layers)} layers × {len(self.heads)} heads, {first} to {last}"

    @checked
    def save(self, path: PathName, *, overwrite: Overwrite = False) -> Path:
        """Write a .npz file: the arrays `patterns`, `tokens`, `layers` and `heads`, and a record.

        Raises:
            WriteError: another suffix, or a file that is there already.
        """
        target = Path(path)
        check_suffix(target, ".npz")
        content = BytesIO()
        # everything but arrays goes into the record
        window = self.window
        record = {
            "name": self.name,
            "ids": window.tokens.tolist(),
            "words": [vars(word) for word in self.words],
            "sentences": window.words.sentence.tolist(),
            "inner": window.inner.tolist(),
            "sees_future": window.attention_kind.sees_future,
            "begins": window.begins,
            "ends": window.ends,
        }
        np.savez_compressed(
            content,
            patterns=self.array,
            tokens=np.array(self.window.strings),
            layers=np.array(self.layers),
            heads=np.array(self.heads),
            headscope_patterns=np.array(json.dumps(record, allow_nan=False)),
        )
        return write_file(target, content.getvalue(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Patterns:
        """Read a file of `save` back.

        Raises:
            PatternError: the file is another one, or its arrays do not fit together.
            HeadscopeError: there is no such file.
        """
        return cls.from_arrays(npz_arrays(path), path)

    @classmethod
    def from_arrays(cls, arrays: dict[str, ndarray], path: str | Path) -> Patterns:
        """The patterns that the arrays of a file contain.

        Raises:
            PatternError: the file was not written by `save`, or has been changed.
        """
        # a file that was changed can make a library raise anything
        with reported_as(PatternError, f"{path!s:.200} is not a file of Patterns.save", Exception):
            record = json.loads(str(arrays[FORMAT]))
            words = tuple(WordSpan(**row) for row in record["words"])
            # words without annotation, as plain text has them
            blank = np.full(len(words), "", "U1")
            window = Window(
                name="text",
                tokens=_positions(record["ids"]),
                strings=tuple(arrays["tokens"].tolist()),
                words=WordTable(
                    first=_positions([word.first for word in words]),
                    last=_positions([word.last for word in words]),
                    sentence=_positions(record["sentences"]),
                    head=np.full(len(words), -1, np.int64),
                    deprel=blank,
                    upos=blank,
                    lemma=np.array([word.word.lower() for word in words], "U"),
                    tense=blank,
                ),
                inner=_positions(record["inner"]),
                attention_kind=BIDIRECTIONAL if record["sees_future"] else CAUSAL,
                ends=record["ends"],
                begins=record["begins"],
            )
            patterns = cls(
                name=record["name"],
                array=arrays["patterns"],
                layers=tuple(_positions(arrays["layers"]).tolist()),
                heads=tuple(_positions(arrays["heads"]).tolist()),
                words=words,
                window=window,
            )
            _check_parts(patterns)
        return patterns


def npz_arrays(path: str | Path) -> dict[str, ndarray]:
    """The arrays of a .npz file that a user names, none of them a pickle.

    Raises:
        PatternError: it is another file, or cut short.
        HeadscopeError: there is no such file.
    """
    raw = BytesIO(given_file(path, "a .npz file of patterns"))
    with reported_as(PatternError, f"{path!s:.200}: not a whole .npz file", Exception):
        if not is_zipfile(raw):
            raise ValueError("it is not a zip archive")
        with np.load(raw, allow_pickle=False) as arrays:
            return dict(arrays)


def _positions(values: Any) -> Int[ndarray, " item"]:
    """Whole numbers from 0 in a row.

    Raises:
        ValueError: they are something else.
    """
    numbers = np.asarray(values)
    is_whole = numbers.dtype.kind in "iu" or not numbers.size
    if numbers.ndim != 1 or not is_whole or (numbers < 0).any():
        raise ValueError(f"{described(values)} should be whole numbers from 0")
    return numbers.astype(np.int64)


def _check_parts(patterns: Patterns) -> None:
    """Check that the parts of patterns fit together, and that rows are attention.

    Raises:
        ValueError: they do not, or a row is not attention.
    """
    # as many tokens as text, and layers and heads in order
    window = patterns.window
    size = len(window)
    if len(window.strings) != size or not all(isinstance(text, str) for text in window.strings):
        raise ValueError(f"{size} numbers of tokens, and {len(window.strings)} tokens as text")
    for numbers in (patterns.layers, patterns.heads):
        if not numbers or list(numbers) != sorted(set(numbers)):
            raise ValueError("layers and heads should be different numbers in order")
    array = patterns.array
    shape = (len(patterns.layers), len(patterns.heads), size, size)
    if array.shape != shape or array.dtype.kind != "f":
        raise ValueError(
            f"patterns are {array.dtype} of shape {array.shape}, and its layers, heads and tokens "
            f"need fractions of shape {shape}"
        )

    # a learned sink takes of a row what its sum lacks of 1
    hidden = window.attention_kind.hidden(size)
    for layer in array:
        rows = layer.astype(np.float32)
        worst = rows.sum(-1).max()
        if not (worst <= 1 + TOLERANCE and (rows >= 0).all()):
            raise ValueError(f"rows should be attention ≥ 0 with sums of at most 1, not {worst:g}")
        if rows[:, hidden].any():
            raise ValueError("a query attends to a later key")

    # two words may share a token
    firsts, lasts = window.words.first, window.words.last
    is_in_order = (np.diff(firsts) >= 0).all() and (np.diff(lasts) >= 0).all()
    is_span = (firsts <= lasts).all() and (lasts < size).all()
    is_inside = window.begins + window.ends <= size and (window.inner < size).all()
    is_whole = len(window.words.sentence) == len(firsts)
    if not (is_in_order and is_span and is_inside and is_whole):
        raise ValueError(f"its words do not lie in its {size} tokens")


def _numbers(value: Any) -> tuple[int, ...] | None:
    """Different whole numbers in order."""
    if value is None:
        return None
    items = list(value) if isinstance(value, Sequence | ndarray | range) else []
    if not items or not all(isinstance(item, Integral) and int(item) >= 0 for item in items):
        raise not_allowed("be a list of whole numbers from 0")
    return tuple(sorted({int(item) for item in items}))


Numbers = Annotated[Sequence[int] | None, PlainValidator(_numbers)]


@checked
def patterns(
    model: ModelOrRun,
    text: Text,
    *,
    layers: Annotated[
        Numbers, Field(description="Numbers of the layers to read. Default: all.")
    ] = None,
    heads: Annotated[
        Numbers, Field(description="Numbers of the heads to read in each layer. Default: all.")
    ] = None,
    plain: Plain = False,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> Patterns:
    """Attention patterns of all heads on a text, `[layer head query key]` in float16.

    One layer at a time is in memory beside the array.

    Raises:
        ModelError: the model cannot be loaded.
        RunError: it has no such layer or head.
        HeadscopeError: the text is empty, or longer than the model's context.

    >>> found = patterns("mini", "one two one two", layers=[4, 5])
    >>> found.array.shape, found["L5H3"].shape
    ((2, 8, 5, 5), (5, 5))
    """
    # text and heads are checked before anything is read, as patterns of all heads take long
    check_unicode(text)
    loaded, _ = model_or_run(model, source=source, revision=revision, device=device)
    loaded = loaded.with_plain_prompts(plain)
    window = text_window(loaded, text)
    # all heads of all layers, or those asked for
    chosen_layers = loaded.attention_layers if layers is None else tuple(layers)
    chosen_heads = tuple(range(loaded.heads)) if heads is None else tuple(heads)
    for layer in chosen_layers:
        loaded.check_head(layer, chosen_heads[-1])
    spans = zip(window.words.first.tolist(), window.words.last.tolist(), strict=True)
    words = []
    for first, last in spans:
        tokens = window.tokens[first : last + 1].tolist()
        words.append(WordSpan(loaded.tokenizer.decode(tokens).strip(), first, last))
    return Patterns(
        name=Path(loaded.name).name,
        array=read_patterns(loaded, window, chosen_layers, chosen_heads),
        layers=chosen_layers,
        heads=chosen_heads,
        words=tuple(words),
        window=window,
        notes=special_notes(loaded, [text]),
    )


def read_patterns(
    model: Model,
    window: Window,
    layers: Sequence[int],
    heads: Sequence[int],
    dtype: type[np.floating[Any]] = np.float16,
) -> Float[ndarray, "layer head query key"]:
    """Patterns of some heads on one window, read up to the last of the layers."""
    # one layer at a time is in memory beside the array
    size = len(window)
    array = np.zeros((len(layers), len(heads), size, size), dtype)
    rows = {layer: row for row, layer in enumerate(layers)}
    numbers = torch.tensor(heads)

    def take(layer: int, pattern: torch.Tensor) -> None:
        if layer in rows:
            array[rows[layer]] = pattern[0].float().cpu()[numbers].numpy()

    ids = torch.from_numpy(window.tokens)[None].to(model.device)
    stream_patterns(model.engine, ids, take, max(layers) + 1)
    return array


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
        expected = tuple(range(len(text.layers))), tuple(range(len(text.heads)))
        if (text.layers, text.heads) != expected:
            raise PatternError(
                f"{text!r} lack layers or heads before the last; read all of them for "
                "score_patterns"
            )
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
    for name in ARRAY_NAMES:
        if name in values:
            return values[name]
    layers = [
        name for name in sorted(values, key=_first_number) if np.ndim(values[name]) >= LAYER_RANK
    ]
    if not layers:
        raise PatternError(
            f"{path!s:.200} holds {', '.join(values) or 'nothing':.200}; name the patterns "
            f"{' or '.join(ARRAY_NAMES)}, and the tokens as text tokens"
        )
    return values[layers[0]] if len(layers) == 1 else [values[name] for name in layers]


def _first_number(name: str) -> tuple[int, str]:
    """The first number in a name, so that layer_10 comes after layer_9."""
    digits = re.search(r"\d+", name)
    return (int(digits[0]) if digits else -1, name)
