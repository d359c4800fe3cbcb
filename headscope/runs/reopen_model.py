"""The one way back from a run to its model, and to the text that it read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headscope.corpus.shipped import shipped_corpora
from headscope.errors import CorpusError, ModelError, RunError
from headscope.models.load import STATE, open_model
from headscope.models.model import WIDE, Model
from headscope.runs.recorded_paths import PLACES
from headscope.runs.resolve import run_named, the_model
from headscope.statistics.result import Result
from headscope.stimuli.document_order import readable

SAY_SOURCE = "say where it is with --model, or source=… in Python"


def model_of(
    run: Result,
    *,
    source: Any = None,
    engine: str = "auto",
    device: str = "auto",
    longest: int | None = None,
) -> Model:
    """The model of a run, loaded again for an engine and windows as `load_model` knows them.

    Args:
        run: the run.
        source: its model, or where it is now; where it was when the run was made if None.
        engine: `fused`, `lens` or `auto`.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.
        longest: tokens of the longest window that will be read.

    Raises:
        RunError: the run was made from given patterns, or the model's weights have changed since.
        ModelError: the model is no longer where it was, or cannot be loaded.
    """
    facts = run.info["model"]
    if "weights_sha256" not in facts:
        raise RunError("this run was made from given patterns; it has no model to show")
    held = run.source if source is None else source
    options = {"bos": run.info["bos"], "engine": engine, "longest": longest}
    options["chat"] = run.info.get("chat") is not None
    if held is not None and not isinstance(held, str | Path):
        model = open_model(held, device=device, **options)
    else:
        _check_saved(facts)
        name, revision = _where(run, held)
        # a run that chose its precision narrowed a model of single precision for its own reading
        dtype = WIDE if run.info.get("precision") else facts["dtype"]
        model = open_model(name, revision=revision, device=device, dtype=dtype, **options)
    # a file may have been given another name
    if sorted(model.weights_sha256.values()) != sorted(facts["weights_sha256"].values()):
        raise RunError(
            f"{model.name} has other weights now than when this run was made; {SAY_SOURCE}"
        )
    return model


def model_or_run(
    model: Any,
    *,
    longest: int | None = None,
    revision: str | None = None,
    device: str = "auto",
) -> tuple[Model, Result | None]:
    """The model that is meant, and its run where a run or a run's folder was given.

    Args:
        model: a model or a run, or what stands for one.
        longest: tokens of the longest window that will be read.
        revision: branch, tag or commit on the hub, for the name of a model.
        device: `cpu`, `cuda`, …; `auto` takes a GPU if there is one.

    Raises:
        RunError: the run has no model, or its weights have changed, or a revision is asked of it.
        ModelError: the model cannot be loaded.
    """
    run = run_named(model, revision=revision)
    if run is None:
        return the_model(model, longest=longest, revision=revision, device=device), None
    return model_of(run, longest=longest, device=device), run


def corpora_of(run: Result) -> list[str]:
    """The files and folders that a run read; what ships if it names none.

    Raises:
        CorpusError: the run does not know where they lie.
    """
    names = run.info.get("corpora", {}).get("asked", ())
    places = run.info.get(PLACES, {}).get("corpora", ())
    if not names:
        return [str(path) for path in shipped_corpora()]
    for name, path in zip(names, [*places, *[None] * len(names)], strict=False):
        if path is None:
            raise CorpusError(
                f"run.json does not say where the run's text {name!r:.100} lies; say it with "
                "--corpus, or corpus=… in Python"
            )
    return [str(path) for path in places]


def text_of(
    run: Result | None, corpus: str | Path | Sequence[str | Path] | None, *, seed: int = 0
) -> list[str | Path]:
    """The corpora that were given, or else a run's own; nothing where neither is there.

    To be asked for before a model is loaded: each can be read.

    Raises:
        CorpusError: one of them cannot be, or the run does not know where its own lie.
    """
    corpora = readable(corpus, seed=seed)
    if run is not None and not corpora:
        corpora = readable(corpora_of(run), seed=seed)
    return corpora


def _check_saved(facts: dict[str, Any]) -> None:
    """Refuse to look on the disk for a model that was in memory."""
    if STATE in facts["weights_sha256"]:
        raise ModelError(
            f"this run's model {facts['name']!r:.100} was in memory, and is not known any more; "
            "give it again with source=(model, tokenizer)"
        )


def _where(run: Result, source: str | Path | None) -> tuple[str, str | None]:
    """The name and the revision that load a run's model."""
    facts, places = run.info["model"], run.info.get(PLACES, {})
    name = str(facts["name"])
    if source is not None and str(source) != name:
        return str(source), None
    if source is not None or "model" not in places:  # on the hub, or shipped
        return name, facts["revision"] or None
    model_path = places["model"]
    if model_path is None:
        raise ModelError(
            f"run.json does not say where this run's model {name!r:.100} lies; {SAY_SOURCE}"
        )
    if not Path(model_path).exists():
        raise ModelError(
            f"this run's model {name!r:.100} is no longer at {model_path}; {SAY_SOURCE}"
        )
    return str(model_path), None
