"""What an explanation leaves in a run's folder, and what `why` and the report say of it."""

from __future__ import annotations

import pandas as pd
import pytest

import headscope as hs
from headscope.cli import main
from headscope.corpus.shipped import data_folder
from headscope.errors import RunError
from headscope.statistics.columns import RULE_COLUMNS
from headscope.statistics.reasons import account_lines, explained_by
from tests.helpers.formats import columns_of

GOLD = data_folder() / "corpora" / "gold.conllu"


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
    assert lines == [
        "nearer is better",
        "explains 66% of its bits above even attention",
        "offset-2: weight +4.00, 40.0% unique bits",
    ]


@pytest.fixture(scope="module")
def folder(gpt2_folder, tmp_path_factory):
    place = tmp_path_factory.mktemp("explained") / "run"
    hs.classify(gpt2_folder, GOLD, out=place, max_tokens=1_500, types=["positional"])
    return place


def headscope(monkeypatch, capsys, *words: object) -> tuple[object, str, str]:
    monkeypatch.setattr("sys.argv", ["headscope", *map(str, words)])
    with pytest.raises(SystemExit) as stop:
        main()
    told = capsys.readouterr()
    return stop.value.code, told.out, told.err


def test_the_command_keeps_the_rules_in_the_runs_folder(folder, monkeypatch, capsys):
    before = hs.load(folder)
    assert before.accounts is None
    asked = ("explain", folder, "--windows", 12, "--features", 3, "--each", "none", "-q")
    code, out, err = headscope(monkeypatch, capsys, *asked)
    assert not code, err
    assert "rules.csv" in out
    run = hs.load(folder)
    assert list(run.accounts.columns) == columns_of("rules.csv")
    assert list(run.heads.columns) == columns_of("heads.csv")
    pd.testing.assert_frame_equal(run.evidence, before.evidence)
    told = run.why("L1H1")
    assert f"Rule:\n  {run.heads.loc['L1H1', 'rule']}\n" in told
    assert f"explains {run.heads.loc['L1H1', 'explained']:.0%} of its bits" in told
    assert "of its bits): " in (folder / "report.html").read_text()
    code, _, err = headscope(monkeypatch, capsys, *asked)
    assert code == 2
    assert "this run was explained before; add --overwrite" in err
    assert not headscope(monkeypatch, capsys, *asked, "--overwrite")[0]
    # a run that is saved again keeps its rules
    run.save(folder.parent / "copy")
    again = hs.load(folder.parent / "copy")
    pd.testing.assert_frame_equal(again.accounts, hs.load(folder).accounts)


def test_a_table_of_rules_that_was_edited_is_refused(folder):
    path = folder / "rules.csv"
    path.write_text(path.read_text().replace("0", "1", 1))
    with pytest.raises(RunError, match=r"rules\.csv: this file is not the one that was written"):
        hs.load(folder)
