"""Calls of every study that work on a run of a small model and a text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd

import headscope as hs
from headscope.studies.emergence import cell_emergence
from headscope.studies.languages import compared
from headscope.studies.study_table import StudyRow
from headscope.studies.sweep import sweep_result
from headscope.studies.sweep_folder import Cell
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


def solved_task(ask, run: Path) -> hs.StudyResult:
    """A task that the model of the run can do: of two answers the one that it prefers."""
    prompts = ("the dog saw", "dog the saw", "saw the dog", "the saw dog", "saw dog the")
    rows = [{"prompt": text, "answer": " the", "wrong": " dog"} for text in prompts]
    try:
        return ask(run, rows)
    except hs.HeadscopeError:
        return ask(run, [row | {"answer": " dog", "wrong": " the"} for row in rows])


LABELS = pd.DataFrame({"head": ["L0H0", "L1H1"], "label": ["previous token", "S-inhibition"]})


def score_uniform(ask, model: Any, corpus: Path) -> hs.StudyResult:
    """Scores of a program that attends evenly."""
    path = corpus.parent / "uniform.py"
    path.write_text("def L0H0(tokens):\n    return [[1] * len(tokens)] * len(tokens)\n")
    return ask(model, path, corpus, windows=8, features=2)


def short_haystacks(ask, run: Path, corpus: Path) -> hs.StudyResult:
    """Facts in text that is short enough for the model of the run."""
    path = corpus.parent / "facts.jsonl"
    row = {"context": "the dog saw 7 and 9", "question": "who", "answer": "7"}
    path.write_text(f"{json.dumps(row)}\n" * 2)
    return ask(run, str(path), sets=1)


MADE_UP = {
    "ablate": lambda ask, run, corpus: ask(run, heads="L0H0,L1H1"),
    "anatomy": lambda ask, run, corpus: ask("mini"),
    "collapse": lambda ask, run, corpus: ask(run, corpus, max_tokens=150, mixing=True),
    "compare": lambda ask, run, corpus: ask(run, run),
    "match_heads": lambda ask, run, corpus: ask(run, run),
    "emergence": lambda ask, run, corpus: cell_emergence(cells()),
    "find_heads": lambda ask, run, corpus: ask(run, "x1z x1z", "duplicate"),
    "function_vectors": lambda ask, run, corpus: ask(run, tasks="past,plural"),
    "haystacks": lambda ask, run, corpus: short_haystacks(ask, run, corpus),
    "headvis": lambda ask, run, corpus: ask(
        run, corpus.parent / "data", corpus=corpus, sequences=20, max_length=60
    ),
    "judge_labels": lambda ask, run, corpus: ask(run, LABELS),
    "languages": lambda ask, run, corpus: compared({"en": hs.load(run, with_tally=True)}),
    "patch": lambda ask, run, corpus: ask(run, clean="x1z", corrupt="x2z", heads="all", edges=2),
    "prune": lambda ask, run, corpus: ask(run, corpus, max_tokens=400),
    "ranges": lambda ask, run, corpus: ask(run, "gum", length=200, windows=1, queries=2),
    "redundancy": lambda ask, run, corpus: ask(run, windows=4, queries=3),
    "explain_at": lambda ask, run, corpus: ask(run, "L0H0", "x1z", corpus, windows=8, features=2),
    "score_programs": lambda ask, run, corpus: score_uniform(ask, run, corpus),
    "sweep": lambda ask, run, corpus: sweep_result("runs", cells()),
    "task": lambda ask, run, corpus: solved_task(ask, run),
    "verify": lambda ask, run, corpus: ranks(run, corpus),
    "why": lambda ask, run, corpus: ask(run, ["L0H0", "L1H1"]),
}
"""Studies that take minutes or another model, or need other arguments than a run and a text."""


def plain_call(study: StudyRow, ask, run: Path, corpus: Path) -> hs.StudyResult:
    """A study of a run's folder by nothing but the names of its arguments."""
    values = {"model": run, "run": run, "corpus": corpus, "max_tokens": 150, "windows": 8}
    return ask(**call_with(study, values | {"features": 2}))


READ_NOTHING = {"ablate", "languages", "sweep", "why"}
"""Studies that take progress and are called above on what was measured before."""
