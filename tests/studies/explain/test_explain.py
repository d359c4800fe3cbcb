"""`headscope explain`: its table, and what it leaves in a run's folder."""

from __future__ import annotations

import pandas as pd
import pytest

import headscope as hs
from headscope.corpus.shipped import data_folder
from headscope.errors import CorpusError, RunError
from headscope.statistics.columns import RULE_COLUMNS
from headscope.statistics.reasons import account_lines, explained_by
from tests.helpers.formats import columns_of
from tests.helpers.report import data_of

GOLD = data_folder() / "corpora" / "gold.conllu"


def test_the_table_has_the_terms_of_each_head_and_the_same_seed_gives_it_again(gpt2_folder):
    found = hs.explain(gpt2_folder, GOLD, features=3, windows=16)
    assert list(found.table.columns) == columns_of("rules.csv")
    assert found.table.groupby(["layer", "head"]).size().max() <= 3
    heads = found.terminal_table
    assert len(heads) == 8
    assert found.values["explained"] == pytest.approx(heads["explained"].mean())
    again = hs.explain(gpt2_folder, GOLD, features=3, windows=16)
    pd.testing.assert_frame_equal(again.table, found.table)


def test_a_text_of_one_window_is_too_short(gpt2_folder, tmp_path):
    short = tmp_path / "short.txt"
    short.write_text("The old keys were in the house.")
    with pytest.raises(CorpusError, match="1 windows of text"):
        hs.explain(gpt2_folder, short)


def terms(*rows: tuple[str, float, float]) -> pd.DataFrame:
    """Features of one head's rule with weight and unique bits."""
    plain = dict.fromkeys(RULE_COLUMNS, 0.0) | {"layer": 0, "head": 1, "kind": "", "queries": ""}
    own = [{**plain, "feature": f, "weight": w, "unique": u} for f, w, u in rows]
    return pd.DataFrame(own)[RULE_COLUMNS]


def test_a_tag_without_unique_bits_is_explained_by_the_strongest_feature():
    table = terms(
        ("offset-2", 4.0, 0.4),
        ("syntactic/det:head>dep", 2.0, 0.1),
        ("key NOUN", -1.0, 0.3),
        ("syntactic/amod:head>dep", 0.1, 0.001),
    )
    tags = ["syntactic/det:head>dep", "syntactic/amod:head>dep", "positional/offset-2"]
    assert explained_by(table, 0, 1, tags) == [("syntactic/amod:head>dep", "offset-2")]
    assert explained_by(table, 0, 2, tags) == []


def test_the_account_of_a_head_has_its_rule_and_its_features():
    heads = pd.DataFrame([{"layer": 0, "head": 1, "explained": 0.66, "rule": "nearer is better"}])
    lines = account_lines(terms(("offset-2", 4.0, 0.4)), heads, 0, 1)
    assert lines[0] == "nearer is better"
    assert "66%" in lines[1]
    assert "offset-2" in lines[2]


def test_the_command_keeps_the_rules_in_the_runs_folder(gpt2_folder, tmp_path, command):
    folder = tmp_path / "run"
    hs.classify(gpt2_folder, GOLD, out=folder, max_tokens=1_500, types=["positional"])
    before = hs.load(folder)
    assert before.accounts is None
    words = ("explain", folder, "--windows", 12, "--features", 3, "-q")
    code, printed, err = command(*words)
    assert not code, err
    assert "L1H3" in printed
    assert "rules.csv" in printed
    run = hs.load(folder)
    assert list(run.accounts.columns) == columns_of("rules.csv")
    assert list(run.heads.columns) == columns_of("heads.csv")
    pd.testing.assert_frame_equal(run.evidence, before.evidence)
    printed = run.why("L1H1")
    assert run.heads.loc["L1H1", "rule"] in printed
    assert f"explains {run.heads.loc['L1H1', 'explained']:.0%} of its bits" in printed
    assert run.heads.loc["L1H1", "rule"].split(" (")[0] in data_of(folder / "report.html")
    code, _, err = command(*words)
    assert code == 2
    assert "rules.csv exists already; add --overwrite" in err
    assert not command(*words, "--overwrite")[0]
    # a run that is saved again keeps its rules
    run.save(tmp_path / "copy")
    again = hs.load(tmp_path / "copy")
    pd.testing.assert_frame_equal(again.accounts, hs.load(folder).accounts)
    path = folder / "rules.csv"
    path.write_text(path.read_text().replace("0", "1", 1))
    with pytest.raises(RunError, match=r"rules\.csv: this file is not the one that was written"):
        hs.load(folder)
