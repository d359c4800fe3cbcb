"""Runs of one model on several languages, put side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
from jaxtyping import Float
from numpy import ndarray

from headscope.errors import RunError
from headscope.heads import head_name
from headscope.measure.bootstrap import LEVEL, resample
from headscope.measure.tally import Tally
from headscope.statistics.result import Result
from headscope.statistics.tags import OPEN, is_decidable, with_rules

HEAD_COLUMNS = [
    "layer",
    "head",
    "type",
    "relation",
    "tagged",
    "decidable",
    "asked",
    "holds_in",
    "not_in",
    "lift",
    "ci_low",
    "ci_high",
    "lowest_lift",
    "highest_lift",
]
RELATION_COLUMNS = [
    "type",
    "relation",
    "language",
    "n",
    "contested_n",
    "decidable",
    "baseline",
    "tagged",
    "best",
    "lift",
    "ci_low",
    "ci_high",
]
_KEY = ["layer", "head", "id"]


def evidence_of(runs: Mapping[str, Result]) -> pd.DataFrame:
    """Every run's evidence with its `language`, and whether that text could decide: `decidable`.

    It could where it has enough queries, enough where the best simple rule is wrong, and enough
    documents for an interval.

    Raises:
        RunError: the runs are of models of different shapes, or one has no evidence.
    """
    shapes = {language: _shape(run) for language, run in runs.items()}
    if len(set(shapes.values())) > 1:
        raise RunError(
            "these runs are of models of different shapes: "
            + "; ".join(f"{language} of {name}" for language, name in shapes.items())
        )
    tables = []
    for language, run in runs.items():
        table = with_rules(run.evidence, run.rules)
        # what a text can decide for some head; of the others the verdict says that it is open
        decidable = is_decidable(table).groupby(table["id"]).transform("any")
        tables.append(table.assign(language=language, decidable=decidable))
    return pd.concat(tables, ignore_index=True)


def heads_table(
    evidence: pd.DataFrame, runs: Mapping[str, Result], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """A row per head × relation that some language decides, the most widely held first.

    - `tagged`, `decidable`, `asked`: in how many languages the head holds the tag, the text decides
      it, and the relation has queries. `holds_in`, `not_in`: the languages that give the tag, and
      those that refuse it. One that refuses it narrowly does neither.
    - `lift`: the mean of the lift over the languages that could decide, in [−1, 1], with its 95 %
      interval `ci_low`, `ci_high` for these languages: documents are resampled, of parallel texts
      the same ones in every language. It speaks of no other languages.
    - `lowest_lift`, `highest_lift`: over these languages.

    Args:
        evidence: from `evidence_of`.
        runs: the same runs, loaded with their sums.
        parallel: whether they read the same documents, so many that a block holds whole ones.
        seed: seeds the resamples.
    """
    decided = evidence[evidence["decidable"]]
    if decided.empty:
        return pd.DataFrame(columns=HEAD_COLUMNS)
    tagged, is_open = decided["tagged"].astype(bool), decided["verdict"].isin(OPEN)
    groups = decided.groupby(_KEY, sort=False)
    table = groups.agg(
        type=("type", "first"),
        relation=("relation", "first"),
        lowest_lift=("lift", "min"),
        highest_lift=("lift", "max"),
        lift=("lift", "mean"),
    )
    held = _listed(decided[tagged])
    lacking = _listed(decided[~tagged & ~is_open])
    table = table.assign(
        tagged=decided[tagged].groupby(_KEY).size().reindex(table.index, fill_value=0),
        decidable=decided[~is_open].groupby(_KEY).size().reindex(table.index, fill_value=0),
        asked=evidence.groupby(_KEY).size().reindex(table.index),
        holds_in=held.reindex(table.index, fill_value=""),
        not_in=lacking.reindex(table.index, fill_value=""),
    ).reset_index()
    bounds = _bounds(decided, runs, parallel=parallel, seed=seed)
    table = table.merge(bounds, on=_KEY)
    order = ["tagged", "lift", "layer", "head", "relation"]
    ascending = [False, False, True, True, True]
    return table.sort_values(order, ascending=ascending, ignore_index=True)[HEAD_COLUMNS]


def relations_table(evidence: pd.DataFrame) -> pd.DataFrame:
    """A row per relation × language: what the text holds, and which head is the best there.

    `n` and `contested_n` count its queries; `decidable` says whether they are enough; `baseline` is
    the best simple rule; `tagged` counts heads. `best` is the head with the largest lift, by
    layer and number, and `lift`, `ci_low`, `ci_high` are its numbers.
    """
    if evidence.empty:
        return pd.DataFrame(columns=RELATION_COLUMNS)
    keys = ["id", "language"]
    ordered = evidence.sort_values("lift", ascending=False, kind="stable")
    table = ordered.drop_duplicates(keys).set_index(keys)
    tagged = evidence["tagged"].astype(bool).groupby([evidence[key] for key in keys]).sum()
    best = [head_name(row.layer, row.head) for row in table.itertuples()]
    table = table.assign(tagged=tagged.reindex(table.index), best=best).reset_index()
    return table.sort_values(keys, ignore_index=True)[RELATION_COLUMNS]


def _shape(run: Result) -> str:
    model = run.info.get("model", {})
    return f"{model.get('layers')} × {model.get('heads')} heads"


def _listed(rows: pd.DataFrame) -> pd.Series:
    """The languages of each head and relation, as one text."""
    if rows.empty:
        return pd.Series([], dtype=object, index=pd.MultiIndex.from_arrays([[]] * 3, names=_KEY))
    return rows.groupby(_KEY)["language"].agg(";".join)


def _bounds(
    decided: pd.DataFrame, runs: Mapping[str, Result], *, parallel: bool, seed: int
) -> pd.DataFrame:
    """The interval of each head's mean lift over the languages that decide a relation."""
    tables = []
    for relation, languages in decided.groupby("id", sort=False)["language"].unique().items():
        tallies = [language_tally(language, runs[language]) for language in languages]
        means = _means(tallies, str(relation), parallel=parallel, seed=seed)
        sides = ((1 - LEVEL) / 2, (1 + LEVEL) / 2)
        low, high = np.nanquantile(means, sides, axis=1)
        columns: dict[str, Any] = {
            "layer": np.repeat(tallies[0].numbers, tallies[0].heads),
            "head": np.tile(np.arange(tallies[0].heads), tallies[0].layers),
            "id": relation,
            "ci_low": low,
            "ci_high": high,
        }
        tables.append(pd.DataFrame(columns))
    return pd.concat(tables, ignore_index=True)


def language_tally(language: str, run: Result) -> Tally:
    """The sums of the run on a language.

    Raises:
        RunError: it was loaded without them.
    """
    if run.tally is None:
        raise RunError(f"the run on {language} was loaded without its sums; load it with_tally")
    return run.tally


def _means(
    tallies: Sequence[Tally], relation: str, *, parallel: bool, seed: int
) -> Float[ndarray, "head resample"]:
    """Each head's lift, averaged over languages, in every resample of their documents."""
    sums = [lift_sums(tally, relation) for tally in tallies]
    used = np.any([queries > 0 for _, queries in sums], axis=0)
    total: Any = 0.0
    for number, (excess, queries) in enumerate(sums):
        # of parallel texts a block holds the same documents in every language
        valid_blocks = used if parallel else queries > 0
        rng = np.random.default_rng([seed, 0 if parallel else number])
        draws = resample(int(valid_blocks.sum()), rng)
        with np.errstate(divide="ignore", invalid="ignore"):
            total = total + (excess[valid_blocks].T @ draws.T) / (draws @ queries[valid_blocks])
    return np.asarray(total / len(sums))


def lift_sums(tally: Tally, relation: str) -> tuple[ndarray, ndarray]:
    """Sums of each block: mass on targets less that on controls, block × head, and queries."""
    index = tally.relations.index(relation)
    excess = tally.target[:, index] - tally.control[:, index]
    return excess.reshape(len(excess), -1), tally.queries[:, index]
