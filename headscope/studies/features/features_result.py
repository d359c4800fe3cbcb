"""The pairs of features that carry a head's scores, and the parts of the scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.text import Text

from headscope.statistics.conditions import MAX_Q
from headscope.views.study import Study
from headscope.views.tables import interval_text, number_text, plain_table

PAIR_COLUMNS = [
    *("query_feature", "query_name", "key_feature", "key_name", "target", "control", "contrast"),
    *("ci_low", "ci_high", "q_value", "share", "fires", "control_fires"),
    *("query_tokens", "key_tokens"),
]
PART_COLUMNS = ["query", "key", "n", "target", "control", "contrast", "ci_low", "ci_high", "share"]
POSITIONS = "positions"
LISTED = 10
"""Pairs that the terminal and the figure show; the table has all that were judged."""


@dataclass(frozen=True, eq=False)
class FeaturePairs(Study):
    """Pairs of features on a relation's edges; `table` is `pairs`."""

    main_table: ClassVar[str] = "pairs"

    name: str
    relation: str
    pairs: pd.DataFrame
    """A row per pair that was judged, the surest first: by the lower end of its interval. An end
    without a number is the biases: the dictionary's constant and the model's own, the same at every
    token. `target` and `control`: what the pair gives the score on a relation's targets and on its
    controls, means over held-out queries; `contrast` their difference, with its 95 % interval over
    blocks of documents; `share` of the score's contrast at the same queries. `fires`,
    `control_fires`: share of targets and of controls at which both features are active; NaN for
    directions without an encoder."""
    parts: pd.DataFrame
    """A row per part of the query × part of the key, over all documents: features, remainder and
    biases; then what positions add, and the whole score. The rows add up to the last."""
    unexplained: float
    """Share of the stream's variance at the edges' ends that the dictionary leaves out."""
    error: float
    """By how much the parts' sum was off a score, at most."""

    @property
    def carried(self) -> pd.DataFrame:
        """The pairs whose contrast is surely above 0: q < 0.01, and the interval above 0."""
        pairs = self.pairs
        return pairs[(pairs["q_value"] < MAX_Q) & (pairs["ci_low"] > 0)]

    def share_of(self, *names: str) -> float:
        """Share of the contrast of the parts with one of these at either end.

        The features' own is that of features at both ends.
        """
        parts = self.parts[:-1]
        if names == ("features",):
            has_part = (parts["query"] == "features") & (parts["key"] == "features")
        else:
            has_part = parts["query"].isin(names) | parts["key"].isin(names)
        return float(parts.loc[has_part, "share"].sum())

    def figure(self) -> Figure:
        """Bars of the score's parts, and of the surest pairs."""
        rows = self.pairs[:LISTED][::-1]
        parts = self.parts[self.parts["contrast"] != 0][::-1]
        figure = Figure(figsize=(7.2, 1.4 + 0.3 * max(len(rows), len(parts))), layout="constrained")
        of_parts, of_pairs = figure.subplots(1, 2)
        for axes, bars, names in (
            (of_parts, parts, [_part_name(row) for row in parts.itertuples()]),
            (of_pairs, rows, [_pair_name(row) for row in rows.itertuples()]),
        ):
            spans = (bars["contrast"] - bars["ci_low"], bars["ci_high"] - bars["contrast"])
            axes.barh(range(len(bars)), bars["contrast"], color="#0072b2")
            axes.errorbar(
                bars["contrast"], range(len(bars)), xerr=[span.clip(lower=0) for span in spans],
                fmt="none", ecolor="0.3", lw=0.8,
            )  # fmt: skip
            axes.set_yticks(range(len(bars)), [n.replace("$", r"\$") for n in names], fontsize=7)
            axes.axvline(0, color="grey", lw=0.6)
            axes.set_xlabel("score on targets − on controls", fontsize=8)
        of_parts.set_title("parts of the score", fontsize=9)
        of_pairs.set_title("pairs, held-out documents", fontsize=9)
        figure.suptitle(f"{self.name}  {self.relation}".replace("$", r"\$"), fontsize=9)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope features of {self.name} for {self.relation}: {len(self.carried)} of "
            f"{len(self.pairs)} pairs carry its score>"
        )


def features_lines(result: FeaturePairs) -> RenderableType:
    """The parts of the score, and the surest pairs."""
    total = result.parts.iloc[-1]
    title = (
        f"{result.name}, {result.relation}: its score is {total['target']:+.3f} on targets and "
        f"{total['control']:+.3f} on controls"
    )
    of_parts = plain_table("query", "key", "contrast", "95 %", "share", right=("contrast", "share"))
    for row in result.parts[:-1].itertuples():
        if row.contrast:
            of_parts.add_row(
                str(row.query),
                str(row.key),
                f"{row.contrast:+.3f}",
                interval_text(row.ci_low, row.ci_high, "+.3f"),
                _percent(row.share),
            )
    numbers = ("contrast", "share", "q", "fires", "on controls")
    of_pairs = plain_table("query feature", "key feature", *numbers[:2], "95 %", *numbers[2:],
                           right=numbers)  # fmt: skip
    for row in result.pairs[:LISTED].itertuples():
        of_pairs.add_row(
            _end(row.query_feature, row.query_name, row.query_tokens),
            _end(row.key_feature, row.key_name, row.key_tokens),
            f"{row.contrast:+.3f}",
            f"{row.share:+.1%}",
            interval_text(row.ci_low, row.ci_high, "+.3f"),
            f"{row.q_value:.2g}",
            number_text(row.fires, ".0%", "–"),
            number_text(row.control_fires, ".0%", "–"),
        )
    return Group(
        Text(title, style="bold"),
        of_parts,
        Text(),
        of_pairs,
        Text(_conclusion(result), style="bold"),
    )


def _conclusion(result: FeaturePairs) -> str:
    exact = f"The parts add up to each score within {result.error:.0e}"
    total = result.parts.iloc[-1]
    if not total["ci_low"] > 0:
        return (
            "The score on targets is not surely above that on controls "
            f"({interval_text(total['ci_low'], total['ci_high'], '+.3f')}): there is nothing that "
            f"pairs could carry, and shares mean little. {exact}"
        )
    carried = result.carried
    shares = (carried["share"].sum(), result.share_of("features"), result.share_of("remainder"))
    of_carried, of_features, of_remainder = (f"{round(100 * share) or 0}%" for share in shares)
    return (
        f"{len(carried)} of {len(result.pairs)} pairs carry {of_carried} of the contrast together. "
        f"Of it are pairs of features {of_features}, what the dictionary leaves out at either end "
        f"{of_remainder}; it leaves out {result.unexplained:.0%} of the stream's variance there. "
        f"{exact}"
    )


def _percent(share: float) -> str:
    return f"{round(100 * share) or 0:+d}%"


def _end(feature: Any, name: str, tokens: str) -> str:
    return name if pd.isna(feature) else f"{feature} {name or tokens}"


def _pair_name(row: Any) -> str:
    query = _end(row.query_feature, row.query_name, row.query_tokens)
    key = _end(row.key_feature, row.key_name, row.key_tokens)
    return f"{query:.20} → {key:.20}"


def _part_name(row: Any) -> str:
    if row.query == row.key and row.query in ("all", POSITIONS):
        return str(row.query)
    return f"{row.query} → {row.key}"
