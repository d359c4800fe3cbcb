"""The published copying scores of GPT-2 small, compared with tables made from them."""

from __future__ import annotations

import pandas as pd
import pytest

from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError
from headscope.studies.weights.published import METRIC, compare_copying


@pytest.fixture
def heads() -> pd.DataFrame:
    """What GPT-2's own weights should give."""
    scores = pd.read_csv(data_folder() / "published_scores.csv")
    own = scores[scores["metric"] == METRIC]
    table = own[["layer", "head", "value"]].rename(columns={"value": "ov_copying"})
    return table.sample(frac=1, random_state=0)  # in any order


def test_the_published_scores_agree_with_themselves(heads):
    result = compare_copying(heads, "gpt2")
    assert result.model == "gpt2-small"
    assert len(result.heads) == 144
    assert result.largest_difference == 0
    assert result.pearson == pytest.approx(1)
    assert result.same_sign == 1


def test_a_head_that_differs_is_named(heads):
    at = (heads["layer"] == 11) & (heads["head"] == 10)
    assert heads.loc[at, "ov_copying"].item() == pytest.approx(0.996, abs=5e-4)
    heads.loc[at, "ov_copying"] = -0.5
    result = compare_copying(heads, "gpt2-small")
    assert result.at == "L11H10"
    assert result.largest_difference == pytest.approx(1.496, abs=5e-4)
    assert result.same_sign == pytest.approx(143 / 144)
    assert result.pearson < 1


def test_other_tables_and_other_models_are_refused(heads):
    with pytest.raises(RunError, match=r"up to L11H11: 143 rows came for its 144 heads"):
        compare_copying(heads.iloc[1:], "gpt2")
    with pytest.raises(RunError, match=r"144 rows came"):
        compare_copying(heads.assign(layer=heads["layer"] + 1), "gpt2")
    with pytest.raises(ChoiceError, match=r"named 'mini'; choose from: gpt2-small"):
        compare_copying(heads, "mini")
