"""Runs side by side, from their folders to tables, a figure and a page, on one screen."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.arguments import takes
from headscope.errors import RunError
from headscope.evidence.result import Result, layers_of
from headscope.evidence.tags import UNCLASSIFIED
from headscope.runs.named import A_RUN, run_names, the_run
from headscope.studies.compare.changes import correlations, head_changes, relation_changes
from headscope.studies.compare.depth import depth_shares
from headscope.studies.compare.result import Comparison
from headscope.views.colours import in_order


@takes(runs=A_RUN)
def compare(*runs: Result | str | Path) -> Comparison:
    """Compare runs: head by head if all have the same layers × heads, and by depth in any case.

    Args:
        runs: two runs or more, or their folders; each is compared with the first.

    Raises:
        RunError: fewer than two runs, a folder without a run, or runs of different relations.
    """
    if len(runs) < 2:
        raise RunError(f"compare takes two runs or more, and {len(runs)} came")
    loaded = tuple(map(the_run, runs))
    names = run_names(runs)
    _check_relations(loaded, names)
    types = _types(loaded)
    shapes = {(*layers_of(run), int(run.heads["head"].max()) + 1) for run in loaded}
    heads = relations = correlation = None
    if len(shapes) == 1:
        first = loaded[0]
        others = list(zip(loaded, names, strict=True))[1:]
        each = [relation_changes(first, run, name) for run, name in others]
        relations = pd.concat(each, ignore_index=True)
        heads = pd.concat(
            [head_changes(first, *pair) for pair in _with(others, each)], ignore_index=True
        )
        correlation = correlations(relations)
    depth, notes = depth_shares(loaded, names, types), tuple(_notes(loaded, names))
    return Comparison(loaded, names, types, depth, heads, relations, correlation, notes)


def _with(
    others: Sequence[tuple[Result, str]], tables: Sequence[pd.DataFrame]
) -> list[tuple[Result, pd.DataFrame, str]]:
    return [(run, table, name) for (run, name), table in zip(others, tables, strict=True)]


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
    found = {name.split("/")[0] for run in runs for name in run.rules}
    found |= {str(name) for run in runs for name in run.heads["primary"]}
    return tuple(in_order(found | {UNCLASSIFIED}))


def _notes(runs: Sequence[Result], names: Sequence[str]) -> list[str]:
    notes = []
    first, known = runs[0], _measured(runs[0])
    for run, name in zip(runs[1:], names[1:], strict=True):
        differ = [what for what, ask in _FACTS.items() if ask(first.info) != ask(run.info)]
        notes.append(f"{name} and {names[0]} differ in: {', '.join(differ) or 'nothing stated'}")
        if odd := sorted(known ^ _measured(run)):
            more = "" if len(odd) == 1 else f" and {len(odd) - 1} more"
            notes.append(f"only one of {names[0]} and {name} had text for {odd[0]}{more}")
        if any(first.rules[key] != run.rules[key] for key in first.rules):
            notes.append(f"{name} and {names[0]} were judged by different thresholds")
    return notes


def _measured(run: Result) -> set[str]:
    return set(run.evidence["type"] + "/" + run.evidence["relation"])


def _fact(*path: str) -> Any:
    def ask(info: Any) -> Any:
        for name in path:
            info = info.get(name) if isinstance(info, dict) else None
        return info

    return ask


_FACTS = {
    "model": _fact("model", "name"),
    "revision": _fact("model", "revision"),
    "weights": _fact("model", "weights_sha256"),
    "corpora": _fact("corpora", "files"),
    "max tokens": _fact("settings", "max_tokens"),
    "max length": _fact("settings", "max_length"),
    "seed": _fact("settings", "seed"),
    "twin": _fact("settings", "twin"),
    "bos": _fact("settings", "bos"),
    "engine": _fact("engine"),
}
