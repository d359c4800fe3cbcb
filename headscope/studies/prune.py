"""Pruning: the loss of a model as more and more attention heads are masked, in three orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.causal.intervention import HeadsScaled
from headscope.causal.loss import (
    Advance,
    TextLoss,
    chunked_losses,
    loss,
    network_of,
    predictions_of,
)
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.bootstrap import LEVEL, resample
from headscope.measure.study_windows import (
    MAX_TOKENS,
    RESAMPLES,
    rise,
    text_windows,
    token_count,
)
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.models.stream import batch_tokens_on, in_batches
from headscope.options import Corpus, Device, MaxTokens, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.runs.listing import tagged_types
from headscope.runs.recorded_paths import name_of
from headscope.runs.resolve import ModelOrRun, model_or_run
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.stimuli.natural_text import readable
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import Lines
from headscope.views.study_result import StudyResult

IMPORTANCE, RANDOM, TYPE = "importance", "random", "type"
STEPS = tuple(i / 10 for i in range(11))
DRAWS = 5
Losses = dict[tuple[str, int], list[TextLoss]]
"""A loss for each of `STEPS`, by order and draw."""


STUDY = Study(
    rows="order × draw × share of heads masked",
    columns=table_columns("""
        order | `importance`, `random` or `type` | the order in which heads are masked
        draw | count, ≥ 0 | number of the random order; 0 for the others
        share | [0, 1] | share of heads masked
        masked | heads, ≥ 0 | number of masked heads
        loss | nats per token, ≥ 0 | mean loss on text
        rise | nats per token | above the untouched model's
        ci_low, ci_high | nats per token | ends of the rise's 95 % interval
        over_random | nats per token | loss minus that of the mean random order; empty for those
        over_low, over_high | nats per token | ends of its 95 % interval over windows and orders
    """),
    figure=Lines(x="share", y="loss", by="order"),
    encoders=False,
    bad_call={"max_tokens": 0},
)


@study(STUDY)
def prune(
    model: ModelOrRun,
    corpus: Corpus = None,
    *,
    max_tokens: MaxTokens = MAX_TOKENS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Rank heads by importance, and measure the loss as more and more of them are masked.

    Heads are masked by importance (the least important first), in five random orders and, with a
    run, by type: unclassified heads first, then attention sinks, then the rest, and within each
    group the least important first. Importance is the mean absolute gradient of the loss by the
    head's mask, divided by its layer's ℓ2 norm (Michel et al. 2019, section 4.1). Every second
    window ranks heads; the others give the losses.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        CorpusError: the text cannot be read, or is a single window.
    """
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, run = model_or_run(model, revision=revision, device=device)
        ranks = None if run is None else _type_ranks(run)
        refuse_encoder(loaded, "study prune")
        network_of(loaded)  # fails before any text is read
        ranking, judging = _halves(text_windows(loaded, corpus, max_tokens=max_tokens, seed=seed))
        passes = (len(STEPS) - 2) * (1 + DRAWS + (ranks is not None)) + 2
        advance = Steps(bar, token_count(ranking) + passes * token_count(judging)).advance
        importance = layer_normalised(head_importance(loaded, ranking, advance=advance))
        orders = _orders(importance, ranks, seed)
        losses = _losses(loaded, judging, orders, advance)
    differences = over_random(losses, seed=seed)
    table = _table(losses, differences, importance.size, seed)
    rises = table.pivot_table(index="share", columns="order", values="rise", sort=False)
    return StudyResult(
        title=f"{name_of(loaded.name)}: rise of the loss in nats per token, by share of heads "
        f"masked; {table['loss'][0]:.4f} with all heads",
        table=table,
        terminal_table=rises.reset_index(),
        values={"importance": importance.tolist()},
        draw=STUDY.draw,
    )


def head_importance(
    model: Model, windows: Sequence[Window], *, advance: Advance = lambda tokens: None
) -> Float[ndarray, "layer head"]:
    """Mean absolute gradient of the loss by each head's mask, in nats per token.

        Σ_x |∂ nats(x)/∂ξ_h| / Σ_x tokens(x)  at ξ = 1, over windows x

    (Michel, Levy and Neubig 2019, "Are Sixteen Heads Really Better than One?", section 4.1). Every
    window has its own mask, so that one backward pass serves a batch.

    The model runs under the fused engine.
    """
    network = network_of(model)
    options = {"dtype": network.dtype, "device": network.device, "requires_grad": True}
    total, tokens = torch.zeros(model.layers, model.heads, dtype=torch.float64), 0
    with _without_gradients(network), torch.enable_grad():
        # activations kept for the backward pass take as much memory again
        for batch in in_batches(windows, batch_tokens_on(model.device) // 2):
            mask = torch.ones(model.layers, len(batch), model.heads, **options)
            with HeadsScaled.by_row(model, mask).applied(model):
                tokens += _backward(network, batch)
            assert mask.grad is not None
            total += mask.grad.abs().sum(1).double().cpu()
            advance(sum(map(len, batch)))
    return (total / tokens).numpy()


def layer_normalised(importance: Float[ndarray, "layer head"]) -> Float[ndarray, "layer head"]:
    """Importance divided by its layer's ℓ2 norm, since gradients differ in scale between layers."""
    norm = np.sqrt((importance**2).sum(1, keepdims=True))
    return importance / np.where(norm == 0, 1, norm)


def _backward(network: Any, batch: Sequence[Window]) -> int:
    """Backpropagate the summed loss of a batch; returns its number of predicted tokens.

    Gradients of the loss are taken chunk by chunk, so that few logits are in memory at once.
    """
    predictions = predictions_of(network, batch)
    last = predictions.stream.detach().requires_grad_()
    for losses in chunked_losses(network, last, predictions.labels):
        losses.sum().backward()  # type: ignore[no-untyped-call]
    predictions.stream.backward(last.grad)  # type: ignore[no-untyped-call]
    return sum(predictions.lengths)


@contextmanager
def _without_gradients(network: Any) -> Iterator[None]:
    """Freeze the weights, so that far fewer activations are kept for the backward pass."""
    trainable = [weight for weight in network.parameters() if weight.requires_grad]
    for weight in trainable:
        weight.requires_grad_(False)
    try:
        yield
    finally:
        for weight in trainable:
            weight.requires_grad_(True)


def over_random(
    losses: Mapping[tuple[str, int], Sequence[TextLoss]], *, seed: int
) -> dict[str, Float[ndarray, "step bound"]]:
    """Excess loss of each order over the mean of the random orders, at each share.

    The bootstrap resamples both windows and random orders.

    Args:
        losses: by order and draw, a loss for each share; all of the same windows.
        seed: seeds the resamples.

    Returns:
        The difference in nats per token and its 95 % interval, NaN for a single window.
    """
    random_nats = np.array(
        [_nats(order_losses) for (order, _), order_losses in losses.items() if order == RANDOM]
    )
    tokens = next(iter(losses.values()))[0].tokens
    rng = np.random.default_rng(seed)
    windows = resample(len(tokens), rng, times=RESAMPLES)
    seeds = resample(len(random_nats), rng, times=RESAMPLES) / len(random_nats)
    again = windows @ tokens
    # resample × step: mean over the drawn orders of the loss on the drawn windows
    chance = np.einsum("rd,dsw,rw->rs", seeds, random_nats, windows, optimize=True) / again[:, None]
    differences = {}
    for (order, _), order_losses in losses.items():
        if order != RANDOM:
            nats = _nats(order_losses)
            value = (nats - random_nats.mean(0)).sum(1) / tokens.sum()
            resampled = windows @ nats.T / again[:, None] - chance
            bounds = np.quantile(resampled, [(1 - LEVEL) / 2, (1 + LEVEL) / 2], axis=0)
            bounds = bounds if len(tokens) > 1 else bounds * np.nan
            differences[order] = np.stack([value, *bounds], axis=1)
    return differences


def _nats(losses: Sequence[TextLoss]) -> Float[ndarray, "step window"]:
    return np.array([loss.nats for loss in losses])


def _type_ranks(run: Result) -> Int[ndarray, " head"]:
    """Ranks of heads by type: 0 without a type, 1 for attention sinks, 2 for others."""
    heads = run.heads.sort_values(["layer", "head"])
    with_function = {head for members in tagged_types(run).values() for head in members}
    names = zip(heads["layer"], heads["head"], strict=True)
    ranks = [2 if head in with_function else 1 for head in names]
    return np.where(heads["primary"].isin(NO_TYPE), 0, ranks)


def _halves(windows: Sequence[Window]) -> tuple[Sequence[Window], Sequence[Window]]:
    """Every second window for ranking heads, and the others for the losses."""
    if len(windows) < 2:
        raise CorpusError(
            "the text is one window, and pruning needs two: one to rank heads, one to judge; "
            "name more text or raise max_tokens"
        )
    return windows[::2], windows[1::2]


def _orders(
    importance: Float[ndarray, "layer head"], ranks: Int[ndarray, " ranked_head"] | None, seed: int
) -> dict[tuple[str, int], Int[ndarray, " ranked_head"]]:
    """Heads, numbered through all layers, in the order in which they are masked."""
    flat = importance.ravel()
    orders = {(IMPORTANCE, 0): np.argsort(flat, kind="stable")}
    rng = np.random.default_rng(seed)
    for draw in range(DRAWS):
        orders[RANDOM, draw] = rng.permutation(flat.size)
    if ranks is not None:
        orders[TYPE, 0] = np.lexsort((flat, ranks))
    return orders


def _losses(
    model: Model,
    windows: Sequence[Window],
    orders: dict[tuple[str, int], Int[ndarray, " ranked_head"]],
    advance: Advance,
) -> Losses:
    shape = model.layers, model.heads
    clean = loss(model, windows, advance=advance)
    headless = masked_loss(model, windows, np.zeros(shape, bool), advance)
    losses: Losses = {}
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


def _table(
    losses: Losses,
    differences: Mapping[str, Float[ndarray, "step bound"]],
    heads: int,
    seed: int,
) -> pd.DataFrame:
    rows = []
    for (order, draw), by_step in losses.items():
        over = differences.get(order, np.full((len(STEPS), 3), np.nan))
        for step, (share, pruned) in enumerate(zip(STEPS, by_step, strict=True)):
            change = rise(pruned, by_step[0], seed=seed)
            masked_heads = round(share * heads)
            rows.append((order, draw, share, masked_heads, pruned.mean, *change, *over[step]))
    return pd.DataFrame(rows, columns=STUDY.names)


def masked_loss(
    model: Model,
    windows: Sequence[Window],
    present: Bool[ndarray, "layer head"],
    advance: Advance = lambda tokens: None,
) -> TextLoss:
    """The loss with all other heads masked."""
    network = network_of(model)
    mask = torch.from_numpy(present).to(device=network.device, dtype=network.dtype)
    return loss(model, windows, HeadsScaled.by_row(model, mask), advance=advance)
