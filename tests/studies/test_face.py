"""Results of every study: a table, a figure and a file."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import pandas as pd
import pytest
from matplotlib.figure import Figure

import headscope as hs
from headscope.errors import HeadscopeError, ModelError, WriteError
from headscope.statistics.tags import NO_TYPE
from headscope.studies.study_table import STUDIES, imported
from tests.helpers import encoders
from tests.helpers.studies import call_with
from tests.helpers.study_calls import MADE_UP, READ_NOTHING, plain_call

Amounts = list[tuple[int, int]]


@pytest.fixture(scope="module")
def amounts() -> dict[str, Amounts]:
    """Arguments of the calls of each study's progress."""
    return {}


@pytest.fixture(scope="module")
def found(small_run, story, amounts) -> dict[str, hs.StudyResult]:
    results = {}
    for study in STUDIES:
        ask = getattr(hs, study.name)
        if "progress" in inspect.signature(ask).parameters:
            calls = amounts[study.name] = []
            ask = partial(
                ask, progress=lambda done, total, calls=calls: calls.append((done, total))
            )
        if study.name != "ablate":
            call = MADE_UP.get(study.name, partial(plain_call, study))
            results[study.name] = call(ask, small_run, story)
    return results


def test_every_study_that_reads_a_model_says_how_much_is_done(found, amounts):
    for name in amounts.keys() - READ_NOTHING:
        assert amounts[name][-1][0] == amounts[name][-1][1] > 0, name
        assert all(0 <= done <= total for done, total in amounts[name]), name


DECLARED = {study.name: imported(study.function).study for study in STUDIES}
COUNTED = {*hs.head_types(), *NO_TYPE}
"""Columns of which the declaration has one for all types."""


@pytest.mark.parametrize("name", sorted(DECLARED))
def test_a_bad_call_is_refused(name, small_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    values = {
        "model": str(small_run),
        "run": small_run,
        "runs": small_run,
        "heads": "L0H0",
        "out": "nowhere",
        "corpus": "gum",
        "rows": "ioi",
    }
    values |= {"clean": "a", "corrupt": "b", "sweep": "nowhere", "models": ["mini"]}
    study = next(row for row in STUDIES if row.name == name)
    arguments = call_with(study, values) | DECLARED[name].bad_call
    positional = [arguments.pop("runs")] * 2 if "runs" in arguments else []
    with pytest.raises(HeadscopeError, match=next(iter(DECLARED[name].bad_call))):
        getattr(hs, name)(*positional, **arguments)
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="module")
def encoder_run(tmp_path_factory) -> tuple[Path, Path]:
    """A run of an encoder, and its text."""
    home = tmp_path_factory.mktemp("encoder")
    text = home / "text.conllu"
    text.write_text(encoders.corpus(20, seed=0))
    model = encoders.save_hand_built(home / "model")
    hs.classify(model, text, out=home / "run", max_tokens=400, types=["positional"])
    return home / "run", text


@pytest.mark.parametrize(
    "name", ["collapse", "function_vectors", "patch", "prune", "redundancy", "weights", "why"]
)
def test_a_study_runs_on_encoders_or_refuses_them(name, encoder_run):
    run, text = encoder_run
    values = {"model": run, "run": run, "max_tokens": 250, "windows": 8, "heads": "L0H0"}
    values |= {} if name == "why" else {"corpus": text}
    study = next(row for row in STUDIES if row.name == name)
    call = partial(
        getattr(hs, name), **call_with(study, values | {"clean": "a b", "corrupt": "a c"})
    )
    if DECLARED[name].encoders:
        assert len(call().table) > 0
    else:
        with pytest.raises(ModelError, match="encoder"):
            call()


def test_a_table_without_rows_is_an_error_before_it_replaces_another():
    with pytest.raises(HeadscopeError):
        hs.StudyResult(title="a study", table=pd.DataFrame(columns=["layer", "head"]))


@pytest.mark.parametrize("name", sorted({row.name for row in STUDIES} - {"ablate"}))
def test_a_study_is_a_table_a_figure_and_a_file(found, name, tmp_path):
    study = found[name]
    declared = DECLARED[name]
    assert len(study.table) > 0
    columns = [column for column in study.table.columns if column not in COUNTED]
    assert [column for column in columns if column not in declared.names] == []
    if not declared.figure:
        with pytest.raises(HeadscopeError, match="figure"):
            study.figure()
    else:
        assert isinstance(study.figure(), Figure)
        study.figure().savefig(tmp_path / "drawn.svg")
    path = study.save(tmp_path / "new" / "found.csv")
    with pytest.raises(WriteError, match="--overwrite"):
        study.save(path)
    with pytest.raises(WriteError, match=r"\.csv"):
        study.save(tmp_path / "a.xlsx")
    again = pd.read_csv(path)
    assert list(again.columns) == list(study.table.columns)
    assert len(again) == len(study.table)
    assert "<table" in study._repr_html_()
    assert repr(study).startswith("<")
    assert "\n" not in repr(study)
