"""Published scores of a model's heads: do the same heads come first in a run?

Scores were published on other stimuli than a run's, so ranks are compared and not values. Heads of
one layer are alike, so the control permutes heads within their layers.
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
from pydantic import Field

from headscope.corpus.shipped import corpus_title, data_folder
from headscope.errors import InvalidRow, RunError, reported_as
from headscope.heads import head_name
from headscope.options import Flag, Name, PathName
from headscope.paths import given_file
from headscope.resolve import RunName, the_run
from headscope.statistics.result import Result
from headscope.studies.study import Command, Study, study, table_columns
from headscope.studies.verify_agreement import (
    Scores,
    correlation_over_heads,
    correlation_within_layers,
    disagreeing_heads,
    permuted_within_layers,
    shared_heads,
    top_heads,
)
from headscope.user_tables import csv_table, json_content
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
        RunError: nothing is published for this model.
        RunError: the run has another number of layers or heads than the published model, the file
            contains no scores, or no score can be compared.
    """
    run = the_run(run)
    # names on the hub differ from those of published scores
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
    # a run is compared with its own revision if that was published, else with the main one
    revisions = sorted(set(published["revision"]))
    of_run = str(run.info.get("model", {}).get("revision") or "main")
    revision = of_run if of_run in revisions else "main"
    if revision not in revisions:
        raise RunError(
            f"published scores are of revision {', '.join(revisions)}, and the run of {of_run}"
        )
    of_revision = published[published["revision"] == revision]
    # each metric against the relations that measure the same
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
            published = {"revision": revision, "source": scores["source"].iloc[0]}
            rows.append(definition | published | _agreement(run, scores, masses))
    if without_relation:
        notes.append(f"not compared, as no relation resembles them: {', '.join(without_relation)}")
    return pd.DataFrame(rows, columns=STUDY.names), notes


def _agreement(run: Result, scores: pd.DataFrame, masses: Scores) -> dict[str, object]:
    """Columns that compare a metric's scores of all heads with the run's."""
    # a hybrid's run numbers all layers, and published scores may count those with attention alone
    layers = sorted(set(run.heads["layer"]))
    numbers = list(range(len(layers)))
    if sorted(set(scores["layer"])) == numbers:
        layer_of = dict(zip(numbers, layers, strict=True))
        scores = scores.assign(layer=scores["layer"].map(layer_of))
    table = scores.sort_values(HEAD)
    if not np.array_equal(table[HEAD], run.heads[HEAD].sort_values(HEAD)):
        raise RunError(
            f"this run has {masses.shape[0]} layers × {masses.shape[1]} heads, and "
            f"{table['metric'].iloc[0]} has {len(table):,} scores of {table['layer'].max() + 1} × "
            f"{table['head'].max() + 1}"
        )
    # ranks over all heads and within layers; with heads permuted within layers, the correlation
    # that is left comes from depth alone
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
    """Differences between the published scores and the run's, and the heads that differ most."""
    for source in table["source"].unique():
        yield f"published: {source}"

    # precision, length and text change masses, and may explain a low correlation
    info = run.info
    model = info["model"]
    conditions = [" in ".join(filter(None, [model["name"], model.get("dtype")]))]
    tokens = info.get("text_read", {}).get("tokens")
    if tokens:
        corpora = ", ".join(corpus_title(corpus) for corpus in info["corpora"]["asked"])
        conditions.append(f"{tokens:,} tokens of {corpora}")
        conditions.append(f"windows of at most {info['settings']['max_length']} tokens")
    yield f"this run: {', '.join(conditions)}"
    yield "ρ is Spearman's correlation with its 95 % interval; permuted: heads within their layers"
    for row in table.to_dict("records"):
        yield (
            f"{row['metric']}, {row['relation']}: {row['stimulus']}. Ranks differ most "
            f"(published, run): {row['disagreeing']}"
        )


FILE_COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
HEAD = ["layer", "head"]
SHIPPED, METRICS = "published_models.csv.xz", "published_metrics.csv"
SOURCES = "published_models_sources.csv.xz"
MOST_CLOSE = 5
"""Names that a message lists at most, of models with published scores."""
MAIN = "main"
"""Revision of scores that state none."""
_MISSING = ("", "na", "nan", "none", "null")
OWNERS = ("openai-community/", "distilbert/")
"""Owners on the hub whose models are published by their bare names."""
_QUANTISED = re.compile(r"([-.](i?q\d\w*|b?f16|f32))?\.gguf$", re.IGNORECASE)
"""The end of the name of a .gguf file, such as `-q4_k_m.gguf`."""
_UNREADABLE = (
    *(ValueError, TypeError, KeyError, AttributeError),
    *(OverflowError, RecursionError),
)


@cache
def published_metrics() -> pd.DataFrame:
    """Published scores that a run's heads are ranked against: a row per metric and relation.

    - `metric`: the published metric.
    - `relation`: a relation, or column of `heads.csv`, that resembles the score.
    - `quantity`: `attention` if the score is an attention mass, else for example `causal`.
    - `stimulus`: the published stimulus, and after `ours:` that of the run.
    """
    return pd.read_csv(data_folder() / METRICS)


def scores_that_ship() -> pd.DataFrame:
    """The published scores that ship, with the repository, commit and file of each as `source`."""
    kinds = dict.fromkeys(FILE_COLUMNS, "str") | {"layer": int, "head": int, "value": float}
    scores = pd.read_csv(data_folder() / SHIPPED, dtype=kinds)
    sources = pd.read_csv(data_folder() / SOURCES)
    return scores.merge(sources, on=["model", "revision", "metric"])


def read_scores(path: Path, model: str = "") -> pd.DataFrame:
    """Published scores from a file with the columns `model,revision,metric,layer,head,value`.

    Args:
        path: a .csv file, or one of Neuronpedia's: `scatter_data.json`, a list with an object for
            each head, with its `layer`, `head` and a number of each metric; or a file of
            `head-metrics`, an object with `metrics` and, if wanted, `config`.
        model: the model of a file that does not name it.

    Returns:
        The columns of the file, and `source`: text, precision and length if the file has them.
        A score that is missing has no row.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    raw = given_file(path, f"a CSV of published scores: {', '.join(FILE_COLUMNS)}")
    # JSON of two programs, or a CSV that may be compressed
    if path.suffix == ".json":
        content = json_content(raw, str(path), RunError)
        with reported_as(RunError, f"{path}: no table of published scores", *_UNREADABLE):
            return (
                _head_metrics(content, model)
                if isinstance(content, dict)
                else _scatter(content, model)
            )
    if path.suffix == ".xz":
        with reported_as(RunError, f"{path}: no .xz file", lzma.LZMAError):
            raw = lzma.decompress(raw)
    table = csv_table(raw, str(path), RunError)
    table.check_columns(RunError, FILE_COLUMNS)
    # each score once, with all faults listed together
    scores: dict[tuple[Any, ...], float] = {}
    invalid = []
    for number, cells in table.rows.items():
        row = {column: cells[column].strip() for column in FILE_COLUMNS}
        head = [row[column] for column in HEAD]
        if not all(cell.isdecimal() for cell in head):
            invalid.append(InvalidRow(number, f"layer and head are {head}, not whole numbers"))
            continue
        try:
            value = np.nan if row["value"].lower() in _MISSING else float(row["value"])
        except ValueError:
            invalid.append(InvalidRow(number, f"value is {row['value']!r:.60}, not a number"))
            continue
        key = (row["model"], row["revision"] or MAIN, row["metric"], *map(int, head))
        if np.isinf(value):
            invalid.append(InvalidRow(number, "value is infinite"))
        elif key in scores:
            invalid.append(InvalidRow(number, f"a second {row['metric']!r:.60} of this head"))
        scores[key] = value
    table.check(RunError, invalid)
    columns = [column for column in FILE_COLUMNS if column != "value"]
    frame = pd.DataFrame(list(scores), columns=columns).assign(value=list(scores.values()))
    return frame.dropna().assign(source=path.name)


def _scatter(content: Any, model: str) -> pd.DataFrame:
    """A row per head and metric from an object for each head.

    Raises:
        ValueError: the content is something else.
    """
    if not isinstance(content, list) or not content:
        raise ValueError("it should be a list with an object for each head, or an object")
    for number, row in enumerate(content):
        missing = [name for name in HEAD if not isinstance(row, dict) or name not in row]
        if missing:
            raise ValueError(f"item {number} should be an object of a head, with its {missing[0]}")
    heads = pd.DataFrame(content).astype({"layer": "int64", "head": "int64"})
    scores = heads.melt(HEAD, var_name="metric").dropna()
    scores = scores.astype({"value": "float64"})
    return scores.assign(model=model, revision=MAIN, source="scatter_data.json")


def _head_metrics(content: dict[str, Any], model: str) -> pd.DataFrame:
    """A row per head and metric from layers × heads of each metric.

    The files of hybrid models number the layers that have attention 0, 1, 2, …, and end with zeros
    for the others.

    Raises:
        ValueError: there are no metrics, or they are not numbers by layer and head.
    """
    # metrics are lists by layer and head
    config = content.get("config") or {}
    metrics = content.get("metrics")
    if not isinstance(config, dict) or not isinstance(metrics, dict):
        raise ValueError("it should be an object whose metrics and config are objects")
    names = [name for name, values in metrics.items() if isinstance(values, list)]
    if not names:
        raise ValueError("metrics has no list of scores by layer and head")
    # layers without attention are all 0 there, and have no heads in the run
    values = np.stack([np.asarray(metrics[name], float) for name in names])
    has_attention = values.any(axis=(0, 2))
    values = values[:, has_attention]
    metric, layer, head = np.indices(values.shape)
    columns = {"layer": layer.ravel(), "head": head.ravel(), "value": values.ravel()}

    # what describes the source may be missing, and the name of the model may be given
    described = [str(config["dtype"])] if config.get("dtype") else []
    for key, form in (("n_sequences", "{} sequences"), ("seq_len", "at most {} tokens")):
        if isinstance(config.get(key), int):
            described.append(form.format(f"{config[key]:,}"))
    described += [f"text {config['dataset_name']}"] if config.get("dataset_name") else []
    table = pd.DataFrame(columns).assign(
        metric=np.array(names)[metric.ravel()],
        model=str(config.get("model_name") or model),
        revision=str(config.get("revision") or MAIN),
        source=", ".join(described) or "head-metrics",
    )
    return table.dropna()


def published_name(model: str, published: Sequence[str]) -> str:
    """The published name of a model.

    A name may lack its owner or have one, and that of a .gguf file may end with its format.

    Raises:
        RunError: nothing is published for this model.

    >>> published_name("gemma-3-270m-q4_k_m.gguf", ["google/gemma-3-1b", "google/gemma-3-270m"])
    'google/gemma-3-270m'
    """
    short = _short_name(model)
    for name in published:
        other = _short_name(name)
        if short in (other, other.rpartition("/")[2]):
            return name
    close = list(published)
    if len(close) > MOST_CLOSE:
        close = get_close_matches(short, published, MOST_CLOSE, cutoff=0.5)
    suggestion = f"; close names: {', '.join(close)}" if close else ""
    raise RunError(
        f"no published scores of {model!r:.80}{suggestion}; name one of {len(published)} models "
        "in data/published_models.csv.xz by --model, or give --scores"
    )


def _short_name(model: str) -> str:
    """A name without its format, without an owner that is left out, and as the hub has it now."""
    name = _QUANTISED.sub("", model)
    owner = next((owner for owner in OWNERS if name.startswith(owner)), "")
    # Meta-Llama-3.1-8B became Llama-3.1-8B
    return name.removeprefix(owner).replace("Meta-Llama", "Llama")
