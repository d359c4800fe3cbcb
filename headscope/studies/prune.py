"""Pruning: the loss of a model as more and more attention heads are masked, in several orders."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import numpy as np
import pandas as pd
from einops import einsum
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field

from headscope.causal.loss import Advance, TextLoss
from headscope.causal.rerun import Rerunner
from headscope.causal.text_losses import loss_score, text_losses
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.study_windows import (
    MAX_TOKENS,
    text_windows,
    token_count,
)
from headscope.models.layout.projections import output_matrix, outputs_by_layer
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.weights import quiet_logging
from headscope.options import Corpus, Device, MaxTokens, PathName, Revision, Seed
from headscope.progress import Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.listing import tagged_types
from headscope.runs.recorded_paths import name_of
from headscope.runs.write import check_absent, check_writable, writing
from headscope.statistics.ratio import LEVEL, LOSS_RESAMPLES, resample, rise
from headscope.statistics.result import Result
from headscope.statistics.tags import NO_TYPE
from headscope.stimuli.natural_text import readable
from headscope.studies.prune_orders import (
    STEPS,
    SingleHeads,
    greedy_order,
    greedy_passes,
    head_importance,
    heads_masked,
    layer_normalised,
    single_head_windows,
    step_ends,
)
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Lines
from headscope.views.study_result import StudyResult

IMPORTANCE, MASKED, GREEDY, RANDOM, TYPE = "importance", "masked", "greedy", "random", "type"
DRAWS = 5
_HeadOrder = Int[ndarray, " ranked_head"]


@dataclass(frozen=True)
class Order:
    """Name of an order, and the number of its draw."""

    name: str
    draw: int = 0


@dataclass(frozen=True, eq=False)
class Ranking:
    """Orders of the heads, and the importance that one of them comes from."""

    importance: Float[ndarray, "layer head"]
    orders: Mapping[Order, _HeadOrder]
    """Heads, numbered through all layers, in the order in which they are masked."""


STUDY = Study(
    command=Command(
        group="study",
        summary="Measure the loss as more and more heads are masked.",
        examples=(
            "headscope study prune runs/mini --figure prune.pdf --out prune.csv",
            "headscope study prune mini --save mini-pruned --share 0.3",
        ),
    ),
    rows="order × draw × share of heads masked",
    columns=table_columns("""
        order | `importance`, `masked`, `greedy`, `random` or `type` | the order in which heads are
            masked
        draw | count, ≥ 0 | number of the random order; 0 for the others
        share | [0, 1] | share of heads masked
        masked | heads, ≥ 0 | number of masked heads
        loss | nats per token, ≥ 0 | mean loss on text; for an encoder the distance of its last
            states from the untouched model's, in lengths of the latter
        rise | as loss | above the untouched model's
        ci_low, ci_high | as loss | ends of the rise's 95 % interval
        over_random | as loss | loss minus that of the mean random order; empty for those
        over_low, over_high | as loss | ends of its 95 % interval over windows and orders
    """),
    figure=Lines(x="share", y="loss", by="order"),
    bad_call={"max_tokens": 0},
)


@study(STUDY)
def prune(
    model: ModelOrRun,
    corpus: Corpus = None,
    *,
    save: Annotated[
        PathName | None,
        Field(description="Write the pruned model to this new folder, for transformers."),
    ] = None,
    share: Annotated[
        float,
        Field(gt=0, lt=1, description="Share of heads that the saved model has masked."),
    ] = 0.1,
    max_tokens: MaxTokens = MAX_TOKENS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Rank heads in several ways, and measure the loss as more and more of them are masked.

    Orders, each from the head that is masked first:

    - `importance`: the least important first. Importance is the mean absolute gradient of the loss
      by the head's mask, divided by its layer's ℓ2 norm (Michel et al. 2019, section 4.1).
    - `masked`: the smallest loss with this head masked alone first.
    - `greedy`: the smallest loss with this head and all earlier ones masked first.
    - `random`: five random orders.
    - `type`, with a run: unclassified heads first, then attention sinks, then the rest, and within
      each group the least important first.

    Every second window ranks heads; the others give the losses. `masked` and `greedy` read the
    first of the ranking windows, fewer the more heads there are.

    `save` writes the model with the rows of W_O of the masked heads set to 0, so that it loads as
    the same architecture. Its heads are those of the order with the smallest loss at this share.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        CorpusError: the text cannot be read, or is a single window.
        WriteError: the folder exists, or cannot be written.
    """
    corpus = readable(corpus, seed=seed)
    folder = None if save is None else check_new_folder(Path(save))
    with progress_bar(progress) as bar:
        loaded, run = model_or_run(model, revision=revision, device=device)
        ranks = None if run is None else _type_ranks(run)
        Rerunner(loaded, loss_score(loaded))  # fails before any text is read
        text = _halves(text_windows(loaded, corpus, max_tokens=max_tokens, seed=seed))
        # the work to be done, for the progress
        heads = loaded.layers * loaded.heads
        orders = 3 + DRAWS + (ranks is not None)
        single = token_count(single_head_windows(text.ranking, heads))
        of_importance = token_count(text.ranking)
        of_single_heads = single * (1 + heads + greedy_passes(heads))
        of_orders = token_count(text.judging) * (2 + orders * (len(STEPS) - 2))
        advance = Steps(bar, of_importance + of_single_heads + of_orders).advance
        ranking = ranked(loaded, text.ranking, ranks, seed, advance)
        losses = order_losses(loaded, text.judging, ranking.orders, advance)
    # losses of each order, beside random orders of the same text
    table = _table(losses, over_random(losses, seed=seed), ranking.importance.size, seed)
    notes = [best_order_note(table)]
    if folder is not None:
        name = best_order(table, share)
        count = round(share * ranking.importance.size)
        save_pruned(loaded, ranking.orders[Order(name)][:count], folder)
        notes.append(f"written to {folder}: {count} heads masked in the order {name}")
    rises = table.pivot_table(index="share", columns="order", values="rise", sort=False)
    # an encoder has no loss of a next token
    unit = "loss in nats per token" if loaded.attention_kind.predicts_next else "distance of states"
    return StudyResult(
        title=f"{name_of(loaded.name)}: rise of the {unit}, by share of heads masked; "
        f"{table['loss'][0]:.4f} with all heads",
        table=table,
        terminal_table=rises.reset_index(),
        notes=notes,
        values={"importance": ranking.importance.tolist()},
        draw=STUDY.draw,
    )


@dataclass(frozen=True, eq=False)
class Halves:
    """Windows that rank heads, and windows that give the losses."""

    ranking: Sequence[Window]
    judging: Sequence[Window]


def _halves(windows: Sequence[Window]) -> Halves:
    """Every second window for ranking heads, and the others for the losses."""
    if len(windows) < 2:
        raise CorpusError(
            "the text is one window, and pruning needs two: one to rank heads, one to judge; "
            "name more text or raise max_tokens"
        )
    return Halves(windows[::2], windows[1::2])


def ranked(
    model: Model,
    windows: Sequence[Window],
    ranks: Int[ndarray, " ranked_head"] | None,
    seed: int,
    advance: Advance,
) -> Ranking:
    """Every order of the heads.

    Args:
        model: of the fused engine.
        windows: that rank heads.
        ranks: of the heads by type; None without a run.
        seed: of the random orders.
        advance: called with the tokens of each forward pass when it is done.
    """
    # orders by importance, by the loss of each head alone, and greedy
    importance = layer_normalised(head_importance(model, windows, advance=advance))
    flat = importance.ravel()
    single = SingleHeads(model, single_head_windows(windows, flat.size), advance)
    rises = single.rises(range(flat.size), [])
    orders = {
        Order(IMPORTANCE): np.argsort(flat, kind="stable"),
        Order(MASKED): np.argsort(rises, kind="stable"),
        Order(GREEDY): greedy_order(single, rises),
    }
    # random orders are the control
    rng = np.random.default_rng(seed)
    for draw in range(DRAWS):
        orders[Order(RANDOM, draw)] = rng.permutation(flat.size)
    # tags come from a run, which a bare model lacks
    if ranks is not None:
        orders[Order(TYPE)] = type_order(flat, ranks)
    return Ranking(importance, orders)


def type_order(
    importance: Float[ndarray, " ranked_head"], ranks: Int[ndarray, " ranked_head"]
) -> _HeadOrder:
    """Heads by rank, and within a rank the least important first."""
    return np.lexsort((importance, ranks))


def order_losses(
    model: Model,
    windows: Sequence[Window],
    orders: Mapping[Order, _HeadOrder],
    advance: Advance = lambda tokens: None,
) -> dict[Order, list[TextLoss]]:
    """A loss for each of `STEPS`, by order. All orders begin and end with the same one."""
    # all orders begin with all heads and end without any
    size = model.layers * model.heads
    ends = step_ends(size)
    changes = {"headless": heads_masked(model, range(size))}
    for order, heads in orders.items():
        for step, count in enumerate(ends[1:-1], 1):
            changes[_step_name(order, step)] = heads_masked(model, heads[:count])
    # all in one call, so that the layers below each change are computed once for all
    losses = text_losses(model, windows, changes, advance=advance)
    by_order = {}
    for order in orders:
        of_order = [losses.unchanged]
        for step in range(1, len(ends) - 1):
            of_order.append(losses.changed[_step_name(order, step)])
        of_order.append(losses.changed["headless"])
        by_order[order] = of_order
    return by_order


def _step_name(order: Order, step: int) -> str:
    return f"{order.name} {order.draw} {step}"


def best_order(table: pd.DataFrame, share: float) -> str:
    """The order with the smallest loss at the step nearest to a share; no random one."""
    steps = np.array(STEPS[1:-1])
    nearest = steps[np.abs(steps - share).argmin()]
    is_step = np.isclose(table["share"], nearest) & (table["order"] != RANDOM)
    at_step = table[is_step]
    return str(at_step.loc[at_step["loss"].idxmin(), "order"])


def best_order_note(table: pd.DataFrame) -> str:
    """The order with the smallest mean rise over all shares, beside the mean random order."""
    # with no head masked, and with all, every order is the same
    inner = table[table["share"].between(STEPS[1], STEPS[-2])]
    means = inner.groupby("order")["rise"].mean()
    best = means.drop(RANDOM).idxmin()
    of_best = inner[inner["order"] == best]
    at_tenth = of_best[np.isclose(of_best["share"], 0.1)].iloc[0]
    excess = at_tenth["over_random"]
    low = at_tenth["over_low"]
    high = at_tenth["over_high"]
    return (
        f"use {best}: mean rise {means[best]:.3f}, random {means[RANDOM]:.3f}; at a tenth of the "
        f"heads {excess:.3f} [{low:.3f}, {high:.3f}] against the random orders"
    )


def over_random(
    losses: Mapping[Order, Sequence[TextLoss]], *, seed: int
) -> dict[str, Float[ndarray, "step bound"]]:
    """Excess loss of each order over the mean of the random orders, at each share.

    The bootstrap resamples both windows and random orders.

    Args:
        losses: by order, a loss for each share; all of the same windows.
        seed: seeds the resamples.

    Returns:
        The difference as the loss is stated and its 95 % interval, NaN for a single window.
    """
    # windows and random orders are resampled together
    random_nats = np.array([_nats(row) for order, row in losses.items() if order.name == RANDOM])
    tokens = next(iter(losses.values()))[0].tokens
    rng = np.random.default_rng(seed)
    windows = resample(len(tokens), rng, times=LOSS_RESAMPLES)
    draws = resample(len(random_nats), rng, times=LOSS_RESAMPLES) / len(random_nats)
    # the mean over the drawn orders of the loss on the drawn windows
    random_loss = einsum(
        draws,
        random_nats,
        windows,
        "resample draw, draw step window, resample window -> resample step",
    )
    resampled_tokens = (windows @ tokens)[:, None]
    differences = {}
    # each order by name, over the mean of the random ones
    for order, by_step in losses.items():
        if order.name == RANDOM:
            continue
        nats = _nats(by_step)
        excess = (nats - random_nats.mean(0)).sum(1) / tokens.sum()
        resampled_excess = windows @ nats.T - random_loss
        # a single window cannot be resampled
        levels = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        bounds: Float[ndarray, "bound step"] = np.quantile(
            resampled_excess / resampled_tokens, levels, axis=0
        )
        bounds = bounds if len(tokens) > 1 else np.full_like(bounds, np.nan)
        differences[order.name] = np.stack([excess, *bounds], axis=1)
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


def _table(
    losses: Mapping[Order, Sequence[TextLoss]],
    differences: Mapping[str, Float[ndarray, "step bound"]],
    heads: int,
    seed: int,
) -> pd.DataFrame:
    """A row for each order and share."""
    # random orders are not compared with themselves
    unknown = np.full((len(STEPS), 3), np.nan)
    # shares are rounded to whole heads
    counts = step_ends(heads)
    rows = []
    for order, by_step in losses.items():
        over = differences.get(order.name, unknown)
        for step, pruned in enumerate(by_step):
            change = rise(pruned, by_step[0], seed=seed)
            over_random_orders, over_low, over_high = over[step]
            rows.append(
                {
                    "order": order.name,
                    "draw": order.draw,
                    "share": STEPS[step],
                    "masked": counts[step],
                    "loss": pruned.mean,
                    "rise": change.mean,
                    "ci_low": change.low,
                    "ci_high": change.high,
                    "over_random": over_random_orders,
                    "over_low": over_low,
                    "over_high": over_high,
                }
            )
    return pd.DataFrame(rows, columns=STUDY.names)


def check_new_folder(folder: Path) -> Path:
    """Refuse a folder that exists or cannot be made.

    Raises:
        WriteError: it is there already, or its parent takes no files.
    """
    check_absent(folder, "name a new folder for the pruned model")
    check_writable(folder)
    return folder


def save_pruned(model: Model, heads: Int[ndarray, " ranked_head"], folder: Path) -> None:
    """Write a model and its tokenizer, with the rows of W_O of some heads set to 0.

    Args:
        model: of the fused engine; its weights are afterwards what they were.
        heads: masked heads, numbered through all layers with attention.
        folder: a new one; it is written whole or not at all.

    Raises:
        WriteError: the folder cannot be written.
    """
    network = plain_network_of(model)
    with writing(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix=".headscope-", dir=folder.parent) as temporary:
            unfinished = Path(temporary) / folder.name  # a temporary folder has other rights
            with masked_outputs(model, heads), quiet_logging():
                network.save_pretrained(unfinished)
                model.tokenizer.save(unfinished)
            unfinished.rename(folder)


@contextmanager
def masked_outputs(model: Model, heads: Int[ndarray, " ranked_head"]) -> Iterator[None]:
    """Rows of W_O of these heads are 0 within this context; afterwards they are copied back."""
    outputs = outputs_by_layer(plain_network_of(model))
    matrices = {layer: output_matrix(outputs[layer]) for layer in model.attention_layers}
    originals = {layer: matrix.clone() for layer, matrix in matrices.items()}
    try:
        # heads are numbered through the layers that are read, of a hybrid not all
        for row, head in (divmod(int(number), model.heads) for number in heads):
            matrix = matrices[model.attention_layers[row]]
            width = len(matrix) // model.heads
            matrix[head * width : (head + 1) * width] = 0
        yield
    finally:
        for layer, matrix in matrices.items():
            matrix.copy_(originals[layer])
