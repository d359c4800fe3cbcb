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
from headscope.statistics.general_labels import shown_relations
from headscope.statistics.result import Result
from headscope.statistics.tags import NARROW, OPEN, UNIDENTIFIABLE, is_decidable, with_rules
from headscope.studies.sweep.languages.tag_agreement import chance_columns

HEAD_COLUMNS = [
    "layer",
    "head",
    "type",
    "relation",
    "general",
    "tagged",
    "by_chance",
    "p_value",
    "decidable",
    "asked",
    "holds_in",
    "not_in",
    "narrow_in",
    "undecided_in",
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
VERDICT_COLUMNS = ("holds_in", "narrow_in", "not_in", "undecided_in")
"""Lists of languages, one for each thing that a text can say of a head; the first one counts where
relations that share a label differ."""


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
      it, and the relation has queries. `holds_in`, `not_in`, `narrow_in`, `undecided_in`: those
      that give the tag, refuse it, refuse it narrowly, and cannot tell.
    - `by_chance`, `p_value`: the languages in which a head of that layer would hold the tag by
      chance, and the probability of at least `tagged`; see `tag_agreement.chance_columns`.
    - `general`: the general label that stands for the tag in most languages that hold it, so that
      a head counts once for it; empty of a specific tag.
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
    is_narrow = decided["verdict"] == NARROW
    lists = {
        "holds_in": decided[tagged],
        "not_in": decided[~tagged & ~is_open],
        "narrow_in": decided[is_narrow],
        "undecided_in": evidence[
            ~evidence["decidable"] | (evidence["verdict"] == UNIDENTIFIABLE).to_numpy(bool)
        ],
    }
    table = table.assign(
        general=_general(decided[tagged]).reindex(table.index, fill_value=""),
        tagged=decided[tagged].groupby(_KEY).size().reindex(table.index, fill_value=0),
        decidable=decided[~is_open].groupby(_KEY).size().reindex(table.index, fill_value=0),
        asked=evidence.groupby(_KEY).size().reindex(table.index),
        **{name: _listed(rows).reindex(table.index, fill_value="") for name, rows in lists.items()},
    ).reset_index()
    bounds = _bounds(decided, runs, parallel=parallel, seed=seed)
    table = table.merge(bounds, on=_KEY).merge(chance_columns(decided), on=_KEY)
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


def held_labels(heads: pd.DataFrame) -> pd.DataFrame:
    """A row per head and label that it holds in some language, the most widely held first.

    Relations with one general label are one row, named by it: it holds where any of them does. The
    numbers are those of the one that is held most widely, its `member`.

    Args:
        heads: from `heads_table`.
    """
    held = heads[heads["tagged"] > 0]
    label = held["general"].where(held["general"] != "", held["relation"])
    held = held.assign(member=held["relation"], relation=label)
    rows = []
    for _, members in held.groupby(["layer", "head", "type", "relation"], sort=False):
        first, known = members.iloc[0].copy(), set[str]()
        for name in VERDICT_COLUMNS:
            codes = dict.fromkeys(code for row in members[name] for code in row.split(";") if code)
            first[name] = ";".join(code for code in codes if code not in known)
            known |= {*codes}
        first["tagged"] = len(_codes(first["holds_in"]))
        first["decidable"] = first["tagged"] + len(_codes(first["not_in"]))
        rows.append(first)
    table = pd.DataFrame(rows, columns=held.columns)
    return table.sort_values(["tagged", "lift"], ascending=False, kind="stable", ignore_index=True)


def label_counts(evidence: pd.DataFrame) -> pd.DataFrame:
    """Heads of each label that some head holds: a row per label, a column per language.

    A head counts once for each label. Missing where the language's text decides none of the label's
    relations.

    Args:
        evidence: from `evidence_of`.
    """
    tags = evidence[evidence["tagged"].astype(bool)]
    tags = tags.assign(label=shown_relations(tags))
    languages = list(dict.fromkeys(evidence["language"]))
    able = evidence.groupby(["type", "relation", "language"])["decidable"].any()
    rows = {}
    for (kind, label), members in tags.groupby(["type", "label"], sort=False):
        counts = members.drop_duplicates(["layer", "head", "language"])["language"].value_counts()
        decided = {
            language
            for relation in members["relation"].unique()
            for language in languages
            if able.get((kind, relation, language), False)
        }
        rows[kind, label] = [
            float(counts.get(language, 0)) if language in decided else np.nan
            for language in languages
        ]
    table = pd.DataFrame.from_dict(rows, orient="index", columns=languages, dtype=float)
    table.index = pd.MultiIndex.from_tuples(list(rows), names=["type", "relation"])
    return table


def _codes(listed: str) -> list[str]:
    return [code for code in listed.split(";") if code]


def _general(held: pd.DataFrame) -> pd.Series:
    """The label that a tag has in most languages that hold it: a general one's, or none."""
    if held.empty:
        return _nothing()
    names = shown_relations(held)
    labels = held.assign(label=names.where(names != held["relation"], ""))
    # of as many the general one, which says less
    counts = labels.groupby([*_KEY, "label"]).size().rename("count").reset_index()
    counts = counts.sort_values(["count", "label"], ascending=False, kind="stable")
    return counts.drop_duplicates(_KEY).set_index(_KEY)["label"]


def _shape(run: Result) -> str:
    model = run.info.get("model", {})
    return f"{model.get('layers')} × {model.get('heads')} heads"


def _listed(rows: pd.DataFrame) -> pd.Series:
    """The languages of each head and relation, as one text."""
    return _nothing() if rows.empty else rows.groupby(_KEY)["language"].agg(";".join)


def _nothing() -> pd.Series:
    return pd.Series([], dtype=object, index=pd.MultiIndex.from_arrays([[]] * 3, names=_KEY))


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
