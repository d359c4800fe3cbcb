"""Published scores of every head of a model, from a file: do the same heads come first in a run?

The stimuli are others than a run's, so that values are not compared: ranks are, and which heads
come first. Heads of one depth are alike, so the control exchanges heads within their layers only.
"""

from __future__ import annotations

from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.errors import RunError
from headscope.evidence.result import Result
from headscope.heads import head_name
from headscope.runs.given_file import given_file

COLUMNS = ["model", "revision", "metric", "layer", "head", "value"]
TOP = 10
"""Heads that come first."""
PERMUTATIONS = 1_000
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


@dataclass(frozen=True)
class Published:
    """What a published score measures, and the relation of headscope that is most like it."""

    relation: str
    quantity: str
    """`attention`, as masses are, or `causal`, `copied`: something else of the same heads."""
    stimulus: str


PUBLISHED = {
    "induction_next_token_random": Published(
        "induction/repeat",
        "attention",
        "second copy of 30 random tokens (Feucht et al. 2025); ours: copies of 25 to 64 tokens",
    ),
    "concept_induction_end_token_text": Published(
        "concept-induction/next-word",
        "attention",
        "to the last piece of the next word, in repeated text (Feucht et al. 2025); ours: in "
        "repeated random words",
    ),
    "causal_token_copying": Published(
        "induction/repeat", "causal", "patching on repeated random tokens (Feucht et al. 2025)"
    ),
    "causal_concept_copying": Published(
        "concept-induction/next-word", "causal", "patching on repeated words (Feucht et al. 2025)"
    ),
    "retrieval_score": Published(
        "retrieval/value",
        "copied",
        "copies from a needle while decoding (Wu et al. 2024); ours: looks from a question in "
        "other words, where what repeats does not lead",
    ),
}
"""By the name of the metric. All of them have another stimulus than a run."""


def read_scores(path: Path) -> pd.DataFrame:
    """Published scores from a CSV file with the columns `model,revision,metric,layer,head,value`.

    Raises:
        HeadscopeError: there is no such file, or it holds something else.
    """
    kinds = {"layer": "int64", "head": "int64", "value": "float64"}
    raw = given_file(path, f"a table of published scores: {', '.join(COLUMNS)}")
    try:
        table = pd.read_csv(BytesIO(raw), dtype={**dict.fromkeys(COLUMNS, "str"), **kinds})
    except (ValueError, OverflowError) as error:
        raise RunError(f"{path}: no table of published scores: {error!s:.200}") from error
    if missing := [name for name in COLUMNS if name not in table]:
        raise RunError(
            f"{path}: no table of published scores: it has no column {', '.join(missing)}; "
            f"expected {', '.join(COLUMNS)}"
        )
    if not np.isfinite(table["value"]).all() or (table[["layer", "head"]] < 0).any(axis=None):
        raise RunError(f"{path}: a score is no finite number, or a head has no place")
    return table


def model_in(scores: pd.DataFrame, name: str) -> str | None:
    """The model of the table that a name means: that name, or one that ends in it behind a `/`."""
    names = sorted(set(scores["model"]))
    found = [each for each in names if each == name or each.rpartition("/")[2] == name]
    return found[0] if found else None


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
    own = scores[scores["model"] == name]
    revision = revision_of(run, own)
    shape = (int(run.heads["layer"].max()) + 1, int(run.heads["head"].max()) + 1)
    rows = []
    for metric, table in own[own["revision"] == revision].groupby("metric"):
        about = PUBLISHED.get(str(metric))
        if about is None:
            continue
        least = tuple(int(table[axis].max()) + 1 for axis in ("layer", "head"))
        if least != shape or len(table) != shape[0] * shape[1]:
            raise RunError(
                f"this run has {shape[0]} layers × {shape[1]} heads, and {metric} of {name} has "
                f"{len(table)} scores of {least[0]} × {least[1]}"
            )
        ours = _masses(run, about.relation, shape)
        if ours is not None:
            values = table.sort_values(["layer", "head"])["value"].to_numpy().reshape(shape)
            facts = (str(metric), revision, about.relation, about.quantity, about.stimulus)
            rows.append((*facts, values.size, *_ranks(values, ours, seed)))
    return pd.DataFrame(rows, columns=RANK_COLUMNS)


def revision_of(run: Result, own: pd.DataFrame) -> str:
    """The run's revision if there are published scores of it, else `main`."""
    revision = str(run.info.get("model", {}).get("revision") or "main")
    return revision if revision in set(own["revision"]) else "main"


def left_out(scores: pd.DataFrame, name: str) -> list[str]:
    """Metrics of a model that no score of a run is like."""
    return sorted(set(scores.loc[scores["model"] == name, "metric"]) - set(PUBLISHED))


def not_scored(run: Result, scores: pd.DataFrame, name: str) -> dict[str, str]:
    """Metrics of a model whose relation the run has not scored, each with that relation."""
    scored = {*(run.evidence["type"] + "/" + run.evidence["relation"])}
    asked = sorted(set(scores.loc[scores["model"] == name, "metric"]) & set(PUBLISHED))
    found = {metric: PUBLISHED[metric].relation for metric in asked}
    return {metric: relation for metric, relation in found.items() if relation not in scored}


def _masses(
    run: Result, relation: str, shape: tuple[int, int]
) -> Float[ndarray, "layer head"] | None:
    own = run.evidence[run.evidence["type"] + "/" + run.evidence["relation"] == relation]
    if len(own) != shape[0] * shape[1]:
        return None
    return np.asarray(own.sort_values(["layer", "head"])["mass"], float).reshape(shape)


def _ranks(
    published: Float[ndarray, "layer head"], ours: Float[ndarray, "layer head"], seed: int
) -> tuple[float, float, int, int, float, float, str]:
    """Correlation and shared first heads, and what permutations within layers give."""
    rng = np.random.default_rng(seed)
    top = min(TOP, published.size // 4)
    first = first_heads(published, top)

    def found(values: ndarray) -> tuple[float, int]:
        one, other = (rankdata(each.ravel()) for each in (published, values))
        return float(np.corrcoef(one, other)[0, 1]), len(first & first_heads(values, top))

    spearman, shared = found(ours)
    drawn = [found(rng.permuted(ours, axis=1)) for _ in range(PERMUTATIONS)]
    controls = np.array(drawn, float)
    p_value = (1 + int((controls[:, 1] >= shared).sum())) / (1 + PERMUTATIONS)
    layer, head = np.unravel_index(published.argmax(), published.shape)
    best = head_name(int(layer), int(head))
    return (
        spearman,
        float(controls[:, 0].mean()),
        top,
        shared,
        float(controls[:, 1].mean()),
        p_value,
        best,
    )


def first_heads(values: Float[ndarray, "layer head"], top: int) -> set[int]:
    """The heads with the largest values, by their places layer by layer; ties by place."""
    return {int(each) for each in np.argsort(-values.ravel(), kind="stable")[:top]}
