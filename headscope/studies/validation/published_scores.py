"""Published scores of a model's heads, from a file: do the same heads come first in a run?

The stimuli are others than a run's, so that values are not compared: ranks are, and which heads
come first. Heads of one depth are alike, so the control exchanges heads within their layers only.

Neuronpedia publishes `scatter_data.json` of each model that it has attention heads of
(`ID/headvis/TEXT` among its exports), measured on the Pile by its `compute-head-metrics.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.corpus.shipped import data_folder
from headscope.errors import RunError
from headscope.heads import head_name
from headscope.runs.user_file import given_file
from headscope.statistics.result import Result

COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
TOP = 10
"""Heads that come first."""
PERMUTATIONS = 1_000
SHIPPED, SOURCES = "published_models.csv.xz", "published_models_sources.csv.xz"
RANK_COLUMNS = [
    "metric",
    "revision",
    "relation",
    "quantity",
    "stimulus",
    "heads",
    "spearman",
    "spearman_control",
    "top",
    "shared",
    "shared_control",
    "p_value",
    "best",
]
_HEAD = ["layer", "head"]


@dataclass(frozen=True)
class Published:
    """The meaning of a published score, and the relation of headscope that is most like it."""

    relation: str
    """Of a number that is no mass the column of `heads.csv`."""
    quantity: str
    """`attention`, as masses are, or `causal`, `copied`, …: something else of the same heads."""
    stimulus: str


_EVERY_QUERY = "every query of Neuronpedia's text; ours: of this run's"
_NEURONPEDIA = {
    "prev_token_score": Published("positional/offset-1", "attention", _EVERY_QUERY),
    "self_attention_score": Published("positional/offset-0", "attention", _EVERY_QUERY),
    "induction_score": Published(
        "induction/natural",
        "attention of 0.01 or more",
        "queries of Neuronpedia's text whose token came before; ours: of this run's, where another "
        "token stood between, and all attention",
    ),
    "pattern_entropy": Published("entropy", "entropy", _EVERY_QUERY),
    "qk_distance": Published("mean_distance", "distance", _EVERY_QUERY),
}
_NEEDLE = (
    "copies from a needle while decoding (Wu et al. 2024); ours: looks from a question in other "
    "words, where what repeats does not lead"
)
_SECTION = "the section of a report that holds the answer, amid 2,048 tokens of a novel"
_VALUE_ALONE = "attention of a question in other words, on the value alone"
_IN_DOCUMENTS = {
    "headkv_r2_retrieval_reasoning": Published(
        "retrieval/value",
        "attention",
        "attention on the part of a needle that answers, while the answer is decoded, where it is "
        f"among a row's largest, ten times; of right answers alone; ours: {_VALUE_ALONE}",
    ),
    "sec_summed_attention_2048": Published(
        "retrieval/value",
        "attention",
        f"the last token after a question, summed over {_SECTION}; ours: {_VALUE_ALONE}",
    ),
    "sec_qrhead_2048": Published(
        "retrieval/value",
        "attention",
        "mean over the tokens of a question, less those of an empty one, summed over "
        f"{_SECTION}; ours: {_VALUE_ALONE}",
    ),
}
_PROMPTS = "short prompts (LLMVis)"
_LLMVIS = {
    "llmvis_previous_token": Published(
        "positional/offset-1",
        "attention",
        f"every query of {_PROMPTS}, the second token's look at the first too, which ours leaves "
        "out",
    ),
    "llmvis_induction": Published(
        "induction/natural",
        "attention",
        f"repeats in {_PROMPTS}; a mean over earlier occurrences, so that a head with three of "
        "them scores a third at most; ours: their sum",
    ),
    "llmvis_duplicate_token": Published(
        "lexical/duplicate",
        "attention",
        f"repeats in {_PROMPTS}; a mean over earlier occurrences; ours: their sum",
    ),
    "llmvis_positional": Published(
        "sink/first-token",
        "attention",
        f"every query of {_PROMPTS}, the first token itself too, which always scores 1; "
        "ours: without it",
    ),
    "llmvis_diffuse": Published(
        "entropy",
        "entropy",
        f"of {_PROMPTS}, as a share of the largest that a row can have; ours: in nats",
    ),
}
_ONE_TEXT = "of one text of up to 1,024 tokens without a first token of its own (Blackwell 2026)"
_ATLAS = {
    "atlas_positional_prev_prose": Published(
        "positional/offset-1",
        "attention",
        f"every query {_ONE_TEXT}, the second token's look at the first too, which ours leaves out",
    ),
    "atlas_positional_p0_prose": Published(
        "sink/first-token",
        "attention",
        f"every query {_ONE_TEXT}, the first token itself too, which always scores 1; "
        "ours: without it",
    ),
    "atlas_induction_induction": Published(
        "induction/natural",
        "attention",
        f"tokens that came before, {_ONE_TEXT}; ours: where another token stood between",
    ),
    "atlas_duplicate_duplicates": Published(
        "lexical/duplicate",
        "attention",
        f"every query {_ONE_TEXT}, those without an earlier occurrence as 0; ours: those with one",
    ),
}
PUBLISHED = {
    "induction_next_token_random": Published(
        "induction/repeat",
        "attention",
        "the last token of a repeat of text with random tokens in it, weighted by the lengths of "
        "the values (Feucht et al. 2025); ours: every token of copies of 25 to 64 random tokens",
    ),
    "induction_next_token_text": Published(
        "induction/repeat",
        "attention",
        "the last token of a repeat of text, to the first piece of the next word, weighted by the "
        "lengths of the values (Feucht et al. 2025); ours: random tokens",
    ),
    "concept_induction_end_token_text": Published(
        "concept-induction/next-word",
        "attention",
        "the last token of a repeat of text, to the last piece of the next word, weighted by the "
        "lengths of the values (Feucht et al. 2025); ours: in repeated random words",
    ),
    "causal_token_copying": Published(
        "induction/repeat", "causal", "patching on repeated random tokens (Feucht et al. 2025)"
    ),
    "causal_concept_copying": Published(
        "concept-induction/next-word", "causal", "patching on repeated words (Feucht et al. 2025)"
    ),
    "retrieval_score": Published("retrieval/value", "copied", _NEEDLE),
    "retrieval_profile_copy": Published(
        "retrieval/value",
        "arg-max",
        "share of the tokens of an answer, given word for word, whose arg-max is the token in the "
        "needle that they repeat; ours: attention of a question in other words",
    ),
    "retrieval_profile_argmax": Published(
        "retrieval/value",
        "arg-max",
        "share of prompts whose last token has its arg-max in the needle; ours: attention of a "
        "question in other words",
    ),
    **_IN_DOCUMENTS,
    **_NEURONPEDIA,
    **_LLMVIS,
    **_ATLAS,
}
"""By the name of the metric. All of them have another stimulus than a run."""


def read_scores(path: Path, model: str = "") -> pd.DataFrame:
    """Published scores from a CSV file with the columns `model,revision,metric,layer,head,value`.

    Or from Neuronpedia's `scatter_data.json`, a list with an object for each head: `layer`, `head`
    and a number of each metric. The `config.json` beside it names its model.

    Args:
        path: the file.
        model: whose scores they are where a `scatter_data.json` lies without its `config.json`.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    if path.suffix == ".json":
        return _read_scatter(path, model)
    columns = ", ".join(COLUMNS)
    raw = given_file(path, f"a table of published scores: {columns}")
    kinds = dict.fromkeys(COLUMNS, "str") | {"layer": "int64", "head": "int64", "value": "float64"}
    try:
        table = pd.read_csv(BytesIO(raw), dtype=kinds)
    except (ValueError, OverflowError) as error:
        raise RunError(f"{path}: no table of published scores: {error!s:.200}") from error
    if missing := [name for name in COLUMNS if name not in table]:
        raise RunError(
            f"{path}: no table of published scores: it has no column {', '.join(missing)}; "
            f"expected {columns}"
        )
    if not np.isfinite(table["value"]).all() or (table[["layer", "head"]] < 0).any(axis=None):
        raise RunError(f"{path}: a score is no finite number, or a head has no place")
    return table.fillna({"revision": "main"})


def _read_scatter(path: Path, model: str) -> pd.DataFrame:
    would_do = "Neuronpedia's scatter_data.json, or a CSV of published scores"
    raw = given_file(path, would_do)
    config_path = path.with_name("config.json")
    config = (
        given_file(config_path, "Neuronpedia's config.json") if config_path.is_file() else b"{}"
    )
    try:
        heads = pd.DataFrame(json.loads(raw)).astype({"layer": "int64", "head": "int64"})
        model = json.loads(config).get("model_name", model)
        table = heads.melt(["layer", "head"], var_name="metric").dropna()
        table = table.astype({"value": "float64"})
    except (
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        OverflowError,
        RecursionError,
    ) as error:
        raise RunError(f"{path}: no list of heads with their metrics; give {would_do}") from error
    if not np.isfinite(table["value"]).all() or heads.duplicated(["layer", "head"]).any():
        raise RunError(f"{path}: a score is no finite number, or a head is there twice")
    return table.assign(model=str(model), revision="main")[COLUMNS]


def shipped_scores() -> pd.DataFrame:
    """The published scores of 60 models that ship, in four digits, as `read_scores` gives them.

    Each row's source, repository, commit and file, is in `published_models_sources.csv.xz` beside
    them. Numbers are facts; no file of their authors is copied.
    """
    return pd.read_csv(data_folder() / SHIPPED)


def shipped_name(model: str) -> str | None:
    """A model's name among those of the shipped scores, without reading these; None if none.

    >>> shipped_name("openai-community/gpt2"), shipped_name("pythia-160m"), shipped_name("mini")
    ('gpt2', 'EleutherAI/pythia-160m', None)
    """
    sources = pd.read_csv(data_folder() / SOURCES)
    short = model.rpartition("/")[2] if model.startswith("openai-community/") else model
    return model_in(sources, short)


def model_in(scores: pd.DataFrame, name: str) -> str | None:
    """The model of the table that a name means: that name, or one that ends in it behind a `/`."""
    names = sorted(set(scores["model"]))
    matches = (item for item in names if name in (item, item.rpartition("/")[2]))
    return next(matches, None)


def compare_ranks(run: Result, scores: pd.DataFrame, name: str, *, seed: int = 0) -> pd.DataFrame:
    """A row per published metric that has a value for every head of the run.

    - `spearman`: the rank correlation of the published scores and the run's masses over all heads;
      `spearman_control` the mean over permutations of the heads within their layers.
    - `top`, `shared`: of so many heads that come first in both, how many are the same;
      `shared_control` the mean over permutations; `p_value` the share of permutations, the run
      itself counted as one, that share as many.
    - `quantity`, `stimulus`: what was published, which always has another stimulus.

    Args:
        run: the run.
        scores: from `read_scores`.
        name: the model's name in it.
        seed: seeds the permutations.

    Raises:
        RunError: the run has another number of layers or heads.
    """
    shape, rows = run_shape(run), []
    heads = run.heads[_HEAD].sort_values(_HEAD).to_numpy()
    for metric, about, unsorted in _metrics(run, scores, name):
        table = unsorted.sort_values(_HEAD)
        if not np.array_equal(table[_HEAD], heads):
            least = [int(table[axis].max()) + 1 for axis in _HEAD]
            raise RunError(
                f"this run has {shape[0]} layers × {shape[1]} heads, and {metric} of {name} has "
                f"{len(table)} scores of {least[0]} × {least[1]}"
            )
        masses = masses_of(run, about.relation)
        if masses is not None:
            published = table["value"].to_numpy().reshape(masses.shape)
            first = _first_heads(published, min(TOP, published.size // 4))
            facts = (metric, revision_of(run, table), about)
            rows.append(_row(facts, table, masses, first, partial(_spearman, published), seed))
    return pd.DataFrame(rows, columns=RANK_COLUMNS)


def _metrics(
    run: Result, scores: pd.DataFrame, name: str
) -> Iterator[tuple[str, Published, pd.DataFrame]]:
    """Each known metric of a model with its rows, of the run's revision."""
    of_model = scores[scores["model"] == name]
    of_revision = of_model[of_model["revision"] == revision_of(run, of_model)]
    for metric, table in of_revision.groupby("metric"):
        if metric in PUBLISHED:
            yield str(metric), PUBLISHED[str(metric)], table


def _row(
    facts: tuple[str, str, Published],
    published: pd.DataFrame,
    values: Float[ndarray, "layer head"],
    first: set[int],
    correlation: Callable[[ndarray], float],
    seed: int,
) -> tuple[Any, ...]:
    """Correlation and shared first heads, and what permutations within layers give."""
    metric, revision, about = facts
    rng, top = np.random.default_rng(seed), len(first)

    def agreement(values: ndarray) -> tuple[float, int]:
        return correlation(values), len(first & _first_heads(values, top))

    spearman, shared = agreement(values)
    permuted = [agreement(rng.permuted(values, axis=1)) for _ in range(PERMUTATIONS)]
    correlations, counts = np.array(permuted, float).T
    best = published.loc[published["value"].idxmax()]
    return (
        metric,
        revision,
        about.relation,
        about.quantity,
        about.stimulus,
        values.size,
        spearman,
        float(correlations.mean()),
        top,
        shared,
        float(counts.mean()),
        (1 + int((counts >= shared).sum())) / (1 + PERMUTATIONS),
        head_name(int(best["layer"]), int(best["head"])),
    )


def _spearman(one: Float[ndarray, "layer head"], other: Float[ndarray, "layer head"]) -> float:
    return float(np.corrcoef(rankdata(one.ravel()), rankdata(other.ravel()))[0, 1])


def revision_of(run: Result, model_scores: pd.DataFrame) -> str:
    """The run's revision if there are published scores of it, else `main`."""
    revision = str(run.info.get("model", {}).get("revision") or "main")
    return revision if revision in set(model_scores["revision"]) else "main"


def left_out(scores: pd.DataFrame, name: str) -> list[str]:
    """Metrics of a model that no score of a run is like."""
    return sorted(set(scores.loc[scores["model"] == name, "metric"]) - set(PUBLISHED))


def not_scored(run: Result, scores: pd.DataFrame, name: str) -> dict[str, str]:
    """Metrics of a model whose relation the run has not scored, each with that relation."""
    scored = {*(run.evidence["type"] + "/" + run.evidence["relation"])}
    metrics = sorted(set(scores.loc[scores["model"] == name, "metric"]) & set(PUBLISHED))
    relations = {metric: PUBLISHED[metric].relation for metric in metrics}
    known = scored | {*run.heads.columns}
    return {metric: relation for metric, relation in relations.items() if relation not in known}


def run_shape(run: Result) -> tuple[int, int]:
    """Layers and heads of a run's model."""
    return int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1


def by_layer(
    heads: pd.DataFrame, column: str, shape: tuple[int, int]
) -> Float[ndarray, "layer head"]:
    """A column of a table with a row for every head."""
    return np.asarray(heads.sort_values(_HEAD)[column], float).reshape(shape)


def masses_of(run: Result, relation: str) -> Float[ndarray, "layer head"] | None:
    """The run's masses of a relation; None where it is not scored for every head.

    Of a column of `heads.csv` its numbers. Of a hybrid the layers are those that have heads.
    """
    heads, column = run.heads, relation
    if relation not in heads:
        ids = run.evidence["type"] + "/" + run.evidence["relation"]
        heads, column = run.evidence[ids == relation], "mass"
    shape = run.heads["layer"].nunique(), run.heads["head"].nunique()
    return by_layer(heads, column, shape) if len(heads) == len(run.heads) else None


def _first_heads(values: Float[ndarray, "layer head"], top: int) -> set[int]:
    """The heads with the largest values, by their places layer by layer; ties by place."""
    return {int(index) for index in np.argsort(-values.ravel(), kind="stable")[:top]}
