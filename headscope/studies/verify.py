"""Published scores of a model's heads: do the same heads come first in a run?

Scores were published on other stimuli than a run's, so ranks are compared and not values. Heads of
one layer are alike, so the control permutes heads within their layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from headscope.corpus.shipped import corpus_title
from headscope.errors import RunError
from headscope.heads import head_name
from headscope.options import Flag, Name, PathName
from headscope.resolve import RunName, the_run
from headscope.statistics.result import Result
from headscope.studies.study import Study, study, table_columns
from headscope.studies.study_table import Command
from headscope.studies.verify_agreement import (
    Scores,
    correlation_over_heads,
    correlation_within_layers,
    disagreeing_heads,
    permuted_within_layers,
    shared_heads,
    top_heads,
)
from headscope.studies.verify_scores import (
    HEAD,
    published_metrics,
    published_name,
    read_scores,
    scores_that_ship,
)
from headscope.views.study_result import StudyResult
from headscope.views.terminal_tables import number_text

STUDY = Study(
    command=Command(
        group="top",
        summary="Compare a run with published scores of its heads.",
        examples=(
            "headscope verify runs/my-gpt2 --as gpt2 --out ranks.csv",
            "headscope verify runs/gemma --scores gemma-3-270m/scatter_data.json",
            "headscope verify atlas:mini --labels labels.csv",
        ),
        figure="",
    ),
    rows="published metric that has a value for every head, and relation that resembles it",
    columns=table_columns("""
        metric | a name | published metric
        revision | text | published revision of the model
        relation | a name | relation of the run, or column of heads.csv, that resembles it
        quantity | `attention`, … | quantity that was published
        stimulus | text | published stimulus, and after `ours:` that of the run
        source | text | file that the score is from, and precision, length and text if stated
        heads | count, ≥ 1 | heads with a published score
        spearman | [−1, 1] | rank correlation over all heads
        spearman_low, spearman_high | [−1, 1] | its 95 % interval over heads
        spearman_control | [−1, 1] | its mean over permutations of heads within their layers
        within_layers | [−1, 1] | mean of the rank correlations of the layers
        within_layers_low, within_layers_high | [−1, 1] | its 95 % interval over layers
        top | count, ≥ 1 | number of heads at the top of both rankings
        shared | count, ≥ 0 | heads at the top of both
        shared_control | count, ≥ 0 | its mean over permutations
        p_value | [0, 1] | share of permutations, counting the run as one, that share as many
        best | a head | head with the highest published score
        disagreeing | text | three heads whose ranks differ most, each with the published score and
            the run's
    """),
    bad_call={"model": ""},
)


@study(STUDY)
def verify(
    run: RunName,
    *,
    model: Annotated[
        Name | None,
        Flag("--as"),
        Field(description="Name of the model in the published scores, if it differs."),
    ] = None,
    scores: Annotated[
        PathName | None,
        Field(
            description="CSV of published scores (model,revision,metric,layer,head,value), or "
            "Neuronpedia's scatter_data.json or head-metrics/MODEL.json; by default the published "
            "scores that ship."
        ),
    ] = None,
) -> StudyResult:
    """Compare the ranks of a run's heads with published scores of the same model.

    Raises:
        HeadscopeError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, the file
            contains no scores, or no score can be compared.
    """
    run = the_run(run)
    name = model or str(run.info["model"]["name"])
    published = scores_that_ship() if scores is None else read_scores(Path(scores), name)
    known = published_name(name, sorted(set(published["model"])))
    of_model = published[published["model"] == known]
    table, notes = _ranks(run, of_model)
    if table.empty:
        raise RunError(f"{run.name}: no score of {known} can be compared; {'; '.join(notes)}")
    return StudyResult(
        title=f"{run.name}: ranks of heads against published scores of {known}",
        table=table,
        terminal_table=_terminal_table(table),
        notes=[*_differences(run, table), *notes],
    )


def _ranks(run: Result, published: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table of `verify`, and reasons why metrics are not compared."""
    revision = _revision(run, published)
    of_revision = published[published["revision"] == revision]
    definitions = published_metrics()
    rows, notes, without_relation = [], [], []
    for metric, scores in of_revision.groupby("metric"):
        of_metric = definitions[definitions["metric"] == metric]
        if of_metric.empty:
            without_relation.append(str(metric))
        for definition in of_metric.to_dict("records"):
            relation = definition["relation"]
            masses = masses_of(run, relation)
            if masses is None:
                notes.append(f"{metric} is not compared: this run has not scored {relation}")
                continue
            facts = {"revision": revision, "source": scores["source"].iloc[0]}
            rows.append(definition | facts | _agreement(run, scores, masses))
    if without_relation:
        notes.append(f"not compared, as no relation resembles them: {', '.join(without_relation)}")
    return pd.DataFrame(rows, columns=STUDY.names), notes


def _revision(run: Result, published: pd.DataFrame) -> str:
    """The published revision that a run is compared with: its own, or the main one."""
    revisions = sorted(set(published["revision"]))
    of_run = str(run.info.get("model", {}).get("revision") or "main")
    revision = of_run if of_run in revisions else "main"
    if revision not in revisions:
        raise RunError(
            f"published scores are of revision {', '.join(revisions)}, and the run of {of_run}"
        )
    return revision


def _agreement(run: Result, scores: pd.DataFrame, masses: Scores) -> dict[str, object]:
    """Columns that compare a metric's scores of all heads with the run's."""
    layers = sorted(set(run.heads["layer"]))
    table = _with_layers_of(layers, scores).sort_values(HEAD)
    if not np.array_equal(table[HEAD], run.heads[HEAD].sort_values(HEAD)):
        raise RunError(
            f"this run has {masses.shape[0]} layers × {masses.shape[1]} heads, and "
            f"{table['metric'].iloc[0]} has {len(table)} scores of {table['layer'].max() + 1} × "
            f"{table['head'].max() + 1}"
        )
    published = table["value"].to_numpy().reshape(masses.shape)
    over_heads = correlation_over_heads(published, masses)
    within_layers = correlation_within_layers(published, masses)
    null = permuted_within_layers(published, masses)
    best = table.loc[table["value"].idxmax()]
    return {
        "heads": masses.size,
        "spearman": over_heads.value,
        "spearman_low": over_heads.low,
        "spearman_high": over_heads.high,
        "spearman_control": null.correlation,
        "within_layers": within_layers.value,
        "within_layers_low": within_layers.low,
        "within_layers_high": within_layers.high,
        "top": top_heads(masses.size),
        "shared": shared_heads(published, masses),
        "shared_control": null.shared,
        "p_value": null.p_value,
        "best": head_name(int(best["layer"]), int(best["head"])),
        "disagreeing": disagreeing_heads(published, masses, layers),
    }


def _with_layers_of(layers: list[int], scores: pd.DataFrame) -> pd.DataFrame:
    """Scores with the run's numbers of layers, if the published ones count layers with attention.

    A hybrid's run numbers all layers, and those with attention have gaps.
    """
    counted = list(range(len(layers)))
    if sorted(set(scores["layer"])) != counted:
        return scores
    return scores.assign(layer=scores["layer"].map(dict(zip(counted, layers, strict=True))))


def masses_of(run: Result, relation: str) -> Scores | None:
    """Masses of a relation, or a column of `heads.csv`; None if a head has none."""
    heads = run.heads
    column = relation
    if relation not in heads:
        relations = run.evidence["type"] + "/" + run.evidence["relation"]
        heads = run.evidence[relations == relation]
        column = "mass"
    if len(heads) != len(run.heads) or heads[column].isna().any():
        return None
    shape = (run.heads["layer"].nunique(), run.heads["head"].nunique())
    masses = heads.sort_values(HEAD)[column]
    return np.asarray(masses, float).reshape(shape)


def _terminal_table(table: pd.DataFrame) -> pd.DataFrame:
    """The table for a terminal: each correlation with its interval in one column."""
    rows = []
    for row in table.to_dict("records"):
        cells = {"metric": row["metric"], "relation": row["relation"]}
        cells["ρ"] = _with_interval(row, "spearman")
        cells["ρ in layers"] = _with_interval(row, "within_layers")
        cells["ρ permuted"] = row["spearman_control"]
        cells[f"shared of {row['top']}"] = row["shared"]
        cells["permuted"] = row["shared_control"]
        rows.append(cells | {"p": row["p_value"], "best": row["best"]})
    return pd.DataFrame(rows)


def _with_interval(row: Mapping[Any, Any], name: str) -> str:
    """A correlation and its 95 % interval for a cell."""
    low = number_text(row[f"{name}_low"], ".2f", "–")
    high = number_text(row[f"{name}_high"], ".2f", "–")
    return f"{number_text(row[name], '.3f', '–')} ({low}…{high})"


def _differences(run: Result, table: pd.DataFrame) -> Iterator[str]:
    """What differs between the published scores and the run's, and the heads that differ most."""
    for source in table["source"].unique():
        yield f"published: {source}"
    yield f"this run: {_conditions(run.info)}"
    yield "ρ is Spearman's correlation with its 95 % interval; permuted: heads within their layers"
    for row in table.to_dict("records"):
        yield (
            f"{row['metric']}, {row['relation']}: {row['stimulus']}. Ranks differ most "
            f"(published, run): {row['disagreeing']}"
        )


def _conditions(info: dict[str, Any]) -> str:
    """Precision, length and text of a run."""
    model = info["model"]
    parts = [" in ".join(filter(None, [model["name"], model.get("dtype")]))]
    tokens = info.get("text_read", {}).get("tokens")
    if tokens:
        corpora = ", ".join(corpus_title(corpus) for corpus in info["corpora"]["asked"])
        parts.append(f"{tokens:,} tokens of {corpora}")
        parts.append(f"windows of at most {info['settings']['max_length']} tokens")
    return ", ".join(parts)
