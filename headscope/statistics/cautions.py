"""Cautions on tags: tags that rest on little text, and hit rates below the baseline's.

The hit rate is the share of queries at which a head's largest attention is on a target. If the
baseline is right at a larger share, the tag rests on the hard queries, where the baseline is wrong.
"""

from __future__ import annotations

from collections.abc import Collection
from math import isnan

import pandas as pd

from headscope.statistics.columns import BELOW_BASELINE, PRELIMINARY
from headscope.statistics.conditions import Row
from headscope.stimuli.stimulus import MIN_DOCUMENTS

FEWEST_DOCUMENTS = MIN_DOCUMENTS
"""Documents of text below which a tag is preliminary: its interval is of these documents alone."""
FEWEST_HARD = 30
"""Hard queries below which a tag is preliminary. A tag needs 10; the text decides more with 30."""
WORDS = {PRELIMINARY: "preliminary", BELOW_BASELINE: "below baseline"}
"""Words after a tag, by the column of `heads.csv` that lists the types with it."""
_HEAD = ["layer", "head"]


def is_preliminary(table: pd.DataFrame, few_documents: Collection[str] = ()) -> pd.Series:
    """True for each tag that rests on fewer than 8 documents or fewer than 30 hard queries.

    Args:
        table: evidence with its thresholds. Hard queries count only for relations whose tag
            requires more than the baselines reach.
        few_documents: full names of the relations that were measured on too few documents.
    """
    is_compared = table["beat_baseline_by"].notna()
    has_few_hard = is_compared & (table["hard_n"] < FEWEST_HARD)
    has_few_documents = table["id"].isin(few_documents)
    is_tag = table["tagged"].astype(bool)
    return is_tag & (has_few_hard | has_few_documents)


def is_below_baseline(evidence: pd.DataFrame) -> pd.Series:
    """True for each tag of a head whose hit rate is below that of the relation's baseline."""
    hit_rate = evidence["hit_rate"].astype(float)
    baseline_rate = evidence["baseline_rate"].astype(float)
    return evidence["tagged"].astype(bool) & (hit_rate < baseline_rate)


def preliminary_in_words(row: Row) -> str:
    """Reason why the tag of a row with thresholds is preliminary; empty if it is not."""
    if not row[PRELIMINARY]:
        return ""
    has_few_hard = row["hard_n"] < FEWEST_HARD and not isnan(row["beat_baseline_by"])
    if has_few_hard:
        return f"it rests on {row['hard_n']:.0f} hard queries, fewer than {FEWEST_HARD}"
    return f"it rests on fewer than {FEWEST_DOCUMENTS} documents of text"


def marked_names(tags: pd.DataFrame, names: pd.Series) -> list[str]:
    """Names of tags with their cautions in words; of rows with one name the first decides."""
    is_below = is_below_baseline(tags)
    marked: dict[str, str] = {}
    for name, preliminary, below in zip(names, tags[PRELIMINARY], is_below, strict=True):
        if name in marked:
            continue
        words = []
        if preliminary:
            words.append(WORDS[PRELIMINARY])
        if below:
            words.append(WORDS[BELOW_BASELINE])
        marked[name] = f"{name} ({', '.join(words)})" if words else name
    return list(marked.values())


def with_cautions(heads: pd.DataFrame, ordered_tags: pd.DataFrame) -> pd.DataFrame:
    """The heads with the columns `preliminary` and `below_baseline`: types joined by `;`.

    A type is in one of them if the first of the head's tags of this type is.

    Args:
        heads: a row per head.
        ordered_tags: rows of the evidence with tags and the column `preliminary`, in the order in
            which a head is shown with them.
    """
    first = ordered_tags.drop_duplicates([*_HEAD, "type"])
    preliminary = first[first[PRELIMINARY].eq(True)]
    below = first[is_below_baseline(first)]
    return heads.assign(
        **{
            PRELIMINARY: types_of_heads(heads, preliminary),
            BELOW_BASELINE: types_of_heads(heads, below),
        }
    )


def types_of_heads(heads: pd.DataFrame, tags: pd.DataFrame) -> pd.Series:
    """For each head the types of some tags, joined by `;`."""
    by_head = tags.groupby(_HEAD, sort=False)["type"]
    types_of = by_head.agg(";".join).to_dict()
    names = zip(heads["layer"], heads["head"], strict=True)
    types = [types_of.get(name, "") for name in names]
    return pd.Series(types, heads.index, dtype=object)
