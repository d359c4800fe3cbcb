"""Runs side by side, from their folders to tables, a figure and a page, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.arguments import takes
from headscope.errors import RunError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.runs.resolve import A_RUN, run_names, the_run
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import UNCLASSIFIED
from headscope.studies.compare.changes import correlations, head_changes, relation_changes
from headscope.studies.compare.compare_result import Comparison
from headscope.studies.compare.depth import depth_shares
from headscope.views.colours import types_in_order


@takes(runs=A_RUN)
def compare(*runs: Result | str | Path, progress: Progress = True) -> Comparison:
    """Compare runs: head by head if all have the same layers × heads, and by depth in any case.

    Args:
        runs: two runs or more, or their folders; each is compared with the first.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the steps done and the steps in all.

    Raises:
        RunError: fewer than two runs, a folder without a run, or runs of different relations.
    """
    if len(runs) < 2:
        raise RunError(f"compare takes two runs or more, and {len(runs)} came")
    with progress_bar(progress, "comparing runs", unit="steps", loads=False) as bar:
        return _comparison(runs, Steps(bar, 2 * len(runs)).advance)


def _comparison(runs: Sequence[Result | str | Path], advance: Callable[[], None]) -> Comparison:
    loaded = []
    for run in runs:
        loaded.append(the_run(run))
        advance()
    names = run_names(runs)
    _check_relations(loaded, names)
    types = _types(loaded)
    shapes = {(*layers_of(run), int(run.heads["head"].max()) + 1) for run in loaded}
    heads = relations = correlation = None
    if len(shapes) == 1:
        relation_tables, head_tables = [], []
        for run, name in zip(loaded[1:], names[1:], strict=True):
            table = relation_changes(loaded[0], run, name)
            relation_tables.append(table)
            head_tables.append(head_changes(loaded[0], run, table, name))
            advance()
        relations = pd.concat(relation_tables, ignore_index=True)
        heads = pd.concat(head_tables, ignore_index=True)
        correlation = correlations(relations)
    depth, notes = depth_shares(loaded, names, types), tuple(_notes(loaded, names))
    advance()
    return Comparison(tuple(loaded), names, types, depth, heads, relations, correlation, notes)


def _check_relations(runs: Sequence[Result], names: Sequence[str]) -> None:
    known = set(runs[0].rules)
    for run, name in zip(runs[1:], names[1:], strict=True):
        if odd := sorted(known ^ set(run.rules)):
            has, lacks = (names[0], name) if odd[0] in known else (name, names[0])
            raise RunError(
                f"these runs asked for different relations: {has} has {odd[0]!r:.100} and {lacks} "
                f"has not ({len(odd)} differ in all); classify both with the same --types"
            )


def _types(runs: Sequence[Result]) -> tuple[str, ...]:
    types = {name.split("/")[0] for run in runs for name in run.rules}
    types |= {str(name) for run in runs for name in run.heads["primary"]}
    return tuple(types_in_order(types | {UNCLASSIFIED}))


def _notes(runs: Sequence[Result], names: Sequence[str]) -> list[str]:
    notes = []
    first, known = runs[0], _measured(runs[0])
    for run, name in zip(runs[1:], names[1:], strict=True):
        differ = [
            what
            for what, path in _FACTS.items()
            if _fact(first.info, path) != _fact(run.info, path)
        ]
        notes.append(f"{name} and {names[0]} differ in: {', '.join(differ) or 'nothing stated'}")
        if odd := sorted(known ^ _measured(run)):
            others = "" if len(odd) == 1 else f" and {len(odd) - 1} more"
            notes.append(f"only one of {names[0]} and {name} had text for {odd[0]}{others}")
        if any(first.rules[key] != run.rules[key] for key in first.rules):
            notes.append(f"{name} and {names[0]} were judged by different thresholds")
    return notes


def _measured(run: Result) -> set[str]:
    return set(run.evidence["type"] + "/" + run.evidence["relation"])


def _fact(info: Any, path: Sequence[str]) -> Any:
    for name in path:
        info = info.get(name) if isinstance(info, dict) else None
    return info


_FACTS = {
    "model": ("model", "name"),
    "revision": ("model", "revision"),
    "weights": ("model", "weights_sha256"),
    "dtype": ("model", "dtype"),
    "corpora": ("corpora", "files"),
    "max tokens": ("settings", "max_tokens"),
    "max length": ("settings", "max_length"),
    "seed": ("settings", "seed"),
    "quick": ("settings", "quick"),
    "twin": ("settings", "twin"),
    "bos": ("settings", "bos"),
    "engine": ("engine",),
}
