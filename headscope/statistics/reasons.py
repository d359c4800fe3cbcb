"""Rows to report of a head: its tags, near misses and effects.

`headscope.statistics.in_words` puts them into words.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pandas as pd

from headscope.errors import RunError
from headscope.heads import check_head_exists, parse_head
from headscope.relations.effects import WRITES
from headscope.statistics.columns import rows_of_head, strongest_effects_first
from headscope.statistics.general_labels import tag_names
from headscope.statistics.in_words import NEAR_MISSES, marked_names
from headscope.statistics.result import Result, layers_of
from headscope.statistics.tags import (
    INCONCLUSIVE,
    UNCLASSIFIED,
    UNIDENTIFIABLE,
    evidence_order,
    is_undecided,
)

NEAR_LIFT = 0.02  # below that a relation counts as noise, not as a near miss
MIN_UNIQUE = 0.005
"""The least share of a head's bits that is some: less is within what a refit moves."""
MAX_NEAR_EFFECTS = 3
"""Effects without a tag that are shown of a head."""
NEAR_EFFECT = 0.5
"""Share of the threshold below which an effect does not count as a near miss."""
_PLAIN = ("positional/", "sink/", "delimiter/", "induction/", "duplicate-token/")


@dataclass(frozen=True, eq=False)
class HeadRows:
    """Rows with thresholds that an account of a head reports, in the order of the account."""

    names: list[str]
    """The head's tags, with their cautions; or one of the two words for a head without a tag."""
    tagged: pd.DataFrame
    undecided: pd.DataFrame
    near: pd.DataFrame
    """Relations that fail a condition, the closest first."""

    @property
    def all(self) -> pd.DataFrame:
        """All rows."""
        return pd.concat([self.tagged, self.undecided, self.near])

    @property
    def inconclusive(self) -> pd.DataFrame:
        """The near rows whose verdict is inconclusive."""
        return self.near[self.near["verdict"] == INCONCLUSIVE]

    @property
    def rejected(self) -> pd.DataFrame:
        """The other near rows."""
        return self.near[self.near["verdict"] != INCONCLUSIVE]


def rows_to_report(
    table: pd.DataFrame,
    layer: int,
    head: int,
    relation: str | None = None,
) -> HeadRows:
    """The tags of a head, what its text cannot decide, and the relations that came closest.

    Args:
        table: evidence of a run with its thresholds.
        layer: the head's layer.
        head: the head's number.
        relation: part of a relation's name: rows of those alone, however far they are from a tag.
    """
    head_evidence = rows_of_head(table, layer, head)
    head_evidence = head_evidence.loc[evidence_order(head_evidence)]
    # what has a tag, what the text cannot decide, and what fails
    tagged = head_evidence[head_evidence["tagged"].astype(bool)]
    undecided = head_evidence[is_undecided(head_evidence)]
    open_rows = head_evidence[head_evidence["verdict"] == UNIDENTIFIABLE]
    near = head_evidence.drop([*tagged.index, *open_rows.index])
    names = marked_names(tagged, tag_names(tagged))
    if not names:
        names = [UNIDENTIFIABLE if len(undecided) else UNCLASSIFIED]
    # whoever names a relation reads of it however far it is from a tag
    if relation is None:
        is_near = (near["lift"] > NEAR_LIFT) & near["ci_low"].notna()
        near = near[is_near].head(NEAR_MISSES)
    else:
        tagged, undecided, near = (
            rows[rows["id"].str.contains(relation, regex=False)]
            for rows in (tagged, open_rows, near)
        )
    return HeadRows(names=names, tagged=tagged, undecided=undecided, near=near)


def head_in(result: Result, head: str | tuple[int, int]) -> tuple[int, int]:
    """Layer and number of a head of a run, by its name or by such a pair.

    Raises:
        RunError: the run has no such head.
        HeadscopeError: it is not the name of a head.
    """
    layer, number = parse_head(head)
    heads = int(result.heads["head"].max()) + 1
    check_head_exists(layer, number, layers=layers_of(result), heads=heads, where="this run")
    return layer, number


def check_relation(result: Result, relation: str) -> None:
    """Refuse a part of a name that no relation of the run has."""
    evidence = result.evidence
    names = (evidence["type"] + "/" + evidence["relation"]).unique().tolist()
    if not any(relation in name for name in names):  # pandas takes no text that is not UTF-8
        listed = ", ".join(names[:3])
        raise RunError(f"no relation of this run has {relation!r} in its name, as {listed} have")


def explained_by(
    feature_models: pd.DataFrame, layer: int, head: int, tags: list[str]
) -> list[tuple[str, str]]:
    """Tags whose relation has no bits of its own, each with the feature that has most instead.

    A relation in the feature model with unique bits is not a consequence of another. Positions, the
    first token and delimiters are features under names of their own and are not asked here.
    """
    terms = rows_of_head(feature_models, layer, head)
    features = terms[terms["weight"] > 0]
    if features.empty:
        return []
    # the feature that stands first has the most unique bits
    has_unique_bits = features["unique"] >= MIN_UNIQUE
    unique_features = set(features.loc[has_unique_bits, "feature"])
    strongest = str(features["feature"].iloc[0])
    explanations = []
    for tag in tags:
        if not tag.startswith(_PLAIN) and tag not in unique_features:
            explanations.append((tag, strongest))
    return explanations


def effects_to_report(
    effects: pd.DataFrame, records: Mapping[str, Mapping[str, Any]], layer: int, head: int
) -> pd.DataFrame:
    """A head's direct effects with a tag, then those nearest to one, the strongest first."""
    head_effects = rows_of_head(effects, layer, head)
    head_effects = head_effects.loc[strongest_effects_first(head_effects)]
    tagged = head_effects[head_effects["tagged"].astype(bool)]
    other = head_effects.drop(tagged.index)
    ids = f"{WRITES}/" + other["type"] + "/" + other["effect"]
    sign_of = {name: record["sign"] for name, record in records.items()}
    # in the direction that the effect asks for
    lift = other["lift"] * ids.map(sign_of).astype(float)
    is_near = lift >= NEAR_EFFECT * other["threshold"]
    near = other[is_near].head(MAX_NEAR_EFFECTS)
    return pd.concat([tagged, near])
