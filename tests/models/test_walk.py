"""The stored outcomes of all types of language models are those of the code."""

from __future__ import annotations

import warnings

import pytest

from headscope.models.layout.table import LAYOUTS
from tests.models.walk import NOT_BUILT, TYPES, WRONG, stored, walk

STORED = stored()
FEW = ("llama", "albert", "longformer", "t5")
"""Types of each list that are built in every test run."""


def test_no_type_is_read_wrongly_and_every_refusal_has_a_reason():
    assert not [row.model_type for row in STORED.values() if row.result == WRONG]
    assert all(row.reason for row in STORED.values() if row.result not in ("fused", "eager"))


def test_the_table_states_the_engine_of_every_layout():
    for layout in LAYOUTS:
        outcome = STORED.get(layout.model_type)
        if outcome is not None and outcome.result != NOT_BUILT:
            assert (outcome.result, outcome.kind) == (layout.engine, layout.attention_kind.name)


def test_some_types_of_each_list_are_as_stored():
    for outcome in walk(FEW):
        kept = STORED.get(outcome.model_type)
        assert kept is None or (outcome.result, outcome.kind) == (kept.result, kept.kind)


@pytest.mark.slow
def test_every_type_is_as_stored():
    """A type of a new release of transformers is named, and no failure."""
    new = [model_type for model_type in TYPES if model_type not in STORED]
    if new:
        warnings.warn(f"not in the stored outcomes: {', '.join(new)}", stacklevel=1)
    changed = []
    for outcome in walk(model_type for model_type in TYPES if model_type in STORED):
        kept = STORED[outcome.model_type]
        if (outcome.result, outcome.kind) != (kept.result, kept.kind):
            changed.append((outcome, kept))
    assert not changed
