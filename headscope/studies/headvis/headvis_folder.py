"""`headvis`: a run as the folder that the HeadVis frontend reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np
import pandas as pd

from headscope.arguments import PATH, Default, takes, whole
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.load import Model
from headscope.relations.relation import MIN_QUERIES
from headscope.runs.listing import chosen_heads
from headscope.runs.recorded_paths import name_of
from headscope.runs.reopen_model import Again, model_of, text_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.runs.site import HEADVIS, check_site, new_site
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.stimuli.text import TextWindows
from headscope.studies.headvis.head_export import ExportInput, expected_bytes, write_head_files
from headscope.studies.headvis.headvis_result import HeadVis
from headscope.studies.headvis.row_metrics import METRICS, MetricSums
from headscope.studies.headvis.scan import HeadSelection, scan
from headscope.studies.headvis.vectors import shows_vectors
from headscope.studies.headvis.written import FEWEST_POINTS, INTERVALS, config_file, json_bytes

SEQUENCES, MAX_LENGTH, POINTS = 500, 256, 1_000
SHORTEST = 3
"""Tokens of a sequence with a cell off the first token's row and column and the diagonal."""


class HeadvisOptions(Again, total=False):
    """Options of `headvis` about its text and its clouds, and where the model is."""

    corpus: str | Path | Sequence[str | Path] | None
    """Files or folders of text; those of the run when None."""
    sequences: Annotated[int, whole(1), Default(SEQUENCES)]
    """Sequences of text to read at most."""
    max_length: Annotated[int, Default(MAX_LENGTH)]
    """Tokens of a sequence at most."""
    points: Annotated[int, whole(0), Default(POINTS)]
    """Most points of a head's cloud of vectors; 0 for no clouds."""


@takes(run=A_RUN, out=PATH)
def headvis(
    run: Result | str | Path,
    out: str | Path,
    *,
    heads: str = "all",
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = True,
    **options: Unpack[HeadvisOptions],
) -> HeadVis:
    """Write the data folder that HeadVis and Neuronpedia read: metrics, sequences, clouds.

    HeadVis (github.com/anthropics/headvis) shows heads as a scatter of metrics, sequences by tenths
    of a head's largest attention, and clouds of its queries, keys, outputs and values. Its metrics
    are taken over the whole text that is read; headscope's evidence stands beside them as axes.
    Neuronpedia's loaders import it from `EXPORTS/ID/headvis/TEXT`, where ID is their name of the
    model.

    Args:
        run: a run or its folder, whose model is loaded again.
        out: the folder; HeadVis looks for it under the name `data`.
        heads: `all`, `tagged`, or names such as `L5H1,L6H9`; 1 MB each at most.
        seed: seeds which text is read, which sequences of each tenth are shown, and the points.
        overwrite: replace an export that is there; what it did not write stays.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all passes.
        options: `corpus`, files or folders of text, those of the run when None; `sequences` to
            read at most (500); `max_length` of one in tokens (256); `points` of a cloud at most
            (1,000), 0 for none; `source`, the run's model, or where it is now if it is not where
            it was; `device`, `cpu`, `cuda`, …, where `auto`, the default, takes a GPU when there is
            one.

    Raises:
        RunError: no run there, or one without a model.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or holds no sequence of three tokens.
        WriteError: the folder holds something else, or nothing can be written there.
        HeadscopeError: no such head, or none tagged.
    """
    folder = Path(out)
    check_site(folder, overwrite=overwrite, site=HEADVIS)
    run = the_run(run)
    selection = HeadSelection(tuple(sorted(set(chosen_heads(run, heads)))))
    corpora = text_of(run, options.get("corpus", ()), seed=seed)
    with progress_bar(progress) as bar:
        model = _model(run, options)
        windows = _windows(corpora, model, options, seed)
        reading = ExportInput(model, windows, selection, seed, options.get("points", POINTS))
        bar.writes(expected_bytes(reading), folder)
        steps = Steps(bar, reading.passes * reading.tokens)
        scanned = scan(
            model, windows, selection, points=reading.points, seed=seed, advance=steps.advance
        )
        table, tooltips = _table(selection, scanned.sums, *own_axes(run))
        with new_site(folder, overwrite=overwrite, site=HEADVIS) as new:
            clouds = write_head_files(new, reading, scanned, steps.advance)
            rows = [row.dropna().to_dict() for _, row in table.astype(object).iterrows()]
            write_file(new / "scatter_data.json", json_bytes(rows))
            config = config_file(
                name=name_of(run.name),
                heads=selection.heads,
                shape=(model.layers + len(model.others), model.heads),
                tooltips=tooltips,
                clouds=clouds,
                source={
                    "dataset_name": ", ".join(name_of(str(path)) for path in corpora),
                    "n_sequences": len(windows),
                    "seq_len": max(map(len, windows)),
                    "dtype": model.dtype,
                    "attn_implementation": f"headscope {model.engine.name}",
                },
            )
            write_file(new / "config.json", json_bytes(config))
    notes = tuple(_notes(reading, len(clouds), options.get("sequences", SEQUENCES)))
    size = len(windows), reading.tokens, len(clouds)
    return HeadVis(run.name, folder, table, tooltips, *size, notes)


def _model(run: Result, options: HeadvisOptions) -> Model:
    again: dict[str, Any] = {k: options.get(k) for k in ("source", "device") if k in options}
    return model_of(run, longest=options.get("max_length", MAX_LENGTH), **again)


def _windows(
    corpora: Sequence[str | Path], model: Model, options: HeadvisOptions, seed: int
) -> list[Window]:
    """The sequences, as many as were asked for or as there are."""
    count = options.get("sequences", SEQUENCES)
    longest = min(options.get("max_length", MAX_LENGTH), model.longest_window)
    text = TextWindows(
        corpora, model.tokenizer, max_tokens=count * longest, max_length=longest, seed=seed
    )
    windows = list(islice((window for window in text if len(window) >= SHORTEST), count))
    if not windows:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: no sequence of {SHORTEST} tokens, the shortest with "
            "attention that HeadVis counts"
        )
    return windows


def _table(
    selection: HeadSelection, sums: MetricSums, axis_tooltips: dict[str, str], axes: pd.DataFrame
) -> tuple[pd.DataFrame, dict[str, str]]:
    """A row per head, four decimals; and the metrics that some head has, with their words."""
    heads = pd.MultiIndex.from_tuples(selection.heads, names=["layer", "head"])
    metrics = [sums.metrics(row) for row in range(len(heads))]
    table = pd.DataFrame(metrics, heads, list(METRICS)).join(axes)
    table = table.dropna(axis=1, how="all").round(4) + 0.0  # −0 becomes 0
    tooltips = METRICS | axis_tooltips
    return table.reset_index(), {name: tooltips[name] for name in table}


def _notes(reading: ExportInput, clouds: int, requested: int) -> list[str]:
    notes, windows = [], len(reading.windows)
    if windows < requested:
        notes.append(f"the text has {windows} sequences, and {requested} were asked for")
    if windows < INTERVALS:
        notes.append("fewer than ten sequences: some tenths hold none")
    if reading.points and not shows_vectors(reading.model):
        notes.append("no clouds: queries, keys and values are read by the fused engine alone")
    elif reading.points and clouds < len(reading.selection.heads):
        without = len(reading.selection.heads) - clouds
        notes.append(
            f"no cloud of {without} of the heads: fewer than {FEWEST_POINTS} of their queries "
            "attend strongly to anything but the first token"
        )
    return notes


_RELATION = "the {type} relation in which the head has the largest lift"
_OF_A_TYPE = {
    "mass": (
        "mass",
        f"headscope: attention on the targets of {_RELATION}, mean over its queries ({{names}}).",
    ),
    "lift": (
        "lift",
        f"headscope: attention on the targets minus that on control keys, of {_RELATION}.",
    ),
    "over_rule": (
        "contested_lift",
        "headscope: attention on the targets minus that on what the best simple rule picks, where "
        f"that rule is wrong, of {_RELATION}.",
    ),
}
"""By the end of a metric's name: the column of `evidence.csv`, and the words of its tooltip."""
_OF_A_HEAD = {
    "first_token_mass": "headscope: mean attention on the first token.",
    "sink_share": "headscope: mean share of attention that a learned sink takes.",
}
"""Columns of `heads.csv`."""
_HEAD = ["layer", "head"]


def own_axes(run: Result) -> tuple[dict[str, str], pd.DataFrame]:
    """Headscope's own numbers as axes of HeadVis' scatter: of every type, and how much heads rest.

    A type's numbers are those of its relation in which the head has the largest lift, of those that
    can earn a tag and were asked at `MIN_QUERIES` queries or more.

    Returns:
        The words of each metric's tooltip, and a column per metric, by layer and head; NaN for what
        is not known of one.
    """
    tooltips: dict[str, str] = {}
    columns: dict[str, pd.Series] = {}
    for name, rows in _best(run).set_index(_HEAD).groupby("type", sort=False):
        for end, (column, words) in _OF_A_TYPE.items():
            metric = f"{str(name).replace('-', '_')}_{end}"
            columns[metric] = rows[column]
            tooltips[metric] = words.format(type=name, names=_listed(rows["relation"]))
    heads = run.heads.set_index(_HEAD)
    for column, words in _OF_A_HEAD.items():
        if column in heads:
            columns[column], tooltips[column] = heads[column], words
    values = pd.DataFrame(columns, heads.index, dtype=float).replace([-np.inf, np.inf], np.nan)
    values = values.dropna(axis=1, how="all")
    return {metric: tooltips[metric] for metric in values}, values


def _best(run: Result) -> pd.DataFrame:
    rows = run.evidence
    ids = rows["type"] + "/" + rows["relation"]
    rules = run.rules
    able = ids.map({name: name not in rules or rules[name].taggable for name in ids.unique()})
    rows = rows[able & (rows["n"] >= MIN_QUERIES) & np.isfinite(rows["lift"])]
    order = rows.sort_values("lift", ascending=False, kind="stable")
    best = order.drop_duplicates([*_HEAD, "type"])
    return best.sort_index()


def _listed(relations: pd.Series, limit: int = 4) -> str:
    """Names of these relations, those of most heads first."""
    counts = relations.value_counts()
    names = sorted(counts.index, key=lambda name: (-counts[name], name))
    unlisted = len(names) - limit
    return ", ".join(names) if unlisted < 2 else f"{', '.join(names[:limit])} and {unlisted} others"
