"""The plan of a sweep, and what it may cost: counted where it can be, else tried out."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.text import Text

from headscope.corpus.shipped import asked_corpora
from headscope.errors import HeadscopeError
from headscope.measure.in_process import InProcess
from headscope.measure.measure import BatchReader
from headscope.measure.run_windows import windows_of
from headscope.measure.schedule import Choose, Step, schedule
from headscope.models.batching import batch_tokens_on
from headscope.models.load import Model
from headscope.models.null_model import WindowSample
from headscope.relations import check_types, relations_of
from headscope.relations.relation import Relation
from headscope.settings import Settings
from headscope.studies.sweep.spec import Spec
from headscope.studies.sweep.sweep_cells import Cell, is_complete, plan_cells, where
from headscope.views.tables import plain_table

PROBED = 2
"""Batches that are read to see how long one takes; the first one warms up."""


@dataclass(frozen=True)
class CellPlan:
    """One cell: what is counted, and what is reckoned from a short trial."""

    cell: Cell
    complete: bool = False
    error: str = ""
    tokens: int = 0
    """Of text and the other stimuli."""
    twin_tokens: int = 0
    seconds: float = float("nan")
    """To read them, in one process on this machine."""
    weights: int = 0
    """Bytes of the model's parameters."""
    memory: int = 0
    """The most bytes that this process had by then, libraries and a batch included."""


def plan(spec: Spec) -> list[CellPlan]:
    """Each cell's tokens, counted, and its time, from two batches that are tried.

    Each model's first revision is loaded, and stands for the others; nothing is written.

    Raises:
        HeadscopeError: the sweep's folder holds another sweep, or the types are none.
    """
    check_types(spec.settings.get("types"))
    cells = plan_cells(spec)
    tried: dict[Any, CellPlan] = {}
    for cell in cells:
        key = cell.model, cell.corpus
        if key not in tried and not is_complete(spec, cell):
            tried[key] = _try(spec, cell)
    plans = []
    for cell in cells:
        if is_complete(spec, cell):
            plans.append(CellPlan(cell, complete=True))
        else:
            known = tried[cell.model, cell.corpus]
            plans.append(CellPlan(**{**vars(known), "cell": cell}))
    return plans


AT_MOST = " and upper bounds: a run ends early where the rest would hardly change a tag"


def plan_lines(plans: Sequence[CellPlan], spec: Spec, workers: int) -> RenderableType:
    """A row per cell, then what it comes to in all and where the numbers are from."""
    columns = ("run", "tokens", "twin's", "time", "weights", "memory")
    table = plain_table(*columns)
    for cell_plan in plans:
        if cell_plan.complete:
            table.add_row(cell_plan.cell.folder, "complete: is kept", *[""] * 4)
        elif cell_plan.error:
            table.add_row(cell_plan.cell.folder, "cannot be read", *[""] * 4)
        else:
            table.add_row(
                cell_plan.cell.folder,
                f"{cell_plan.tokens:,}",
                f"{cell_plan.twin_tokens:,}",
                _time(cell_plan.seconds),
                _size(cell_plan.weights),
                _size(cell_plan.memory),
            )
    unfinished = [
        cell_plan for cell_plan in plans if not cell_plan.complete and not cell_plan.error
    ]
    total = sum(cell_plan.tokens + cell_plan.twin_tokens for cell_plan in unfinished)
    seconds = sum((cell_plan.seconds for cell_plan in unfinished), 0.0)
    notes = [
        f"\n{len(unfinished)} of {len(plans)} runs to do into {spec.out}: {total:,} tokens, "
        f"about {_time(seconds)} of reading in one process; {workers} at the same time.",
        "Tokens are counted" + ("" if spec.settings.get("all") else AT_MOST) + ". "
        f"Time is extrapolated from {PROBED - 1} batch that each model's first revision read on "
        "this "
        "machine; loading, judging and writing add some seconds to each run, and workers share the "
        "cores. Memory is the peak of this process after that batch; every worker needs about as "
        "much.",
    ]
    failed = dict.fromkeys(
        (cell_plan.cell.model, cell_plan.error) for cell_plan in plans if cell_plan.error
    )
    notes += [f"{model}: {error}" for model, error in failed]
    return Group(table, *map(Text, notes))


def _try(spec: Spec, cell: Cell) -> CellPlan:
    settings, here = Settings(**spec.settings), InProcess()
    try:
        name, revision = where(*cell.loads)
        model = here.open(name, **replace(settings, revision=revision).loading())
        relations = relations_of(
            settings.types, model.attention_kind, quick=settings.quick, in_chat=settings.chat
        )
        corpora = asked_corpora(cell.text)
        tokens, again, probe = _count(model, relations, corpora, settings)
        rate = _rate(model, probe, relations, settings.seed) if probe else 0.0
    except HeadscopeError as error:
        return CellPlan(cell, error=str(error))
    return CellPlan(
        cell,
        tokens=tokens,
        twin_tokens=again,
        seconds=(tokens + again) * rate,
        weights=_weights(model),
        memory=_most_memory(),
    )


def _count(
    model: Model,
    relations: Sequence[Relation],
    corpus: Sequence[str | Path],
    settings: Settings,
) -> tuple[int, int, list[Step]]:
    """Count the tokens and the twin's tokens of a model; return them with the batches to time."""
    text, synthetic = windows_of(model, relations, corpus, settings)
    share: Choose = WindowSample(seed=settings.seed) if settings.twin else lambda windows: set()
    steps = schedule(text, synthetic, batch_tokens=batch_tokens_on(model.device), share=share)
    tokens, again, probe = 0, 0, list[Step]()
    for step in steps:
        tokens += step.tokens
        again += step.tokens if step.shared else 0
        if len(probe) < PROBED:
            probe.append(step)
    return tokens, again, probe


def _rate(model: Model, steps: Sequence[Step], relations: Sequence[Relation], seed: int) -> float:
    """Seconds for each token, from the last of some batches; the others warm up."""
    setting, seconds = BatchReader(model, relations, seed), float("nan")
    for step in steps:
        start = time.perf_counter()
        setting.read(step, setting.prepare(step.batch))
        seconds = (time.perf_counter() - start) / step.tokens
    return seconds


def _weights(model: Model) -> int:
    network: Any = getattr(model.engine, "network", None) or model.bridge
    return sum(parameter.numel() * parameter.element_size() for parameter in network.parameters())


def _most_memory() -> int:
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _time(seconds: float) -> str:
    if seconds != seconds:
        return "–"
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def _size(count: int) -> str:
    return f"{count / 1e6:,.0f} MB" if count < 1e9 else f"{count / 1e9:,.1f} GB"
