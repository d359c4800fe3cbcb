"""The result of comparing languages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from headscope.errors import HeadscopeError, RunError
from headscope.measure.tally import MIN_BLOCKS
from headscope.statistics.result import Result
from headscope.studies.sweep.languages.across import (
    evidence_of,
    heads_table,
    held_labels,
    relations_table,
)
from headscope.studies.sweep.languages.lift_agreement import agreement_table
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True, eq=False)
class Languages(Study):
    """Heads that hold a relation, and in how many languages; `table` is `heads`."""

    model: str
    heads: pd.DataFrame
    """A row per head × relation; see `headscope.studies.sweep.languages.across.heads_table`."""
    relations: pd.DataFrame
    """A row per relation × language; see `relations_table`, there too."""
    evidence: pd.DataFrame
    """The evidence of all runs, each row with its `language`."""
    languages: tuple[str, ...]
    """Those that were read, by their codes."""
    parallel: int | None = None
    """The documents that every language read, the same in each; None where texts differ."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Languages that could not be read, each with its error."""
    agreement: pd.DataFrame = field(default_factory=pd.DataFrame)
    """A row per relation: how far heads agree between languages; see `agreement_table`."""

    @classmethod
    def of(
        cls,
        runs: Mapping[str, Result],
        *,
        parallel: int | None = None,
        failed: Mapping[str, str] | None = None,
        seed: int = 0,
    ) -> Languages:
        """Combine the runs of one model.

        Args:
            runs: by language, with their sums.
            parallel: how many documents they read, if all read the same.
            failed: languages that could not be read, each with its error.
            seed: seeds the resamples of the intervals.

        Raises:
            RunError: no run, runs of models of different shapes, or a run without its sums.
        """
        if not runs:
            reasons = "; ".join((failed or {}).values()) or "no run was given"
            raise RunError(f"no language could be read: {reasons}")
        evidence = evidence_of(runs)
        # of fewer documents blocks are stretches, which are not the same from language to language
        together = parallel is not None and parallel >= MIN_BLOCKS
        heads = heads_table(evidence, runs, parallel=together, seed=seed)
        return cls(
            next(iter(runs.values())).name,
            heads,
            relations_table(evidence),
            evidence,
            tuple(runs),
            parallel,
            dict(failed or {}),
            agreement_table(evidence, runs, parallel=together, seed=seed),
        )

    def figure(self) -> Figure:
        """The most widely held heads, a column per language; see `view.languages_figure`.

        Raises:
            HeadscopeError: no text could decide any relation.
        """
        from headscope.studies.sweep.languages.languages_view import languages_figure

        if self.heads.empty:
            raise HeadscopeError(
                "these texts could not decide any relation: there is nothing to draw; read more "
                "of them"
            )
        return languages_figure(self)

    def __repr__(self) -> str:
        held = held_labels(self.heads)
        return (
            f"<headscope languages of {self.model}: {len(held)} heads × relations hold in at least "
            f"one of {', '.join(self.languages)}>"
        )
