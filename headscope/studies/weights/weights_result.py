"""The result of reading a model's weights for its heads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd
from matplotlib.figure import Figure
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.heads import head_name
from headscope.statistics.columns import KEYS_FROM_COLUMNS
from headscope.statistics.result import Result
from headscope.statistics.tags import told_relation
from headscope.studies.weights.related import HOLDS
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import number_text, rows_table

WARNING = (
    "copying alone is no label: GPT-2's negative head L11H10, which lowers the logit of what it "
    "attends to, has a published copying score of +0.996"
)
_Columns = dict[str, Callable[[Any], str]]
MAX_ROWS = 20
"""Pairs that are printed; the files have all of them."""
MAX_EXAMPLES = 3
"""Rows whose words are shown too."""


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
    `qk_rank`, `ov_rank`, in [1, d_head]; see `effective_ranks`.
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

    def put_into(self, run: Result) -> Result:
        """The run with whose writes each head's keys read most."""
        return replace(run, keys_from=self.heads[KEYS_FROM_COLUMNS])

    def figure(self) -> Figure:
        """Layers × heads twice: red where a head raises the tokens it attends to, blue where it
        lowers them.
        """
        layers, heads = (int(self.heads[axis].max()) + 1 for axis in ("layer", "head"))
        size = (2.4 + 0.6 * heads, 1.6 + 0.28 * layers)
        figure = Figure(figsize=size, layout="constrained")
        both = figure.subplots(1, 2, sharey=True)
        for axes, column, title in zip(both, _COPYING, _COPYING.values(), strict=True):
            values = self.heads.pivot(index="layer", columns="head", values=column).to_numpy(float)
            image = axes.imshow(values, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto")
            axes.set_title(title, fontsize=9)
            axes.set_xlabel("head")
        both[0].set_ylabel("layer")
        figure.colorbar(image, ax=both, label="OV copying")
        figure.suptitle(short_title(self.model), fontsize=9)
        return figure

    def __repr__(self) -> str:
        return f"<headscope weights of {self.model}: {len(self.heads)} heads>"


def weight_lines(evidence: WeightEvidence, table: str) -> RenderableType:
    """One of the tables `heads`, `composition`, `writes` and `related`, with the notes below it."""
    rows = getattr(evidence, table)
    parts: list[RenderableType] = [
        Text(f"{evidence.model}: {_TITLES[table]}", style="bold"),
        _LINES[table](rows),
    ]
    if len(rows) and (summary := _SAYS[table](rows)):
        parts.append(Text(summary, style="bold"))
    if table != "heads" and len(rows) > MAX_ROWS:
        parts.append(Text(f"… {len(rows) - MAX_ROWS} more; --format csv prints all", style="dim"))
    if table in _COLUMNS_MEAN:
        parts.append(Text(_COLUMNS_MEAN[table], style="dim"))
    parts += [Text(f"note: {note}", style="yellow") for note in evidence.notes]
    return Group(*parts)


def _heads(rows: pd.DataFrame) -> Table:
    if "primary" not in rows:
        return rows_table(rows, _OF_WEIGHTS)
    primary = {head_name(row.layer, row.head): str(row.primary) for row in rows.itertuples()}
    of_a_run: _Columns = {
        "which is": lambda row: told_relation(row.k_from_relation, primary.get(row.k_from, "")),
        "primary": lambda row: row.primary,
        "relation": lambda row: told_relation(row.relation, row.primary),
        "mass": lambda row: number_text(row.mass, ".2f"),
    }
    return rows_table(rows, _OF_WEIGHTS | of_a_run)


def _first_rows(columns: _Columns) -> Callable[[pd.DataFrame], Table]:
    return lambda rows: rows_table(rows.head(MAX_ROWS), columns)


def _related(rows: pd.DataFrame) -> Group:
    held = sum(rows["verdict"] == HOLDS)
    says = [
        Text(f"{head_name(r.layer, r.head)} {r.says}", style="dim")
        for r in rows.head(MAX_EXAMPLES).itertuples()
        if r.says
    ]
    return Group(Text(f"{held} of {len(rows)} rows hold"), _first_rows(_OF_RELATED)(rows), *says)


def _head(row: Any) -> str:
    return head_name(row.layer, row.head)


_OF_WEIGHTS: _Columns = {
    "head": _head,
    "copying": lambda row: number_text(row.ov_copying, "+.2f"),
    "after MLP 0": lambda row: number_text(row.ov_copying_mlp0, "+.2f"),
    "|OV|": lambda row: f"{row.ov_norm:.3g}",
    "|O|": lambda row: f"{row.write_norm:.3g}",
    "dims": lambda row: f"{row.write_dim:.1f}",
    "writes like": lambda row: row.write_alike,
    "cosine": lambda row: number_text(row.write_cosine, ".2f"),
    "keys from": lambda row: row.k_from,
    "K-comp.": lambda row: number_text(row.k_composition, ".3f"),
    "random 99.9 %": lambda row: number_text(row.k_random_p999, ".3f"),
}
_OF_COMPOSITION: _Columns = {
    "earlier": lambda row: head_name(row.earlier_layer, row.earlier_head),
    "head": _head,
    "K-composition": lambda row: number_text(row.k_composition, ".3f"),
    "random mean": lambda row: number_text(row.k_random_mean, ".3f"),
    "random 99.9 %": lambda row: number_text(row.k_random_p999, ".3f"),
}
_OF_WRITES: _Columns = {
    "head": _head,
    "other": lambda row: head_name(row.layer, row.other),
    "cosine of writes": lambda row: number_text(row.write_cosine, ".3f"),
    "of unrelated heads, about": lambda row: number_text(row.write_chance, ".3f"),
}
_OF_RELATED: _Columns = {
    "head": _head,
    "relation": lambda row: f"{row.sign} {row.relation}",
    "score": lambda row: number_text(row.score, ".2f"),
    "95 % of lift": lambda row: f"{row.ci_low:+.2f} {row.ci_high:+.2f}",
    "q": lambda row: f"{row.q_value:.1g}",
    "rival": lambda row: f"{row.rival:.2f} {row.rival_is}",
    "but itself": lambda row: number_text(row.but_itself, ".2f"),
    "alike": lambda row: number_text(row.alike, ".2f"),
    "top 10": lambda row: number_text(row.top_10, ".2f"),
    "verdict": lambda row: row.verdict,
}
_LINES: dict[str, Callable[[pd.DataFrame], RenderableType]] = {
    "heads": _heads,
    "composition": _first_rows(_OF_COMPOSITION),
    "writes": _first_rows(_OF_WRITES),
    "related": _related,
}


def _heads_said(rows: pd.DataFrame) -> str:
    copies = rows["ov_copying_mlp0"].where(rows["layer"] > 0, rows["ov_copying"])
    summary = (
        f"{int((copies > 0).sum())} of {len(rows)} heads copy: they raise the logits of "
        "the tokens that they attend to"
    )
    reads = rows["k_composition"] > rows["k_random_p999"]
    if not reads.any():
        return (
            f"{summary}; no head's keys read an earlier head more than 99.9 % of random matrices do"
        )
    row = rows.loc[rows["k_composition"].idxmax()]
    best = f"{head_name(int(row['layer']), int(row['head']))} reads {row['k_from']}"
    return (
        f"{summary}; the keys of {int(reads.sum())} read an earlier head more than 99.9 % of "
        f"random matrices do, the most by K-composition: {best}"
    )


def _composition_said(rows: pd.DataFrame) -> str:
    above = int((rows["k_composition"] > rows["k_random_p999"]).sum())
    return (
        f"{above} of {len(rows)} pairs compose more than 99.9 % of random matrices do; 0.1 % of "
        "them would by chance"
    )


def _writes_said(rows: pd.DataFrame) -> str:
    above = int((rows["write_cosine"] > rows["write_chance"]).sum())
    return (
        f"{above} of {len(rows)} pairs of heads of a layer write into more similar directions "
        "than unrelated heads do"
    )


_SAYS: dict[str, Callable[[pd.DataFrame], str]] = {
    "heads": _heads_said,
    "composition": _composition_said,
    "writes": _writes_said,
    "related": lambda rows: "",  # its lines begin with how many hold
}
_TITLES = {
    "heads": "what each head's weights show",
    "composition": "K-composition of an earlier head with a later one",
    "writes": "heads of one layer that write into similar directions",
    "related": "related words that heads write when they attend to a word",
}


_COLUMNS_MEAN = {
    "heads": "copying: OV eigenvalues, from −1 to 1, of which 1 raises the tokens attended to; "
    "after MLP 0: of tokens as the first MLP leaves them; |OV|, |O|: norms; dims: directions "
    "written to; "
    "writes like: the head of the layer with the most similar writes; keys from: the earlier head "
    "that the keys read most, by K-composition, and what random matrices reach",
    "related": "score: share of words for which a related word is raised, or (−) lowered, most; "
    "rival: share for which the word itself, or another form of it, is; but itself: the score with "
    "the word left out; alike: the score of a head that copies the word; top 10: share with a "
    "related word among the ten most raised",
}
_COPYING = {"ov_copying": "by the embedding", "ov_copying_mlp0": "behind the first MLP"}
