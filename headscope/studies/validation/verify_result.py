"""A run beside the heads and scores that are published for its model."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Verification(Study):
    """A run beside what is published for its model; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """A row per published head: `layer,head,type,relation,published,mass,kind,found`; `mass` is the
    lift in logits where the head is known for what it writes; `kind` is
    `clear`, `weak` (published below the relation's floor) or `fuzzy`."""
    scores: pd.DataFrame
    """A row per published matrix: `metric`, the run's `relation`, `pearson`,
    `largest_difference` and the head it is `at`, `accepted`, `within`, and `same_set`: the same
    heads are strong."""
    measured: bool
    """Whether the model ran on the published stimulus, or on its like where its seed is unknown."""
    notes: tuple[str, ...]
    ranks: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row per metric of a file of published scores; see `published_scores.compare_ranks`."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per published head; where only a file of scores knows the model, its `ranks`."""
        return self.ranks if self.heads.empty and len(self.ranks) else self.heads

    @property
    def recall(self) -> float:
        """Share of the clear published heads whose tag the run found, in [0, 1]; NaN if none."""
        clear = self.heads[self.heads["kind"] == "clear"]
        return float(clear["found"].mean()) if len(clear) else float("nan")

    @property
    def holds(self) -> bool:
        """True where the matrices lie within the accepted differences.

        Without the published stimulus one matrix for each relation must: those for 50 and for
        100 tokens differ among themselves by up to 0.15. Without any
        matrix all clear heads must be found; where only a file of scores knows the model, those
        of attention, or all where there are none, must share more first heads than 19 of 20
        permutations do.
        """
        if self.heads.empty and self.scores.empty:
            attention = self.ranks[self.ranks["quantity"] == "attention"]
            ranks = attention if len(attention) else self.ranks
            return bool(len(ranks) and (ranks["p_value"] < 0.05).all())
        if self.scores.empty:
            return self.recall == 1
        if self.measured:
            return bool(self.scores["within"].all())
        return bool(self.scores.groupby("relation")["within"].any().all())

    def figure(self) -> Figure:
        """Each published head with its mass in the run, and what was published."""
        from headscope.studies.validation.verify_view import heads_figure

        return heads_figure(self)

    def __repr__(self) -> str:
        return f"<headscope verification against {self.model}: recall {self.recall:.0%}>"
