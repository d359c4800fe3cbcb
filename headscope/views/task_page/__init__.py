"""The page of a task's circuit, one HTML file that works offline, and its figure for papers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import numpy as np
from jaxtyping import Float
from jinja2 import Environment
from numpy import ndarray

from headscope.errors import PatternError
from headscope.printing import visible
from headscope.runs.patterns import lower_triangle
from headscope.views.html_page import REPORT, page_file, page_style, style_class
from headscope.views.report import packed
from headscope.views.report.data import hundredths, to_json
from headscope.views.report.wording import types_in_words
from headscope.views.task_page.drawing import PLURAL, circuit_figure, draw
from headscope.views.task_page.layout import Layout, lay_out
from headscope.views.task_page.words import (
    attention_in_words,
    counted,
    in_interval,
    lead,
    missing,
    number,
    result,
    sentence,
)

__all__ = ["circuit_figure", "plain", "task_page"]

MOST_BYTES = 1_000_000
"""Size of a page, which a mail or an issue takes."""
SCRIPTS = ("page.js", "core.js", "thumbs.js", "save.js", "arcs.js", "examples.js")
"""Scripts of the report that draw patterns."""
_HERE = "headscope.views.task_page"


def task_page(
    circuit: Mapping[str, Any], patterns: Mapping[str, Sequence[Float[ndarray, "query key"]]]
) -> str:
    """A task's circuit as one HTML page without network requests.

    Args:
        circuit: the content of `circuit.json`. Parts that were not measured may be None or absent.
        patterns: by a head's name, its attention on each prompt. Prompts whose patterns would
            make the page larger than a megabyte are left out, and the page says so.

    Raises:
        PatternError: a pattern has not one row and one column per token of its prompt.
    """
    circuit = plain(circuit)
    heads = []
    for head in circuit.get("heads") or []:
        tags = [tag for tag in (head.get("tags") or "").split(";") if tag]
        heads.append({**head, "tags": tags})
    circuit = {**circuit, "heads": heads}
    prompts = circuit.get("prompts") or []
    for name, of_prompts in patterns.items():
        # a pattern of another prompt would be drawn over the wrong tokens
        for at, pattern in enumerate(of_prompts):
            if pattern.shape != (size := len(prompts[at]["tokens"]), size):
                raise PatternError(
                    f"{name}, prompt {at}: a pattern of {pattern.shape}, expected {(size, size)}"
                )

    # the prompt of the drawing comes first: it stays whatever must be left out
    layout = lay_out(circuit)
    order = sorted(range(len(prompts)), key=lambda at: at != layout.prompt)
    count = len(order) if patterns else 0
    page = _render(circuit, layout, patterns, order[:count])
    # the patterns take almost all of a page, so that the share of them that fits is known
    bare = len(_render(circuit, layout, {}, []).encode())
    while len(page.encode()) > MOST_BYTES and count:
        share = (MOST_BYTES - bare) / max(1, len(page.encode()) - bare)
        count = max(0, min(count - 1, int(count * share * 0.98)))
        page = _render(circuit, layout, patterns, order[:count])
    return page


def plain(value: Any, digits: int | None = None) -> Any:
    """A value as JSON has it: lists for tuples, numbers for numpy's, and None for NaN.

    Args:
        value: of any depth.
        digits: decimals of its numbers; None for all.
    """
    if isinstance(value, Mapping):
        return {str(key): plain(inner, digits) for key, inner in value.items()}
    if isinstance(value, list | tuple | set | np.ndarray):
        return [plain(inner, digits) for inner in value]
    if isinstance(value, np.generic):
        value = value.item()
    if not isinstance(value, float):
        return value
    if not isfinite(value):
        return None
    return value if digits is None else round(value, digits)


def _render(
    circuit: Mapping[str, Any],
    layout: Layout,
    patterns: Mapping[str, Sequence[Float[ndarray, "query key"]]],
    order: Sequence[int],
) -> str:
    """The page with the patterns of some prompts."""
    # names, tokens and notes come from other people's files, so that all are escaped
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {
        "visible": visible,
        "attention_in_words": attention_in_words,
        "in_interval": in_interval,
        "number": number,
        "sentence": sentence,
        "style_class": style_class,
    }
    prompts, heads = circuit.get("prompts") or [], circuit["heads"]
    left_out = len(prompts) - len(order) if patterns else 0
    return environment.from_string(page_file(_HERE, "page.html")).render(
        style=page_style(page_file(_HERE, "task.css")),
        drawing=draw(circuit, layout, has_heading=False),
        circuit=circuit,
        task=circuit.get("task") or {},
        judged=circuit.get("circuit") or {},
        heads=heads,
        result=result(circuit),
        lead=lead(circuit),
        has={
            name: any(head.get(name) is not None for head in heads)
            for name in ("effect", "q_value", "share", "writes")
        },
        missing=missing(circuit),
        omitted=layout.omitted,
        left_out=f"{counted(left_out, 'prompt')} of {len(prompts)}" if left_out else "",
        plural=PLURAL,
        scripts="\n".join(
            [*(page_file(REPORT, name) for name in SCRIPTS), page_file(_HERE, "task.js")]
        ),
        data=packed(to_json(_script_data(circuit, layout, patterns, sorted(order)))),
    )


def _script_data(
    circuit: Mapping[str, Any],
    layout: Layout,
    patterns: Mapping[str, Sequence[Float[ndarray, "query key"]]],
    numbers: Sequence[int],
) -> dict[str, Any]:
    """Data of the page's script, with these prompts."""
    cells: dict[str, list[str | None]] = {}
    for name, of_prompts in patterns.items():
        cells[name] = []
        for at in numbers:
            packed_cells = None
            if at < len(of_prompts):
                # attention up to each query, or all of it if some query looks at keys after it
                pattern = of_prompts[at]
                is_whole = np.triu(pattern, 1).any()
                lower = lower_triangle(len(pattern))
                packed_cells = hundredths(pattern.ravel() if is_whole else pattern[lower])
            cells[name].append(packed_cells)
    return {
        # what the report's scripts read
        "types": types_in_words({tag for head in circuit["heads"] for tag in head["tags"]}),
        "relations": [],
        "layers": [],
        "heads": 0,
        "means": None,
        # the task's own
        "circuit": {**circuit, "prompts": None},
        "prompts": [{"number": at, **circuit["prompts"][at]} for at in numbers],
        "patterns": cells,
        "first": layout.prompt,
        "figure": draw(circuit, layout, has_heading=True),
    }
