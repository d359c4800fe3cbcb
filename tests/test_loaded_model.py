"""A loaded model stands for its name in every public function, and no function loads it again."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import headscope as hs
from headscope.errors import HeadscopeError
from headscope.models import load
from headscope.models.load import state_sha256
from tests.helpers.study_calls import score_uniform, solved_task
from tests.helpers.treebanks import save_treebanks

MODEL_ARGUMENTS = {"model", "models", "source", "tokenizer"}
NO_MODEL = {"verify"}
"""Functions whose argument of that name is no model: published scores have the name of one."""
OWN_ENGINE = {"weights"}
"""Functions that need a model that was loaded for the lens engine, or load it again for that."""
LONG = {"haystacks"}
"""Functions that need a model of longer context; tests/studies/test_haystacks.py calls them."""
NEED_TAGS = {"ablate"}
TEXT = "the old keys were in the house"
FEW = {"max_tokens": 400, "progress": False}


def measured(run: hs.Run) -> Any:
    return run.evidence[["layer", "head", "relation", "mass"]]


def plain(value: Any) -> Any:
    """A table as text, and anything else as it is."""
    return value.to_csv() if isinstance(value, pd.DataFrame) else value


def language_table(model: Any, place: Path) -> Any:
    treebanks = save_treebanks(place / "pud", ["en", "fr"], documents=8)
    options = {"types": "positional", **FEW}
    return hs.languages(model, treebanks, out=place / "languages", **options).table


def swept(model: Any, place: Path) -> Any:
    options = {"types": "positional", "out": place / "sweep", **FEW}
    return hs.sweep(models=[model], corpora=[place / "story"], **options).table


def calls(model: Any, run: Path, place: Path) -> dict[str, Callable[[], Any]]:
    """A call of each public function that takes a model, and what it measures."""
    story = place / "story"
    quiet = {"progress": False}
    source = {"source": model, **quiet}
    prompts = {"clean": "x1z", "corrupt": "x2z", "heads": "all", "edges": 2}
    return {
        "ablate": lambda: (
            hs.ablate(run, heads="L5H3", queries=2, only="heads", corpus=story, **source).table
        ),
        "task": lambda: solved_task(partial(hs.task, **quiet), model).table,
        "anatomy": lambda: hs.anatomy(model).table,
        "classify": lambda: measured(hs.classify(model, story, types="positional", **FEW)),
        "collapse": lambda: hs.collapse(model, story, **FEW).table,
        "explain": lambda: hs.explain(model, story, windows=8, features=2, **quiet).table,
        "explain_at": lambda: (
            hs.explain_at(model, "L1H1", TEXT, story, windows=8, features=2).table
        ),
        "find_heads": lambda: hs.find_heads(model, TEXT, "previous").table,
        "function_vectors": lambda: hs.function_vectors(model, tasks="past", **quiet).table,
        "headvis": lambda: (
            hs.headvis(
                run,
                place / "data",
                corpus=story,
                sequences=20,
                max_length=60,
                overwrite=True,
                **source,
            ).table
        ),
        "languages": lambda: language_table(model, place),
        "load_model": lambda: hs.load_model(model).weights_sha256,
        "patch": lambda: hs.patch(run, **prompts, **source).table,
        "patterns": lambda: hs.patterns(model, TEXT).array.tolist(),
        "prune": lambda: hs.prune(model, story, **FEW).table,
        "ranges": lambda: hs.ranges(model, story, length=200, windows=1, queries=2, **quiet).table,
        "redundancy": lambda: hs.redundancy(run, windows=4, queries=3, **source).table,
        "replace_heads": lambda: (
            hs.replace_heads(model, story, windows=8, features=2, **quiet).table
        ),
        "score_programs": lambda: (
            score_uniform(partial(hs.score_programs, **quiet), model, story).table
        ),
        "show": lambda: hs.show(model, "L1H1", TEXT).pattern.tolist(),
        "sweep": lambda: swept(model, place).drop(columns="error"),
        "weights": lambda: hs.weights(model, **quiet).table,
        "why": lambda: hs.why(model, "L0H0", story, types="positional", **FEW).table,
        "widget": lambda: hs.widget(model, "L1H1", TEXT).tokens,
        "windows": lambda: [window.strings for window in hs.windows(story, model, max_tokens=300)],
    }


def public_functions() -> dict[str, Any]:
    values = {name: getattr(hs, name) for name in hs.__all__}
    return {name: value for name, value in values.items() if inspect.isfunction(value)}


def takes_a_model(name: str, function: Any) -> bool:
    arguments = inspect.signature(function).parameters.keys()
    by_setting = name in ("load_model", "sweep")
    return by_setting or (bool(MODEL_ARGUMENTS & arguments) and name not in NO_MODEL)


@pytest.fixture(scope="module")
def small(gpt2_folder, story, tmp_path_factory) -> dict[str, Any]:
    """A run of a small model, and the model loaded for each engine."""
    place = tmp_path_factory.mktemp("loaded")
    hs.classify(gpt2_folder, story, types=["positional"], out=place / "run", keep_sums=True)
    loaded = {engine: hs.load_model(gpt2_folder, engine=engine) for engine in ("fused", "lens")}
    return {"name": str(gpt2_folder), "run": place / "run", **loaded}


@pytest.fixture(scope="module")
def tagged(mini_run) -> dict[str, Any]:
    """A run with tags, and its model."""
    return {"name": "mini", "run": mini_run, "fused": hs.load_model("mini")}


def test_every_function_that_takes_a_model_is_called_here():
    functions = public_functions()
    names = {name for name, function in functions.items() if takes_a_model(name, function)}
    assert names - LONG == calls("", Path(), Path()).keys()


@pytest.mark.parametrize("name", sorted(calls("", Path(), Path())))
def test_a_loaded_model_gives_what_its_name_gives(name, request, story, tmp_path, monkeypatch):
    given = request.getfixturevalue("tagged" if name in NEED_TAGS else "small")
    places = [tmp_path / kind for kind in ("by-name", "loaded")]
    for place in places:
        place.mkdir()
        (place / "story").symlink_to(story)
    model = given["lens" if name in OWN_ENGINE else "fused"]
    network = model.bridge.original_model if name in OWN_ENGINE else model.engine.network
    weights = state_sha256(network)
    by_name = calls(given["name"], given["run"], places[0])[name]()
    monkeypatch.setattr(load, "load_weights", None)  # nothing is loaded from here on
    from_loaded = calls(model, given["run"], places[1])[name]()
    assert plain(from_loaded) == plain(by_name)
    assert state_sha256(network) == weights


def test_a_model_of_one_engine_is_loaded_again_for_the_other(small):
    by_name = hs.weights(small["name"], progress=False).table
    assert hs.weights(small["fused"], progress=False).table.equals(by_name)


def test_a_run_loads_its_model_once(small, monkeypatch):
    loaded = []
    read = load.load_weights
    monkeypatch.setattr(load, "load_weights", lambda *given: loaded.append(1) or read(*given))
    run = hs.load(small["run"])
    views = [run.show("L1H1", TEXT) for _ in range(3)]
    assert len(loaded) == 1
    assert all((view.pattern == views[0].pattern).all() for view in views)
    hs.load(small["run"]).show("L1H1", TEXT)
    assert len(loaded) == 2


def test_a_setting_that_is_not_of_loading_is_refused(small):
    with pytest.raises(HeadscopeError, match="max_tokens"):
        hs.load_model(small["name"], max_tokens=100)
