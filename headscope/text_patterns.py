"""Attention patterns of a model on one text, as one array with its tokens and words."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field, PlainValidator

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL
from headscope.corpus.window import Window, WordTable
from headscope.errors import PatternError, reported_as
from headscope.heads import head_name, layer_name, parse_head
from headscope.models.engines.engine import stream_patterns
from headscope.models.model import Model
from headscope.models.text_window import check_unicode, text_window
from headscope.options import (
    Device,
    Overwrite,
    PathName,
    Revision,
    Source,
    Text,
    checked,
    not_allowed,
)
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.write import check_suffix, write_file

FORMAT = "headscope_patterns"
"""Name of the array that only a file of `Patterns.save` has; it holds the record as JSON."""


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

    @property
    def tokens(self) -> list[str]:
        """Each token as text, the beginning-of-text token included."""
        return list(self.window.strings)

    def __getitem__(self, name: str) -> Float[ndarray, "*head query key"]:
        """The patterns of a layer, `[head query key]`, or of a head, `[query key]`.

        Raises:
            PatternError: the array holds no such layer or head.
        """
        for layer, number in enumerate(self.layers):
            if name == layer_name(number):
                return np.asarray(self.array[layer])
        layer, head = parse_head(name)
        if layer not in self.layers or head not in self.heads:
            raise PatternError(f"no head {name!r:.60} here; {self._extent()}")
        return np.asarray(self.array[self.layers.index(layer), self.heads.index(head)])

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray:
        return np.array(self.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        return f"<attention patterns of {self.name}: {self._extent()}; {len(self.window)} tokens>"

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
        np.savez_compressed(
            content,
            patterns=self.array,
            tokens=np.array(self.window.strings),
            layers=np.array(self.layers),
            heads=np.array(self.heads),
            headscope_patterns=np.array(self._record()),
        )
        return write_file(target, content.getvalue(), overwrite=overwrite)

    @classmethod
    def load(cls, path: str | Path) -> Patterns:
        """Read a file of `save` back.

        Raises:
            PatternError: the file cannot be read, or is another one.
        """
        unreadable = f"{path!s:.200} is not a file of Patterns.save"
        kinds = (OSError, ValueError, KeyError, TypeError)
        with reported_as(PatternError, unreadable, *kinds), np.load(path) as arrays:
            return cls.from_arrays(dict(arrays))  # no pickle is ever loaded

    @classmethod
    def from_arrays(cls, arrays: dict[str, ndarray]) -> Patterns:
        """The patterns that a file holds.

        Raises:
            KeyError: the file was not written by `save`; or other errors of a damaged file.
        """
        record = json.loads(str(arrays[FORMAT]))
        words = tuple(WordSpan(**row) for row in record["words"])
        window = Window(
            name="text",
            tokens=np.array(record["ids"], np.int64),
            strings=tuple(arrays["tokens"].tolist()),
            words=_plain_words(words, record["sentences"]),
            inner=np.array(record["inner"], np.int64),
            attention_kind=BIDIRECTIONAL if record["sees_future"] else CAUSAL,
            ends=record["ends"],
            begins=record["begins"],
        )
        return cls(
            name=record["name"],
            array=arrays["patterns"],
            layers=tuple(arrays["layers"].tolist()),
            heads=tuple(arrays["heads"].tolist()),
            words=words,
            window=window,
        )

    def _record(self) -> str:
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
        return json.dumps(record, allow_nan=False)


def _plain_words(words: Sequence[WordSpan], sentences: Sequence[int]) -> WordTable:
    """Words without annotation, as plain text has them."""
    blank = np.full(len(words), "", "U1")
    return WordTable(
        first=np.array([word.first for word in words], np.int64),
        last=np.array([word.last for word in words], np.int64),
        sentence=np.array(sentences, np.int64),
        head=np.full(len(words), -1, np.int64),
        deprel=blank,
        upos=blank,
        lemma=np.array([word.word.lower() for word in words], "U"),
        tense=blank,
    )


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
    check_unicode(text)
    loaded, _ = model_or_run(model, source=source, revision=revision, device=device)
    window = text_window(loaded, text)
    chosen_layers = loaded.attention_layers if layers is None else tuple(layers)
    chosen_heads = tuple(range(loaded.heads)) if heads is None else tuple(heads)
    for layer in chosen_layers:
        loaded.check_head(layer, chosen_heads[-1])
    return Patterns(
        name=Path(loaded.name).name,
        array=read_patterns(loaded, window, chosen_layers, chosen_heads),
        layers=chosen_layers,
        heads=chosen_heads,
        words=_word_spans(loaded, window),
        window=window,
    )


def read_patterns(
    model: Model,
    window: Window,
    layers: Sequence[int],
    heads: Sequence[int],
    dtype: type[np.floating[Any]] = np.float16,
) -> Float[ndarray, "layer head query key"]:
    """Patterns of some heads on one window, read up to the last of the layers."""
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


def _word_spans(model: Model, window: Window) -> tuple[WordSpan, ...]:
    spans = zip(window.words.first.tolist(), window.words.last.tolist(), strict=True)
    words = []
    for first, last in spans:
        tokens = window.tokens[first : last + 1].tolist()
        words.append(WordSpan(model.tokenizer.decode(tokens).strip(), first, last))
    return tuple(words)


def check_whole(part: Patterns) -> None:
    """Refuse patterns of some layers or heads alone, whose numbers a run would lose.

    Raises:
        PatternError: the layers or heads are not those from 0 on.
    """
    expected = tuple(range(len(part.layers))), tuple(range(len(part.heads)))
    if (part.layers, part.heads) != expected:
        raise PatternError(
            f"{part!r} lack layers or heads before the last; read all of them for score_patterns"
        )
