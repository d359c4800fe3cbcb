"""The loss of a model as more and more heads are masked, in three orders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.arguments import either, maybe, takes
from headscope.corpus.window import Window
from headscope.errors import CorpusError, RunError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.readable import readable
from headscope.measure.study_windows import MAX_LENGTH, MAX_TOKENS, rise, text_windows, token_count
from headscope.models.intervention import HeadsScaled
from headscope.models.load import Model
from headscope.models.loss import Advance, TextLoss, loss, network_of
from headscope.models.model_kinds import refuse_encoder
from headscope.runs.reopen_model import model_or_run
from headscope.runs.resolve import A_MODEL, A_RUN, Named, the_run
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE, UNCLASSIFIED, is_sink
from headscope.studies.prune.head_importance import head_importance, layer_normalised
from headscope.studies.prune.prune_result import (
    IMPORTANCE,
    OVER_RANDOM,
    RANDOM,
    SURVIVORS_PREFIX,
    TYPE,
    Pruning,
    order_summary,
    over_random,
)

STEPS = tuple(i / 10 for i in range(11))
DRAWS = 5
CURVE = ["order", "draw", "share", "masked", "loss", "rise", "ci_low", "ci_high", *OVER_RANDOM]


@takes(model=either(A_RUN, A_MODEL), run=maybe(A_RUN))
def prune(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    run: Result | str | Path | None = None,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Progress = True,
    **options: Unpack[Named],
) -> Pruning:
    """Rank heads by importance, and say what the loss is as more and more are masked.

    Heads go by importance (the least important first), at random, and by type: unclassified
    first, then those that only look at the first token, then the rest; within each kind the least
    important first. Every second window ranks, the others give the losses, so that no order is
    judged on the text that made it.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when None.
        run: a run of the same model, or its folder, for the order by type.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files, the random orders and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all passes.
        options: `revision`, a branch, tag or commit on the hub, for a name; `device`, `cpu`,
            `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        RunError: the run is of another model.
        CorpusError: the text cannot be read, or is no more than one window.
    """
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, model_run = model_or_run(model, longest=MAX_LENGTH, **options)
        classified = model_run if run is None else the_run(run)
        types = None if classified is None else _types(classified, loaded)
        refuse_encoder(loaded, "study prune")
        network_of(loaded)  # refuses before any text is read
        ranking, judging = _halves(text_windows(loaded, corpus, max_tokens=max_tokens, seed=seed))
        passes = (len(STEPS) - 2) * (1 + DRAWS + (types is not None)) + 2
        advance = Steps(bar, token_count(ranking) + passes * token_count(judging)).advance
        gradient = head_importance(loaded, ranking, advance=advance)
        importance = layer_normalised(gradient)
        orders = _orders(importance, types, seed)
        losses = _losses(loaded, judging, orders, advance)
    differences = over_random(losses, seed=seed)
    curve = _curve(losses, differences, importance.size, seed)
    heads = _heads(loaded.attention_layers, gradient, importance)
    if types is not None:
        heads["type"] = types["primary"].to_numpy()
        curve = _with_survivors(curve, orders, heads["type"])
    against = order_summary(differences, windows=len(judging), draws=DRAWS)
    return Pruning(heads, curve, loaded, judging, against)


def _types(run: Result, model: Model) -> pd.DataFrame:
    """A row per head in order: its primary type and its rank in the order by type.

    Raises:
        RunError: the run is of another model.
    """
    described = run.info.get("model", {})
    weights = described.get("weights_sha256")
    expected = [(layer, head) for layer in model.attention_layers for head in range(model.heads)]
    heads = run.heads.sort_values(["layer", "head"])
    names = list(zip(heads["layer"], heads["head"], strict=True))
    if names != expected or (weights is not None and weights != model.weights_sha256):
        raise RunError(
            f"this run is of {described.get('name', 'given patterns')} with {len(names)} heads, "
            f"and {model.name} has other weights; classify the model that is to be pruned"
        )
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    others = tagged[~is_sink(tagged["type"] + "/" + tagged["relation"])]
    useful = set(zip(others["layer"], others["head"], strict=True))
    rank = [
        0 if primary in NO_TYPE else 2 if head in useful else 1
        for primary, head in zip(heads["primary"], names, strict=True)
    ]
    return pd.DataFrame({"primary": heads["primary"].to_numpy(), "rank": rank})


def _halves(windows: Sequence[Window]) -> tuple[Sequence[Window], Sequence[Window]]:
    """Every second window to rank heads by, and the others to judge the ranking by."""
    if len(windows) < 2:
        raise CorpusError(
            "the text is one window, and pruning needs two: one to rank heads, one to judge; "
            "name more text or raise max_tokens"
        )
    return windows[::2], windows[1::2]


_Order = Int[ndarray, " ranked_head"]


def _orders(
    importance: Float[ndarray, "layer head"], types: pd.DataFrame | None, seed: int
) -> dict[tuple[str, int], _Order]:
    """Heads, numbered through all layers, in the order in which they go."""
    flat = importance.ravel()
    orders = {(IMPORTANCE, 0): np.argsort(flat, kind="stable")}
    rng = np.random.default_rng(seed)
    for draw in range(DRAWS):
        orders[RANDOM, draw] = rng.permutation(flat.size)
    if types is not None:
        orders[TYPE, 0] = np.lexsort((flat, types["rank"].to_numpy()))
    return orders


_Losses = dict[tuple[str, int], list[TextLoss]]
"""By order and draw, a loss for each of `STEPS`."""


def _losses(
    model: Model,
    windows: Sequence[Window],
    orders: dict[tuple[str, int], _Order],
    advance: Advance,
) -> _Losses:
    shape = model.layers, model.heads
    clean = loss(model, windows, advance=advance)
    headless = masked_loss(model, windows, np.zeros(shape, bool), advance)
    losses: _Losses = {}
    for order, heads in orders.items():
        by_step = losses.setdefault(order, [])
        for share in STEPS:
            present = np.ones(heads.size, bool)
            present[heads[: round(share * heads.size)]] = False
            if present.all() or not present.any():
                # all orders begin and end alike
                by_step.append(clean if present.all() else headless)
            else:
                by_step.append(masked_loss(model, windows, present.reshape(shape), advance))
    return losses


def _curve(
    losses: _Losses, differences: Mapping[str, Float[ndarray, "row bound"]], heads: int, seed: int
) -> pd.DataFrame:
    rows = []
    for (order, draw), by_step in losses.items():
        over = differences.get(order, np.full((len(STEPS), len(OVER_RANDOM)), np.nan))
        for step, (share, pruned) in enumerate(zip(STEPS, by_step, strict=True)):
            change = rise(pruned, by_step[0], seed=seed)
            masked_heads = round(share * heads)
            rows.append((order, draw, share, masked_heads, pruned.mean, *change, *over[step]))
    return pd.DataFrame(rows, columns=CURVE)


def masked_loss(
    model: Model,
    windows: Sequence[Window],
    present: Bool[ndarray, "layer head"],
    advance: Advance = lambda tokens: None,
) -> TextLoss:
    """The loss with only these heads."""
    network = network_of(model)
    mask = torch.from_numpy(present).to(device=network.device, dtype=network.dtype)
    return loss(model, windows, HeadsScaled.by_row(model, mask), advance=advance)


def _heads(
    numbers: tuple[int, ...],
    gradient: Float[ndarray, "layer head"],
    importance: Float[ndarray, "layer head"],
) -> pd.DataFrame:
    row, head = np.indices(gradient.shape)
    return pd.DataFrame(
        {
            "layer": np.asarray(numbers)[row.ravel()],
            "head": head.ravel(),
            "gradient": gradient.ravel(),
            "importance": importance.ravel(),
        }
    )


def _with_survivors(
    curve: pd.DataFrame, orders: dict[tuple[str, int], _Order], types: pd.Series
) -> pd.DataFrame:
    untyped = [name for name in NO_TYPE if name == UNCLASSIFIED or name in set(types)]
    names = [*sorted(set(types) - {*NO_TYPE}), *untyped]
    counts = []
    for row in curve.itertuples():
        survivors = types.to_numpy()[orders[row.order, row.draw][row.masked :]]
        counts.append([int((survivors == name).sum()) for name in names])
    return curve.join(pd.DataFrame(counts, columns=[SURVIVORS_PREFIX + name for name in names]))
