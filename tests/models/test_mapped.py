"""On a processor a model's weights are its file, mapped: processes that read it share one copy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headscope.corpus.shipped import mini_folder
from headscope.models.load import load_model
from headscope.models.null_model import null_model

MAPS = Path("/proc/self/maps")


@pytest.mark.skipif(not MAPS.is_file(), reason="only Linux says what is mapped")
def test_no_process_has_a_copy_of_the_weights():
    model: Any = load_model("mini")
    here = os.path.realpath(mini_folder())
    mapped = [
        range(*(int(end, 16) for end in line.split()[0].split("-")))
        for line in MAPS.read_text().splitlines()
        if line.endswith(".safetensors") and os.path.realpath(line.split()[-1]).startswith(here)
    ]
    weights = dict(model.engine.network.named_parameters())
    assert len(weights) > 10
    private = [
        name
        for name, weight in weights.items()
        if not any(weight.data_ptr() in part for part in mapped)
    ]
    assert private == []


def test_the_twin_of_one_process_is_not_seen_by_another():
    """A mapping that is written to is copied page by page; the file stays as it is."""
    one, other = (load_model("mini").engine for _ in range(2))
    before = [matrix.clone() for matrix in other.matrices()]
    with null_model(one, seed=0):
        assert not one.matrices()[0].equal(before[0])
        assert all(now.equal(then) for now, then in zip(other.matrices(), before, strict=True))
    assert all(now.equal(then) for now, then in zip(one.matrices(), before, strict=True))
