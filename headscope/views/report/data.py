"""Data of the report's page: the run's tables, in columns, as JSON.

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

from headscope.measure.example import Example
from headscope.measure.tally import SIDE, picture_title
from headscope.runs.patterns import lower_triangle
from headscope.settings import not_default
from headscope.statistics.columns import PRELIMINARY, REPLICATES
from headscope.statistics.conditions import matched_control_keys
from headscope.statistics.head_lists import best_heads, strongest, undecided
from headscope.statistics.in_words import CAUTIONS, causes_in_words, input_in_words
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tag_counts import tag_counts
from headscope.statistics.tags import countable_types, is_undecided
from headscope.stimuli.natural_text import TEXT
from headscope.views.report.wording import (
    in_words,
    instances_of,
    ladders,
    lines_of_heads,
    relation_label,
    threshold_sensitivity,
    types_in_words,
)

_NUMBERS = (
    "mass",
    "control",
    "matched_control",
    "lift",
    "ci_low",
    "ci_high",
    "q_value",
    "hit_rate",
    REPLICATES,
)
_ZERO = 40  # the letter of no attention: behind those that a page or JSON has to escape


def page_data(run: Result) -> dict[str, Any]:
    """Everything that the page shows."""
    layers, heads = layers_of(run), int(run.heads["head"].max()) + 1
    row_of_layer = {layer: row for row, layer in enumerate(layers)}
    best = _indexed(best_heads(run.evidence), row_of_layer, heads)
    info = run.info
    tagged = _indexed(strongest(run.evidence), row_of_layer, heads)
    evidence_types = set(run.evidence["type"])
    # thresholds of all rows are looked up once, not relation by relation
    table = run.evidence_with_thresholds
    evidence = run.evidence.assign(undecided=is_undecided(table).to_numpy())
    seen = instances_of(run.examples)
    return {
        "model": info["model"],
        "layers": layers,
        "heads": heads,
        "rows": _rows(run),
        "types": types_in_words(evidence_types),
        "countable": countable_types(table),
        "relations": [
            _relation(run, f"{kind}/{name}", rows, seen)
            for (kind, name), rows in evidence.groupby(["type", "relation"], sort=False)
        ],
        "best": {row.id: row.place for row in best.itertuples(index=False)},
        "strongest": {
            str(name): rows[["place", "id"]].to_numpy().tolist()
            for name, rows in tagged.groupby("type", sort=False)
        },
        "threshold_sensitivity": threshold_sensitivity(tag_counts(table)),
        "means": mean_pictures(run),
        "ladders": ladders(run),
        "cautions": {column: [*words] for column, words in CAUTIONS.items()},
        "examples": [_example(example) for example in run.examples],
        "info": {key: value for key, value in info.items() if key not in ("relations", "places")},
        "not_default": not_default(info.get("settings", {})),
    }


def to_json(data: Any) -> str:
    """JSON that may stand inside a script element: no `<`, and nothing outside ASCII.

    Tokens are untrusted text. Half of an emoji's surrogate pair stays an escape.
    """
    text = json.dumps(data, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def hundredths(shares: Float[ndarray, " cell"]) -> str:
    r"""Attention in hundredths, one letter a cell: as fine as the page says it, and deflated a
    fifth smaller than bytes in base64.

    >>> hundredths(np.array([0.0, 0.014, 1.0]))
    '()\x8c'
    """
    levels = np.clip(shares.astype(float) * 100, 0, 100).round() + _ZERO
    return bytes(levels.astype(np.uint8)).decode("latin-1")


def _indexed(rows: pd.DataFrame, row_of_layer: dict[int, int], heads: int) -> pd.DataFrame:
    """Rows with the place of each head in the page's lists, and the relation's full name."""
    return rows.assign(
        place=rows["layer"].map(row_of_layer) * heads + rows["head"],
        id=rows["type"] + "/" + rows["relation"],
    )


def _relation(
    run: Result, name: str, rows: pd.DataFrame, instances: dict[str, list[str]]
) -> dict[str, Any]:
    # numbers stand in the order of the page's heads, which is why they need no names
    rows = rows.sort_values(["layer", "head"])
    limits = run.thresholds[name]
    first = rows.iloc[0]
    return {
        "id": name,
        "type": first["type"],
        "name": first["relation"],
        "meaning": in_words(limits.meaning),
        "input": input_in_words(name, limits.meaning),
        "label": relation_label(name, limits.meaning),
        "instance": instances.get(name),
        "matched_control_keys": matched_control_keys(str(first["type"])),
        "threshold": limits.threshold,
        "taggable": limits.taggable,
        "n": int(first["n"]),
        "chance": _short(first["chance"]),
        "baseline_rate": _short(first["baseline_rate"]),
        "tagged": [int(value) for value in rows["tagged"]],
        "preliminary": np.flatnonzero(rows[PRELIMINARY]).tolist(),
        "undecided": np.flatnonzero(rows["undecided"]).tolist(),
        "baseline": first.get("baseline", ""),
        "hard": _short(first.get("hard_n", math.nan)),
        **{column: list(map(_short, rows[column].tolist())) for column in _NUMBERS},
    }


def _rows(run: Result) -> list[dict[str, Any]]:
    """A row per head, with the two explanations of an undecided one, its sentences and causes."""
    # a head that is not identifiable has two explanations in place of a tag
    undecided_heads = undecided(run.heads, run.evidence_with_thresholds)
    sentences = {
        name: {
            "description": row["description"],
            "few": row["hard_queries"],
            "why": row["why"],
        }
        for name, row in undecided_heads.iterrows()
    }
    # sentences are made here and not by the page, which would say them in other words than the
    # terminal
    lines, rows = lines_of_heads(run), []
    for name, row in zip(run.heads.index, run.heads.to_dict("records"), strict=True):
        at = row["layer"], row["head"]
        causes = [] if run.causes is None else causes_in_words(run.causes, *at)
        extra = {"undecided": sentences.get(name), "deeds": lines[at], "causes": causes}
        rows.append({key: _plain(value) for key, value in row.items()} | extra)
    return rows


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
        "pattern": hundredths(shown_cells(example.pattern)),
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
    return value if isinstance(value, str | int) else _short(value)


def _short(value: Any) -> float | None:
    """Four significant digits, as a person reads them; None if nothing was measured."""
    number = float(value)
    return float(f"{number:.4g}") if math.isfinite(number) else None


_LEVELS = 255  # attention is drawn, not read off: one byte a cell


def pack_picture(pattern: Float[ndarray, "query key"]) -> str:
    """The lower triangle of a pattern, row by row, one byte a cell, in base64.

    All of it where it is an encoder's: so the page tells the two apart.
    """
    levels = np.clip(shown_cells(pattern).astype(float) * _LEVELS, 0, _LEVELS).round()
    return base64.b64encode(levels.astype(np.uint8).tobytes()).decode("ascii")


def shown_cells(pattern: Float[ndarray, "query key"]) -> Float[ndarray, " cell"]:
    """The cells of a pattern's lower triangle, or all where some query looks ahead."""
    is_before = lower_triangle(len(pattern))
    sees_future = pattern[~is_before].any()
    return pattern.ravel() if sees_future else pattern[is_before]


def mean_pictures(run: Result) -> dict[str, Any] | None:
    """Pictures of each head's mean pattern, and by number in `shown` what they are of.

    Square roots, so that what is faint is seen, without the first token, whose share has a bar of
    its own. None if the run kept no mean pattern.
    """
    if run.means is None and not run.pictures:
        return None
    stimuli = [TEXT.name, *dict.fromkeys(picture.stimulus for picture in run.pictures.values())]
    number_of_stimulus = {name: number for number, name in enumerate(stimuli)}
    heads = int(run.heads["head"].max()) + 1
    cells, numbers = [], []
    # a picture of the stimulus that shows the head's tag, or else its mean pattern on text
    for row, layer in enumerate(layers_of(run)):
        for head in range(heads):
            picture = run.pictures.get((layer, head))
            stimulus = TEXT.name
            pattern = np.zeros((SIDE, SIDE))
            if picture is not None:
                stimulus = picture.stimulus
                pattern = picture.pattern
            elif run.means is not None:
                pattern = run.means[row, head]
            inner = np.sqrt(pattern[1:, 1:].astype(float))
            cells.append(pack_picture(inner) if inner.any() else "")
            numbers.append(number_of_stimulus[stimulus])
    titles = [picture_title(name) for name in stimuli]
    return {"side": SIDE - 1, "cells": cells, "stimulus": numbers, "shown": titles}
