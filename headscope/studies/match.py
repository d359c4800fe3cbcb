"""Most similar heads of two models, by the lifts of the relations that both were tested for."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtri

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.relations import far
from headscope.runs.resolve import RunName, run_names, the_run
from headscope.statistics.estimates import adjusted
from headscope.statistics.result import Result
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

PERMUTATIONS = 2_000
"""Permutations of the null distribution, so that the smallest p value is 1/2001."""
LEVEL = 0.05
"""Largest q value of a match."""
MIN_RELATIONS = 3
"""Fewest common relations that two heads are compared by."""

STUDY = Study(
    rows="head of the first run",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        tags | types joined by `;` | its tags
        match_layer, match_head | count, ≥ 0 | the most similar head of the second run
        match_tags | types joined by `;` | the tags of that head
        similarity | [−1, 1] | weighted rank correlation of their lifts over the common relations
        q_value | [0, 1] | test that they are more similar than the most similar of the permuted
            heads, Benjamini–Hochberg over heads
    """),
    figure=HeatMap(value="similarity", x="head of the second", y="head of the first", mark="match"),
    bad_call={"first": "", "second": ""},
)


@study(STUDY)
def match_heads(first: RunName, second: RunName) -> StudyResult:
    """Find the most similar head of the second run for each head of the first.

    The models may differ in layers, heads and tokenizers. Each relation's lifts are ranked over the
    heads of a model, and ranks become normal scores. The similarity of two heads is the correlation
    of their scores, where a relation's weight is the product of its reliabilities in both runs, the
    share of the variance of its lift between heads that is not error.

    The null distribution comes from heads of the second run whose principal components were
    permuted within layers, each on its own. Such heads have the layers' properties and the
    correlations between relations, but none is a head of the model. The best of them is compared
    with the best real head. Relations of the type `far` are left out.

    Raises:
        RunError: a folder without a run, or fewer than 3 common relations that tell heads apart.
    """
    runs, names = (the_run(first), the_run(second)), run_names((first, second))
    one, other, roots = _common_scores(runs, names)
    queries = _unit(one.scores, roots)
    similarity = queries @ _unit(other.scores, roots).T
    places = [side.heads[["layer", "head"]].to_numpy() for side in (one, other)]
    # of equally similar heads, the one with the same layer and number
    best = (similarity + 1e-9 * (places[0][:, None] == places[1]).all(2)).argmax(1)
    largest = similarity[np.arange(len(best)), best]
    q_values = adjusted((1 + _exceeded(queries, other, roots, largest)) / (1 + PERMUTATIONS))
    matches = other.heads.iloc[best].reset_index(drop=True).add_prefix("match_")
    table = one.heads.join(matches).assign(similarity=largest, q_value=q_values)[STUDY.names]
    matched = table[table["q_value"] < LEVEL]
    return StudyResult(
        title=f"{names[0]} matched with {names[1]}: {len(matched)} of {len(table)} heads have a "
        f"match (q < {LEVEL:g}), by {len(roots)} relations",
        table=table,
        terminal_table=matched.sort_values("similarity", ascending=False, kind="stable"),
        values={"runs": names, "matched": len(matched), "relations": len(roots)},
        draw=partial(STUDY.draw, table=_cells(one, other, similarity, best, q_values < LEVEL)),
    )


class _Scores(NamedTuple):
    """Heads of a run, and the normal scores of their lifts times the roots of the weights."""

    heads: pd.DataFrame
    scores: Float[ndarray, "head relation"]


def _common_scores(
    runs: tuple[Result, Result], names: tuple[str, ...]
) -> tuple[_Scores, _Scores, Float[ndarray, " relation"]]:
    """Scores of both runs' heads, and the roots of the weights of the common relations."""
    lifts, errors = zip(*map(_lifts, runs), strict=True)
    common = lifts[0].columns.intersection(lifts[1].columns)
    weights = _reliability(lifts[0][common], errors[0][common])
    weights = weights * _reliability(lifts[1][common], errors[1][common])
    weights = weights[weights > 0]
    if len(weights) < MIN_RELATIONS:
        raise RunError(
            f"{names[0]} and {names[1]} have {len(weights)} common relations that tell heads "
            f"apart, and a match needs {MIN_RELATIONS}: classify both with the same --types"
        )
    roots = np.sqrt(weights.to_numpy())
    parts = []
    for run, lift in zip(runs, lifts, strict=True):
        heads = run.heads.set_index(["layer", "head"])["tags"].reindex(lift.index).reset_index()
        shares = (lift[weights.index].rank().to_numpy() - 0.5) / len(lift)
        parts.append(_Scores(heads, ndtri(shares) * roots))
    return parts[0], parts[1], roots


def _lifts(run: Result) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Lifts of heads × relations and their standard errors, for relations of all heads."""
    # 24 distances of one type would outweigh the others
    rows = run.evidence[run.evidence["type"] != far.TYPE.name]
    rows = rows.assign(
        relation=rows["type"] + "/" + rows["relation"],
        error=(rows["ci_high"] - rows["ci_low"]) / 3.92,  # a 95 % interval
    )
    wide = rows.pivot(index=["layer", "head"], columns="relation", values=["lift", "error"])
    complete = wide["lift"].columns[(wide["lift"] + wide["error"]).notna().all()]
    return wide["lift"][complete], wide["error"][complete]


def _reliability(lifts: pd.DataFrame, errors: pd.DataFrame) -> pd.Series:
    """Share of the variance of each relation's lift over heads that is not error, in [0, 1]."""
    return (1 - errors.pow(2).mean() / lifts.var(ddof=0)).fillna(0).clip(lower=0)


def _unit(
    scores: Float[ndarray, "head relation"], roots: Float[ndarray, " relation"]
) -> Float[ndarray, "head relation"]:
    """Vectors whose dot products are weighted correlations."""
    centred = scores - np.outer(scores @ roots, roots) / (roots @ roots)
    return np.asarray(centred / np.linalg.norm(centred, axis=1, keepdims=True).clip(1e-12))


def _exceeded(
    queries: Float[ndarray, "head relation"],
    other: _Scores,
    roots: Float[ndarray, " relation"],
    largest: Float[ndarray, " head"],
) -> Int[ndarray, " head"]:
    """Permutations in which some permuted head is as similar to a head as its match is."""
    mean = other.scores.mean(0)
    _, _, components = np.linalg.svd(other.scores - mean, full_matrices=False)
    coordinates = (other.scores - mean) @ components.T
    layers = other.heads.groupby("layer").indices.values()
    generator, count = np.random.default_rng(0), np.zeros(len(queries), np.int64)
    for _ in range(PERMUTATIONS):
        permuted = coordinates.copy()
        for layer in layers:
            permuted[layer] = generator.permuted(coordinates[layer], axis=0)
        heads = _unit(permuted @ components + mean, roots)
        # a head equals itself up to rounding
        count += (queries @ heads.T).max(1) >= largest - 1e-9
    return count


def _cells(
    one: _Scores,
    other: _Scores,
    similarity: Float[ndarray, "head other"],
    best: Int[ndarray, " head"],
    significant: Bool[ndarray, " head"],
) -> pd.DataFrame:
    """A row per head × head for the figure, with the matches marked."""
    names = [
        [head_name(*pair) for pair in side.heads[["layer", "head"]].to_numpy().tolist()]
        for side in (one, other)
    ]
    mark = np.zeros(similarity.shape, bool)
    mark[np.arange(len(best)), best] = significant
    rows, columns = np.indices(similarity.shape).reshape(2, -1)
    return pd.DataFrame(
        {
            "head of the first": pd.Categorical.from_codes(rows, names[0]),
            "head of the second": pd.Categorical.from_codes(columns, names[1]),
            "similarity": similarity.ravel(),
            "match": mark.ravel(),
        }
    )
