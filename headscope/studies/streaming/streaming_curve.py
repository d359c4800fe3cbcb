"""The loss of a model as more and more key/value heads keep sinks and a recent window only."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.arguments import PATH, Default, either, maybe, number, takes, whole
from headscope.errors import ModelError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.readable import readable
from headscope.measure.study_windows import rise, token_count
from headscope.models.layout.model_layout import LATENT
from headscope.models.layout.modules import attention_by_layer
from headscope.models.layout.projections import find_projections
from headscope.models.load import Model
from headscope.models.loss import TextLoss, loss, network_of
from headscope.models.model_kinds import refuse_encoder
from headscope.runs.reopen_model import model_or_run
from headscope.runs.resolve import A_MODEL, A_RUN, Named
from headscope.studies.streaming.far import Far, far_of
from headscope.studies.streaming.foreign import FEWEST, Need, far_masses, needs
from headscope.studies.streaming.gates import read_gates
from headscope.studies.streaming.long_text import LongText, long_text
from headscope.studies.streaming.streaming_heads import RECENT, SINKS, SinkWindow, StreamingHeads
from headscope.studies.streaming.streaming_result import (
    CHANGE,
    GATE,
    MASS,
    RANDOM,
    Cache,
    Streaming,
    cache_of,
)

MAX_LENGTH, MAX_TOKENS = 2_048, 16_384
STEPS = tuple(i / 8 for i in range(9))
DRAWS = 5
TOLERANCE = 0.01
"""Nats per token: a perplexity 1 % higher."""
CURVE = ["order", "draw", "heads", "share", "saved", "loss", "rise", "ci_low", "ci_high"]
_Order = Int[ndarray, " streaming_head"]


class StreamingOptions(Named, total=False):
    """Options of `streaming` besides the model and its text."""

    sinks: Annotated[int, whole(0), Default(SINKS)]
    """First keys that a streaming head keeps. The beginning-of-text token's is among them."""
    recent: Annotated[int, whole(1), Default(RECENT)]
    """Last keys that it keeps, e.g. 64, 256 or 1024. The query's own is among them."""
    tolerance: Annotated[float, number(0), Default(TOLERANCE)]
    """Rise of the loss, in nats per token, that is no loss."""
    max_length: Annotated[int, Default(MAX_LENGTH)]
    """Tokens of a window, the model's context at most."""
    gates: Annotated[str | Path | None, maybe(PATH)]
    """A file of published gates of key/value heads, such as DuoAttention's
    `full_attention_heads.tsv`, to hold the order against."""


@takes(model=either(A_RUN, A_MODEL))
def streaming(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Progress = True,
    **options: Unpack[StreamingOptions],
) -> Streaming:
    """Say which key/value heads may keep sinks and a recent window only, and what that costs.

    Heads are ranked by how much their output would change, on every second window; on the others
    the loss is taken as more and more of them stream, beside as many random heads. Query heads
    that share keys stream together.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when None.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files, the random orders and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all passes.
        options: `sinks` and `recent`, how many first and last keys are kept (4 and 64);
            `tolerance`, the rise of the loss that is none (0.01 nats per token); `max_length` of a
            window in tokens (2,048, or the model's context); `gates`, a file of published gates of
            key/value heads, see `headscope.studies.streaming.gates.read_gates`; `revision`, a
            branch, tag or commit on the hub, for a name; `device`, `cpu`, `cuda`, …, where `auto`,
            the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, does not run under the fused engine, or keeps
            latents that its heads share instead of keys and values.
        CorpusError: the text cannot be read, or is no longer than what is kept.
        HeadscopeError: the gates cannot be read, or are of another shape.
    """
    sink_window = SinkWindow(options.get("sinks", SINKS), options.get("recent", RECENT))
    longest = options.get("max_length", MAX_LENGTH)
    load_options: Named = {
        "revision": options.get("revision"),
        "device": options.get("device", "auto"),
    }
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, _ = model_or_run(model, longest=longest, **load_options)
        _check_keys(loaded)
        gates = _gates(options.get("gates"), loaded)
        read = {"max_length": min(longest, loaded.context), "max_tokens": max_tokens, "seed": seed}
        text = long_text(loaded, corpus, sink_window, **read)
        passes = (len(STEPS) - 2) * (2 + DRAWS + (gates is not None)) + 2
        once = token_count((*text.ranking, *text.single_document, *text.single_document))
        advance = Steps(bar, once + passes * token_count(text.judging)).advance
        far = far_of(loaded, text.ranking, sink_window, advance)
        masses = far_masses(loaded, text.single_document, sink_window.sinks, advance)
        cache = cache_of(loaded, sink_window, far.visible_keys, length=text.length)
        orders = _orders(far, seed, gates)

        def streaming_loss(heads: _Order) -> TextLoss:
            change = streaming_heads(loaded, heads, sink_window)
            # a window by itself, as windows are long
            return loss(loaded, text.judging, change, batch_tokens=1, advance=advance)

        curve = _curve(streaming_loss, orders, cache, seed)
    heads = _heads(loaded, far, orders[CHANGE, 0], needs(masses, seed=seed), masses)
    if gates is not None:
        heads["gate"] = gates
    tolerance = options.get("tolerance", TOLERANCE)
    notes = _notes(text, far, sink_window)
    return Streaming(loaded.name, heads, curve, sink_window, cache, tolerance, notes)


def streaming_heads(model: Model, heads: _Order, sink_window: SinkWindow) -> StreamingHeads:
    """The intervention by which key/value heads stream, numbered through all layers."""
    by_layer: dict[int, list[int]] = {}
    for index in heads.tolist():
        row, head = divmod(index, model.key_value_heads)
        by_layer.setdefault(model.attention_layers[row], []).append(head)
    return StreamingHeads(by_layer, model.key_value_heads, sink_window)


def _check_keys(model: Model) -> None:
    refuse_encoder(model, "study streaming")
    modules = attention_by_layer(network_of(model)).values()
    if LATENT in map(find_projections, modules):
        raise ModelError(
            f"{model.name}: its heads share a latent of each token instead of keeping keys and "
            "values, so that no head's past can be dropped by itself"
        )


def _gates(path: str | Path | None, model: Model) -> Float[ndarray, " key_value"] | None:
    if path is None:
        return None
    return read_gates(path, model.name, len(model.attention_layers), model.key_value_heads)


def _orders(
    far: Far, seed: int, gates: Float[ndarray, " key_value"] | None
) -> dict[tuple[str, int], _Order]:
    """Key/value heads, numbered through all layers, in the order in which they stream."""
    rng = np.random.default_rng(seed)
    orders = {
        (CHANGE, 0): np.argsort(far.change.ravel(), kind="stable"),
        (MASS, 0): np.argsort(far.mass.ravel(), kind="stable"),
    }
    if gates is not None:
        orders[GATE, 0] = np.argsort(gates, kind="stable")
    return orders | {(RANDOM, draw): rng.permutation(far.mass.size) for draw in range(DRAWS)}


def _curve(
    streaming_loss: Callable[[_Order], TextLoss],
    orders: dict[tuple[str, int], _Order],
    cache: Cache,
    seed: int,
) -> pd.DataFrame:
    rows = []
    every_head = orders[CHANGE, 0]
    # all orders begin and end alike
    ends = {0: streaming_loss(every_head[:0]), every_head.size: streaming_loss(every_head)}
    for (order, draw), heads in orders.items():
        for share in STEPS:
            first = heads[: round(share * heads.size)]
            changed = ends[first.size] if first.size in ends else streaming_loss(first)
            change = rise(changed, ends[0], seed=seed)
            saved, part = cache.saved(first), first.size / heads.size
            rows.append((order, draw, first.size, part, saved, changed.mean, *change))
    return pd.DataFrame(rows, columns=CURVE)


def _heads(
    model: Model,
    far: Far,
    order: _Order,
    need: Need,
    masses: ndarray,
) -> pd.DataFrame:
    """A row per key/value head in the order of layers."""
    row, head = np.indices(far.mass.shape)
    rank = np.empty(order.size, int)
    rank[order] = np.arange(1, order.size + 1)
    own_far, foreign_far = (
        masses.mean(1) if masses.shape[1] else np.full((2, *far.mass.shape), np.nan)
    )
    size = model.heads // model.key_value_heads
    return pd.DataFrame(
        {
            "layer": np.asarray(model.attention_layers)[row.ravel()],
            "head": head.ravel(),
            "query_heads": [_range(group * size, size) for group in head.ravel().tolist()],
            "far_mass": far.mass.ravel(),
            "change": far.change.ravel(),
            "place": rank,
            "own_far": own_far.ravel(),
            "foreign_far": foreign_far.ravel(),
            "far_lift": need.lift.ravel(),
            "ci_low": need.low.ravel(),
            "ci_high": need.high.ravel(),
            "q_value": need.q_value.ravel(),
            "needs_far": need.verdicts,
        }
    )


def _range(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _notes(text: LongText, far: Far, sink_window: SinkWindow) -> tuple[str, ...]:
    notes = [text.note] if text.note else []
    if len(text.judging) < 4:
        notes.append(f"judged on {len(text.judging)} windows alone: intervals are rough")
    if len(text.single_document) < FEWEST:
        notes.append("too few documents are long enough to be read beside another's far text")
    short = int((far.visible_keys <= sink_window.reach).sum())
    if short:
        notes.append(
            f"{short} layers have windows of their own that are no longer than what is kept"
        )
    return tuple(notes)
