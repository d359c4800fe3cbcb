"""Published scores of heads: those that ship, and those of a file."""

from __future__ import annotations

import lzma
import re
from collections.abc import Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headscope.corpus.shipped import data_folder
from headscope.errors import HeadscopeError, InvalidRow, RunError, reported_as
from headscope.paths import given_file
from headscope.user_tables import csv_table, json_content

FILE_COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
HEAD = ["layer", "head"]
SHIPPED, METRICS = "published_models.csv.xz", "published_metrics.csv"
SOURCES = "published_models_sources.csv.xz"
MAIN = "main"
MOST_CLOSE = 5
"""Names that a message lists at most, of models with published scores."""
"""Revision of scores that state none."""
_MISSING = ("", "na", "nan", "none", "null")
OWNERS = ("openai-community/", "distilbert/")
"""Owners on the hub whose models are published by their bare names."""
_QUANTISED = re.compile(r"[-.](i?q\d\w*|b?f16|f32)\.gguf$", re.IGNORECASE)
"""The end of the usual name of a .gguf file, such as `-q4_k_m.gguf`."""
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
    return _scores_of_csv(path, raw)


def _scores_of_csv(path: Path, raw: bytes) -> pd.DataFrame:
    """A row per row of the file.

    Raises:
        RunError: rows are invalid; the message lists them.
        ChoiceError: a column is missing.
    """
    table = csv_table(raw, str(path), RunError)
    table.check_columns(FILE_COLUMNS)
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
    config = content.get("config") or {}
    metrics = content.get("metrics")
    if not isinstance(config, dict) or not isinstance(metrics, dict):
        raise ValueError("it should be an object whose metrics and config are objects")
    names = [name for name, values in metrics.items() if isinstance(values, list)]
    if not names:
        raise ValueError("metrics has no list of scores by layer and head")
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

    A name may lack its owner or have one, and that of a .gguf file ends with its format.

    Raises:
        HeadscopeError: nothing is published for this model.

    >>> published_name("gemma-3-270m-q4_k_m.gguf", ["google/gemma-3-1b", "google/gemma-3-270m"])
    'google/gemma-3-270m'
    """
    short = _short_name(model)
    for name in published:
        other = _short_name(name)
        if short in (other, other.rpartition("/")[2]):
            return name
    close = get_close_matches(short, published, MOST_CLOSE, cutoff=0.5)
    named = f"; close names: {', '.join(close)}" if close else ""
    raise HeadscopeError(
        f"no published scores of {model!r:.80}{named}; name one of the {len(published)} models in "
        "data/published_models.csv.xz by --model, or give --scores"
    )


def _short_name(model: str) -> str:
    """A name without its format, without an owner that is left out, and as the hub has it now."""
    name = _QUANTISED.sub("", model)
    owner = next((owner for owner in OWNERS if name.startswith(owner)), "")
    # Meta-Llama-3.1-8B became Llama-3.1-8B
    return name.removeprefix(owner).replace("Meta-Llama", "Llama")
