"""One token at a time run again, with single cells of one head's attention moved.

What a causal model predicts at a token depends on earlier tokens through their keys and values
alone. These are kept from one clean run, and each token that is asked about is run again by itself
on them: what is changed at one query touches no other, and costs a token instead of a window.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.errors import ModelError
from headscope.measure.text_loss import network_of
from headscope.models.engines.instead import Asked, Output, attending
from headscope.models.engines.rows import Beside, Heads, Keys, Seen
from headscope.models.load import Model

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
        own = slice(start, stop)
        inside = (self.item >= start) & (self.item < stop)
        rows = (self.query[own], self.layer[own], self.head[own], self.draw[own])
        return Moves(*rows, self.item[inside] - start, self.key[inside])


class Changed(NamedTuple):
    """What came of it, for each row of `Moves`."""

    divergence: Float[ndarray, " item"]
    """KL of the next token's distribution from the clean one, in nats."""
    moved: Float[ndarray, " item"]
    """Attention that was moved."""
    clean: Float[ndarray, " item"]
    """Log-probability of the token that follows in the untouched model; NaN after the last one."""
    silenced: Float[ndarray, " item"]
    """The same with the cells moved."""


class _Kept(NamedTuple):
    """What a layer's attention had in the clean run."""

    key: Float[Tensor, "group position width"]
    value: Float[Tensor, "group position _"]
    scale: float
    beside: Beside


@dataclass
class _State:
    """What the function of attention does: keep what comes, or run queries on what was kept."""

    kept: dict[int, _Kept] = field(default_factory=dict)
    moves: Moves | None = None
    moved: Tensor | None = None


class AtQueries:
    """A causal model whose tokens can each be run again on the keys of those before.

    Raises:
        ModelError: it runs under another engine, is an encoder, or has layers that mix tokens in
            another way than by attention, as hybrids have.
    """

    def __init__(self, model: Model) -> None:
        self.network: Any = network_of(model)
        self.device = model.device
        takes = inspect.signature(self.network.base_model.forward).parameters
        self._takes_positions = "position_ids" in takes
        self._check(model)

    @torch.inference_mode()
    def run(self, tokens: Int[ndarray, " position"], moves: Moves) -> Changed:
        """Run a window, then each of some of its queries with cells of one head moved."""
        ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(self.device)
        parts = []
        state = _State()
        with attending(self.network, partial(_attention, state)):
            hidden = self._stream(ids[None], None)[0]
            for start in range(0, len(moves.query), AT_ONCE):
                own = moves.between(start, start + AT_ONCE)
                parts.append(self._again(ids, hidden, own, state))
        return Changed(*(np.concatenate(each) for each in zip(*parts, strict=True)))

    def _again(self, ids: Tensor, hidden: Tensor, moves: Moves, state: _State) -> Changed:
        place = torch.from_numpy(moves.query).to(ids.device)
        state.moves, state.moved = moves, torch.zeros(len(place), device=ids.device)
        stream = self._stream(ids[place][:, None], place[:, None])[:, 0]
        unique, back = np.unique(moves.query, return_inverse=True)
        before = self._logp(hidden[torch.from_numpy(unique)])[torch.from_numpy(back)]
        after = self._logp(stream)
        divergence = (before.exp() * (before - after)).sum(-1).clamp_min(0)
        following = ids[(place + 1).clamp_max(len(ids) - 1)][:, None]
        last = place == len(ids) - 1
        clean, silenced = (
            each.gather(1, following)[:, 0].masked_fill(last, torch.nan) for each in (before, after)
        )
        found = (divergence, state.moved, clean, silenced)
        return Changed(*(each.double().cpu().numpy() for each in found))

    def _stream(self, ids: Tensor, place: Tensor | None) -> Tensor:
        more = {"position_ids": place} if self._takes_positions and place is not None else {}
        found: Tensor = self.network.base_model(ids, use_cache=False, **more).last_hidden_state
        return found

    def _logp(self, stream: Tensor) -> Tensor:
        logits: Tensor = self.network.get_output_embeddings()(stream)
        return logits.float().log_softmax(-1)

    def _check(self, model: Model) -> None:
        tokens = np.arange(1, 33) % model.vocabulary_size
        query = np.arange(0, 32, 3)
        nothing = np.zeros(0, np.int64)
        layer = np.full(len(query), -1)
        found = self.run(tokens, Moves(query, layer, layer, layer + 1, nothing, nothing))
        worst = float(np.nan_to_num(found.divergence, nan=np.inf).max())
        if worst > ROUNDING:
            raise ModelError(
                f"{model.name}: a token run by itself on the keys of those before it predicts "
                f"something else (by {worst:.2g} nats): this model mixes tokens by more than "
                "attention"
            )


def _attention(state: _State, asked: Asked) -> Output:
    """As ever in the clean run, then of single queries on its keys."""
    if state.moves is not None:
        read = _single(state, asked.layer, asked.query, asked.key, asked.value)
        return read[:, None].contiguous()
    kept = _Kept(asked.key[0], asked.value[0], asked.scale, asked.beside)
    state.kept[asked.layer] = kept
    return asked.as_ever()


def _single(
    state: _State, layer: int, query: Heads, key: Keys, value: Seen
) -> Float[Tensor, "item head _"]:
    """What each query's heads read from the clean run's keys before it, and from its own."""
    kept, moves = state.kept[layer], state.moves
    if moves is None:
        raise ModelError("no queries to run")
    place = torch.from_numpy(moves.query).to(query.device)
    rows = torch.arange(len(place), device=query.device)
    attention = _rows(kept, query[:, :, 0].float(), key[:, :, 0].float(), place)
    groups = attention.shape[1] // kept.value.shape[0]
    values = kept.value.float()
    by_group = attention.view(len(place), -1, groups, attention.shape[-1])
    read = torch.einsum("ngcl,glv->ngcv", by_group, values)
    # a query's own key and value are those of its changed stream
    own = value[:, :, 0].float() - values[:, place].transpose(0, 1)
    read += by_group[rows, :, :, place][..., None] * own[:, :, None]
    read = read.flatten(1, 2)
    touched = np.flatnonzero(moves.layer == layer)
    if len(touched):
        _move(state, kept, attention, read, touched)
    return read.to(value.dtype)


def _rows(
    kept: _Kept, query: Tensor, own_key: Tensor, place: Tensor
) -> Float[Tensor, "item head position"]:
    """Attention of each query over the clean run's keys, its own in the place of that one's."""
    beside, groups = kept.beside, query.shape[1] // kept.key.shape[0]
    query = query * kept.scale
    by_group = query.reshape(len(place), -1, groups, query.shape[-1])
    scores = torch.einsum("ngcd,gld->ngcl", by_group, kept.key.float()).flatten(1, 2)
    rows = torch.arange(len(place), device=place.device)
    own = (by_group * own_key[:, :, None]).sum(-1).flatten(1)
    scores[rows, :, place] = own
    if beside.cap is not None:
        scores = torch.tanh(scores / beside.cap) * beside.cap
    if beside.bias is None:
        later = torch.arange(scores.shape[-1], device=place.device) > place[:, None]
        scores = scores.masked_fill(later[:, None], -torch.inf)
    else:
        scores = scores + beside.bias[0][:, place].transpose(0, 1).to(scores.dtype)
    normaliser = scores.logsumexp(-1)
    if beside.sink is not None:
        normaliser = torch.logaddexp(normaliser, beside.sink.to(normaliser))
    return (scores - normaliser[..., None]).exp()


def _move(state: _State, kept: _Kept, attention: Tensor, read: Tensor, touched: ndarray) -> None:
    """Move cells of the queries whose head lies in this layer; `read` is changed in place."""
    moves, device = state.moves, attention.device
    if moves is None or state.moved is None:
        return
    items = torch.from_numpy(touched).to(device)
    first = None if kept.beside.sink is not None else (attention[items, 0] > 0).int().argmax(-1)
    sinks = [None] * len(touched) if first is None else first.tolist()
    rows = zip(touched.tolist(), attention[items], sinks, strict=True)
    taken = torch.stack([cells_given(moves, item, own, sink=sink) for item, own, sink in rows])
    moved, given = taken.sum(-1), -taken
    if first is not None:  # a learned sink takes attention and writes nothing
        given[torch.arange(len(items), device=device), :, first] += moved
    groups = attention.shape[1] // kept.value.shape[0]
    by_group = given.view(len(items), -1, groups, given.shape[-1])
    read[items] += torch.einsum("ngcl,glv->ngcv", by_group, kept.value.float()).flatten(1, 2)
    state.moved[items] = moved.sum(-1)


def cells_given(
    moves: Moves, item: int, attention: Float[Tensor, "head position"], sink: int | None
) -> Float[Tensor, "head position"]:
    """What each cell of a query's layer gives: those silenced, or others in their place."""
    keys = torch.from_numpy(moves.key[moves.item == item]).to(attention.device)
    own = torch.zeros_like(attention)
    own[int(moves.head[item]), keys] = attention[int(moves.head[item]), keys]
    if sink is not None:
        own[:, sink] = 0
    if moves.draw[item] == ALL:
        return own
    free = attention.clone()
    free[:, keys] = 0
    if sink is not None:
        free[:, sink] = 0
    if moves.draw[item] == AS_MUCH:
        return own * (free.sum() / own.sum().clamp_min(TINY)).clamp_max(1)
    cells = free.flatten()
    seed = [int(moves.draw[item]), int(moves.query[item]), int(moves.layer[item])]
    luck = np.random.default_rng([*seed, int(moves.head[item])]).exponential(size=len(cells))
    # the first of several exponential clocks to ring is each one as likely as its rate
    order = (torch.from_numpy(luck).to(cells) / cells).argsort()  # empty cells last: x ÷ 0 is inf
    before = cells[order].cumsum(0) - cells[order]
    taken = torch.zeros_like(cells)
    taken[order] = torch.minimum((own.sum() - before).clamp_min(0), cells[order])
    return taken.view_as(attention)
