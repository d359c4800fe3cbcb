"""Real patterns whose answer is known: GPT-2 small on two short texts, from bertviz' notebooks."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder


@pytest.fixture(scope="module", params=["fox", "store"])
def run(request) -> hs.Run:
    with np.load(data_folder() / "gpt2_small_patterns" / "patterns.npz") as arrays:
        patterns, tokens = arrays[request.param], arrays[f"{request.param}_tokens"].tolist()
    assert patterns.shape == (12, 12, len(tokens), len(tokens))
    return hs.score_patterns(patterns.astype(np.float32), None, tokens, name="gpt2")


def test_the_previous_token_head_of_gpt2_is_l4h11(run):
    """Vig & Belinkov 2019, 5.3.2: it is the head with the sharpest pattern of the model."""
    table = run.evidence[run.evidence["relation"] == "offset-1"].set_index(["layer", "head"])
    assert len(table) == 144
    assert table["mass"].idxmax() == (4, 11)
    assert table.loc[(4, 11), "mass"] == pytest.approx(1, abs=0.005)
    assert table.loc[(4, 11), "control"] < 0.005
    # the next one is far behind: the answer hangs on this head alone
    assert table["mass"].nlargest(2).iloc[1] < 0.6


def test_it_looks_nowhere_else(run):
    own = run.evidence[(run.evidence["layer"] == 4) & (run.evidence["head"] == 11)]
    others = own[(own["type"] == "positional") & ~own["relation"].isin(["offset-1", "local"])]
    assert (others["mass"] < 0.005).all()
    assert len(others) >= 7
    assert run.heads.loc["L4H11", "shape"] == "diagonal"


def test_most_heads_of_gpt2_rest_on_the_first_token(run):
    """Vig & Belinkov 2019, 5.2.3: 57 % of all attention, on longer text."""
    rest = run.evidence[run.evidence["relation"] == "first-token"]["mass"]
    assert 0.4 < rest.mean() < 0.8
