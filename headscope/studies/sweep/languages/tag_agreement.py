"""Agreement of tags between languages, beside what heads of the same layers share by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.measure.bootstrap import LEVEL, resample
from headscope.statistics.tags import OPEN

SHARED_COLUMNS = ["tags", "shared", "shared_low", "shared_high", "shared_shuffled", "shared_p"]
PERMUTATIONS = 999
FEWEST_LANGUAGES = 3
_KEY = ["layer", "head", "id"]

Heads = Bool[ndarray, "language head"]
Languages = Float[ndarray, "*resample language"]


def chance_columns(decided: pd.DataFrame) -> pd.DataFrame:
    """The languages in which a head of each layer would hold a tag by chance: a row per head.

    Chance is each language's heads in an order of their own within their layers, so that a head
    holds the tag there with the share of its layer's heads that hold it.

    - `by_chance`: the languages that are expected to give the tag to a head of that layer.
    - `p_value`: the probability of at least as many as do give it (Poisson's binomial), in (0, 1];
      1 of a head that holds it in none.

    Args:
        decided: a row per head × relation × language whose text can decide it, with `tagged`.
    """
    tables = []
    for relation, rows in decided.groupby("id", sort=False):
        tags = rows.pivot(index=["layer", "head"], columns="language", values="tagged")
        tags = tags.eq(True)
        shares = tags.groupby("layer").transform("mean").to_numpy(float)
        counts = tags.sum(axis=1).to_numpy(int)
        tails = [at_least(int(count), row) for count, row in zip(counts, shares, strict=True)]
        table = pd.DataFrame({"by_chance": shares.sum(1), "p_value": tails}, index=tags.index)
        tables.append(table.assign(id=relation).reset_index())
    return pd.concat(tables, ignore_index=True)[[*_KEY, "by_chance", "p_value"]]


def at_least(count: int, chances: Float[ndarray, " language"]) -> float:
    """The probability that at least so many of some independent events happen.

    >>> at_least(2, np.array([0.5, 0.5]))
    0.25
    >>> round(at_least(1, np.array([0.5, 0.2, 0.0])), 3)
    0.6
    """
    exactly = np.ones(1)
    for chance in chances:
        exactly = np.convolve(exactly, [1 - chance, chance])
    return float(min(1.0, exactly[count:].sum()))


def shared_numbers(rows: pd.DataFrame, *, seed: int) -> dict[str, float]:
    """How much of a relation's tags other languages share.

    - `tags`: their number, over heads and languages.
    - `shared`: of the heads that hold the tag in one language, the share that another language
      gives it too, over all pairs of languages that decide it for that head, in [0, 1].
    - `shared_low`, `shared_high`: its 95 % interval over resampled languages; NaN of fewer than
      three.
    - `shared_shuffled`: the mean of `shared` with each language's heads in an order of its own
      within their layers; `shared_p`: the share of these that reach as much, at least 0.001.

    All but `tags` are NaN where no head holds the tag in a language beside another one.

    Args:
        rows: a row per head × language of one relation, with `tagged` and `verdict`.
        seed: seeds resamples and shuffles.
    """
    by_language = {
        name: rows.pivot(index=["layer", "head"], columns="language", values=name)
        for name in ("tagged", "verdict")
    }
    tagged = by_language["tagged"].eq(True).to_numpy(bool).T
    verdicts = by_language["verdict"]
    decided = (verdicts.notna() & ~verdicts.isin(OPEN)).to_numpy(bool).T | tagged
    numbers = dict.fromkeys(SHARED_COLUMNS, float("nan")) | {"tags": float(tagged.sum())}
    share = float(share_of_tags(tagged, decided))
    if np.isnan(share):
        return numbers
    layer = by_language["tagged"].index.get_level_values("layer").to_numpy()
    rng = np.random.default_rng([seed, 2])
    shuffled = np.array([_shuffled_share(tagged, decided, layer, rng) for _ in range(PERMUTATIONS)])
    languages = len(tagged)
    if languages >= FEWEST_LANGUAGES:
        shares = share_of_tags(tagged, decided, resample(languages, rng))
        sides = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        numbers["shared_low"], numbers["shared_high"] = np.nanquantile(shares, sides)
    p_value = (1 + int((shuffled >= share).sum())) / (1 + PERMUTATIONS)
    mean = float(np.nanmean(shuffled))
    return numbers | {"shared": share, "shared_shuffled": mean, "shared_p": p_value}


def share_of_tags(tagged: Heads, decided: Heads, weights: Languages | None = None) -> Any:
    """Of tags in one language, the share that another gives, over pairs that decide; NaN of none.

    >>> tagged = np.array([[True, False], [True, False], [False, True]])
    >>> float(share_of_tags(tagged, np.ones((3, 2), bool)))  # 2 of 6 pairs of a tag and a language
    0.3333333333333333

    Args:
        tagged: the tags.
        decided: what each language decides; every tag is.
        weights: how often each language counts, a row per resample; once when None. No language is
            paired with itself.
    """
    weights = np.ones(len(tagged)) if weights is None else weights
    tags = weights @ tagged
    with_itself = (weights**2) @ tagged
    both = (tags**2 - with_itself).sum(-1)
    pairs = (tags * (weights @ decided) - with_itself).sum(-1)
    return np.divide(both, pairs, out=np.full_like(both, np.nan), where=pairs > 0)


def _shuffled_share(
    tagged: Heads, decided: Heads, layer: Int[ndarray, " head"], rng: np.random.Generator
) -> float:
    orders = np.stack([np.lexsort((rng.random(len(layer)), layer)) for _ in tagged])
    return float(
        share_of_tags(*(np.take_along_axis(each, orders, axis=1) for each in (tagged, decided)))
    )
