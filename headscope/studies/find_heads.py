"""Heads whose pattern on one text agrees with a template, beside shifted templates as a control."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float
from numpy import ndarray
from pydantic import Field, PlainValidator

from headscope.corpus.window import Window
from headscope.errors import PatternError, check_choice, reported_as
from headscope.options import Device, Plain, Revision, Source, Text, not_allowed
from headscope.resolve import ModelOrRun
from headscope.statistics.result import by_name
from headscope.studies.study import Command, Study, study, table_columns
from headscope.text_patterns import patterns
from headscope.views.study_result import StudyResult

SHIFTS = tuple(shift for shift in range(-4, 5) if shift)
"""Keys by which the template is moved for the control."""
LISTED = 12
"""Heads that a terminal shows."""
Matrix = Float[ndarray, "query key"]


def _previous(window: Window) -> Matrix:
    """Each token to the one before it."""
    return np.eye(len(window), k=-1)


def _duplicate(window: Window) -> Matrix:
    """Each token to all earlier copies of it."""
    same = window.tokens[:, None] == window.tokens[None, :]
    return np.asarray(np.tril(same, k=-1), np.float64)


def _induction(window: Window) -> Matrix:
    """Each token to the tokens that follow earlier copies of it."""
    matrix = np.zeros((len(window), len(window)))
    matrix[:, 1:] = _duplicate(window)[:, :-1]
    return np.tril(matrix, k=-1)


TEMPLATES: dict[str, Callable[[Window], Matrix]] = {
    "previous": _previous,
    "duplicate": _duplicate,
    "induction": _induction,
}
"""Templates by name. None has the first token as a key, which is an attention sink."""


def _check_template(value: Any) -> Any:
    if not (isinstance(value, str) or callable(value) or hasattr(value, "__array__")):
        try:
            return np.asarray(value, float)
        except (TypeError, ValueError) as error:
            raise not_allowed("be a name, a matrix [query key] or a function of tokens") from error
    return value


Template = Annotated[
    Any,
    PlainValidator(_check_template),
    Field(
        description="previous, duplicate or induction; in Python also a matrix [query key] of "
        "weights in [0, 1], or a function that makes one of the list of tokens."
    ),
]

STUDY = Study(
    command=Command(
        group="study",
        name="find",
        summary="Score heads by a template of attention on your text.",
        examples=(
            "headscope study find mini 'red box, old key, red box, old key' induction",
            "headscope study find smollm2 'The king lost his ring.' previous --format json",
        ),
        figure="",
    ),
    rows="head, the largest mass first",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        mass | [0, 1] | attention times template, summed over keys; mean over the queries that have
            a weight
        shifted_mass | [0, 1] | the largest mass over the template moved by 1 to 4 keys to either
            side; cells on the first token are left out
        correlation | [−1, 1] | Pearson's, over the cells that a query sees, without the first token
            as query or key; empty if the attention or the template does not vary
        shifted_correlation | [−1, 1] | the largest correlation over the moved templates
    """),
    bad_call={"template": "no-such-template", "text": "a b"},
)


@dataclass(frozen=True, eq=False)
class _Agreement:
    """Agreement of each head with one template."""

    mass: Float[ndarray, " head"]
    correlation: Float[ndarray, " head"]


@study(STUDY)
def find_heads(
    model: ModelOrRun,
    text: Text,
    template: Template,
    *,
    plain: Plain = False,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Score every head by its agreement with a template of attention on one text.

    A head that agrees with this template alone has smaller scores with the moved ones. One text
    gives no tag: see `headscope.classify`. Weights on keys that a query does not see are ignored.

    Raises:
        ModelError: the model cannot be loaded.
        ChoiceError: no template of that name.
        PatternError: the template does not fit the text, or has no weight that a query sees.
        HeadscopeError: the text is empty, or longer than the model's context.

    >>> table = find_heads("mini", "one two three. one two three.", "previous").table
    >>> table.index[0]
    'L4H3'
    """
    if isinstance(template, str):
        check_choice("template", template, TEMPLATES)
    # the template's weights on keys that its query sees
    read = patterns(model, text, plain=plain, source=source, revision=revision, device=device)
    size = len(read.window)
    seen = ~read.window.attention_kind.hidden(size)
    matrix = _matrix(template, read.window) * seen
    if not matrix.any():
        raise PatternError("the template has no weight on a key that its query sees in this text")
    # the same template moved tells what a head scores by chance
    heads = read.array.reshape(-1, size, size).astype(np.float64)
    agreement = _agreement(heads, matrix, seen)
    moved = [_moved(matrix, shift) * seen for shift in SHIFTS]
    shifted = [_agreement(heads, other, seen) for other in moved if other.any()]
    # the control is the best of the moved templates, because a mean would hide one that fits better
    layer, head = np.meshgrid(read.layers, read.heads, indexing="ij")
    table = pd.DataFrame(
        {
            "layer": layer.ravel(),
            "head": head.ravel(),
            "mass": agreement.mass,
            "shifted_mass": _largest([other.mass for other in shifted], len(heads)),
            "correlation": agreement.correlation,
            "shifted_correlation": _largest([other.correlation for other in shifted], len(heads)),
        }
    )
    table = by_name(table.sort_values("mass", ascending=False, kind="stable"))
    template_name = template if isinstance(template, str) else "given"
    return StudyResult(
        title=f"{read.name}: {len(table)} heads by the template {template_name}, {size:,} tokens",
        table=table,
        terminal_table=table.head(LISTED),
        notes=read.notes,
        values={"template": template_name, "tokens": size},
    )


def _matrix(template: Any, window: Window) -> Matrix:
    """The weights of a template on a text.

    Raises:
        PatternError: another shape than the text has, or a weight that is not in [0, 1].
    """
    if isinstance(template, str):
        matrix = TEMPLATES[template](window)
        matrix[:, 0] = 0
        return matrix
    # a function of the tokens, or a matrix of any library
    values = template(list(window.strings)) if callable(template) else template
    if hasattr(values, "detach"):
        values = values.detach().cpu()
    with reported_as(PatternError, "the template is not a matrix", TypeError, ValueError):
        matrix = np.asarray(values, np.float64)
    size = len(window)
    if matrix.shape != (size, size):
        raise PatternError(
            f"the template has shape {matrix.shape}; the text has {size:,} tokens with the "
            f"beginning-of-text token, and needs ({size}, {size})"
        )
    # mass is a share only if weights are at most 1
    if not ((matrix >= 0) & (matrix <= 1)).all():
        raise PatternError("a weight of the template is not in [0, 1]")
    return matrix


def _moved(matrix: Matrix, shift: int) -> Matrix:
    """The template with its keys moved; what would leave the text or be the first token is lost."""
    moved = np.zeros_like(matrix)
    if shift > 0:
        moved[:, shift:] = matrix[:, :-shift]
    else:
        moved[:, :shift] = matrix[:, -shift:]
    moved[:, 0] = 0
    return moved


def _agreement(
    heads: Float[ndarray, "head query key"], matrix: Matrix, seen: Bool[ndarray, "query key"]
) -> _Agreement:
    queries = matrix.any(1)
    mass = (heads * matrix).sum(2)[:, queries].mean(1)
    cells = seen.copy()
    cells[0] = cells[:, 0] = False
    return _Agreement(mass, _correlation(heads[:, cells], matrix[cells]))


def _correlation(
    rows: Float[ndarray, "head cell"], weights: Float[ndarray, " cell"]
) -> Float[ndarray, " head"]:
    """Pearson's correlation of each row with the weights; NaN if either does not vary."""
    if not weights.size:
        return np.full(len(rows), np.nan)
    centred = rows - rows.mean(1, keepdims=True)
    other = weights - weights.mean()
    scale = np.linalg.norm(centred, axis=1) * np.linalg.norm(other)
    correlation = np.full(len(rows), np.nan)
    np.divide(centred @ other, scale, out=correlation, where=scale > 0)
    return correlation


def _largest(scores: list[Float[ndarray, " head"]], heads: int) -> Float[ndarray, " head"]:
    """The largest score of each head; NaN if no shifted template has a weight or a variance."""
    return np.asarray(np.fmax.reduce([np.full(heads, np.nan), *scores]))
