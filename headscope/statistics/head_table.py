"""The table of heads: a row per head with its tags, the numbers of the strongest, and cautions."""

from __future__ import annotations

import numpy as np
import pandas as pd

from headscope.statistics.columns import BELOW_BASELINE, HEAD_COLUMNS, PRELIMINARY, REPLICATES
from headscope.statistics.in_words import reasons
from headscope.statistics.tags import (
    NO_TYPE,
    UNCLASSIFIED,
    UNIDENTIFIABLE,
    evidence_order,
    is_below_baseline,
    is_undecided,
)

_NUMBERS = ("control", "lift", "ci_low", "ci_high", "q_value")
_HEAD = ["layer", "head"]


def head_table(table: pd.DataFrame, profile: pd.DataFrame, kv_group_size: int) -> pd.DataFrame:
    """A row per head: its tags, the strongest with its numbers, its profile and the reason.

    `primary` is the tag with the largest lift, except that tags that say only what kind of key
    gets the attention come after those that say which, and attention sinks last. A head without a
    tag is one of `NO_TYPE`, and its numbers are those of a relation that the text cannot decide,
    or else of that which came closest.

    Args:
        table: evidence with thresholds and verdicts.
        profile: a row per head, of `headscope.measure.profile.describe`.
        kv_group_size: heads that share keys and values.
    """
    # the first row of a head gives its numbers, and the first of each type its tags
    ordered = table.loc[evidence_order(table)]
    best = closest_rows(table)
    ordered_tags = ordered[ordered["tagged"].astype(bool)]
    tags_by_type = ordered_tags.drop_duplicates([*_HEAD, "type"])
    is_tagged = best["tagged"].astype(bool)
    heads = best[[*_HEAD, "relation", "mass", *_NUMBERS, REPLICATES]].assign(
        primary=best["type"].where(is_tagged, UNCLASSIFIED),
        tags=types_of_heads(best, tags_by_type),
        reason=reasons(best),
        kv_group=best["head"] // kv_group_size,
        # until effects are weighed
        direct_effects="",
        direct_effect_lift=np.nan,
    )
    heads = with_cautions(heads, ordered_tags)
    heads = heads.merge(profile, on=_HEAD)[HEAD_COLUMNS]
    return with_no_type(heads, table)


def closest_rows(table: pd.DataFrame) -> pd.DataFrame:
    """The first row of each head in the order of `evidence_order`."""
    ordered = table.loc[evidence_order(table)]
    return ordered.drop_duplicates(_HEAD).sort_values(_HEAD)


def with_replicates(heads: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The heads with the column `replicates`, that of their primary tag or closest relation."""
    closest = closest_rows(table).set_index(_HEAD)[REPLICATES]
    places = pd.MultiIndex.from_frame(heads[_HEAD])
    return heads.assign(**{REPLICATES: closest.reindex(places).to_numpy()})


def with_no_type(heads: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The heads, with one of two words as the `primary` of those without a tag.

    `not identifiable` if the head would have a tag that the text cannot decide; see `is_undecided`.
    Else `unclassified`.
    """
    open_rows = table.loc[is_undecided(table), _HEAD]
    undecided = set(open_rows.itertuples(index=False, name=None))
    words = []
    for head in heads[_HEAD].itertuples(index=False, name=None):
        words.append(UNIDENTIFIABLE if head in undecided else UNCLASSIFIED)
    is_untyped = heads["primary"].isin(NO_TYPE).to_numpy(bool)
    primary = np.where(is_untyped, words, heads["primary"])
    return heads.assign(primary=primary.astype(object))


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
