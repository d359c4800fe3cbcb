"""A finished run: evidence and heads as DataFrames, and how it came about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from headscope.causal import cause_lines
from headscope.errors import RunError
from headscope.example import Example
from headscope.heads import head_name, parse_head
from headscope.relations.relation import RELIABLE, Rule
from headscope.tags import explain
from headscope.tally import Tally

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from headscope.view import AttentionView


@dataclass(frozen=True, eq=False)
class Run:
    """What each head of a model does, and how sure that is.

    `heads` has a row per head and `evidence` a row per head × relation; their columns are
    described in `headscope.profile.describe`, `headscope.tags.head_table` and
    `headscope.evidence.weigh`.
    """

    heads: pd.DataFrame
    evidence: pd.DataFrame
    rules: Mapping[str, Rule]
    info: dict[str, Any] = field(default_factory=dict)
    """What is needed to repeat the run: the content of `run.json`."""
    tally: Tally | None = None
    """The sums; not read back when a run is loaded for reading."""
    twin: Tally | None = None
    """The sums of the shuffled twin; likewise."""
    examples: Sequence[Example] = ()
    """Queries of the tagged heads with their patterns; of a loaded run, read when asked for."""
    causes: pd.DataFrame | None = None
    """What silencing heads does; see `headscope.interventions.ablate`. None before `ablate`."""

    def why(self, head: str) -> str:
        """Every condition of each tag of a head with its number, then the near misses.

        Raises:
            RunError: the run has no such head.
        """
        layer, number = parse_head(head)
        known = self.heads[(self.heads["layer"] == layer) & (self.heads["head"] == number)]
        if known.empty:
            last = head_name(self.heads["layer"].max(), self.heads["head"].max())
            raise RunError(f"no head {head_name(layer, number)} in this run; they go up to {last}")
        parts = [explain(self.evidence, self.rules, layer, number)]
        own = self.evidence[(self.evidence["layer"] == layer) & (self.evidence["head"] == number)]
        tagged = own[own["tagged"].astype(bool)]
        unsure = [name for name in tagged["type"] + "/" + tagged["relation"] if self.unsure(name)]
        if unsure:
            parts.append(
                f"Unreliable in this run (two halves of the corpus disagree): {', '.join(unsure)}"
            )
        causes = [] if self.causes is None else cause_lines(self.causes, layer, number)
        if causes:
            parts.append("\n".join(["Causes:", *(f"  {line}" for line in causes)]))
        shown = [e for e in self.examples if (e.layer, e.head) == (layer, number) and e.relation]
        if shown:
            lines = [f"  {example}" for example in shown]
            parts.append("\n".join(["Examples, [[query]] and «targets»:", *lines]))
        return "\n\n".join(parts)

    def unsure(self, relation: str) -> bool:
        """Whether two halves of the corpus put the heads in different orders for a relation."""
        value = self.info.get("reliability", {}).get(relation)
        return value is not None and value < RELIABLE

    def show(self, head: str, text: str) -> AttentionView:
        """A head of the run's model on any text; see `headscope.head_view.show`."""
        from headscope.head_view import model_of, show

        return show(model_of(self), head, text)

    def report(self) -> str:
        """The visual report as one HTML page; see `headscope.report`."""
        from headscope.report import report_html

        return report_html(self)

    def atlas(self) -> Figure:
        """The atlas as a matplotlib figure; see `headscope.figures`."""
        from headscope.figures import atlas_figure

        return atlas_figure(self)

    def ablate(self, *, heads: str = "tagged", how: str = "mean", seed: int = 0) -> pd.DataFrame:
        """What breaks without its heads; see `headscope.interventions.causes.ablate`."""
        from headscope.interventions.causes import ablate

        return ablate(self, heads=heads, how=how, seed=seed)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> Path:
        """Write the run folder; see `headscope.store.save`."""
        from headscope.store import save

        return save(self, Path(folder), overwrite=overwrite)

    def _repr_html_(self) -> str:
        """The atlas as a table, for a notebook."""
        from headscope.report.inline import atlas_html

        return atlas_html(self)

    def __repr__(self) -> str:
        counts = self.heads["primary"].value_counts()
        found = ", ".join(f"{count} {name}" for name, count in counts.items())
        return f"<headscope run of {self.info.get('model', {}).get('name', '?')}: {found}>"
