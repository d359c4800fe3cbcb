"""Most similar heads of two models, by the lifts of the relations that both were tested for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from scipy.special import ndtri

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.relations.types import far
from headscope.resolve import RunName, run_names, the_run
from headscope.statistics.estimates import adjusted
from headscope.statistics.result import Result
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import HeatMap
from headscope.views.study_result import StudyResult

HEAD = ["layer", "head"]
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
    # a relation weighs as much as it tells heads apart reliably in both runs
    runs = (the_run(first), the_run(second))
    names = run_names((first, second))
    first_lifts, second_lifts = _lifts(runs[0]), _lifts(runs[1])
    common = first_lifts.lift.columns.intersection(second_lifts.lift.columns)
    weights = first_lifts.reliability(common) * second_lifts.reliability(common)
    weights = weights[weights > 0]
    if len(weights) < MIN_RELATIONS:
        raise RunError(
            f"{names[0]} and {names[1]} have {len(weights)} common relations that tell heads "
            f"apart, and a match needs {MIN_RELATIONS}: classify both with the same --types"
        )
    roots = np.sqrt(weights.to_numpy())
    one = _scores(runs[0], first_lifts.lift[weights.index], roots)
    other = _scores(runs[1], second_lifts.lift[weights.index], roots)
    queries = _unit(one.scores, roots)
    similarity = queries @ _unit(other.scores, roots).T
    # of equally similar heads, the one of the same layer and number
    heads = one.heads[HEAD].to_numpy()
    others = other.heads[HEAD].to_numpy()
    same_position = (heads[:, None] == others).all(2)
    best = np.asarray((similarity + 1e-9 * same_position).argmax(1))
    # how often heads of a permuted run are as similar
    largest = similarity[np.arange(len(best)), best]
    exceeded = _exceeded(queries, other, roots, largest)
    q_values = adjusted((1 + exceeded) / (1 + PERMUTATIONS))
    # one row per head, with its match
    matches = other.heads.iloc[best].reset_index(drop=True).add_prefix("match_")
    table = one.heads.join(matches)
    table = table.assign(similarity=largest, q_value=q_values)[STUDY.names]
    is_match = q_values < LEVEL
    matched = table[is_match]
    title = (
        f"{names[0]} matched with {names[1]}: {len(matched)} of {len(table)} heads have a "
        f"match (q < {LEVEL:g}), by {len(roots)} relations"
    )
    cells = _cells(one, other, similarity, best, is_match)
    return StudyResult(
        title=title,
        table=table,
        terminal_table=matched.sort_values("similarity", ascending=False, kind="stable"),
        values={"runs": names, "matched": len(matched), "relations": len(roots)},
        draw=partial(STUDY.draw, table=cells),
    )


class _Scores(NamedTuple):
    """Heads of a run, and the normal scores of their lifts times the roots of the weights."""

    heads: pd.DataFrame
    scores: Float[ndarray, "head relation"]


@dataclass(frozen=True, eq=False)
class _Lifts:
    """Lifts of heads × relations, and their standard errors."""

    lift: pd.DataFrame
    error: pd.DataFrame

    def reliability(self, relations: pd.Index) -> pd.Series:
        """Share of the variance of each lift over heads that is not error, in [0, 1]."""
        noise = self.error[relations].pow(2).mean()
        variance = self.lift[relations].var(ddof=0)
        return (1 - noise / variance).fillna(0).clip(lower=0)


def _scores(run: Result, lifts: pd.DataFrame, roots: Float[ndarray, " relation"]) -> _Scores:
    """Normal scores of the lifts' ranks over heads, times the roots of the weights."""
    tags = run.heads.set_index(HEAD)["tags"]
    heads = tags.reindex(lifts.index).reset_index()
    shares = (lifts.rank().to_numpy() - 0.5) / len(lifts)
    return _Scores(heads, ndtri(shares) * roots)


def _lifts(run: Result) -> _Lifts:
    """Lifts and errors of the relations that all heads have."""
    # 24 distances of one type would outweigh the others
    rows = run.evidence[run.evidence["type"] != far.TYPE.name]
    width = rows["ci_high"] - rows["ci_low"]
    rows = rows.assign(
        relation=rows["type"] + "/" + rows["relation"],
        error=width / 3.92,  # a 95 % interval
    )
    wide = rows.pivot(index=HEAD, columns="relation", values=["lift", "error"])
    lift, error = wide["lift"], wide["error"]
    is_complete = (lift + error).notna().all()
    complete = lift.columns[is_complete]
    return _Lifts(lift=lift[complete], error=error[complete])


def _unit(
    scores: Float[ndarray, "head relation"], roots: Float[ndarray, " relation"]
) -> Float[ndarray, "head relation"]:
    """Vectors whose dot products are weighted correlations."""
    means = np.outer(scores @ roots, roots) / (roots @ roots)
    centred = scores - means
    lengths = np.linalg.norm(centred, axis=1, keepdims=True)
    return np.asarray(centred / lengths.clip(1e-12))


def _exceeded(
    queries: Float[ndarray, "head relation"],
    other: _Scores,
    roots: Float[ndarray, " relation"],
    largest: Float[ndarray, " head"],
) -> Int[ndarray, " head"]:
    """Permutations in which some permuted head is as similar to a head as its match is."""
    # heads are permuted within layers, relation by relation, along the principal axes
    mean = other.scores.mean(0)
    centred = other.scores - mean
    _, _, components = np.linalg.svd(centred, full_matrices=False)
    coordinates = centred @ components.T
    layers = other.heads.groupby("layer").indices.values()
    generator = np.random.default_rng(0)
    count = np.zeros(len(queries), np.int64)
    for _ in range(PERMUTATIONS):
        permuted = coordinates.copy()
        for layer in layers:
            permuted[layer] = generator.permuted(coordinates[layer], axis=0)
        heads = _unit(permuted @ components + mean, roots)
        similarity = queries @ heads.T
        # a head equals itself up to rounding
        count += similarity.max(1) >= largest - 1e-9
    return count


def _cells(
    one: _Scores,
    other: _Scores,
    similarity: Float[ndarray, "head other"],
    best: Int[ndarray, " head"],
    significant: Bool[ndarray, " head"],
) -> pd.DataFrame:
    """A row per head × head for the figure, with the matches marked."""
    mark = np.zeros(similarity.shape, bool)
    mark[np.arange(len(best)), best] = significant
    rows, columns = np.indices(similarity.shape).reshape(2, -1)
    return pd.DataFrame(
        {
            "head of the first": pd.Categorical.from_codes(rows, _names(one)),
            "head of the second": pd.Categorical.from_codes(columns, _names(other)),
            "similarity": similarity.ravel(),
            "match": mark.ravel(),
        }
    )


def _names(side: _Scores) -> list[str]:
    positions = side.heads[HEAD].to_numpy().tolist()
    return [head_name(layer, head) for layer, head in positions]
