"""Which key/value heads may keep sinks and a recent window only: the loss as more and more do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray

from headscope.arguments import PATH, either, kinds_of, maybe, number, takes, whole
from headscope.errors import ModelError
from headscope.measure.batches import Batch
from headscope.measure.text_loss import Advance, TextLoss, network_of, rise, text_loss, token_count
from headscope.models.engines.modules import by_number
from headscope.models.load import Model
from headscope.runs.named import A_MODEL, A_RUN, Named
from headscope.runs.reload import model_or_run
from headscope.studies.streaming.cache import Cache, cache_of
from headscope.studies.streaming.far import Far, far_of
from headscope.studies.streaming.foreign import FEWEST, Need, far_masses, needs
from headscope.studies.streaming.gates import read_gates
from headscope.studies.streaming.kept import RECENT, SINKS, Kept
from headscope.studies.streaming.masked import streaming as streamed
from headscope.studies.streaming.orders import CHANGE, GATE, MASS, RANDOM
from headscope.studies.streaming.result import Streaming
from headscope.studies.streaming.text import LongText, long_text

MAX_LENGTH, MAX_TOKENS = 2_048, 16_384
STEPS = tuple(i / 8 for i in range(9))
DRAWS = 5
TOLERANCE = 0.01
"""Nats per token: a perplexity 1 % higher."""
CURVE = ["order", "draw", "heads", "share", "saved", "loss", "rise", "ci_low", "ci_high"]
_Order = Int[ndarray, " place"]


class Asked(Named, total=False):
    """What may be asked beside the model and its text."""

    sinks: int
    """First keys that a streaming head keeps, the beginning-of-text token's among them."""
    recent: int
    """Last keys that it keeps, the query's own among them."""
    tolerance: float
    """The rise of the loss in nats per token up to which heads are said to stream."""
    max_length: int
    """Tokens of a window, at most the model's context."""
    gates: str | Path | None
    """A file of published gates of key/value heads, beside which the order is held."""


_KINDS = {"sinks": whole(0), "recent": whole(1), "tolerance": number(0), "max_length": whole(8)}
_KINDS |= {"gates": maybe(PATH)}


@takes(model=either(A_RUN, A_MODEL), **kinds_of(Named), **_KINDS)
def streaming(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **asked: Unpack[Asked],
) -> Streaming:
    """Say which key/value heads may keep a few first and last keys only, and what that costs.

    Heads are ranked by how much their output would change, on every second window; on the others
    the loss is taken as more and more of them stream, beside as many random heads. Query heads
    that share keys stream together.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when empty.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files, the random orders and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.
        asked: `sinks` and `recent`, how many first and last keys are kept (4 and 64); `tolerance`,
            the rise of the loss that is none (0.01 nats per token); `max_length` of a window in
            tokens (2,048, or the model's context); `gates`, a file of published gates of
            key/value heads, see `headscope.studies.streaming.gates.read_gates`; `revision`, a
            branch, tag or commit on the hub, for a name; `device`, `cpu`, `cuda`, …, where `auto`,
            the default, takes a GPU when there is one.

    Raises:
        ModelError: the model cannot be loaded, does not run under the fused engine, or keeps
            latents that its heads share instead of keys and values.
        CorpusError: the text cannot be read, or is no longer than what is kept.
        HeadscopeError: the gates cannot be read, or are of another shape.
    """
    kept = Kept(asked.get("sinks", SINKS), asked.get("recent", RECENT))
    longest = asked.get("max_length", MAX_LENGTH)
    named: Named = {"revision": asked.get("revision"), "device": asked.get("device", "auto")}
    loaded, _ = model_or_run(model, longest=longest, **named)
    network = network_of(loaded)
    _check_keys(loaded, network)
    gates = _gates(asked.get("gates"), loaded)
    length = min(longest, loaded.context)
    text = long_text(loaded, corpus, kept, max_length=length, max_tokens=max_tokens, seed=seed)
    judging, done = text.batches(text.judging), 0
    passes = (len(STEPS) - 2) * (2 + DRAWS + (gates is not None)) + 2
    total = sum(map(len, (*text.ranking, *text.whole, *text.whole)))

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, total + passes * token_count(judging))

    far = far_of(network, text.ranking, loaded.key_value_heads, kept, advance)
    masses = far_masses(loaded, text.whole, loaded.key_value_heads, kept.sinks, advance)
    cache = cache_of(loaded, kept, far.seen, length=text.length)
    orders = _orders(far, seed, gates)
    lose = _Losses(loaded, network, judging, kept, advance)
    curve = _curve(lose, orders, cache, seed)
    heads = _heads(loaded, far, orders[CHANGE, 0], needs(masses, seed=seed), masses)
    if gates is not None:
        heads["gate"] = gates
    tolerance = asked.get("tolerance", TOLERANCE)
    return Streaming(loaded.name, heads, curve, kept, cache, tolerance, _notes(text, far, kept))


def _check_keys(model: Model, network: Any) -> None:
    if any(hasattr(module, "kv_b_proj") for module in by_number(network).values()):
        raise ModelError(
            f"{model.name}: its heads share a latent of each token instead of keeping keys and "
            "values, so that no head's past can be dropped by itself"
        )


def _gates(path: str | Path | None, model: Model) -> Float[ndarray, " place"] | None:
    if path is None:
        return None
    return read_gates(path, model.name, len(model.attention_layers), model.key_value_heads)


def _orders(
    far: Far, seed: int, gates: Float[ndarray, " place"] | None
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


class _Losses:
    """The loss with some key/value heads streaming."""

    def __init__(
        self, model: Model, network: Any, text: Sequence[Batch], kept: Kept, advance: Advance
    ) -> None:
        self.layers, self.shared = model.attention_layers, model.key_value_heads
        self.network, self.text, self.kept, self.advance = network, text, kept, advance

    def of(self, heads: _Order) -> TextLoss:
        by_layer: dict[int, list[int]] = {}
        for each in heads.tolist():
            layer, head = divmod(each, self.shared)
            by_layer.setdefault(self.layers[layer], []).append(head)
        with streamed(self.network, by_layer, self.shared, self.kept):
            return text_loss(self.network, self.text, self.advance)


def _curve(
    lose: _Losses, orders: dict[tuple[str, int], _Order], cache: Cache, seed: int
) -> pd.DataFrame:
    rows = []
    every = orders[CHANGE, 0]
    base, all_of_them = lose.of(every[:0]), lose.of(every)
    for (order, draw), heads in orders.items():
        for share in STEPS:
            some = heads[: round(share * heads.size)]
            # all orders begin and end alike
            ends = {0: base, heads.size: all_of_them}
            loss = ends[some.size] if some.size in ends else lose.of(some)
            change = rise(loss, base, seed=seed)
            saved = cache.saved(some)
            rows.append((order, draw, some.size, some.size / heads.size, saved, loss.mean, *change))
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
    place = np.empty(order.size, int)
    place[order] = np.arange(1, order.size + 1)
    own, foreign = masses.mean(1) if masses.shape[1] else np.full((2, *far.mass.shape), np.nan)
    size = model.heads // model.key_value_heads
    return pd.DataFrame(
        {
            "layer": np.asarray(model.attention_layers)[row.ravel()],
            "head": head.ravel(),
            "query_heads": [_range(each * size, size) for each in head.ravel().tolist()],
            "far_mass": far.mass.ravel(),
            "change": far.change.ravel(),
            "place": place,
            "own_far": own.ravel(),
            "foreign_far": foreign.ravel(),
            "far_lift": need.lift.ravel(),
            "ci_low": need.low.ravel(),
            "ci_high": need.high.ravel(),
            "q_value": need.q_value.ravel(),
            "needs_far": need.verdicts,
        }
    )


def _range(first: int, count: int) -> str:
    return str(first) if count == 1 else f"{first}-{first + count - 1}"


def _notes(text: LongText, far: Far, kept: Kept) -> tuple[str, ...]:
    notes = [text.note] if text.note else []
    if len(text.judging) < 4:
        notes.append(f"judged on {len(text.judging)} windows alone: intervals are rough")
    if len(text.whole) < FEWEST:
        notes.append("too few documents are long enough to be read beside another's far text")
    short = int((far.seen <= kept.reach).sum())
    if short:
        notes.append(
            f"{short} layers have windows of their own that are no longer than what is kept"
        )
    return tuple(notes)
