"""Published scores of a model's heads: do the same heads come first in a run?

Scores were published on other stimuli than a run's, so ranks are compared and not values. Heads of
one layer are alike, so the control permutes heads within their layers.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field
from scipy.stats import rankdata

from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError, reported_as
from headscope.heads import head_name
from headscope.options import Flag, Name, PathName
from headscope.paths import given_file
from headscope.resolve import RunName, the_run
from headscope.statistics.result import Result
from headscope.studies.study import Study, study, table_columns
from headscope.studies.study_table import Command
from headscope.views.study_result import StudyResult

FILE_COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
TOP = 10
"""Most heads at the top of both rankings."""
PERMUTATIONS = 1_000
HEAD = ["layer", "head"]
SHIPPED, METRICS = "published_models.csv.xz", "published_metrics.csv"
OWNERS = ("openai-community/", "distilbert/")
"""Owners on the hub whose models are published by their bare names."""
_Scores = Float[ndarray, "layer head"]


@cache
def published_metrics() -> pd.DataFrame:
    """Published scores that a run's heads are ranked against: a row by the name of each metric.

    - `relation`: the relation, or column of `heads.csv`, that resembles the score most.
    - `quantity`: `attention` if the score is an attention mass, else for example `causal`.
    - `stimulus`: the published stimulus, and after `ours:` that of the run.
    """
    return pd.read_csv(data_folder() / METRICS, index_col="metric")


_UNREADABLE = (ValueError, TypeError, KeyError, OverflowError, RecursionError)

STUDY = Study(
    command=Command(
        group="top",
        summary="Compare a run with published scores of its heads.",
        examples=(
            "headscope verify runs/my-gpt2 --as gpt2 --out ranks.csv",
            "headscope verify runs/gemma --scores gemma-3-270m/scatter_data.json",
        ),
        figure="",
    ),
    rows="published metric that has a value for every head",
    columns=table_columns("""
        metric | a name | published metric
        revision | text | published revision of the model
        relation | a name | relation of the run, or column of heads.csv, that resembles it most
        quantity | `attention`, … | quantity that was published
        stimulus | text | published stimulus, and after `ours:` that of the run
        heads | count, ≥ 1 | heads with a published score
        spearman | [−1, 1] | rank correlation over all heads
        spearman_control | [−1, 1] | its mean over permutations of heads within their layers
        top | count, ≥ 1 | number of heads at the top of both rankings
        shared | count, ≥ 0 | heads at the top of both
        shared_control | count, ≥ 0 | its mean over permutations
        p_value | [0, 1] | share of permutations, counting the run as one, that share as many
        best | a head | head with the highest published score
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
            "Neuronpedia's scatter_data.json; by default the scores of 61 models that ship."
        ),
    ] = None,
) -> StudyResult:
    """Compare the ranks of a run's heads with published scores of the same model.

    Raises:
        ChoiceError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, the file
            contains no scores, or no score can be compared.
    """
    run = the_run(run)
    name = model or str(run.info["model"]["name"])
    path = data_folder() / SHIPPED if scores is None else Path(scores)
    published = read_scores(path, name)
    known = _published_name(name, sorted(set(published["model"])))
    of_model = published[published["model"] == known]
    table, notes = _ranks(run, of_model)
    if table.empty:
        raise RunError(f"{run.name}: no score of {known} can be compared; {'; '.join(notes)}")
    return StudyResult(
        title=f"{run.name}: ranks of heads against published scores of {known}",
        table=table,
        terminal_table=table.drop(columns=["revision", "quantity", "stimulus", "heads"]),
        notes=notes,
    )


def _published_name(model: str, published: Sequence[str]) -> str:
    """The published name of a model, which may lack its owner, or have one."""
    owner = next((owner for owner in OWNERS if model.startswith(owner)), "")
    short = model.removeprefix(owner)
    for name in published:
        if short in (name, name.rpartition("/")[2]):
            return name
    raise ChoiceError("published model", model, published)


def read_scores(path: Path, model: str = "") -> pd.DataFrame:
    """Published scores from a file with the columns `model,revision,metric,layer,head,value`.

    Args:
        path: a .csv file, or Neuronpedia's `scatter_data.json`: a list with an object for each
            head, with its `layer`, `head` and a number of each metric.
        model: the model of a .json file.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    raw = given_file(path, f"a CSV of published scores: {', '.join(FILE_COLUMNS)}")
    with reported_as(RunError, f"{path}: no table of published scores", *_UNREADABLE):
        if path.suffix == ".json":
            table = _scores_of_json(raw).assign(model=model, revision="main")
        else:
            kinds = dict.fromkeys(FILE_COLUMNS, "str")
            kinds |= {"layer": "int64", "head": "int64", "value": "float64"}
            packed = "xz" if path.suffix == ".xz" else None
            table = pd.read_csv(BytesIO(raw), compression=packed, dtype=kinds, usecols=FILE_COLUMNS)
    return table.fillna({"revision": "main"})


def _scores_of_json(raw: bytes) -> pd.DataFrame:
    """A row per head and metric from a list with an object for each head."""
    heads = pd.DataFrame(json.loads(raw))
    heads = heads.astype({"layer": "int64", "head": "int64"})
    scores = heads.melt(HEAD, var_name="metric").dropna()
    return scores.astype({"value": "float64"})


def _ranks(run: Result, published: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The table of `verify`, and reasons why metrics are not compared."""
    revisions = sorted(set(published["revision"]))
    of_run = str(run.info.get("model", {}).get("revision") or "main")
    revision = of_run if of_run in revisions else "main"
    if revision not in revisions:
        raise RunError(
            f"published scores are of revision {', '.join(revisions)}, and the run of {of_run}"
        )
    rows, notes, without_relation = [], [], []
    definitions = published_metrics().to_dict("index")
    of_revision = published[published["revision"] == revision]
    for metric, unsorted in of_revision.groupby("metric"):
        if metric not in definitions:
            without_relation.append(str(metric))
            continue
        definition = definitions[metric]
        relation = definition["relation"]
        masses = masses_of(run, relation)
        if masses is None:
            notes.append(f"{metric} is not compared: this run has not scored {relation}")
            continue
        table = unsorted.sort_values(HEAD)
        if not np.array_equal(table[HEAD], run.heads[HEAD].sort_values(HEAD)):
            layers, heads = masses.shape
            raise RunError(
                f"this run has {layers} layers × {heads} heads, and {metric} has {len(table)} "
                f"scores of {table['layer'].max() + 1} × {table['head'].max() + 1}"
            )
        row = {"metric": metric, "revision": revision}
        rows.append(row | definition | _agreement(table, masses))
    if without_relation:
        notes.append(f"not compared, as no relation resembles them: {', '.join(without_relation)}")
    return pd.DataFrame(rows, columns=STUDY.names), notes


def _agreement(table: pd.DataFrame, masses: _Scores) -> dict[str, object]:
    published = table["value"].to_numpy().reshape(masses.shape)
    top = min(TOP, published.size // 4)
    ranks = rankdata(published.ravel())
    first = _first_heads(published, top)

    def correlation(values: _Scores) -> float:
        return float(np.corrcoef(ranks, rankdata(values.ravel()))[0, 1])

    def shared_heads(values: _Scores) -> int:
        return len(first & _first_heads(values, top))

    rng = np.random.default_rng(0)
    correlations, counts = [], []
    for _ in range(PERMUTATIONS):
        permuted = rng.permuted(masses, axis=1)
        correlations.append(correlation(permuted))
        counts.append(shared_heads(permuted))
    shared = shared_heads(masses)
    as_many = sum(count >= shared for count in counts)
    best = table.loc[table["value"].idxmax()]
    return {
        "heads": masses.size,
        "spearman": correlation(masses),
        "spearman_control": float(np.mean(correlations)),
        "top": top,
        "shared": shared,
        "shared_control": float(np.mean(counts)),
        "p_value": (1 + as_many) / (1 + PERMUTATIONS),
        "best": head_name(int(best["layer"]), int(best["head"])),
    }


def masses_of(run: Result, relation: str) -> _Scores | None:
    """Masses of a relation, or a column of `heads.csv`; None if a head has none."""
    heads = run.heads
    column = relation
    if relation not in heads:
        relations = run.evidence["type"] + "/" + run.evidence["relation"]
        heads = run.evidence[relations == relation]
        column = "mass"
    if len(heads) != len(run.heads):
        return None
    shape = (run.heads["layer"].nunique(), run.heads["head"].nunique())
    masses = heads.sort_values(HEAD)[column]
    return np.asarray(masses, float).reshape(shape)


def _first_heads(values: _Scores, top: int) -> set[int]:
    """Flat indices of the heads with the largest values; ties by index."""
    order = np.argsort(-values.ravel(), kind="stable")
    return set(order[:top].tolist())
