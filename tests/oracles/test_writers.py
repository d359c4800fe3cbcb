"""Tags for writes, on planted heads and the laziest heads that could be taken for them."""

from __future__ import annotations

import pytest

from tests.oracles.calibrate import writer_rows


@pytest.mark.parametrize(
    ("layout", "noises"),
    [pytest.param("gpt2", [0.0, 0.1], marks=pytest.mark.slow), ("llama", [0.1])],
)
def test_planted_writers_are_found_and_lazy_ones_are_not(layout, noises, capfd):
    table = writer_rows([layout], noises)
    planted = table[table["relation"] != ""]
    assert sorted(set(planted["relation"])) == [
        "agreement",
        "copy",
        "induction",
        "name-mover",
        "negative-name-mover",
        "retrieval",
        "successor",
        "suppress",
    ]
    assert planted["found"].all(), planted[["name", "false"]]
    # of heads that look at the values of the person, the last value, all values or names, one looks
    # for what is asked
    assert table.loc[table["retrieves"] & (table["noise"] > 0), "name"].tolist() == ["retrieval"]
    assert (table["relation"] == "").sum() > 15 * len(noises)
    false = table.loc[table["false"] != "", ["noise", "name", "false"]]
    assert not (false["noise"] == 0).any(), false
    # noise on a head that lowers all values makes it lower some less than others
    assert len(false) <= 1, false
    assert "Writing" not in capfd.readouterr().err  # a bar of transformers' own
