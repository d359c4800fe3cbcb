"""Models and runs that arguments stand for, and the way back from a run to its model and text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from weakref import WeakKeyDictionary

from pydantic import Field, PlainValidator

from headscope.corpus.shipped import shipped_corpora
from headscope.errors import CorpusError, ModelError, RunError
from headscope.options import A_MODEL_OR_RUN, A_RUN, IN_PYTHON, check_model, check_path
from headscope.paths import nearest_place, resolved
from headscope.runs.atlas import atlas_names, atlas_of, is_stored
from headscope.runs.cards import check_no_card
from headscope.runs.contents import RECORD
from headscope.runs.folder import RunFolder, is_run
from headscope.runs.recorded_paths import PLACES
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import readable

if TYPE_CHECKING:
    from headscope.models.model import Model

_opened: WeakKeyDictionary[Result, _OpenedModel] = WeakKeyDictionary()
"""Models that were loaded for runs, each for as long as its run is kept."""
SAY_SOURCE = "state its location with --model, or source=… in Python"

RunName = Annotated[
    Result | str | Path,
    PlainValidator(lambda value: value if isinstance(value, Result) else check_path(value)),
    Field(description=f"{A_RUN}{IN_PYTHON} also a run."),
]
ModelOrRun = Annotated[
    Any,
    PlainValidator(lambda value: value if isinstance(value, Result) else check_model(value)),
    Field(description=f"{A_MODEL_OR_RUN}{IN_PYTHON} also a run or a model."),
]


def load(run: str | Path, *, with_tally: bool = False) -> Result:
    """Read a run back; see `RunFolder.load`.

    Args:
        run: a run folder, `atlas:NAME`, `atlas:PLACE/NAME` of a folder or URL that `make atlas`
            wrote, or an atlas' file; the name of a model that has an atlas stands for it if no run
            folder is called so.
        with_tally: read the sums too, if there are any; an atlas has none.

    Raises:
        RunError: no run there, or one that was altered, cut short, put together by hand, or made
            by an earlier version.
        ChoiceError: no atlas of that name ships.
    """
    atlas = atlas_of(run)
    if atlas is not None:
        return atlas.load()
    if not is_run(Path(run)):
        raise RunError(
            f"{run!s:.200}{nearest_place(str(run), atlas_names())}: no run here ({RECORD} is "
            "missing); write one with headscope classify"
        )
    return RunFolder(run).load(with_tally=with_tally)


def the_run(run: Result | str | Path) -> Result:
    """The run itself, read if it is a folder.

    Raises:
        RunError: no run there, or it cannot be read, or it was read from a head card.
    """
    whole_run = run if isinstance(run, Result) else load(run)
    check_no_card(whole_run)
    return whole_run


def run_names(runs: Sequence[Result | str | Path]) -> tuple[str, ...]:
    """The folders' names, or the models' names of runs in memory; equal ones get a number."""
    plain = [
        Path(str(run.info.get("model", {}).get("name", "run"))).name or "run"
        if isinstance(run, Result)
        else resolved(Path(run)).name or str(run)
        for run in runs
    ]
    total, seen, names = Counter(plain), Counter[str](), list[str]()
    for name in plain:
        seen[name] += 1
        names.append(f"{name} ({seen[name]})" if total[name] > 1 else name)
    return tuple(names)


def run_named(model: Any, *, revision: str | None, source: Any = None) -> Result | None:
    """The run that a folder or a run stands for; None for a model.

    Args:
        model: a run, the folder of one, or what stands for a model.
        revision: the revision of a model of that name.
        source: the run's model, or where it is now.

    Raises:
        RunError: there is a run, but it cannot be read, or a revision is asked of it; or there is
            none, and a source is stated.
    """
    run = model if isinstance(model, Result) else None
    if isinstance(model, str | Path):
        folder = Path(model)
        with suppress(RuntimeError):  # a home that nobody has: load_model says so
            folder = folder.expanduser()
        run = load(folder) if is_stored(folder) else None
    if run is not None and revision is not None:
        raise RunError(f"a run has its own revision; {revision!r} is for the name of a model")
    if run is None and source is not None:
        raise RunError(f"{source!s:.200} is to be a run's model, but {model!s:.200} is not a run")
    return run


def the_model(model: Any, **options: Any) -> Model:
    """The model that is meant; see `headscope.models.load.open_model`."""
    from headscope.models.load import open_model  # imports torch, which takes seconds

    return open_model(model, **options)


def model_of(
    run: Result,
    *,
    source: Any = None,
    engine: str = "auto",
    device: str = "auto",
) -> Model:
    """The model of a run, for an engine as `load_model` knows them.

    A model that has to be loaded is loaded once, and kept for as long as the run.

    Args:
        run: the run.
        source: its model, or where it is now; where it was when the run was made if None.
        engine: `fused`, `eager`, `lens` or `auto`.
        device: `cpu`, `cuda`, …; `auto` takes a GPU when there is one.

    Raises:
        RunError: the run was made from given patterns, or the model's weights have changed since.
        ModelError: the model is no longer where it was, or cannot be loaded.
    """
    if "weights_sha256" not in run.info["model"]:
        raise RunError("this run was made from given patterns; it has no model to show")
    held = run.source if source is None else source
    if held is not None and not isinstance(held, str | Path):
        # what is in memory may have changed since it was opened
        model = the_model(held, device=device, **_reading(run, engine))
        _check_weights(run, model)
        return model
    arguments = (str(held), engine, device)
    opened = _opened.get(run)
    if opened is not None and opened.arguments == arguments:
        return opened.model
    _opened.pop(run, None)  # two models need not fit into memory
    model = _load_again(run, held, device=device, **_reading(run, engine))
    _check_weights(run, model)
    _opened[run] = _OpenedModel(arguments, model)
    return model


@dataclass(frozen=True, eq=False)
class _OpenedModel:
    """A model that was loaded for a run."""

    arguments: tuple[str, ...]
    """Source, engine and device that were asked for."""
    model: Model


def _reading(run: Result, engine: str) -> dict[str, Any]:
    """Settings by which a run's model reads text as it did, on an engine."""
    return {"bos": run.info["bos"], "chat": run.info.get("chat") is not None, "engine": engine}


def _load_again(run: Result, source: str | Path | None, **options: Any) -> Model:
    """The model of a run by its name or path, in the precision of its files.

    Raises:
        ModelError: it was in memory, or is no longer where it was.
    """
    from headscope.models.load import STATE  # imports torch, which takes seconds
    from headscope.models.model import WIDE

    entry = run.info["model"]
    if STATE in entry["weights_sha256"]:
        raise ModelError(
            f"this run's model {entry['name']!r:.100} was in memory, and is not known any "
            "more; give it again with source=(model, tokenizer)"
        )
    # by another source, by its name on the hub or among what ships, or where its files were
    name, revision = str(entry["name"]), entry["revision"] or None
    places = run.info.get(PLACES, {})
    if source is not None and str(source) != name:
        name, revision = str(source), None
    elif source is None and "model" in places:
        model_path = places["model"]
        if model_path is None or not Path(model_path).exists():
            raise ModelError(
                f"this run's model {name!r:.100} is not at {model_path or 'a known place'}; "
                f"{SAY_SOURCE}"
            )
        name, revision = str(model_path), None
    # a run that chose its precision narrowed a model of single precision for its own reading
    dtype = WIDE if run.info.get("precision") else entry["dtype"]
    return the_model(name, revision=revision, dtype=dtype, **options)


def _check_weights(run: Result, model: Model) -> None:
    """Refuse a model whose weights are not those that were measured; its files may have moved.

    Raises:
        RunError: the weights differ.
    """
    measured = run.info["model"]["weights_sha256"]
    if sorted(model.weights_sha256.values()) != sorted(measured.values()):
        raise RunError(
            f"{model.name} has other weights now than when this run was made; {SAY_SOURCE}"
        )


def model_or_run(
    model: Any,
    *,
    source: Any = None,
    revision: str | None = None,
    device: str = "auto",
) -> tuple[Model, Result | None]:
    """The model that is meant, and its run if a run or a run's folder was given.

    Args:
        model: a model or a run, or what stands for one.
        source: the run's model, or where it is now if it is not where it was.
        revision: branch, tag or commit on the hub, for the name of a model.
        device: `cpu`, `cuda`, …; `auto` takes a GPU if there is one.

    Raises:
        RunError: the run has no model, or its weights have changed, or a revision is asked of it.
        ModelError: the model cannot be loaded.
    """
    run = run_named(model, revision=revision, source=source)
    if run is None:
        return the_model(model, revision=revision, device=device), None
    return model_of(run, source=source, device=device), run


def text_of(
    run: Result | None, corpus: str | Path | Sequence[str | Path] | None, *, seed: int = 0
) -> list[str | Path]:
    """The corpora that were given, or else a run's own; each can be read.

    Raises:
        CorpusError: one of them cannot be, or the run does not know where its own lie.
    """
    corpora = readable(corpus, seed=seed)
    if run is None or corpora:
        return corpora
    # a run of given patterns names no corpus, and reads what ships
    names = run.info.get("corpora", {}).get("asked", ())
    places = run.info.get(PLACES, {}).get("corpora", ())
    for name, path in zip(names, [*places, *[None] * len(names)], strict=False):
        if path is None:
            raise CorpusError(
                f"run.json does not state where the run's text {name!r:.100} lies; state it with "
                "--corpus, or corpus=… in Python"
            )
    return readable(list(map(str, places if names else shipped_corpora())), seed=seed)
