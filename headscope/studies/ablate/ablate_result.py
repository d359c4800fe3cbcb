"""The result of silencing heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from headscope.arguments import takes
from headscope.statistics.reasons import why
from headscope.statistics.result import Result
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Ablation(Study):
    """Losses of a model without heads, or without what tags speak of; `table` is `causes`."""

    run: Result
    """The run whose heads were silenced, which now knows the causes."""
    causes: pd.DataFrame
    """A row per group of heads × behaviour, and per tag, as `headscope.statistics.causes` says."""

    @classmethod
    def of(cls, run: Result, causes: pd.DataFrame) -> Ablation:
        """The causes, and the run that knows them."""
        return cls(replace(run, causes=causes), causes)

    @property
    def table(self) -> pd.DataFrame:
        """A row per group of heads × behaviour: `effect` below 0 is what is lost without them; and
        a row per tag: how far the next token's distribution moves without its edges.
        """
        return self.causes

    @takes()
    def why(self, head: str) -> str:
        """Why a head has its tags, with what it causes.

        Raises:
            RunError: the run has no such head.
        """
        return why(self.run, head)

    def figure(self) -> Figure:
        """Effects with their intervals, beside those of the controls."""
        from headscope.studies.ablate.ablate_view import effects_figure

        return effects_figure(self.causes)

    def __repr__(self) -> str:
        judged = self.causes[self.causes["behaviour"] != "away"]
        return (
            f"<headscope ablation of {self.run.name}: {len(judged)} effects, "
            f"{int(judged['agrees'].sum())} agree with their tags>"
        )
