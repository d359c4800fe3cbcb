"""How much of a model's attention is needed: the loss as heads are taken away, in three orders."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.arguments import either, kinds_of, maybe, takes
from headscope.errors import CorpusError, RunError
from headscope.evidence.result import Result
from headscope.evidence.tags import UNCLASSIFIED, is_sink
from headscope.measure.batches import Batch
from headscope.measure.text_loss import (
    MAX_LENGTH,
    MAX_TOKENS,
    Advance,
    TextLoss,
    network_of,
    rise,
    text_batches,
    text_loss,
    token_count,
)
from headscope.models.load import Model
from headscope.runs.named import A_MODEL, A_RUN, Named, the_run
from headscope.runs.reload import model_or_run
from headscope.studies.prune.head_mask import by_layer, head_importance, masked
from headscope.studies.prune.orders import IMPORTANCE, KEPT, RANDOM, TYPE
from headscope.studies.prune.result import Pruning

STEPS = tuple(i / 10 for i in range(11))
DRAWS = 5
Progress = Callable[[int, int], None]
CURVE = ["order", "draw", "share", "masked", "loss", "rise", "ci_low", "ci_high"]


@takes(model=either(A_RUN, A_MODEL), run=maybe(A_RUN), **kinds_of(Named))
def prune(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    run: Result | str | Path | None = None,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Progress = lambda done, total: None,
    **named: Unpack[Named],
) -> Pruning:
    """Rank the heads of a model by importance, and mask more and more of them.

    Heads go by importance (the least important first), at random, and by type: unclassified
    first, then those that only look at the first token, then the rest; within each kind the least
    important first. Every second window ranks, the others give the losses, so that no order is
    judged on the text that made it.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when empty.
        run: a run of the same model, or its folder, for the order by type.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files, the random orders and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.
        named: `revision`, a branch, tag or commit on the hub, for a name; `device`, `cpu`, `cuda`,
            …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        RunError: the run is of another model.
        CorpusError: the text cannot be read, or is no more than one window.
    """
    loaded, own = model_or_run(model, longest=MAX_LENGTH, **named)
    classified = own if run is None else the_run(run)
    types = None if classified is None else _types(classified, loaded)
    network = network_of(loaded)
    ranking, judging = _halves(text_batches(loaded, corpus, max_tokens=max_tokens, seed=seed))
    done, passes = 0, (len(STEPS) - 2) * (1 + DRAWS + (types is not None)) + 2

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, token_count(ranking) + passes * token_count(judging))

    gradient = head_importance(network, ranking, heads=loaded.heads, advance=advance)
    importance = by_layer(gradient)
    orders = _orders(importance, types, seed)
    curve = _curve(network, judging, orders, importance.shape, advance, seed)
    heads = _heads(loaded.attention_layers, gradient, importance)
    if types is not None:
        heads["type"] = types["primary"].to_numpy()
        curve = _with_survivors(curve, orders, heads["type"])
    return Pruning(heads, curve, loaded, judging)


def _types(run: Result, model: Model) -> pd.DataFrame:
    """A row per head in order: its primary type and its place in the order by type.

    Raises:
        RunError: the run is of another model.
    """
    facts = run.info.get("model", {})
    known = facts.get("weights_sha256")
    expected = [(layer, head) for layer in model.attention_layers for head in range(model.heads)]
    heads = run.heads.sort_values(["layer", "head"])
    found = list(zip(heads["layer"], heads["head"], strict=True))
    if found != expected or (known is not None and known != model.weights_sha256):
        raise RunError(
            f"this run is of {facts.get('name', 'given patterns')} with {len(found)} heads, and "
            f"{model.name} has other weights; classify the model that is to be pruned"
        )
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    others = tagged[~is_sink(tagged["type"] + "/" + tagged["relation"])]
    useful = set(zip(others["layer"], others["head"], strict=True))
    place = [
        0 if primary == UNCLASSIFIED else 2 if head in useful else 1
        for primary, head in zip(heads["primary"], found, strict=True)
    ]
    return pd.DataFrame({"primary": heads["primary"].to_numpy(), "place": place})


def _halves(text: Sequence[Batch]) -> tuple[list[Batch], list[Batch]]:
    """Every second window to rank heads by, and the others to judge the ranking by."""
    halves: tuple[list[Batch], list[Batch]] = [], []
    place = 0
    for batch in text:
        for half in (0, 1):
            own = [w for i, w in enumerate(batch.windows) if (place + i) % 2 == half]
            if own:
                halves[half].append(replace(batch, windows=own, blocks=np.zeros(len(own), int)))
        place += len(batch.windows)
    if not halves[1]:
        raise CorpusError(
            "the text is one window, and pruning needs two: one to rank heads, one to judge; "
            "name more text or raise max_tokens"
        )
    return halves


_Order = Int[ndarray, " place"]


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
        orders[TYPE, 0] = np.lexsort((flat, types["place"].to_numpy()))
    return orders


def _curve(
    network: Any,
    text: Sequence[Batch],
    orders: dict[tuple[str, int], _Order],
    shape: tuple[int, ...],
    advance: Advance,
    seed: int,
) -> pd.DataFrame:
    base = text_loss(network, text, advance)
    everything = masked_loss(network, text, np.zeros(shape, bool), advance)
    rows = []
    for (order, draw), heads in orders.items():
        for share in STEPS:
            gone = heads[: round(share * heads.size)]
            kept = np.ones(heads.size, bool)
            kept[gone] = False
            if kept.all() or not kept.any():
                # all orders begin and end alike
                loss = base if kept.all() else everything
            else:
                loss = masked_loss(network, text, kept.reshape(shape), advance)
            change = rise(loss, base, seed=seed)
            rows.append((order, draw, share, len(gone), loss.mean, *change))
    return pd.DataFrame(rows, columns=CURVE)


def masked_loss(
    network: Any,
    text: Sequence[Batch],
    kept: Bool[ndarray, "layer head"],
    advance: Advance = lambda _: None,
) -> TextLoss:
    """The loss with only these heads."""
    mask = torch.from_numpy(kept).to(device=network.device, dtype=network.dtype)
    with masked(network, mask):
        return text_loss(network, text, advance)


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
    names = [*sorted(set(types) - {UNCLASSIFIED}), UNCLASSIFIED]
    counts = []
    for row in curve.itertuples():
        left = types.to_numpy()[orders[row.order, row.draw][row.masked :]]
        counts.append([int((left == name).sum()) for name in names])
    return curve.join(pd.DataFrame(counts, columns=[KEPT + name for name in names]))
