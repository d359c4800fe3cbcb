"""Two runs of the same shape, head by head: tags, lifts, and which changes are more than noise."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy import stats

from headscope.relations.relation import MIN_QUERIES
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, OPEN

HEADS = [
    "run",
    "layer",
    "head",
    "primary_first",
    "primary",
    "gained",
    "lost",
    "undecided",
    "sure",
    "apart",
    "relation",
    "lift_difference",
]
_BOTH = ["n", "mass", "lift", "ci_low", "ci_high", "tagged"]
RELATIONS = [
    "run",
    "layer",
    "head",
    "type",
    "relation",
    "mass_difference",
    "lift_difference",
    "apart",
    *(f"{name}{which}" for name in _BOTH for which in ("_first", "")),
]
CORRELATIONS = ["run", "type", "relation", "n_first", "n", "rank_correlation", "apart", "heads"]
_KEY = ["layer", "head", "type", "relation"]


def relation_changes(first: Result, other: Result, name: str) -> pd.DataFrame:
    """A row per head × relation that both runs have evidence for; differences are other − first.

    `apart` says that the two 95 % intervals of the lift do not overlap. For a single head and
    relation noise does that in about 1 case of 180 (two normal means of equal error), so that of
    some thousand rows a few are apart by chance. It is False where a run has no interval,
    or fewer than 50 queries.
    """
    table = first.evidence[[*_KEY, *_BOTH]].merge(
        other.evidence[[*_KEY, *_BOTH]], on=_KEY, suffixes=("_first", "")
    )
    for column in ("mass", "lift"):
        table[f"{column}_difference"] = table[column] - table[f"{column}_first"]
    enough = table[["n_first", "n"]].min(axis=1) >= MIN_QUERIES
    higher = table["ci_low"] > table["ci_high_first"]
    lower = table["ci_high"] < table["ci_low_first"]
    table["apart"] = enough & (higher | lower)
    return table.assign(run=name)[RELATIONS]


def head_changes(first: Result, other: Result, relations: pd.DataFrame, name: str) -> pd.DataFrame:
    """A row per head, changed or not, in the order of the heads.

    - `primary_first`, `primary`: its type in the first run and in the other.
    - `gained`, `lost`: tags that only the other run gives, and that only the first does; joined
      by `;`. `undecided`: those that the run without them leaves open, as a relation that earned
      them in the one is `narrowly refused` or `not identifiable` in the other.
    - `sure`: those of them for which a relation that earned the tag in one run has a smaller lift
      in the other, intervals apart; the rest may have passed a threshold by noise.
    - `apart`: relations of the head whose intervals are apart; `relation` and `lift_difference`
      are of the largest difference among them, empty when there is none. Relations that earned a
      tag in only one of the runs come first.
    """
    key = ["layer", "head"]
    columns = [*key, "primary", "tags"]
    heads = first.heads[columns].merge(other.heads[columns], on=key, suffixes=("_first", ""))
    before, after = ([_split(tags) for tags in heads[c]] for c in ("tags_first", "tags"))
    both = list(zip(before, after, strict=True))
    places = list(zip(heads["layer"], heads["head"], strict=True))
    left_open = _left_open(first, other) | _left_open(other, first)
    differing = [[tag for tag in (*new, *old) if (tag in new) != (tag in old)] for old, new in both]
    undecided = [
        [tag for tag in tags if (*at, tag) in left_open]
        for at, tags in zip(places, differing, strict=True)
    ]
    settled = [
        [tag for tag in tags if tag not in open_tags]
        for tags, open_tags in zip(differing, undecided, strict=True)
    ]
    gained = [[t for t in tags if t in new] for tags, new in zip(settled, after, strict=True)]
    lost = [[t for t in tags if t in old] for tags, old in zip(settled, before, strict=True)]
    apart = relations[relations["apart"]]
    largest = apart.assign(
        relation=apart["type"] + "/" + apart["relation"],
        kept=apart["tagged"] == apart["tagged_first"],
        size=-apart["lift_difference"].abs(),
    )
    largest = largest.sort_values(["kept", "size"], kind="stable").drop_duplicates(key)
    heads = heads.assign(
        run=name,
        gained=[";".join(tags) for tags in gained],
        lost=[";".join(tags) for tags in lost],
        undecided=[";".join(tags) for tags in undecided],
        sure=_sure(apart, places, gained, lost),
        apart=pd.Series(places).map(apart.groupby(key).size()).fillna(0).astype(int),
    ).merge(largest[[*key, "relation", "lift_difference"]], on=key, how="left")
    heads["relation"] = heads["relation"].fillna("")
    return heads.sort_values(key)[HEADS].reset_index(drop=True)


def _left_open(run: Result, other: Result) -> set[tuple[int, int, str]]:
    """Layer, head and type of tags of a run by a relation that the other run neither gives nor
    refuses.
    """
    tags = run.evidence[run.evidence["tagged"].astype(bool)]
    rows = tags[_KEY].merge(other.evidence[[*_KEY, "verdict"]], on=_KEY)
    rows = rows[rows["verdict"].isin(OPEN)]
    return set(rows[["layer", "head", "type"]].itertuples(index=False, name=None))


def _sure(
    apart: pd.DataFrame,
    places: Sequence[tuple[int, int]],
    gained: Sequence[Sequence[str]],
    lost: Sequence[Sequence[str]],
) -> list[str]:
    """For each head the tags gained by a relation that rose, and lost by one that fell."""
    key = ["layer", "head", "type"]
    rose = apart[apart["tagged"] & (apart["lift_difference"] > 0)]
    fell = apart[apart["tagged_first"] & (apart["lift_difference"] < 0)]
    new, old = (set(tags[key].itertuples(index=False, name=None)) for tags in (rose, fell))
    return [
        ";".join([*(t for t in risen if (*at, t) in new), *(t for t in fallen if (*at, t) in old)])
        for at, risen, fallen in zip(places, gained, lost, strict=True)
    ]


def changed(heads: pd.DataFrame) -> pd.Series:
    """True where a head has another primary type or other tags; see `head_changes`.

    From `unclassified` to `not identifiable` a head does not change, but what a text can decide;
    nor does one from or to a type that the other run leaves open.
    """
    none = heads["primary"].isin(NO_TYPE) & heads["primary_first"].isin(NO_TYPE)
    types = heads[["primary_first", "primary", "undecided"]].itertuples(index=False, name=None)
    left_open = [{first, now} & {*undecided.split(";")} != set() for first, now, undecided in types]
    other = (heads["primary"] != heads["primary_first"]) & ~none & ~np.array(left_open, bool)
    return other | (heads["gained"] != "") | (heads["lost"] != "")


def correlations(relations: pd.DataFrame) -> pd.DataFrame:
    """For each run and relation the rank correlation of the heads' lift with the first run's.

    In [−1, 1]; near 1 both runs put the heads in the same order. NaN where all heads of a run
    score the same. `apart` of the `heads` have intervals that do not overlap; it is missing where a
    run has too few queries to compare them. Spearman 1904.
    """
    rows = []
    for (run, kind, relation), group in relations.groupby(["run", "type", "relation"], sort=False):
        lifts = group["lift_first"], group["lift"]
        varied = len(group) > 1 and all(np.ptp(lift) > 0 for lift in lifts)
        rho = float(stats.spearmanr(*lifts).statistic) if varied else float("nan")
        n_first, n = int(group["n_first"].iloc[0]), int(group["n"].iloc[0])
        # with fewer queries no interval was compared
        apart = int(group["apart"].sum()) if min(n_first, n) >= MIN_QUERIES else None
        rows.append((run, kind, relation, n_first, n, rho, apart, len(group)))
    return pd.DataFrame(rows, columns=CORRELATIONS).astype({"apart": "Int64"})


def _split(tags: str) -> list[str]:
    return tags.split(";") if tags else []
