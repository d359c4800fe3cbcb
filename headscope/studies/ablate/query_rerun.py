"""Single tokens run again, with single cells of one head's attention moved to the sink.

What a causal model predicts at a token depends on earlier tokens through their keys and values
alone. These are stored from one clean run, and each token that is tested is run again by itself on
them: what is changed at one query touches no other, and costs a token instead of a window.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.errors import ModelError
from headscope.models.clean_keys import CleanKeys, mixes_otherwise, position_option, read_again
from headscope.models.engines.log_attention import Heads, Keys, Seen
from headscope.models.engines.override import AttentionCall, Output
from headscope.models.intervention import AttentionChange
from headscope.models.load import Model
from headscope.models.loss import last_stream, network_of

AT_ONCE = 256
"""Queries that are run again, and unembedded, at once: 50 MB of logits at 50,000 tokens."""
ROUNDING = 1e-2
"""Nats by which an untouched query that is run again may differ; half precision rounds so much."""
TINY = 1e-12
ALL, AS_MUCH = 0, -1
"""Draws that are none: the cells themselves, and as much of them as others could give."""


class Moves(NamedTuple):
    """Attention that is moved to the sink in one window: a row for each query that is run again.

    A row of draw `ALL` silences the cells of its head. A row of a draw above it takes as much
    attention from other cells of the layer at that query, whichever head's, but for the sink and
    the keys of the row's own cells: cells are drawn one after the other, each as likely as it holds
    attention, and give all they hold until enough is moved. Where all of them together hold less,
    all of it is moved; a row of draw `AS_MUCH` is its match, whose own cells give as much as that
    and not more. No cell ever gives more than it holds.
    """

    query: Int[ndarray, " item"]
    layer: Int[ndarray, " item"]
    head: Int[ndarray, " item"]
    draw: Int[ndarray, " item"]
    """`ALL` or `AS_MUCH` of the own cells; above, the seed of what is drawn in their place."""
    item: Int[ndarray, " cell"]
    """The row of each cell."""
    key: Int[ndarray, " cell"]

    def between(self, start: int, stop: int) -> Moves:
        """Some of the rows, with their cells."""
        part = slice(start, stop)
        inside = (self.item >= start) & (self.item < stop)
        rows = (self.query[part], self.layer[part], self.head[part], self.draw[part])
        return Moves(*rows, self.item[inside] - start, self.key[inside])


class Changed(NamedTuple):
    """Changes of the predictions, for each row of `Moves`."""

    divergence: Float[ndarray, " item"]
    """KL of the next token's distribution from the clean one, in nats."""
    moved: Float[ndarray, " item"]
    """Attention that was moved."""
    clean: Float[ndarray, " item"]
    """Log-probability of the token that follows in the untouched model; NaN after the last one."""
    silenced: Float[ndarray, " item"]
    """The same with the cells moved."""


@dataclass
class _QueriesOnCleanKeys(AttentionChange):
    """The clean run first, then single queries on its keys, as soon as there are moves."""

    attention_layers: tuple[int, ...]
    clean: dict[int, CleanKeys] = field(default_factory=dict)
    moves: Moves | None = None
    moved: Tensor | None = None

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.attention_layers)

    def attend(self, call: AttentionCall) -> Output:
        """As ever in the clean run, then of single queries on its keys."""
        if self.moves is not None:
            read = _single(self, call.layer, call.query, call.key, call.value)
            return read[:, None].contiguous()
        clean = CleanKeys.of(call)
        self.clean[call.layer] = clean
        return call.output()


class QueryRerunner:
    """A causal model whose tokens can each be run again on the keys of those before.

    Raises:
        ModelError: it runs under another engine, is an encoder, or has layers that mix tokens in
            another way than by attention, as hybrids have.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.network: Any = network_of(model)
        self._check(model)

    @torch.inference_mode()
    def run(self, tokens: Int[ndarray, " position"], moves: Moves) -> Changed:
        """Run a window, then each of some of its queries with cells of one head moved."""
        ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(self.model.device)
        parts = []
        queries = _QueriesOnCleanKeys(self.model.attention_layers)
        with queries.applied(self.model):
            stream = last_stream(self.network, ids[None])[0]
            for start in range(0, len(moves.query), AT_ONCE):
                part = moves.between(start, start + AT_ONCE)
                parts.append(self._again(ids, stream, part, queries))
        return Changed(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _again(
        self, ids: Tensor, clean_stream: Tensor, moves: Moves, queries: _QueriesOnCleanKeys
    ) -> Changed:
        position = torch.from_numpy(moves.query).to(ids.device)
        queries.moves, queries.moved = moves, torch.zeros(len(position), device=ids.device)
        options = position_option(self.network, position)
        stream = last_stream(self.network, ids[position][:, None], **options)[:, 0]
        unique, back = np.unique(moves.query, return_inverse=True)
        before = self._logarithms(clean_stream[torch.from_numpy(unique)])[torch.from_numpy(back)]
        after = self._logarithms(stream)
        divergence = (before.exp() * (before - after)).sum(-1).clamp_min(0)
        following = ids[(position + 1).clamp_max(len(ids) - 1)][:, None]
        last = position == len(ids) - 1
        clean, silenced = (
            logarithms.gather(1, following)[:, 0].masked_fill(last, torch.nan)
            for logarithms in (before, after)
        )
        columns = (divergence, queries.moved, clean, silenced)
        return Changed(*(column.double().cpu().numpy() for column in columns))

    def _logarithms(self, stream: Tensor) -> Tensor:
        logits: Tensor = self.network.get_output_embeddings()(stream)
        return logits.float().log_softmax(-1)

    def _check(self, model: Model) -> None:
        tokens = np.arange(1, 33) % model.vocabulary_size
        query = np.arange(0, 32, 3)
        nothing = np.zeros(0, np.int64)
        layer = np.full(len(query), -1)
        changed = self.run(tokens, Moves(query, layer, layer, layer + 1, nothing, nothing))
        worst = float(np.nan_to_num(changed.divergence, nan=np.inf).max())
        if worst > ROUNDING:
            raise mixes_otherwise(model.name, f"predicts something else (by {worst:.2g} nats)")


def _single(
    queries: _QueriesOnCleanKeys, layer: int, query: Heads, key: Keys, value: Seen
) -> Float[Tensor, "item head _"]:
    """Values that each query's heads read from the clean run's keys before it, and from its own."""
    clean, moves = queries.clean[layer], queries.moves
    if moves is None:
        raise ModelError("no queries to run")
    position = torch.from_numpy(moves.query).to(query.device)
    attention, read = read_again(clean, query[:, :, 0], key[:, :, 0], value[:, :, 0], position)
    touched = np.flatnonzero(moves.layer == layer)
    if len(touched):
        _move(queries, clean, attention, read, touched)
    return read.to(value.dtype)


def _move(
    queries: _QueriesOnCleanKeys,
    clean: CleanKeys,
    attention: Tensor,
    read: Tensor,
    touched: ndarray,
) -> None:
    """Move cells of the queries whose head lies in this layer; `read` is changed in place."""
    moves, device = queries.moves, attention.device
    if moves is None or queries.moved is None:
        return
    items = torch.from_numpy(touched).to(device)
    first = None if clean.terms.sink is not None else (attention[items, 0] > 0).int().argmax(-1)
    sinks = [None] * len(touched) if first is None else first.tolist()
    per_row = zip(touched.tolist(), attention[items], sinks, strict=True)
    removed = torch.stack(
        [attention_taken(moves, item, row, sink=sink) for item, row, sink in per_row]
    )
    moved, change = removed.sum(-1), -removed
    if first is not None:  # a learned sink takes attention and writes nothing
        change[torch.arange(len(items), device=device), :, first] += moved
    groups = attention.shape[1] // clean.value.shape[0]
    by_group = change.view(len(items), -1, groups, change.shape[-1])
    read[items] += torch.einsum("ngcl,glv->ngcv", by_group, clean.value.float()).flatten(1, 2)
    queries.moved[items] = moved.sum(-1)


def attention_taken(
    moves: Moves, item: int, attention: Float[Tensor, "head position"], sink: int | None
) -> Float[Tensor, "head position"]:
    """Attention taken from each cell of a query's layer: those silenced, or others instead."""
    keys = torch.from_numpy(moves.key[moves.item == item]).to(attention.device)
    silenced = torch.zeros_like(attention)
    silenced[int(moves.head[item]), keys] = attention[int(moves.head[item]), keys]
    if sink is not None:
        silenced[:, sink] = 0
    if moves.draw[item] == ALL:
        return silenced
    free = attention.clone()
    free[:, keys] = 0
    if sink is not None:
        free[:, sink] = 0
    if moves.draw[item] == AS_MUCH:
        return silenced * (free.sum() / silenced.sum().clamp_min(TINY)).clamp_max(1)
    cells = free.flatten()
    seed = [int(moves.draw[item]), int(moves.query[item]), int(moves.layer[item])]
    luck = np.random.default_rng([*seed, int(moves.head[item])]).exponential(size=len(cells))
    # the first of several exponential clocks to ring is each one as likely as its rate
    order = (torch.from_numpy(luck).to(cells) / cells).argsort()  # empty cells last: x ÷ 0 is inf
    before = cells[order].cumsum(0) - cells[order]
    removed = torch.zeros_like(cells)
    removed[order] = torch.minimum((silenced.sum() - before).clamp_min(0), cells[order])
    return removed.view_as(attention)
