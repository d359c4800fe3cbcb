"""Whose writes a head's keys read most, kept in a run's folder and drawn by its report."""

from __future__ import annotations

import json

import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.errors import RunError
from headscope.runs.run_tables import KEYS_FROM_TABLE

GOLD = data_folder() / "corpora" / "gold.conllu"


@pytest.fixture
def folder(gpt2_folder, tmp_path):
    place = tmp_path / "run"
    hs.classify(gpt2_folder, GOLD, out=place, max_tokens=1_500, types=["positional"])
    return place


def test_the_run_keeps_of_each_head_whose_writes_its_keys_read_most(folder, command):
    assert hs.load(folder).keys_from is None
    code, out, err = command("study", "weights", folder, "--keep")
    assert not code, err
    assert "keys_from.csv" in out
    kept = hs.load(folder).keys_from
    pairs = hs.weights(folder).composition.dropna()
    best = pairs.loc[pairs.groupby(["layer", "head"])["k_composition"].idxmax()]
    own = kept[kept["k_from"] != ""].reset_index(drop=True)
    assert len(own) == len(best) > 0
    named = [f"L{row.earlier_layer}H{row.earlier_head}" for row in best.itertuples()]
    assert own["k_from"].tolist() == named
    assert own["k_composition"].to_numpy() == pytest.approx(best["k_composition"], rel=1e-4)
    assert kept.loc[kept["layer"] == 0, "k_from"].eq("").all()
    page = (folder / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.split('id="data"')[1].split(">", 1)[1].split("</script", 1)[0])
    drawn = {f"L{row['layer']}H{row['head']}": row["keys_from"] for row in data["rows"]}
    assert drawn["L0H0"] is None
    last = own.iloc[-1]
    assert drawn[f"L{last['layer']}H{last['head']}"][0] == last["k_from"]
    code, _, err = command("study", "weights", folder, "--keep")
    assert code == 2
    assert "this run was weighed before; add --overwrite" in err
    assert not command("study", "weights", folder, "--keep", "--overwrite")[0]
    hs.load(folder).save(folder.parent / "copy")
    pd.testing.assert_frame_equal(hs.load(folder.parent / "copy").keys_from, kept)


def test_only_a_run_keeps_them(gpt2_folder, command):
    code, _, err = command("study", "weights", gpt2_folder, "--keep")
    assert code == 2
    assert "puts a table into a run's folder" in err


@pytest.mark.parametrize(
    ("was", "becomes", "said"),
    [
        ("1,0,L0H", "9,0,L0H", "the run has no L9H0"),
        ("1,0,L0H", "1,0,L1H", "no head of an earlier"),
    ],
)
def test_heads_that_the_run_does_not_have_are_named(folder, command, was, becomes, said):
    assert not command("study", "weights", folder, "--keep")[0]
    path, run = folder / "keys_from.csv", hs.load(folder)
    text = path.read_text()
    assert was in text
    path.write_text(text.replace(was, becomes, 1))
    with pytest.raises(RunError, match=r"keys_from\.csv: this file is not the one"):
        hs.load(folder)
    with pytest.raises(RunError, match=said):
        KEYS_FROM_TABLE.read(folder, run.heads, run.info)
