"""The result of reading a model's weights for its heads."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import pandas as pd

from headscope.statistics.columns import KEYS_FROM_COLUMNS
from headscope.statistics.result import Result
from headscope.views.study import Study

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WARNING = (
    "copying alone is no label: GPT-2's negative head L11H10, which lowers the logit of what it "
    "attends to, has a published copying score of +0.996"
)


@dataclass(frozen=True, eq=False)
class WeightEvidence(Study):
    """Evidence on a model's heads from its weights; `table` is `heads`.

    Evidence, and no labels: see `WARNING`.
    """

    model: str
    heads: pd.DataFrame
    """A row per head: `layer,head`;
    `ov_copying` in [−1, 1] by the embedding, and `ov_copying_mlp0` by what the first MLP makes of
    it (NaN in layer 0, which reads the embedding itself); see `copying`.
    `ov_norm`, `write_norm`, `write_dim`, and the head of its layer whose writes are most alike,
    `write_alike`, with their `write_cosine`; see `writes`.
    `k_from`, the earlier head with the largest K-composition, and that `k_composition`; its
    `k_random_mean` and `k_random_p999` by random matrices; see `composition`.
    Of a run also `primary,relation,mass` as in its `heads`, and `k_from_relation`, the relation
    of `k_from`."""
    composition: pd.DataFrame
    """A row per pair of heads in different layers: `earlier_layer,earlier_head,layer,head,
    k_composition,k_random_mean,k_random_p999`, the largest first."""
    writes: pd.DataFrame
    """A row per pair of heads of one layer: `layer,head,other,write_cosine,write_chance`, the
    largest first."""
    notes: tuple[str, ...]
    related: pd.DataFrame | None = None
    """A row per head × relation between words × sign, those that hold first; the columns are
    described in `related`. None where it was not asked for."""

    @property
    def table(self) -> pd.DataFrame:
        """A row per head; the pairs of heads are in `composition` and `writes`."""
        return self.heads

    def put_into(self, run: Result) -> Result:
        """The run with whose writes each head's keys read most."""
        return replace(run, keys_from=self.heads[KEYS_FROM_COLUMNS])

    def figure(self) -> Figure:
        """OV copying of every head, by the embedding and behind the first MLP."""
        from headscope.studies.weights.weights_view import copying_figure

        return copying_figure(self)

    def __repr__(self) -> str:
        return f"<headscope weights of {self.model}: {len(self.heads)} heads>"
