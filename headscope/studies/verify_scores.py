"""Published scores of heads: those that ship, and those of a file."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headscope.corpus.shipped import data_folder
from headscope.errors import ChoiceError, RunError, reported_as
from headscope.paths import given_file

FILE_COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
HEAD = ["layer", "head"]
SHIPPED, METRICS = "published_models.csv.xz", "published_metrics.csv"
SOURCES = "published_models_sources.csv.xz"
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
    scores = read_scores(data_folder() / SHIPPED)
    sources = pd.read_csv(data_folder() / SOURCES)
    return scores.drop(columns="source").merge(sources, on=["model", "revision", "metric"])


def read_scores(path: Path, model: str = "") -> pd.DataFrame:
    """Published scores from a file with the columns `model,revision,metric,layer,head,value`.

    Args:
        path: a .csv file, or one of Neuronpedia's: `scatter_data.json`, a list with an object for
            each head, with its `layer`, `head` and a number of each metric; or a file of
            `head-metrics`, an object with `config` and `metrics`.
        model: the model of a `scatter_data.json`, which has no name of it.

    Returns:
        The columns of the file, and `source`: text, precision and length if the file has them.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    raw = given_file(path, f"a CSV of published scores: {', '.join(FILE_COLUMNS)}")
    with reported_as(RunError, f"{path}: no table of published scores", *_UNREADABLE):
        table = _scores_of_json(raw, model) if path.suffix == ".json" else _scores_of_csv(path, raw)
    return table.fillna({"revision": "main"})


def _scores_of_csv(path: Path, raw: bytes) -> pd.DataFrame:
    kinds = dict.fromkeys(FILE_COLUMNS, "str")
    kinds |= {"layer": "int64", "head": "int64", "value": "float64"}
    packed = "xz" if path.suffix == ".xz" else None
    table = pd.read_csv(BytesIO(raw), compression=packed, dtype=kinds, usecols=FILE_COLUMNS)
    return table.assign(source=path.name)


def _scores_of_json(raw: bytes, model: str) -> pd.DataFrame:
    """A row per head and metric from one of Neuronpedia's files."""
    content = json.loads(raw)
    if isinstance(content, dict):
        return _head_metrics(content)
    heads = pd.DataFrame(content)
    heads = heads.astype({"layer": "int64", "head": "int64"})
    scores = heads.melt(HEAD, var_name="metric").dropna()
    scores = scores.astype({"value": "float64"})
    return scores.assign(model=model, revision="main", source="scatter_data.json")


def _head_metrics(content: dict[str, Any]) -> pd.DataFrame:
    """A row per head and metric from layers × heads of each metric.

    The files of hybrid models number the layers that have attention 0, 1, 2, …, and end with zeros
    for the others.
    """
    config, metrics = content["config"], content["metrics"]
    names = [name for name, values in metrics.items() if isinstance(values, list)]
    values = np.stack([np.asarray(metrics[name], float) for name in names])
    has_attention = values.any(axis=(0, 2))
    values = values[:, has_attention]
    metric, layer, head = np.indices(values.shape)
    columns = {"layer": layer.ravel(), "head": head.ravel(), "value": values.ravel()}
    table = pd.DataFrame(columns).assign(
        metric=np.array(names)[metric.ravel()],
        model=str(config["model_name"]),
        revision=config.get("revision") or "main",
        source=f"{config['dtype']}, {config['n_sequences']:,} sequences of at most "
        f"{config['seq_len']} tokens of {config['dataset_name']}",
    )
    return table.dropna()


def published_name(model: str, published: Sequence[str]) -> str:
    """The published name of a model.

    A name may lack its owner or have one, and that of a .gguf file ends with its format.

    Raises:
        ChoiceError: nothing is published for this model.

    >>> published_name("gemma-3-270m-q4_k_m.gguf", ["google/gemma-3-1b", "google/gemma-3-270m"])
    'google/gemma-3-270m'
    """
    short = _short_name(model)
    for name in published:
        other = _short_name(name)
        if short in (other, other.rpartition("/")[2]):
            return name
    raise ChoiceError("model with published scores", model, published)


def _short_name(model: str) -> str:
    """A name without its format, without an owner that is left out, and as the hub has it now."""
    name = _QUANTISED.sub("", model)
    owner = next((owner for owner in OWNERS if name.startswith(owner)), "")
    # Meta-Llama-3.1-8B became Llama-3.1-8B
    return name.removeprefix(owner).replace("Meta-Llama", "Llama")
