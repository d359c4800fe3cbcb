"""Runs side by side, from their folders to tables; and shares of heads by relative depth, so that
models of any shape can stand side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from headscope.arguments import takes
from headscope.errors import RunError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.relations import head_types
from headscope.runs.resolve import A_RUN, run_names, the_run
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import NO_TYPE, UNCLASSIFIED, countable_types
from headscope.studies.compare.changes import correlations, head_changes, relation_changes
from headscope.studies.compare.compare_result import Comparison
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
    # asked of texts in a chat template alone, and compared with nothing
    in_chat = {row.id for head_type in head_types().values() for row in head_type.chat_relations}
    for run, name in zip(runs[1:], names[1:], strict=True):
        if odd := sorted((known ^ set(run.rules)) - in_chat):
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
        notes.append(f"{name} and {names[0]} differ in: {', '.join(differ) or 'nothing recorded'}")
        if odd := sorted(known ^ _measured(run)):
            others = "" if len(odd) == 1 else f" and {len(odd) - 1} more"
            notes.append(f"only one of {names[0]} and {name} had queries for {odd[0]}{others}")
        both = first.rules.keys() & run.rules.keys()
        if any(first.rules[key] != run.rules[key] for key in both):
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
    "chat template": ("chat",),
    "engine": ("engine",),
}


BINS = 5
COLUMNS = ["run", "depth_low", "depth_high", "type", "count", "heads", "share"]


def depth_shares(
    runs: Sequence[Result], names: Sequence[str], types: Sequence[str], *, bins: int = BINS
) -> pd.DataFrame:
    """For each run, stretch of depth and type the share of the stretch's heads.

    Depth is layer / (layers − 1), in [0, 1]; a model of one layer lies at 0. Stretches are equally
    long and hold their lower end; the last holds 1 too. There are `bins` of them, or as many as
    the shallowest model has layers with heads. The shares of a stretch sum to 1; a stretch of a
    hybrid model may have no heads, and then it has no shares. `count` and `share` are missing where
    the run could give no tag of the type: its text had too few queries for it.

    Args:
        runs: the runs.
        names: what to call them.
        types: the types to count, which should be all that are some head's primary.
        bins: stretches of depth.
    """
    bins = min([bins, *(len(layers_of(run)) for run in runs)])
    rows = []
    for run, name in zip(runs, names, strict=True):
        # in whole numbers: 3 / 5 is no exact fraction of a float
        last = max(_depth_of(run) - 1, 1)
        interval = (run.heads["layer"] * bins // last).clip(upper=bins - 1)
        measured = {*countable_types(run.evidence, run.rules), *NO_TYPE}
        for number in range(bins):
            primary = run.heads["primary"][interval == number]
            ends = number / bins, (number + 1) / bins
            for kind in types:
                count = int((primary == kind).sum()) if kind in measured else None
                share = None if count is None or primary.empty else count / len(primary)
                rows.append((name, *ends, kind, count, len(primary), share))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"count": "Int64", "share": float})


def _depth_of(run: Result) -> int:
    """The number of the run's model's layers; of a hybrid also those that have no heads."""
    last = int(run.heads["layer"].max()) + 1
    return max(last, int(run.info.get("model", {}).get("layers", last)))
