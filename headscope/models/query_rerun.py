"""Single tokens run again, with single cells of one head's attention moved to the sink.

Keys and values are stored from one clean run, and each tested token is run again by itself on them;
see `headscope.models.clean_keys`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.models.clean_keys import CleanKeys, mixes_otherwise, position_option, read_again
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
"""Draws of the head's own cells: all of their attention, or as much as other cells hold."""


class Moves(NamedTuple):
    """Attention that is moved to the sink in one window: a row for each query that is run again.

    With draw `ALL`, the cells of the row's head give all their attention. With a draw above 0,
    other cells of the layer at that query give as much, of any head, except the sink and the keys
    of the row's cells. Cells are drawn without replacement, with probability proportional to their
    attention, and give all of it until enough is moved, or until no cell is left. With draw
    `AS_MUCH`, the row's cells give as much as the other cells can.
    """

    query: Int[ndarray, " item"]
    layer: Int[ndarray, " item"]
    head: Int[ndarray, " item"]
    draw: Int[ndarray, " item"]
    """`ALL`, `AS_MUCH`, or the seed of the other cells."""
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
    changed: Float[ndarray, " item"]
    """The same with the cells moved."""


@dataclass
class _QueriesOnCleanKeys(AttentionChange):
    """The clean run first, then single queries on its keys, as soon as there are moves."""

    attention_layers: tuple[int, ...]
    clean: dict[int, CleanKeys] = field(default_factory=dict)
    moves: Moves | None = None
    moved: Tensor = field(default_factory=lambda: torch.zeros(0))

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.attention_layers)

    def attend(self, call: AttentionCall) -> Output:
        """The layer's output in the clean run, then the outputs of single queries on its keys."""
        if self.moves is not None:
            return self._read(call, self.moves)[:, None].contiguous()
        self.clean[call.layer] = CleanKeys.of(call)
        return call.output()

    def _read(self, call: AttentionCall, moves: Moves) -> Float[Tensor, "item head _"]:
        clean = self.clean[call.layer]
        position = torch.from_numpy(moves.query).to(call.query.device)
        query, key, value = (part[:, :, 0] for part in (call.query, call.key, call.value))
        attention, read = read_again(clean, query, key, value, position)
        items = np.flatnonzero(moves.layer == call.layer)
        if len(items):
            self._move(moves, items, clean, attention, read)
        return read.to(call.value.dtype)

    def _move(
        self, moves: Moves, numbers: ndarray, clean: CleanKeys, attention: Tensor, read: Tensor
    ) -> None:
        """Move cells of the items whose head is in this layer; changes `read` and `moved`."""
        items = torch.from_numpy(numbers).to(attention.device)
        first = None if clean.terms.sink is not None else (attention[items, 0] > 0).int().argmax(-1)
        sinks = [None] * len(items) if first is None else first.tolist()
        per_row = zip(numbers.tolist(), attention[items], sinks, strict=True)
        removed = torch.stack(
            [attention_taken(moves, item, row, sink=sink) for item, row, sink in per_row]
        )
        moved, change = removed.sum(-1), -removed
        if first is not None:  # a learned sink has no value
            change[torch.arange(len(items), device=items.device), :, first] += moved
        groups = attention.shape[1] // clean.value.shape[0]
        by_group = change.view(len(items), -1, groups, change.shape[-1])
        read[items] += torch.einsum("ngcl,glv->ngcv", by_group, clean.value.float()).flatten(1, 2)
        self.moved[items] = moved.sum(-1)


class QueryRerunner:
    """A causal model whose tokens can be run again, each on the keys of the tokens before it.

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
        clean, changed = (
            logarithms.gather(1, following)[:, 0].masked_fill(last, torch.nan)
            for logarithms in (before, after)
        )
        columns = (divergence, queries.moved, clean, changed)
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


def attention_taken(
    moves: Moves, item: int, attention: Float[Tensor, "head position"], sink: int | None
) -> Float[Tensor, "head position"]:
    """Attention that each cell of a query's layer gives."""
    keys = torch.from_numpy(moves.key[moves.item == item]).to(attention.device)
    targeted = torch.zeros_like(attention)
    targeted[int(moves.head[item]), keys] = attention[int(moves.head[item]), keys]
    if sink is not None:
        targeted[:, sink] = 0
    if moves.draw[item] == ALL:
        return targeted
    free = attention.clone()
    free[:, keys] = 0
    if sink is not None:
        free[:, sink] = 0
    if moves.draw[item] == AS_MUCH:
        return targeted * (free.sum() / targeted.sum().clamp_min(TINY)).clamp_max(1)
    cells = free.flatten()
    seed = [int(moves.draw[item]), int(moves.query[item]), int(moves.layer[item])]
    luck = np.random.default_rng([*seed, int(moves.head[item])]).exponential(size=len(cells))
    # the first of several exponential clocks to ring is each one as likely as its rate
    order = (torch.from_numpy(luck).to(cells) / cells).argsort()  # empty cells last: x ÷ 0 is inf
    before = cells[order].cumsum(0) - cells[order]
    removed = torch.zeros_like(cells)
    removed[order] = torch.minimum((targeted.sum() - before).clamp_min(0), cells[order])
    return removed.view_as(attention)
