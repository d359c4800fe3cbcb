"""Heads on a text: HTML, a picture, or for one head a grid in a terminal."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from zlib import crc32

import numpy as np
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field, PlainValidator
from rich.console import Console, Group, RenderableType
from rich.style import Style
from rich.table import Table
from rich.text import Text as RichText

from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.heads import head_name, parse_head, parse_layer
from headscope.models.generate import continue_window
from headscope.models.model import Model
from headscope.models.text_window import check_unicode, special_notes, text_window
from headscope.options import (
    Chat,
    Device,
    NonNegative,
    Plain,
    Revision,
    Source,
    check_model,
    checked,
    several_heads,
)
from headscope.packages import optional_package
from headscope.printing import one_line, visible
from headscope.resolve import model_or_run
from headscope.statistics.result import Result
from headscope.text_patterns import Patterns, read_patterns
from headscope.views.heads_view import HeadsView
from headscope.views.report import circuitsvis_script
from headscope.views.report.data import to_json

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SHADES = " ·░▒▓█"
_LEGEND = "rows: queries, columns: keys; darker: more attention; at the right: the strongest key"
LEAST = 0.02
"""Attention that a small picture draws; what is less cannot be seen."""
MOST_LABELS = 64
"""Longest text whose tokens a small picture writes; of more they would make it too large."""
ALL_HEADS = "all"
MARK = "▸"
"""Mark before the first generated token, and behind the role of a message before its first."""
_numbers = count()
_brought = False
"""True once a view of this process brought the library along: one output of a notebook does."""


@dataclass(frozen=True, eq=False, repr=False)
class AttentionView:
    """A head's pattern with its tokens. In a notebook it draws itself without a network."""

    title: str
    tokens: tuple[str, ...]
    pattern: Float[ndarray, "query key"]
    """Attention in [0, 1]; rows sum to 1, over keys at or before the query but in encoders."""
    notes: tuple[str, ...] = ()
    """A note on the special tokens in the text, if there are any."""

    def html(self) -> str:
        """A whole page without network requests."""
        heading = escape(self.title)
        head = f"<!doctype html><meta charset=utf-8><title>{heading}</title><h1>{heading}</h1>"
        return head + self._view(library=True)

    def _repr_html_(self) -> str:
        """A picture, which circuitsvis replaces where its script is in the notebook.

        The first view of a process brings the script, which is 1.3 MB. The others use what is in
        the page already, and stay pictures if that output was cleared.
        """
        global _brought
        page, _brought = self._view(library=not _brought), True
        return page

    def _view(self, *, library: bool) -> str:
        # a checksum, so that the same text gives the same page, and a number for a second showing
        text = repr((self.title, self.tokens)).encode("utf-8", "backslashreplace")
        element_id = json.dumps(f"headscope-view-{crc32(text)}-{next(_numbers)}")
        props = {
            "tokens": [visible(token) for token in self.tokens],
            "attention": [np.asarray(self.pattern, float).round(4).tolist()],
            "attentionHeadNames": [self.title],
            "maskUpperTri": not self.sees_future,
        }
        picture = pattern_svg(self.title, self.tokens, self.pattern)
        notes = "".join(f"<p>{escape(note)}</p>" for note in self.notes)
        return (
            f"<div id={element_id}>{picture}</div>{notes}"
            f"<script>{circuitsvis_script() if library else ''};"
            f"if (window.CircuitsVis) {{ const view = document.getElementById({element_id});"
            'view.replaceChildren(); view.style.cssText = "background:#fff;color:#1b1b1f";'
            f"CircuitsVis.render({element_id},CircuitsVis.AttentionHeads,{to_json(props)}) }}"
            "</script>"
        )

    def __repr__(self) -> str:
        return f"<{self.title}: attention of {len(self.tokens):,} tokens; print() draws it>"

    def __str__(self) -> str:
        """The grid without colours."""
        console = Console(no_color=True, width=10_000, file=StringIO())
        with console.capture() as capture:
            console.print(self.grid())
        return capture.get()

    @property
    def sees_future(self) -> bool:
        """True if some query looks at keys after it, as in an encoder."""
        return bool(np.triu(self.pattern, 1).any())

    def figure(self) -> Figure:
        """A matplotlib figure of the pattern.

        Raises:
            HeadscopeError: matplotlib is not installed.
        """
        optional_package("a figure", "matplotlib")
        from headscope.views.figures import pattern_figure

        return pattern_figure(self)

    def grid(self) -> RenderableType:
        """The pattern as shaded blocks, a row per query; for a terminal, colours or not."""
        names = [visible(token) for token in self.tokens]
        # names stand right, so that the rows of the triangle begin below each other
        width = max(len(name) for name in names)
        sees_future = self.sees_future
        rows = Table.grid()
        rows.add_column(overflow="fold")
        for query, name in enumerate(names):
            line = RichText(f"{name:>{width}} ")
            keys = len(names) if sees_future else query + 1
            seen = self.pattern[query, :keys]
            for share in seen:
                line.append(_shade(float(share)) * 2, Style(color="blue"))
            # shades are coarse: the strongest key stands behind each row with its number
            best = int(seen.argmax())
            line.append(f" {names[best]} {seen[best]:.2f}", Style(dim=True))
            rows.add_row(line)
        return Group(
            RichText(one_line(self.title), style="bold"),
            rows,
            RichText(_LEGEND, style="dim"),
            *(RichText(f"note: {one_line(note)}", style="yellow") for note in self.notes),
        )


def _shade(share: float) -> str:
    """The block that stands for a share of attention."""
    level = int(share * len(_SHADES) + 0.5)
    return _SHADES[min(level, len(_SHADES) - 1)]


def pattern_svg(title: str, tokens: Sequence[str], pattern: Float[ndarray, "query key"]) -> str:
    """A picture of a head's pattern: queries downward, keys to the right, tokens at both.

    A cell says its tokens when it is pointed at. Tokens of long texts are not written.
    """
    names = [escape(visible(token)) for token in tokens]
    size = len(names)
    side, margin = (
        (14, 10 + 6 * max(map(len, map(visible, tokens)))) if size <= MOST_LABELS else (4, 8)
    )
    top = 20

    # weak attention cannot be seen, and would make the file large
    cells = []
    for query, key in np.argwhere(pattern >= LEAST).tolist():
        share = f"{pattern[query, key]:.2f}"
        cells.append(
            f'<rect x="{key}" y="{query}" width="1" height="1" fill-opacity="{share}">'
            f"<title>{names[query]} → {names[key]} {share}</title></rect>"
        )

    labels = []
    for token, name in enumerate(names if size <= MOST_LABELS else ()):
        at = (token + 0.5) * side
        labels.append(
            f'<text x="{margin - 4}" y="{top + at}" text-anchor="end" dy=".35em">{name}</text>'
            f'<text transform="translate({margin + at} {top + side * size + 4}) rotate(90)" '
            f'dy=".35em">{name}</text>'
        )

    # a middle blue and a middle grey are seen on light pages and on dark ones
    extent = margin + side * size
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {extent + 8} {extent + top}" '
        f'width="{extent + 8}" role="img" fill="#777" font-family="sans-serif" font-size="10" '
        f'style="max-width:100%"><text x="{margin}" y="13" font-size="12">{escape(title)}</text>'
        f'<rect x="{margin}" y="{top}" width="{side * size}" height="{side * size}" '
        f'fill-opacity=".12"/><g transform="translate({margin} {top}) scale({side})" '
        f'fill="#3b82c4">{"".join(cells)}</g>{"".join(labels)}</svg>'
    )


ShownHeads = Annotated[
    str | Sequence[str],
    PlainValidator(several_heads),
    Field(description="L5H1 or 5.1; several as L5, all, or L5H1,L6H2."),
]


def _checked_source(value: Any) -> Any:
    return value if isinstance(value, Result | Patterns) else check_model(value)


ShownModel = Annotated[
    Any,
    PlainValidator(_checked_source),
    Field(
        description="A name or path as for classify, or a run folder; in Python also a run, a "
        "model, or what patterns returns."
    ),
]


@checked
def show(
    model: ShownModel,
    head: ShownHeads,
    text: Annotated[
        str | None, Field(description="Text, in Unicode. None for what patterns returns.")
    ] = None,
    *,
    generate: Annotated[
        NonNegative, Field(description="Tokens to generate greedily after the text.")
    ] = 0,
    plain: Plain = False,
    chat: Chat = False,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> AttentionView | HeadsView:
    """The attention patterns of a head, or of several heads, on a text.

    Returns:
        An `AttentionView` of one head; of several a `HeadsView`, small pictures that open on click.

    Raises:
        ModelError: the model cannot be loaded, or has no chat template.
        RunError: it has no such head.
        PatternError: the patterns lack such a head.
        HeadscopeError: the text is empty, or longer than the model's context, what is generated
            included.
    """
    check_names(head)
    # patterns that were read before are shown as they are; no model is loaded
    if isinstance(model, Patterns):
        if text is not None or generate or plain or chat:
            raise HeadscopeError(
                "these patterns were read on a text; leave text, generate, plain and chat out"
            )
        return _show_patterns(model, head)
    if text is None:
        raise HeadscopeError("text is missing: a model reads a text, and only patterns need none")
    # a text that no tokenizer takes is refused before a model is loaded
    check_unicode(text)
    loaded, _ = model_or_run(model, source=source, revision=revision, device=device)
    loaded = loaded.with_plain_prompts(plain).in_chat(chat)
    every = range(loaded.heads)
    places = heads_of_names(head, loaded.attention_layers, every, loaded.check_head)
    shown_text = _read_text(loaded, text, generate)
    # layers and numbers are read as a rectangle, of which the chosen heads are a part
    layers = sorted({layer for layer, _ in places})
    numbers = sorted({number for _, number in places})
    array = read_patterns(loaded, shown_text.window, layers, numbers, np.float32)
    selected = [array[layers.index(layer), numbers.index(number)] for layer, number in places]
    return _view(
        Path(loaded.name).name,
        shown_text,
        places,
        np.stack(selected),
        is_one=is_one_head(head),
    )


@dataclass(frozen=True, eq=False)
class _ShownText:
    """A text as a model reads it, and as it is shown."""

    window: Window
    tokens: tuple[str, ...]
    generated: str = ""
    """Words on the tokens that the model generated; empty if it generated none."""
    notes: tuple[str, ...] = ()


def _read_text(model: Model, text: str, generate: int) -> _ShownText:
    window = text_window(model, text, generate)
    notes = special_notes(model, [text])
    # in a chat template each message begins with its role
    marks = {turn.start: f"{turn.role}{MARK}" for turn in window.turns}
    added = ""
    if generate:
        start = len(window)
        window = continue_window(model, window, generate)
        mark = marks.setdefault(start, MARK)
        added = f", {len(window) - start} tokens generated after {mark}"
    tokens = [marks.get(position, "") + token for position, token in enumerate(window.strings)]
    return _ShownText(window, tuple(tokens), added, notes)


def _show_patterns(patterns: Patterns, names: Sequence[str]) -> AttentionView | HeadsView:
    """Heads whose patterns were read before."""

    def of_head(layer: int, head: int) -> Float[ndarray, "query key"]:
        return patterns[head_name(layer, head)]

    # a head that was not read is refused
    places = heads_of_names(names, patterns.layers, patterns.heads, of_head)
    selected = np.stack([of_head(layer, head) for layer, head in places])
    shown_text = _ShownText(patterns.window, tuple(patterns.tokens), notes=patterns.notes)
    is_one = is_one_head(names)
    return _view(patterns.name, shown_text, places, selected, is_one=is_one)


def _view(
    model: str,
    text: _ShownText,
    places: Sequence[tuple[int, int]],
    patterns: Float[ndarray, "head query key"],
    *,
    is_one: bool,
) -> AttentionView | HeadsView:
    """One head large, or several heads small."""
    if is_one:
        title = f"{model} {head_name(*places[0])}{text.generated}"
        return AttentionView(title, text.tokens, patterns[0], text.notes)
    title = f"{model}, {len(places)} heads{text.generated}"
    return HeadsView(title, text.tokens, tuple(places), patterns, text.notes)


def check_names(names: Sequence[str]) -> None:
    """Refuse what is neither a head, nor a layer, nor `all`, before a model is loaded.

    Raises:
        HeadscopeError: another name.
    """
    for name in names:
        if name != ALL_HEADS and parse_layer(name) is None:
            parse_head(name)


def is_one_head(names: Sequence[str]) -> bool:
    """True for the name of one head; False for a layer, `all`, or several names."""
    return len(names) == 1 and names[0] != ALL_HEADS and parse_layer(names[0]) is None


def heads_of_names(
    names: Sequence[str],
    layers: Sequence[int],
    heads: Sequence[int],
    check: Callable[[int, int], object],
) -> list[tuple[int, int]]:
    """Layer and number of each head that the names stand for, each once, in the order of names.

    Args:
        names: heads, layers, or `all`.
        layers: all layers with heads.
        heads: all numbers of heads within a layer.
        check: refuses a head that is not there.
    """
    places: dict[tuple[int, int], None] = {}
    for name in names:
        layer = parse_layer(name)
        if name == ALL_HEADS:
            selected = [(number, head) for number in layers for head in heads]
        elif layer is not None:
            selected = [(layer, head) for head in heads]
        else:
            selected = [parse_head(name)]
        for position in selected:
            check(*position)
            places[position] = None
    return list(places)
