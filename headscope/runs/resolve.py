"""Arguments that stand for a model or a run, and the model or run that is meant."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, PlainValidator

from headscope.errors import HeadscopeError, RunError
from headscope.options import PathName, check_model
from headscope.paths import real_name
from headscope.runs.atlas import is_stored
from headscope.runs.store import load
from headscope.statistics.result import Result

if TYPE_CHECKING:
    from headscope.models.model import Model

RunName = Annotated[Result | PathName, Field(description="A run folder; in Python also a run.")]
ModelOrRun = Annotated[
    Any,
    PlainValidator(lambda value: value if isinstance(value, Result) else check_model(value)),
    Field(
        description="A name or path as for classify, or a run folder; in Python also a run or a "
        "model."
    ),
]


def the_run(run: Result | str | Path) -> Result:
    """The run itself, read if it is a folder.

    Raises:
        RunError: no run there, or it cannot be read.
    """
    return run if isinstance(run, Result) else load(run)


def run_names(runs: Sequence[Result | str | Path]) -> tuple[str, ...]:
    """The folders' names, or the models' names of runs in memory; equal ones get a number."""
    plain = [
        Path(str(run.info.get("model", {}).get("name", "run"))).name or "run"
        if isinstance(run, Result)
        else real_name(Path(run)) or str(run)
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
        revision: what was said of the model of that name.
        source: where the run's model was said to be.

    Raises:
        RunError: there is a run, but it cannot be read, or a revision is asked of it; or there is
            none, and it was said where its model is.
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
        raise RunError(
            f"{source!s:.200} was given as where a run's model is, but {model!s:.200} is no run"
        )
    return run


def the_model(model: Any, **options: Any) -> Model:
    """The model that is meant: itself if it is loaded already, or else opened.

    Args:
        model: what `headscope.models.load.open_model` takes.
        options: fields of `headscope.models.load.LoadOptions`.

    Raises:
        ModelError: it cannot be loaded.
        HeadscopeError: a device or revision is asked of a model that is loaded already.
    """
    from headscope.models.load import LoadOptions, open_model
    from headscope.models.model import Model

    if not isinstance(model, Model):
        return open_model(model, **options)
    load_options = LoadOptions(**options)
    for what in ("device", "revision"):
        if what in load_options.changed():
            raise HeadscopeError(
                f"{what} is {getattr(load_options, what)!r}, but {model.name} is loaded already; "
                "give its name instead"
            )
    return model
