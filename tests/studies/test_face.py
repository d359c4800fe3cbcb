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
from headscope.studies.emergence import cell_emergence
from headscope.studies.languages import compared
from headscope.studies.study_table import STUDIES, StudyRow, imported
from headscope.studies.sweep import sweep_result
from headscope.studies.sweep_folder import Cell
from tests.helpers import encoders
from tests.helpers.studies import call_with


def cells() -> list[Cell]:
    """Two revisions of a model, made up: three previous-token heads, then four of eight."""
    one = {"positional": 3, "unclassified": 5}
    two = {"positional": 4, "unclassified": 4}
    return [
        Cell("m", "step1", (), "a", "complete", heads=8, counts=one),
        Cell("m", "step9", (), "b", "complete", heads=8, counts=two),
    ]


def ranks(run: Path, corpus: Path) -> hs.StudyResult:
    path = corpus.parent / "scores.csv"
    heads = hs.load(run).heads[["layer", "head"]].assign(model="m", revision="main")
    heads.assign(metric="pattern_entropy", value=range(len(heads))).to_csv(path, index=False)
    return hs.verify(run, model="m", scores=path)


MADE_UP = {
    "ablate": lambda ask, run, corpus: ask(run, heads="L0H0,L1H1"),
    "anatomy": lambda ask, run, corpus: ask("mini"),
    "collapse": lambda ask, run, corpus: ask(run, corpus, max_tokens=150, mixing=True),
    "compare": lambda ask, run, corpus: ask(run, run),
    "match_heads": lambda ask, run, corpus: ask(run, run),
    "emergence": lambda ask, run, corpus: cell_emergence(cells()),
    "function_vectors": lambda ask, run, corpus: ask(run, tasks="past,plural"),
    "headvis": lambda ask, run, corpus: ask(
        run, corpus.parent / "data", corpus=corpus, sequences=20, max_length=60
    ),
    "languages": lambda ask, run, corpus: compared({"en": hs.load(run, with_tally=True)}),
    "patch": lambda ask, run, corpus: ask(run, clean="x1z", corrupt="x2z", heads="all", edges=2),
    "prune": lambda ask, run, corpus: ask(run, corpus, max_tokens=400),
    "redundancy": lambda ask, run, corpus: ask(run, windows=4, queries=3),
    "sweep": lambda ask, run, corpus: sweep_result("runs", cells()),
    "verify": lambda ask, run, corpus: ranks(run, corpus),
    "why": lambda ask, run, corpus: ask(run, ["L0H0", "L1H1"]),
}
"""Studies that take minutes or another model, or that need other arguments than a run and a text."""
Amounts = list[tuple[int, int]]


def plain_call(study: StudyRow, ask, run: Path, corpus: Path) -> hs.StudyResult:
    """A study of a run's folder by nothing but the names of its arguments."""
    values = {"model": run, "run": run, "corpus": corpus, "max_tokens": 150, "windows": 8}
    return ask(**call_with(study, values | {"features": 2}))


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


READ_NOTHING = {"ablate", "languages", "sweep", "why"}
"""Studies that take progress and are called above on what was measured before."""


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
    values = {"model": run, "run": run, "max_tokens": 100, "windows": 8, "heads": "L0H0"}
    values |= {} if name == "why" else {"corpus": text}
    study = next(row for row in STUDIES if row.name == name)
    call = partial(
        getattr(hs, name), **call_with(study, values | {"clean": "a b", "corrupt": "a c"})
    )
    if DECLARED[name].encoders:
        assert len(call().table) > 0
    else:
        with pytest.raises(ModelError, match="an encoder"):
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
        with pytest.raises(HeadscopeError, match="this study has no figure"):
            study.figure()
    else:
        assert isinstance(study.figure(), Figure)
        study.figure().savefig(tmp_path / "drawn.svg")
    path = study.save(tmp_path / "new" / "found.csv")
    with pytest.raises(WriteError, match="exists already"):
        study.save(path)
    with pytest.raises(WriteError, match=r"a table is written as .csv"):
        study.save(tmp_path / "a.xlsx")
    again = pd.read_csv(path)
    assert list(again.columns) == list(study.table.columns)
    assert len(again) == len(study.table)
    assert "<table" in study._repr_html_()
    assert repr(study).startswith("<")
    assert "\n" not in repr(study)
