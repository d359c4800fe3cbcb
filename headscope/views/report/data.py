"""What the report's page is told: the run's tables, in columns, as JSON.

Every number in the page is one of `heads.csv`, `evidence.csv` or `run.json`, or counted from them.
"""

from __future__ import annotations

import base64
import json
import math
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.evidence.causes import cause_lines
from headscope.evidence.ranking import best_heads, strongest
from headscope.evidence.result import Result, by_name, layers_of
from headscope.evidence.tags import UNIDENTIFIABLE, countable_types
from headscope.evidence.thresholds import THRESHOLDS, in_one_line
from headscope.evidence.undecided import undecided
from headscope.measure.example import Example
from headscope.runs.shareable import shareable
from headscope.views.colours import marks
from headscope.views.report.deeds import deeds_of
from headscope.views.report.ladder import ladders
from headscope.views.report.spoken import in_words, instances_of, spoken, types_in_words
from headscope.views.thresholds import curve_of

_NUMBERS = (
    "mass",
    "control",
    "lift",
    "ci_low",
    "ci_high",
    "q_value",
    "hit_rate",
    "twin_p999",
)
_LEVELS = 255  # attention is drawn, not read off: one byte a cell
_ZERO = 40  # the letter of no attention: behind those that a page or JSON has to escape


def page_data(run: Result) -> dict[str, Any]:
    """Everything that the page shows."""
    layers, heads = layers_of(run), int(run.heads["head"].max()) + 1
    place = {layer: row for row, layer in enumerate(layers)}
    best = _indexed(best_heads(run.evidence), place, heads)
    info = shareable(run.info)
    tagged = _indexed(strongest(run.evidence), place, heads)
    asked = set(run.evidence["type"])
    seen = instances_of(run.examples)
    return {
        "model": info["model"],
        "layers": layers,
        "heads": heads,
        "rows": _rows(run),
        "types": types_in_words(asked),
        "countable": countable_types(run.evidence, run.rules),
        "relations": [_relation(run, name, own, seen) for name, own in _by_relation(run.evidence)],
        "best": {row.id: row.place for row in best.itertuples(index=False)},
        "strongest": {
            str(name): own[["place", "id"]].to_numpy().tolist()
            for name, own in tagged.groupby("type", sort=False)
        },
        "thresholds": _thresholds(run),
        "means": _means(run),
        "ladders": ladders(run),
        "examples": [_example(example) for example in run.examples],
        "info": {key: value for key, value in info.items() if key != "relations"},
    }


def to_json(data: Any) -> str:
    """JSON that may stand inside a script element: no `<`, and nothing outside ASCII.

    Tokens are untrusted text. Half of an emoji's surrogate pair stays an escape.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def pack(pattern: Float[ndarray, "query key"]) -> str:
    """The lower triangle of a pattern, row by row, one byte a cell, in base64.

    All of it where it is an encoder's: so the page tells the two apart.
    """
    levels = np.clip(_cells(pattern).astype(float) * _LEVELS, 0, _LEVELS).round()
    return base64.b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def hundredths(shares: Float[ndarray, " cell"]) -> str:
    r"""Attention in hundredths, one letter a cell: as fine as the page says it, and deflated a
    fifth smaller than bytes in base64.

    >>> hundredths(np.array([0.0, 0.014, 1.0]))
    '()\x8c'
    """
    levels = np.clip(shares.astype(float) * 100, 0, 100).round().astype(int)
    return "".join(map(chr, levels + _ZERO))


def _cells(pattern: Float[ndarray, "query key"]) -> Float[ndarray, " cell"]:
    if np.triu(pattern, 1).any():
        return pattern.ravel()
    return pattern[np.tril_indices(len(pattern))]


def _indexed(rows: pd.DataFrame, place: dict[int, int], heads: int) -> pd.DataFrame:
    """With the place of each row's head in the page's lists, and its relation's full name."""
    return rows.assign(
        place=rows["layer"].map(place) * heads + rows["head"],
        id=rows["type"] + "/" + rows["relation"],
    )


def _by_relation(evidence: pd.DataFrame) -> list[tuple[str, pd.DataFrame]]:
    ids = evidence["type"] + "/" + evidence["relation"]
    return [(str(name), own) for name, own in evidence.groupby(ids, sort=False)]


def _relation(
    run: Result, name: str, own: pd.DataFrame, instances: dict[str, list[str]]
) -> dict[str, Any]:
    own = own.sort_values(["layer", "head"])
    rule = run.rules[name]
    first = own.iloc[0]
    own = _with_all_heads(own, run)
    return {
        "id": name,
        "type": first["type"],
        "name": first["relation"],
        "meaning": in_words(rule.meaning),
        "spoken": spoken(name, rule.meaning),
        "instance": instances.get(name),
        "floor": rule.floor,
        "taggable": rule.taggable,
        "n": int(first["n"]),
        "chance": _short(first["chance"]),
        "rule": _short(first[["baseline_rate", "best_offset_rate"]].bfill().iloc[0]),
        "reliability": run.info.get("reliability", {}).get(name),
        "tagged": [int(value) for value in own["tagged"]],
        "undecided": _undecided_places(own),
        "baseline": first.get("baseline", ""),
        "contested": _short(first.get("contested_n", math.nan)),
        **{column: shortened(own[column].to_numpy(float)) for column in _NUMBERS},
    }


def _with_all_heads(own: pd.DataFrame, run: Result) -> pd.DataFrame:
    """With empty rows for the heads of stacks that were not asked."""
    if len(own) == len(run.heads):
        return own
    places = run.heads[["layer", "head"]].sort_values(["layer", "head"])
    found = places.merge(own, on=["layer", "head"], how="left")
    return found.assign(tagged=found["tagged"].eq(True))


def _undecided_places(own: pd.DataFrame) -> list[int]:
    """Which heads the text cannot tell from a simple rule, by their places in the page's lists."""
    if "verdict" not in own:
        return []
    return [place for place, said in enumerate(own["verdict"]) if said == UNIDENTIFIABLE]


def _means(run: Result) -> dict[str, Any] | None:
    """Of each head the picture of its mean pattern: square roots, so that what is faint is seen.

    Without the first token, whose share has a bar of its own.
    """
    if run.means is None:
        return None
    inner = np.sqrt(run.means[..., 1:, 1:].astype(float))
    cells = [pack(own) if own.any() else "" for own in inner.reshape(-1, *inner.shape[2:])]
    return {"side": inner.shape[-1], "cells": cells}


def _rows(run: Result) -> list[dict[str, Any]]:
    """A row per head, with what it is drawn as, what it may be doing, and its causes."""
    untold = undecided(run.heads, run.evidence)
    said = {
        name: {"said": row["said"], "few": f"{row['contested_n']:.0f} of {row['n']}"}
        for name, row in untold.iterrows()
    }
    drawn = marks(run)
    keys = _keys_from(run)
    return [
        {
            **row,
            "mark": drawn[name],
            "keys_from": keys.get(str(name)),
            "undecided": said.get(name),
            "deeds": deeds_of(run, row),
            "causes": _said(run, row),
        }
        for name, row in zip(run.heads.index, _records(run.heads), strict=True)
    ]


def _keys_from(run: Result) -> dict[str, list[Any]]:
    """By the names of heads: the head whose writes its keys read most, how much, and by chance."""
    if run.keys_from is None:
        return {}
    rows = by_name(run.keys_from, run.stacks)
    return {
        str(name): [row.k_from, _short(row.k_composition), _short(row.k_random_p999)]
        for name, row in zip(rows.index, rows.itertuples(), strict=True)
        if row.k_from
    }


def _thresholds(run: Result) -> dict[str, Any]:
    """The curves of tags against thresholds: of each, the factors and for each type its heads."""
    table = curve_of(run)
    curves = []
    for name, meaning in THRESHOLDS.items():
        own = table[table["threshold"] == name]
        types = {str(kind): rows["tags"].tolist() for kind, rows in own.groupby("type")}
        factors = sorted(own["factor"].unique().tolist())
        curves.append({"meaning": meaning, "factors": factors, "types": types})
    return {"said": in_one_line(table), "curves": curves if len(table) else []}


def _said(run: Result, row: dict[str, Any]) -> list[str]:
    """All numbers of what silencing a head does."""
    return [] if run.causes is None else cause_lines(run.causes, row["layer"], row["head"])


def _records(heads: pd.DataFrame) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = heads.drop(columns="score").to_dict("records")
    return [{key: _plain(value) for key, value in row.items()} for row in rows]


def _example(example: Example) -> dict[str, Any]:
    return {
        "layer": example.layer,
        "head": example.head,
        "relation": example.relation,
        "kind": example.kind,
        "mass": _short(example.mass),
        "window": example.window,
        "tokens": list(example.tokens),
        "query": example.query,
        "targets": list(example.targets),
        "pattern": hundredths(_cells(example.pattern)),
        "positions": list(example.positions),
        "gaps": [
            [*gap, _short(share)] for gap, share in zip(example.gaps, example.left_out, strict=True)
        ],
        "elsewhere": hundredths(example.elsewhere),
        "outside": _short(example.elsewhere[example.query]) if example.query >= 0 else None,
        "length": example.length,
        "more": example.more_targets,
        "masses": list(example.masses),
    }


def _plain(value: Any) -> Any:
    if isinstance(value, str | int):
        return value
    return _short(value)


def shortened(values: Float[ndarray, " value"]) -> list[float | None]:
    """`_short` of each; of a thousand heads times hundreds of relations it is most of the page.

    >>> shortened(np.array([0.123456, 1e-30, np.nan]))
    [0.1235, 1e-30, None]
    """
    size = np.abs(values)
    # powers of ten are exact up to the 22nd: then the quotient is what its digits say
    plain = (size > 1e-11) & (size < 1e11)
    places = 3 - np.floor(np.log10(size, out=np.zeros(len(size)), where=plain)).astype(int)
    up, down = _POWERS[places.clip(0)], _POWERS[(-places).clip(0)]
    digits = np.where(plain, values, 0) * up / down
    plain &= np.abs(np.abs(digits % 1) - 0.5) > 1e-6  # nearly half: as its decimals say
    found: list[float | None] = (np.rint(digits) / up * down).tolist()
    for place in np.flatnonzero(~plain):
        found[place] = _short(values[place])
    return found


_POWERS = np.array([float(f"1e{power}") for power in range(23)])


def _short(value: Any) -> float | None:
    """Four significant digits, as a person reads them; None where nothing was measured."""
    number = float(value)
    return None if math.isnan(number) else float(f"{number:.4g}")
