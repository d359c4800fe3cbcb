"""Statistics over languages: tags by chance, intervals of mean lifts, and their agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.bootstrap import LEVEL, resample

HEAD, ID = ["layer", "head"], ["layer", "head", "id"]
RESAMPLES = 200
_NORMAL_95 = 1.96
_LARGEST = 1 - 1e-9
Lifts = Float[ndarray, "*resample language head"]


def tags_by_chance(decided: pd.DataFrame) -> pd.DataFrame:
    """The number of languages in which a head of each layer would have a tag by chance.

    By chance, each language's heads are shuffled within their layers. `by_chance` is the expected
    number, and `p_value` the probability of at least as many as observed (Poisson's binomial).
    """
    tables = []
    for relation, rows in decided.groupby("id", sort=False):
        tags = rows.pivot(index=HEAD, columns="language", values="tagged").eq(True)
        shares = tags.groupby("layer").transform("mean").to_numpy(float)
        counts = tags.sum(axis=1).to_numpy(int)
        p_values = [at_least(int(count), row) for count, row in zip(counts, shares, strict=True)]
        table = pd.DataFrame(index=tags.index)
        table["by_chance"] = shares.sum(1)
        table["p_value"] = p_values
        table["id"] = relation
        tables.append(table.set_index("id", append=True))
    return pd.concat(tables)


def at_least(count: int, chances: Float[ndarray, " language"]) -> float:
    """Probability that at least `count` of some independent events happen.

    >>> at_least(2, np.array([0.5, 0.5]))
    0.25
    >>> round(at_least(1, np.array([0.5, 0.2, 0.0])), 3)
    0.6
    """
    exactly = np.ones(1)
    for chance in chances:
        exactly = np.convolve(exactly, [1 - chance, chance])
    return float(min(1.0, exactly[count:].sum()))


def lift_bounds(
    decided: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """The 95 % interval of each head's mean lift over the languages that decide a relation."""
    ends = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    tables = []
    for relation, names in _languages_by_relation(decided).items():
        counted = [tallies[name] for name in names]
        lifts = resampled_lifts(counted, relation, parallel=parallel, seed=seed)
        means = lifts.mean(1)
        low, high = np.nanquantile(means, ends, axis=0)
        first = counted[0]
        columns: dict[str, Any] = {
            "layer": np.repeat(first.numbers, first.heads),
            "head": np.tile(np.arange(first.heads), first.layers),
            "id": relation,
            "ci_low": low,
            "ci_high": high,
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables).set_index(ID)


def _languages_by_relation(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Languages of the rows of each relation, in the order of the rows."""
    languages = rows.groupby("id", sort=False)["language"].unique()
    return {str(relation): list(names) for relation, names in languages.items()}


@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums of each block of a language's text, for one relation."""

    excess: Float[ndarray, "block head"]
    """Mass on targets minus mass on controls."""
    queries: Float[ndarray, " block"]

    def lifts(self) -> Float[ndarray, " head"]:
        """Lift of each head over all blocks."""
        return np.asarray(self.excess.sum(0) / self.queries.sum())


def _sums(tally: Tally, relation: str) -> _Sums:
    index = tally.relations.index(relation)
    excess = tally.target[:, index] - tally.control[:, index]
    return _Sums(
        excess=excess.reshape(len(excess), -1),
        queries=tally.queries[:, index],
    )


def resampled_lifts(
    tallies: Sequence[Tally], relation: str, *, parallel: bool, seed: int
) -> Float[ndarray, "resample language head"]:
    """Lifts in resamples of the documents, the same documents in every language if parallel."""
    sums = [_sums(tally, relation) for tally in tallies]
    in_any = np.any([part.queries > 0 for part in sums], axis=0)
    lifts = []
    for number, part in enumerate(sums):
        blocks = in_any if parallel else part.queries > 0
        stream = 0 if parallel else number
        rng = np.random.default_rng([seed, stream])
        draws = resample(int(blocks.sum()), rng)
        excess = draws @ part.excess[blocks]
        queries = draws @ part.queries[blocks]
        with np.errstate(divide="ignore", invalid="ignore"):
            lifts.append(excess / queries[:, None])
    return np.stack(lifts, axis=1)


def lift_agreement(
    evidence: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """Agreement of the heads' lifts between the languages that have 50 queries of a relation.

    The columns are those of the study from `correlation` on. The interval is that of Fisher's z
    with the standard error of resampled documents.
    """
    often = evidence[evidence["n"] >= MIN_QUERIES]
    rows = []
    for relation, names in _languages_by_relation(often).items():
        if len(names) < 2:
            continue
        counted = [tallies[name] for name in names]
        sums = [_sums(tally, relation) for tally in counted]
        ranks = unit_ranks(np.stack([part.lifts() for part in sums]))
        correlation = float(mean_product(ranks))
        error = float("nan")
        if all((part.queries > 0).sum() >= MIN_BLOCKS for part in sums):
            lifts = resampled_lifts(counted, relation, parallel=parallel, seed=seed)
            error = _error_of_z(lifts[:RESAMPLES])
        low, high = _fisher_interval(correlation, error)
        by_layer = _means_of_layers(ranks, counted[0].layers, counted[0].heads)
        rows.append(
            {
                "id": relation,
                "correlation": correlation,
                "correlation_low": low,
                "correlation_high": high,
                "correlation_by_chance": float(mean_product(by_layer)),
            }
        )
    columns = ["correlation", "correlation_low", "correlation_high", "correlation_by_chance"]
    return pd.DataFrame(rows, columns=["id", *columns]).set_index("id")


def _means_of_layers(ranks: Lifts, layers: int, heads: int) -> Lifts:
    """Each head's rank replaced by the mean of its layer."""
    by_layer = ranks.reshape(len(ranks), layers, heads)
    return np.asarray(by_layer.mean(-1).repeat(heads, axis=-1))


def _fisher_z(correlation: ndarray | float) -> ndarray:
    """Fisher's transformation of correlations, finite at −1 and 1."""
    return np.asarray(np.arctanh(np.clip(correlation, -_LARGEST, _LARGEST)))


def _error_of_z(lifts: Float[ndarray, "resample language head"]) -> float:
    """Standard error of Fisher's z of the agreement, over resamples."""
    correlations = mean_product(unit_ranks(lifts))
    return float(np.nanstd(_fisher_z(correlations)))


def _fisher_interval(correlation: float, error: float) -> tuple[float, float]:
    """95 % interval of a correlation whose z has a standard error; NaN without one."""
    centre = _fisher_z(correlation)
    low, high = np.tanh([centre - _NORMAL_95 * error, centre + _NORMAL_95 * error])
    return float(low), float(high)


def unit_ranks(lifts: Lifts) -> Lifts:
    """Ranks of the heads in each language, centred and of length 1; 0 if all are equal.

    The product of the ranks of two languages is Spearman's rank correlation.
    """
    ranks = rankdata(lifts, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    squares = (centred**2).sum(-1, keepdims=True)
    length = np.sqrt(squares)
    zeros = np.zeros_like(centred)
    return np.asarray(np.divide(centred, length, out=zeros, where=length > 0))


def mean_product(ranks: Lifts) -> Float[ndarray, "*resample"]:
    """Mean over pairs of languages of the product of their ranks.

    >>> lifts = np.array([[0.1, 0.2, 0.3], [1, 5, 9], [3, 2, 1]])
    >>> float(mean_product(unit_ranks(lifts)).round(2))
    -0.33
    """
    count = ranks.shape[-2]
    square_of_sum = (ranks.sum(-2) ** 2).sum(-1)
    sum_of_squares = (ranks**2).sum((-2, -1))
    pairs = square_of_sum - sum_of_squares
    return np.asarray(pairs / (count * (count - 1)))
