"""Agreement of heads between languages, in lifts and in tags, beside heads shuffled in layers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.stats import rankdata

from headscope.measure.bootstrap import resample
from headscope.measure.tally import MIN_BLOCKS, Tally
from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.result import Result
from headscope.studies.sweep.languages.across import language_tally, lift_sums
from headscope.studies.sweep.languages.tag_agreement import SHARED_COLUMNS, shared_numbers

AGREEMENT_COLUMNS = [
    "type",
    "relation",
    "languages",
    "correlation",
    "ci_low",
    "ci_high",
    "shuffled",
    "p_value",
    *SHARED_COLUMNS,
]
PERMUTATIONS = 999
RESAMPLES = 200
FEWEST_HEADS = 4
_NORMAL_95 = 1.96
_LARGEST = 1 - 1e-9

Lifts = Float[ndarray, "*_ language head"]


def agreement_table(
    evidence: pd.DataFrame, runs: Mapping[str, Result], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """A row per relation that several languages ask often enough, the best agreement first.

    - `languages`: in how many the relation has 50 queries or more.
    - `correlation`: Spearman's rank correlation of the heads' lifts, mean over pairs of languages,
      in [−1, 1], with its 95 % interval `ci_low`, `ci_high`: Fisher's z, whose standard error is
      that of resampled documents, of parallel texts the same ones in every language.
    - `shuffled`: the mean correlation of heads shuffled within their layers, what layers alone
      explain; `p_value`: the share of shuffles that correlate as much, at least 0.001.
    - `tags`, `shared` and the rest: the relation's tags, and the share of them that other languages
      give too, of those whose text can decide it; see `tag_agreement.shared_numbers`.

    Args:
        evidence: from `headscope.studies.sweep.languages.across.evidence_of`.
        runs: the same runs, loaded with their sums.
        parallel: whether they read the same documents, so many that a block holds whole ones.
        seed: seeds resamples and shuffles.
    """
    often = evidence[evidence["n"] >= MIN_QUERIES].groupby("id", sort=False)
    rows = []
    for relation, rows_of_relation in often:
        languages = rows_of_relation["language"].unique()
        tallies = [language_tally(language, runs[language]) for language in languages]
        if len(languages) < 2 or tallies[0].layers * tallies[0].heads < FEWEST_HEADS:
            continue
        numbers = _agreement(tallies, str(relation), parallel=parallel, seed=seed)
        of_tags = shared_numbers(rows_of_relation[rows_of_relation["decidable"]], seed=seed)
        first = rows_of_relation.iloc[0]
        rows.append([first["type"], first["relation"], len(languages), *numbers, *of_tags.values()])
    table = pd.DataFrame(rows, columns=AGREEMENT_COLUMNS)
    order = ["correlation", "type", "relation"]
    return table.sort_values(order, ascending=[False, True, True], ignore_index=True)


def _agreement(
    tallies: Sequence[Tally], relation: str, *, parallel: bool, seed: int
) -> tuple[float, float, float, float, float]:
    """The columns from `correlation` to `p_value` of one relation."""
    rng = np.random.default_rng([seed, 1])
    sums = [lift_sums(tally, relation) for tally in tallies]
    lifts = np.stack([excess.sum(0) / queries.sum() for excess, queries in sums])
    ranks = unit_ranks(lifts)
    correlation = float(mean_product(ranks))
    error = _standard_error(sums, parallel=parallel, seed=seed)
    centre = np.arctanh(np.clip(correlation, -_LARGEST, _LARGEST))
    low, high = np.tanh(centre - _NORMAL_95 * error), np.tanh(centre + _NORMAL_95 * error)
    layer = np.repeat(np.arange(tallies[0].layers), tallies[0].heads)
    shuffled = np.array([mean_product(shuffle(ranks, layer, rng)) for _ in range(PERMUTATIONS)])
    p_value = (1 + int((shuffled >= correlation).sum())) / (1 + PERMUTATIONS)
    return correlation, float(low), float(high), float(shuffled.mean()), p_value


def mean_correlation(lifts: Lifts) -> Float[ndarray, "*_"]:
    """Mean over pairs of languages of the rank correlation of their heads; 0 where all are equal.

    >>> float(mean_correlation(np.array([[0.1, 0.2, 0.3], [1, 5, 9], [3, 2, 1]])).round(2))
    -0.33
    """
    return mean_product(unit_ranks(lifts))


def unit_ranks(lifts: Lifts) -> Lifts:
    """Ranks of the heads in each language, centred and of length 1; 0 where all are equal.

    The product of two languages' is Spearman's rank correlation.
    """
    ranks = rankdata(lifts, axis=-1)
    centred = ranks - ranks.mean(-1, keepdims=True)
    length = np.sqrt((centred**2).sum(-1, keepdims=True))
    return np.asarray(np.divide(centred, length, out=np.zeros_like(centred), where=length > 0))


def mean_product(ranks: Lifts) -> Float[ndarray, "*_"]:
    """Mean over pairs of languages of the product of their `unit_ranks`."""
    count = ranks.shape[-2]
    # the sum of all products of pairs, less those with themselves
    total = (ranks.sum(-2) ** 2).sum(-1) - (ranks**2).sum((-2, -1))
    return np.asarray(total / (count * (count - 1)))


def _standard_error(sums: Sequence[tuple[ndarray, ndarray]], *, parallel: bool, seed: int) -> float:
    """Of Fisher's z of the mean correlation, over resampled documents; NaN of too few."""
    in_any = np.any([queries > 0 for _, queries in sums], axis=0)
    resampled = []
    for number, (excess, queries) in enumerate(sums):
        blocks = in_any if parallel else queries > 0
        if int((queries > 0).sum()) < MIN_BLOCKS:
            return float("nan")
        rng = np.random.default_rng([seed, 0 if parallel else number])
        draws = resample(int(blocks.sum()), rng)[:RESAMPLES]
        with np.errstate(divide="ignore", invalid="ignore"):
            resampled.append((draws @ excess[blocks]) / (draws @ queries[blocks])[:, None])
    correlations = mean_correlation(np.stack(resampled, axis=1))
    return float(np.nanstd(np.arctanh(np.clip(correlations, -_LARGEST, _LARGEST))))


def shuffle(lifts: Lifts, layer: Int[ndarray, " head"], rng: np.random.Generator) -> Lifts:
    """Each language's heads in an order of its own within each layer."""
    orders = [np.lexsort((rng.random(len(layer)), layer)) for _ in lifts]
    return np.take_along_axis(lifts, np.stack(orders), axis=-1)
