"""Ablation: the effects of ablating a run's heads, and of knocking out the edges of their tags."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from matplotlib.figure import Figure

from headscope.arguments import NAME, takes
from headscope.errors import ChoiceError, ModelError
from headscope.heads import head_name
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.measure.study_windows import LENGTH, edge_windows
from headscope.models.load import Model
from headscope.models.query_rerun import QueryRerunner
from headscope.models.rerun import WAYS_TO_ABLATE, Rerunner
from headscope.relations import head_types, relations_of
from headscope.runs.listing import Head, chosen_heads
from headscope.runs.reopen_model import Again, model_of, text_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.causes import AWAY, EDGES, judged
from headscope.statistics.result import Result
from headscope.studies.ablate_edges import (
    QUERIES,
    Tag,
    knock_out_edges,
    tags_of,
    untested_row,
)
from headscope.studies.ablate_heads import ablate_heads, heads_with_controls, output_norms
from headscope.studies.ablate_texts import ablation_texts, short_windows
from headscope.views.study import StudyResult

HEADS, ONLY = "heads", ("both", "heads", "edges")
TERMINAL = [
    *("layer", "head", "type", "relation", "behaviour", "effect", "ci_low", "ci_high", "control"),
    *("q_value", "verdict"),
]
NORM_TOKENS = 1_024
"""Tokens on which the norms of heads' outputs are measured."""
MOST_LINES = 40
"""Most effects in the figure."""


@takes(run=A_RUN, only=NAME)
def ablate(
    run: Result | str | Path,
    *,
    heads: str = "tagged",
    how: str = "mean",
    only: str = "both",
    queries: int = QUERIES,
    seed: int = 0,
    corpus: str | Path | Sequence[str | Path] | None = None,
    progress: Progress = True,
    **again: Unpack[Again],
) -> StudyResult:
    """Measure the effects of ablating heads, and of knocking out the edges of their tags.

    The table has a row per head × behaviour that its type predicts (`ablate_heads`), and a row per
    tag (`knock_out_edges`). `headscope.statistics.causes.judged` describes the verdicts.

    Args:
        run: a run or its folder, whose model is loaded again.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        how: replaces a head's output by its `mean` over the text, or by `zero`.
        only: ablate `heads`, knock out `edges`, or `both`.
        queries: most queries at which a tag is tested.
        seed: seeds stimuli, controls and intervals.
        corpus: files or folders of text; those of the run if None.
        progress: True for a progress bar on a terminal, False for none, or a function that is
            called with the steps done and in all.
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            `cpu`, `cuda` or `auto`.

    Raises:
        ChoiceError: no such `how` or `only`.
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: the run's text cannot be read.
        HeadscopeError: no such head, or none tagged.
    """
    if how not in WAYS_TO_ABLATE:
        raise ChoiceError("way to ablate", how, WAYS_TO_ABLATE)
    if only not in ONLY:
        raise ChoiceError("thing to ablate", only, ONLY)
    run = the_run(run)
    selection = chosen_heads(run, heads)
    corpora = text_of(run, corpus, seed=seed)
    tables = []
    with progress_bar(progress, "ablating", unit="steps") as bar:
        model = model_of(run, longest=LENGTH, **again)
        if only != EDGES:
            rerunner = Rerunner(model)
            norms = output_norms(rerunner, short_windows(model, corpora, NORM_TOKENS, seed))
            tested = heads_with_controls(run, heads, norms)
            types = {head.type for head in tested}
            texts = ablation_texts(run, model, corpora, types, rerunner.score, seed)
            table = ablate_heads(rerunner, texts, tested, method=how, seed=seed, progress=bar)
            tables.append(table)
        if only != HEADS:
            tags = tags_of(run.evidence, selection)
            tables.append(_edges(model, corpora, tags, queries=queries, seed=seed, progress=bar))
    causes = judged(pd.concat(tables, ignore_index=True), _direct_effect_heads(run))
    tests = causes[~causes["behaviour"].isin(AWAY)]
    counts = tests["verdict"].value_counts()
    return StudyResult(
        title=f"{run.name}: effects of ablating heads and of knocking out the edges of tags, nats",
        table=causes,
        terminal_table=tests.loc[tests["effect"].notna(), TERMINAL],
        summary=[f"{verdict}: {count} of {len(tests)} tests" for verdict, count in counts.items()],
        draw=_figure,
    )


def _edges(
    model: Model,
    corpora: Sequence[str | Path],
    tags: Sequence[Tag],
    *,
    queries: int,
    seed: int,
    progress: OnProgress,
) -> pd.DataFrame:
    """A row per tag; with the reason if the model's edges cannot be knocked out."""
    tested = {name for tag in tags for name in tag.relations}
    relations = [relation for relation in relations_of([*head_types()]) if relation.id in tested]
    try:
        runner = QueryRerunner(model)
    except ModelError:
        reason = "this model mixes tokens by more"
        if not model.attention_kind.predicts_next:
            reason = "all tokens of an encoder see each other"
        return pd.DataFrame([untested_row(tag, reason) for tag in tags])
    windows = edge_windows(model, corpora, {s for r in relations for s in r.stimuli}, seed=seed)
    return knock_out_edges(runner, windows, tags, seed=seed, queries=queries, progress=progress)


def _direct_effect_heads(run: Result) -> set[Head]:
    """Heads that are tagged by their direct effect."""
    if run.effects is None:
        return set()
    tagged = run.effects[run.effects["tagged"].astype(bool)]
    return {(int(row.layer), int(row.head)) for row in tagged.itertuples()}


def _figure(result: StudyResult) -> Figure:
    """The largest effects with their intervals, beside the mean effects of their controls."""
    table = result.table[~result.table["behaviour"].isin(AWAY)]
    largest = table["effect"].abs().nlargest(MOST_LINES).index
    rows = table.loc[largest[::-1]].reset_index(drop=True)
    figure = Figure(figsize=(6.4, 1.2 + 0.3 * len(rows)), layout="constrained")
    axes = figure.subplots()
    errors = [rows["effect"] - rows["ci_low"], rows["ci_high"] - rows["effect"]]
    spread = [error.clip(lower=0) for error in errors]
    axes.errorbar(rows["effect"], rows.index, xerr=spread, fmt="ko", ms=4, lw=1, label="ablated")
    axes.plot(rows["control"], rows.index, "o", color="0.6", ms=4, label="control")
    axes.axvline(0, color="grey", lw=0.6)
    axes.set_yticks(rows.index, [_line(row) for row in rows.itertuples()], fontsize=7)
    axes.set_xlabel("effect (nats)")
    axes.legend(fontsize=7)
    return figure


def _line(row: Any) -> str:
    measured = f"/{row.relation}" if row.behaviour == EDGES else f": {row.behaviour}"
    return f"{row.type}{measured}  {head_name(int(row.layer), int(row.head))}".replace("$", r"\$")
