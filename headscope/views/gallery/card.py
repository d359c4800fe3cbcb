"""A run's card in a gallery: how many heads of what, and where in depth."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headscope.corpus.shipped import corpus_title
from headscope.heads import layer_name
from headscope.runs.recorded_paths import shareable
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, countable_types
from headscope.views.colours import legend_groups, letter


@dataclass(frozen=True)
class TypeShare:
    """The heads of a run that are drawn as one type."""

    type: str
    """A primary type, or one of `colours.NO_TYPE`."""
    heads: int
    span: str
    """Where in depth they are: the layers that hold the middle half of them, such as `L2–L4`."""
    path: str
    """Their cells as an SVG path, one unit a head and a layer."""

    @property
    def letter(self) -> str:
        """For where there is no colour."""
        return letter(self.type)

    @property
    def typed(self) -> bool:
        """True if the report has a page of it."""
        return self.type not in NO_TYPE


@dataclass(frozen=True, eq=False)
class Card:
    """One run of a gallery."""

    name: str
    """Another one for each run."""
    folder: str
    """In the site."""
    model: str
    revision: str
    text: str
    """The names of what was read, joined."""
    tokens: int | None
    """Of text that were read; None where the run does not say."""
    layers: int
    width: int
    """Heads of a layer."""
    first: str
    """The first layer's name."""
    last: str
    shares: tuple[TypeShare, ...]
    """In the order of the legend."""
    countable: frozenset[str]
    """The types that a head could have earned; a count of another was measured by nobody."""
    total: int
    """Heads of the model."""

    def count(self, type_name: str) -> int | None:
        """Heads that are drawn as a type; None where it could not be measured."""
        if type_name not in NO_TYPE and type_name not in self.countable:
            return None
        return sum(share.heads for share in self.shares if share.type == type_name)


def card_of(run: Result, name: str, folder: str) -> Card:
    """The card of a run.

    Args:
        run: the run.
        name: what the gallery calls it.
        folder: the name of its folder in the site.
    """
    info = shareable(run.info) if "model" in run.info else {"model": {"name": name}}
    layers = layers_of(run)
    read = info.get("text_read", {}).get("tokens")
    return Card(
        name=name,
        folder=folder,
        model=str(info["model"]["name"]),
        revision=str(info["model"].get("revision") or ""),
        text=", ".join(
            corpus_title(str(corpus)) for corpus in info.get("corpora", {}).get("asked", ())
        ),
        tokens=None if read is None else int(read),
        layers=len(layers),
        width=int(run.heads["head"].max()) + 1,
        first=layer_name(layers[0]),
        last=layer_name(layers[-1]),
        shares=tuple(_shares(run, layers)),
        countable=frozenset(countable_types(run.evidence, run.rules)),
        total=len(run.heads),
    )


def _shares(run: Result, layers: list[int]) -> list[TypeShare]:
    primaries = run.heads["primary"]
    row_of_layer = {layer: row for row, layer in enumerate(layers)}
    shares = []
    for name in functions_first(primaries.unique()):
        typed_heads = run.heads[primaries == name]
        cells = zip(typed_heads["layer"].tolist(), typed_heads["head"].tolist(), strict=True)
        path = "".join(f"M{head} {row_of_layer[layer]}h1v1h-1z" for layer, head in cells)
        shares.append(TypeShare(str(name), len(typed_heads), _span(run, typed_heads), path))
    return shares


def functions_first(names: Iterable[str]) -> list[str]:
    """Types in the order of the legend: what looks somewhere, what rests, and what has no type."""
    return [name for members in legend_groups(names).values() for name in members]


def _span(run: Result, heads: pd.DataFrame) -> str:
    """Half of the heads lie there, a quarter before it and a quarter behind it."""
    low, high = (_row(run, heads, quantile) for quantile in (0.25, 0.75))
    return low if low == high else f"{low}–{high}"


def _row(run: Result, heads: pd.DataFrame, quantile: float) -> str:
    layer: Any = heads["layer"].quantile(quantile, interpolation="nearest")
    return layer_name(int(layer))
