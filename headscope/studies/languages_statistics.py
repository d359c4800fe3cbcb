"""Statistics over languages: tags by chance, intervals of mean lifts, and their agreement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray
from scipy.stats import rankdata

from headscope.measure.bootstrap import LEVEL, resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES

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
        tails = [at_least(int(count), row) for count, row in zip(counts, shares, strict=True)]
        columns = {"by_chance": shares.sum(1), "p_value": tails, "id": relation}
        tables.append(pd.DataFrame(columns, index=tags.index).set_index("id", append=True))
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
    tables, sides = [], ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
    for relation, names in decided.groupby("id", sort=False)["language"].unique().items():
        some = [tallies[name] for name in names]
        means = resampled_lifts(some, str(relation), parallel=parallel, seed=seed).mean(1)
        low, high = np.nanquantile(means, sides, axis=0)
        columns: dict[str, Any] = {
            "layer": np.repeat(some[0].numbers, some[0].heads),
            "head": np.tile(np.arange(some[0].heads), some[0].layers),
            "id": relation,
            "ci_low": low,
            "ci_high": high,
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables).set_index(ID)


def _sums(tally: Tally, relation: str) -> tuple[ndarray, ndarray]:
    """Sums of each block: mass on targets minus mass on controls [block head], and queries."""
    index = tally.relations.index(relation)
    excess = tally.target[:, index] - tally.control[:, index]
    return excess.reshape(len(excess), -1), tally.queries[:, index]


def resampled_lifts(
    tallies: Sequence[Tally], relation: str, *, parallel: bool, seed: int
) -> Float[ndarray, "resample language head"]:
    """Lifts in resamples of the documents, the same documents in every language if parallel."""
    sums = [_sums(tally, relation) for tally in tallies]
    in_any = np.any([queries > 0 for _, queries in sums], axis=0)
    lifts = []
    for number, (excess, queries) in enumerate(sums):
        blocks = in_any if parallel else queries > 0
        rng = np.random.default_rng([seed, 0 if parallel else number])
        draws = resample(int(blocks.sum()), rng)
        with np.errstate(divide="ignore", invalid="ignore"):
            lifts.append((draws @ excess[blocks]) / (draws @ queries[blocks])[:, None])
    return np.stack(lifts, axis=1)


def lift_agreement(
    evidence: pd.DataFrame, tallies: Mapping[str, Tally], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """Agreement of the heads' lifts between the languages that have 50 queries of a relation.

    The columns are those of the study from `correlation` on. The interval is that of Fisher's z
    with the standard error of resampled documents.
    """
    rows = []
    often = evidence[evidence["n"] >= MIN_QUERIES]
    for relation, names in often.groupby("id", sort=False)["language"].unique().items():
        some = [tallies[name] for name in names]
        if len(some) < 2:
            continue
        layers, heads = some[0].layers, some[0].heads
        sums = [_sums(tally, str(relation)) for tally in some]
        ranks = unit_ranks(np.stack([excess.sum(0) / queries.sum() for excess, queries in sums]))
        correlation = float(mean_product(ranks))
        by_layer = ranks.reshape(len(some), layers, heads).mean(-1).repeat(heads, axis=-1)
        error = float("nan")
        if all((queries > 0).sum() >= MIN_BLOCKS for _, queries in sums):
            lifts = resampled_lifts(some, str(relation), parallel=parallel, seed=seed)
            resampled = mean_product(unit_ranks(lifts[:RESAMPLES]))
            error = float(np.nanstd(np.arctanh(np.clip(resampled, -_LARGEST, _LARGEST))))
        centre = np.arctanh(np.clip(correlation, -_LARGEST, _LARGEST))
        low, high = np.tanh([centre - _NORMAL_95 * error, centre + _NORMAL_95 * error])
        rows.append((relation, correlation, low, high, float(mean_product(by_layer))))
    columns = ["correlation", "correlation_low", "correlation_high", "correlation_by_chance"]
    return pd.DataFrame(rows, columns=["id", *columns]).set_index("id")


def unit_ranks(lifts: Lifts) -> Lifts:
    """Ranks of the heads in each language, centred and of length 1; 0 if all are equal.

    The product of the ranks of two languages is Spearman's rank correlation.
    """
    ranks = rankdata(lifts, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.sqrt((centred**2).sum(-1, keepdims=True))
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > 0))


def mean_product(ranks: Lifts) -> Float[ndarray, "*resample"]:
    """Mean over pairs of languages of the product of their ranks.

    >>> lifts = np.array([[0.1, 0.2, 0.3], [1, 5, 9], [3, 2, 1]])
    >>> float(mean_product(unit_ranks(lifts)).round(2))
    -0.33
    """
    count = ranks.shape[-2]
    pairs = (ranks.sum(-2) ** 2).sum(-1) - (ranks**2).sum((-2, -1))
    return np.asarray(pairs / (count * (count - 1)))
