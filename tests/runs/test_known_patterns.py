"""Real patterns whose answer is known: GPT-2 small on short texts, from bertviz and others."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder

TEXTS = {
    "patterns.npz": ("fox", "store"),
    "explainer.npz": ("data", "artificial", "spaceship", "planet", "conference"),
}
"""The texts of bertviz' notebooks, and the prompts of transformer-explainer."""


@pytest.fixture(scope="module", params=[(file, text) for file in TEXTS for text in TEXTS[file]])
def run(request) -> hs.Run:
    file, text = request.param
    with np.load(data_folder() / "gpt2_small_patterns" / file) as arrays:
        patterns, tokens = arrays[text], arrays[f"{text}_tokens"].tolist()
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
    assert table["mass"].nlargest(2).iloc[1] < 0.75


def test_most_heads_of_gpt2_rest_on_the_first_token(run):
    """Vig & Belinkov 2019, 5.2.3: 57 % of all attention, on longer text."""
    rest = run.evidence[run.evidence["relation"] == "first-token"]["mass"]
    assert 0.4 < rest.mean() < 0.8
