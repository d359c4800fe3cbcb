"""The losses of a model as heads are taken away, and an order of heads held against chance: the
costs of masking by it and at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from jaxtyping import Float
from matplotlib.figure import Figure
from numpy import ndarray
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.bootstrap import LEVEL, resample
from headscope.measure.study_windows import RESAMPLES
from headscope.models.load import Model
from headscope.models.loss import TextLoss
from headscope.views.study import Study
from headscope.views.summary import short_title
from headscope.views.tables import plain_table

IMPORTANCE, RANDOM, TYPE = "importance", "random", "type"
"""The orders in which heads are masked."""
SURVIVORS_PREFIX = "kept_"
"""Before a type's name: the column of the curve with how many of its heads are still there."""
SUMMARY = ["order", "difference", "ci_low", "ci_high", "windows", "draws"]
OVER_RANDOM = ["over_random", "over_low", "over_high"]
"""Columns of the curve: the loss less the mean loss of the random orders, and its 95 % interval."""
_SUBJECTS = {IMPORTANCE: "importance", TYPE: "the order by type"}


def over_random(
    losses: Mapping[tuple[str, int], Sequence[TextLoss]], *, seed: int
) -> dict[str, Float[ndarray, "row bound"]]:
    """The difference of each order that is not random to the random ones at each step.

    Windows and random orders are drawn with replacement, both, so that the interval holds what
    other windows and other seeds would have given.

    Args:
        losses: by order and draw, a loss for each step; all of the same windows.
        seed: seeds the resamples.

    Returns:
        Nats per token: the difference, and its 95 % interval, NaN for a single window. The last
        row is their mean over the steps between none and all.
    """
    random_nats = np.array(
        [_nats(order_losses) for (order, _), order_losses in losses.items() if order == RANDOM]
    )
    tokens = next(iter(losses.values()))[0].tokens
    rng = np.random.default_rng(seed)
    windows = resample(len(tokens), rng, times=RESAMPLES)
    seeds = resample(len(random_nats), rng, times=RESAMPLES) / len(random_nats)
    again = windows @ tokens
    # resample × step: the mean of the drawn seeds' losses on the drawn windows
    chance = np.einsum("rd,dsw,rw->rs", seeds, random_nats, windows, optimize=True) / again[:, None]
    differences = {}
    for (order, _), order_losses in losses.items():
        if order != RANDOM:
            nats = _nats(order_losses)
            value = (nats - random_nats.mean(0)).sum(1) / tokens.sum()
            resampled = windows @ nats.T / again[:, None] - chance
            differences[order] = _with_interval(value, resampled, enough=len(tokens) > 1)
    return differences


def order_summary(
    differences: Mapping[str, Float[ndarray, "row bound"]], *, windows: int, draws: int
) -> pd.DataFrame:
    """A row per order: the mean difference over steps between none and all, with its interval."""
    rows = [(order, *bounds[-1], windows, draws) for order, bounds in differences.items()]
    return pd.DataFrame(rows, columns=SUMMARY)


def conclusions(table: pd.DataFrame, curve: pd.DataFrame) -> list[str]:
    """A sentence for each order: whether it is a guide to the heads that can be spared.

    Args:
        table: from `summary`.
        curve: with the columns `OVER_RANDOM`.
    """
    return [_conclusion(row, curve[curve["order"] == row["order"]]) for row in _records(table)]


def _records(table: pd.DataFrame) -> list[dict[str, object]]:
    return [{str(name): value for name, value in row.items()} for row in table.to_dict("records")]


def _conclusion(row: Mapping[str, object], steps: pd.DataFrame) -> str:
    low, high, mean = (float(str(row[name])) for name in ("ci_low", "ci_high", "difference"))
    subject = _SUBJECTS[str(row["order"])]
    if np.isnan(low):
        return f"{subject} cannot be held against chance here: a single window judges it"
    counted = f"over {row['windows']} windows and {row['draws']} random orders"
    interval = f"95 % {low:+.3f} … {high:+.3f} {counted}, mean of all steps between"
    if low <= 0 <= high:
        sentence = (
            f"{subject} cannot be told from chance here: masking by it costs {mean:+.3f} nats per "
            f"token against masking at random ({interval})"
        )
    elif low > 0:
        sentence = (
            f"{subject} is no guide here: masking by it costs {mean:.3f} nats per token more than "
            f"at random ({interval})"
        )
    else:
        sentence = (
            f"{subject} is a guide here: masking by it costs {-mean:.3f} nats per token less than "
            f"at random ({interval})"
        )
    return sentence + _exceptions(steps, low, high)


def _exceptions(steps: pd.DataFrame, low: float, high: float) -> str:
    """The steps whose own intervals say otherwise."""
    steps = steps[(steps["share"] > 0) & (steps["share"] < 1)]  # at the ends all orders are alike
    costlier = steps.loc[steps["over_low"] > 0, "share"] if low <= 0 else steps["share"].head(0)
    cheaper = steps.loc[steps["over_high"] < 0, "share"] if high >= 0 else steps["share"].head(0)
    clauses = [
        f"{words} at {', '.join(f'{share:.0%}' for share in shares)}"
        for words, shares in (("more", costlier), ("less", cheaper))
        if len(shares)
    ]
    return f"; yet it costs {' and '.join(clauses)}" if clauses else ""


def _nats(losses: Sequence[TextLoss]) -> Float[ndarray, "step window"]:
    return np.array([loss.nats for loss in losses])


def _with_interval(
    value: Float[ndarray, " step"], resampled: Float[ndarray, "resample step"], *, enough: bool
) -> Float[ndarray, "row bound"]:
    """Each step's value and interval, and below them those of their mean without the ends."""
    value = np.append(value, value[1:-1].mean())
    resampled = np.hstack([resampled, resampled[:, 1:-1].mean(1, keepdims=True)])
    bounds = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
    return np.stack([value, *(bounds if enough else bounds * np.nan)], axis=1)


_ORDERS = {IMPORTANCE: "#0072b2", RANDOM: "#8c8c8c", TYPE: "#d55e00"}
"""Colours that colour-blind readers tell apart too (Okabe and Ito 2008)."""
MOST_IMPORTANT = 5


@dataclass(frozen=True, eq=False)
class Pruning(Study):
    """The losses of a model as heads are taken away; `table` is `curve`."""

    main_table: ClassVar[str] = "curve"

    heads: pd.DataFrame
    """A row per head: `gradient` (nats per token), `importance` (ℓ2-normalised in its layer, 0 to
    1), and with a run its `type`."""
    curve: pd.DataFrame
    """A row per order × draw × share of heads masked; with a run, a column `kept_TYPE` each."""
    model: Model
    windows: Sequence[Window]
    """The text that the losses were taken on."""
    against_random: pd.DataFrame
    """A row per order; see `headscope.studies.prune.prune_result.order_summary`."""

    @property
    def importance(self) -> Float[ndarray, "layer head"]:
        """The normalised importance as a matrix."""
        matrix: ndarray = self.heads.pivot(
            index="layer", columns="head", values="importance"
        ).to_numpy()
        return matrix

    @property
    def rises(self) -> pd.DataFrame:
        """The rise of the loss, the mean over draws: a row per share, a column per order."""
        return self.curve.pivot_table(index="share", columns="order", values="rise", sort=False)

    @property
    def conclusion(self) -> str:
        """Says whether masking by importance, and by type, costs less than masking at random."""
        return "\n".join(conclusions(self.against_random, self.curve))

    def figure(self) -> Figure:
        """The loss by share of heads masked: a line per order, random ones as mean and range."""
        figure = Figure(figsize=(5.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for order, rows in self.curve.groupby("order", sort=False):
            by_share = rows.groupby("share")["loss"]
            share, color = list(by_share.groups), _ORDERS[str(order)]
            label = f"{order}, {rows['draw'].nunique()} draws" if order == RANDOM else str(order)
            axes.plot(share, by_share.mean(), marker="o", ms=3, lw=1.2, color=color, label=label)
            axes.fill_between(share, by_share.min(), by_share.max(), color=color, alpha=0.2, lw=0)
        axes.set_xlabel("share of heads masked")
        axes.set_ylabel("loss (nats per token)")
        axes.legend(fontsize=7, title="masked first by", title_fontsize=7)
        axes.set_title(short_title(self.model.name), fontsize=9)
        return figure

    def __repr__(self) -> str:
        return (
            f"<headscope pruning of {self.model.name}: {len(self.heads)} heads, "
            f"{self.curve['order'].nunique()} orders>"
        )


def prune_lines(pruning: Pruning) -> RenderableType:
    """The most and least important heads, the loss at each step, and which types survive."""
    curve, heads = pruning.curve, pruning.heads.sort_values("importance", kind="stable")
    names = [head_name(row.layer, row.head) for row in heads.itertuples()]
    parts: list[RenderableType] = [
        Text(f"{pruning.model.name}: {curve['loss'].iloc[0]:.4f} nats per token", style="bold"),
        Text(f"most important heads:  {', '.join(names[::-1][:MOST_IMPORTANT])}"),
        Text(f"least important heads: {', '.join(names[:MOST_IMPORTANT])}"),
        Text("importance: mean |gradient| of the head's mask, by its layer's ℓ2 norm", style="dim"),
        Text("\nrise of the loss, by the order in which heads are masked:"),
        _rises(curve),
        Text(f"\n{pruning.conclusion}", style="bold"),
    ]
    if any(column.startswith(SURVIVORS_PREFIX) for column in curve):
        parts += [
            Text("\nheads left by type, the least important masked first:"),
            _survivors(curve),
        ]
    return Group(*parts)


def _rises(curve: pd.DataFrame) -> Table:
    """A row per share of heads masked, a column per order."""
    orders = list(dict.fromkeys(curve["order"]))
    titles = ("masked", "heads", *(_HEADERS.get(order, order) for order in orders))
    rendered = plain_table(*titles, right=titles)
    for share, rows in curve.groupby("share"):
        cells = []
        for order in orders:
            rises = rows.loc[rows["order"] == order, "rise"]
            spread = f" [{rises.min():+.3f}, {rises.max():+.3f}]" if order == RANDOM else ""
            cells.append(f"{rises.mean():+.4f}{spread}")
        rendered.add_row(f"{share:.0%}", str(rows["masked"].iloc[0]), *cells)
    return rendered


_HEADERS = {RANDOM: "random, mean [range]"}


def _survivors(curve: pd.DataFrame) -> Table:
    columns = [column for column in curve if column.startswith(SURVIVORS_PREFIX)]
    titles = ("masked", *(column.removeprefix(SURVIVORS_PREFIX) for column in columns))
    rendered = plain_table(*titles, right=titles)
    for _, row in curve[curve["order"] == IMPORTANCE].iterrows():
        rendered.add_row(f"{row['share']:.0%}", *(str(row[column]) for column in columns))
    return rendered
