"""`headvis`: a run as the folder that the HeadVis frontend reads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, Unpack

import pandas as pd
from matplotlib.figure import Figure

from headscope.arguments import PATH, Default, takes, whole
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.load import Model
from headscope.runs.listing import chosen_heads
from headscope.runs.recorded_paths import name_of
from headscope.runs.reopen_model import Again, model_of, text_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.runs.site import HEADVIS, check_site, new_site
from headscope.runs.write import write_file
from headscope.statistics.result import Result
from headscope.stimuli.text import TextWindows
from headscope.studies.headvis.head_export import ExportInput, write_head_files
from headscope.studies.headvis.row_metrics import METRICS, MetricSums
from headscope.studies.headvis.scan import HeadSelection, scan
from headscope.studies.headvis.written import INTERVALS, config_file, json_bytes
from headscope.views.study import StudyResult

SEQUENCES, MAX_LENGTH = 500, 256
PRINTED = (
    *("layer", "head", "self_attention_score", "prev_token_score", "induction_score"),
    *("pattern_entropy", "qk_distance"),
)
SHORTEST = 3
"""Tokens of a sequence with a cell off the first token's row and column and the diagonal."""


class HeadvisOptions(Again, total=False):
    """Options of `headvis` about its text, and where the model is."""

    corpus: str | Path | Sequence[str | Path] | None
    """Files or folders of text; those of the run when None."""
    sequences: Annotated[int, whole(1), Default(SEQUENCES, "Sequences of text to read at most.")]
    max_length: Annotated[int, Default(MAX_LENGTH, "Tokens of a sequence at most.")]


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
) -> StudyResult:
    """Write the data folder that HeadVis and Neuronpedia read: metrics and sequences.

    HeadVis (github.com/anthropics/headvis) shows heads as a scatter of metrics, and sequences by
    tenths of a head's largest attention. Neuronpedia's loaders import the folder from
    `EXPORTS/ID/headvis/TEXT`, where ID is their name of the model. The table has a row per head
    with HeadVis' metrics, as in `scatter_data.json`.

    Args:
        run: a run or its folder, whose model is loaded again.
        out: the folder; HeadVis looks for it under the name `data`.
        heads: `all`, `tagged`, or names such as `L5H1,L6H9`; 1 MB each at most.
        seed: seeds which text is read, and which sequences of each tenth are shown.
        overwrite: replace an export that is there; what it did not write stays.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all passes.
        options: `corpus`, files or folders of text, those of the run when None; `sequences` to
            read at most (500); `max_length` of one in tokens (256); `source`, the run's
            model or its new path; `device`, `cpu`, `cuda` or `auto`.

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
        reading = ExportInput(model, windows, selection, seed)
        steps = Steps(bar, reading.passes * reading.tokens)
        scanned = scan(model, windows, selection, steps.advance)
        table, tooltips = _table(selection, scanned.sums)
        with new_site(folder, overwrite=overwrite, site=HEADVIS) as new:
            write_head_files(new, reading, scanned, steps.advance)
            rows = [row.dropna().to_dict() for _, row in table.astype(object).iterrows()]
            write_file(new / "scatter_data.json", json_bytes(rows))
            config = config_file(
                name=name_of(run.name),
                heads=selection.heads,
                shape=(model.layers + len(model.others), model.heads),
                tooltips=tooltips,
                source={
                    "dataset_name": ", ".join(name_of(str(path)) for path in corpora),
                    "n_sequences": len(windows),
                    "seq_len": max(map(len, windows)),
                    "dtype": model.dtype,
                    "attn_implementation": f"headscope {model.engine.name}",
                },
            )
            write_file(new / "config.json", json_bytes(config))
    return StudyResult(
        title=f"{name_of(run.name)}: {len(table)} heads on {len(windows):,} sequences of "
        f"{reading.tokens:,} tokens, for HeadVis in {folder}",
        table=table,
        terminal_table=table[[column for column in PRINTED if column in table]],
        notes=_notes(reading, options.get("sequences", SEQUENCES)),
        values={"folder": str(folder), "sequences": len(windows), "tokens": reading.tokens},
        draw=_figure,
    )


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


def _table(selection: HeadSelection, sums: MetricSums) -> tuple[pd.DataFrame, dict[str, str]]:
    """A row per head, four decimals; and the metrics that some head has, with their words."""
    heads = pd.MultiIndex.from_tuples(selection.heads, names=["layer", "head"])
    metrics = [sums.metrics(row) for row in range(len(heads))]
    table = pd.DataFrame(metrics, heads, list(METRICS))
    table = table.dropna(axis=1, how="all").round(4) + 0.0  # −0 becomes 0
    return table.reset_index(), {name: METRICS[name] for name in table}


def _notes(reading: ExportInput, requested: int) -> list[str]:
    notes, windows = [], len(reading.windows)
    if windows < requested:
        notes.append(f"the text has {windows} sequences, and {requested} were asked for")
    if windows < INTERVALS:
        notes.append("fewer than ten sequences: some tenths hold none")
    return notes


def _figure(result: StudyResult) -> Figure:
    """Every head by its previous-token score and its induction score."""
    x, y = "prev_token_score", "induction_score"
    figure = Figure(figsize=(4.6, 3.6), layout="constrained")
    axes = figure.subplots()
    axes.scatter(result.table[x], result.table[y], s=14, color="#0072b2", alpha=0.7, linewidths=0)
    axes.set(xlabel=x, ylabel=y)
    axes.set_title(result.title.split(":")[0].replace("$", r"\$"), fontsize=9)
    axes.spines[["top", "right"]].set_visible(False)
    return figure
