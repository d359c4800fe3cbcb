"""The one way back from a run to its model, and to the text that it read."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypedDict, Unpack

from headscope.corpus.shipped import shipped_corpora
from headscope.errors import CorpusError, ModelError, RunError
from headscope.evidence.result import Result
from headscope.models.load import Model
from headscope.models.sources import STATE, open_model
from headscope.runs.named import Named, run_named, the_model
from headscope.runs.places import PLACES, titled

ASK = "say where it is with --model, or source=… in Python"


class Again(TypedDict, total=False):
    """What may be said of the model of a run when it is loaded again."""

    source: Any
    """The run's model, or where it is now if it is not where it was."""
    device: str
    """`cpu`, `cuda`, …; `auto` takes a GPU when there is one."""


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
    how = {"bos": run.info["bos"], "engine": engine, "longest": longest}
    if held is not None and not isinstance(held, str | Path):
        model = open_model(held, device=device, **how)
    else:
        _check_saved(facts)
        name, revision = _where(run, held)
        how |= {"adapter": _adapter(run), "dtype": facts["dtype"]}
        model = open_model(name, revision=revision, device=device, **how)
    # a file may have been given another name
    if sorted(model.weights_sha256.values()) != sorted(facts["weights_sha256"].values()):
        raise RunError(f"{model.name} has other weights now than when this run was made; {ASK}")
    return model


def model_or_run(
    given: Any, *, longest: int | None = None, **named: Unpack[Named]
) -> tuple[Model, Result | None]:
    """The model that is meant, and its run where a run or a run's folder was given.

    Args:
        given: a model or a run, or what stands for one.
        longest: tokens of the longest window that will be read.
        named: see `Named`.

    Raises:
        RunError: the run has no model, or its weights have changed, or a revision is asked of it.
        ModelError: the model cannot be loaded.
    """
    run = run_named(given, revision=named.get("revision"))
    if run is None:
        return the_model(given, longest=longest, **named), None
    return model_of(run, longest=longest, device=named.get("device", "auto")), run


def corpora_of(run: Result) -> list[str]:
    """The files and folders that a run read; what ships if it names none.

    Raises:
        CorpusError: the run does not know where they lie.
    """
    asked = run.info.get("corpora", {}).get("asked", ())
    places = titled(run.info).get(PLACES, {}).get("corpora", ())
    if not asked:
        return [str(path) for path in shipped_corpora()]
    for name, place in zip(asked, [*places, *[None] * len(asked)], strict=False):
        if place is None:
            raise CorpusError(
                f"run.json does not say where the run's text {name!r:.100} lies; say it with "
                "--corpus, or corpus=… in Python"
            )
    return [str(place) for place in places]


def _check_saved(facts: dict[str, Any]) -> None:
    """Refuse to look on the disk for a model that was in memory."""
    if STATE in facts["weights_sha256"]:
        raise ModelError(
            f"this run's model {facts['name']!r:.100} was in memory, and is not known any more; "
            "give it again with source=(model, tokenizer)"
        )


def _adapter(run: Result) -> str | None:
    """Where the adapter lies that was merged into a run's model, if one was."""
    asked = run.info.get("settings", {}).get("adapter")
    place = run.info.get(PLACES, {}).get("adapter")
    if asked is not None and (place is None or not Path(place).exists()):
        raise ModelError(
            f"this run's adapter {asked!r:.100} is no longer where it was; merge it into the "
            "model, save this, and classify it anew"
        )
    return None if place is None else str(place)


def _where(run: Result, source: str | Path | None) -> tuple[str, str | None]:
    """The name and the revision that load a run's model."""
    info = titled(run.info)
    facts, places = info["model"], info.get(PLACES, {})
    name = str(facts["name"])
    if source is not None and str(source) != name:
        return str(source), None
    if source is not None or "model" not in places:  # on the hub, or shipped
        return name, facts["revision"] or None
    place = places["model"]
    if place is None:
        raise ModelError(f"run.json does not say where this run's model {name!r:.100} lies; {ASK}")
    if not Path(place).exists():
        raise ModelError(f"this run's model {name!r:.100} is no longer at {place}; {ASK}")
    return str(place), None
