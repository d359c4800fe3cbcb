"""Single tokens of a prompt or window run again on the keys and values of one clean run.

What a causal model computes at a token depends on earlier tokens through their keys and values
alone. A token that is changed is thus run again alone, and costs a token instead of a window.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.causal.intervention import AttentionChange, RowHeadsSet
from headscope.causal.loss import last_stream, network_of
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.errors import ModelError
from headscope.models.engines.attention import AttentionCall, CleanKeys, Output
from headscope.models.model import Model

AT_ONCE = 256
"""Queries that are run again, and unembedded, at once: 50 MB of logits at 50,000 tokens."""
ITEMS_AT_ONCE, TOKENS_AT_ONCE = 512, 1_024
"""Last tokens that are run again at once, and tokens of prompts that are read at once."""
ROUNDING = 1e-2
"""Nats by which the prediction of an untouched token that is run again may diverge; half precision
rounds so much."""
TINY = 1e-12
ALL, AS_MUCH = 0, -1
"""Draws of the head's own cells: all of their attention, or as much as other cells hold."""


@dataclass
class _EveryLayer(AttentionChange):
    """A change of all layers with attention."""

    attention_layers: tuple[int, ...]

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.attention_layers)


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
class _KeyReader(_EveryLayer):
    """The attention as it is, with keys and values stored for each row."""

    lengths: Sequence[int]
    keys: list[dict[int, CleanKeys]]

    def attend(self, call: AttentionCall) -> Output:
        """The layer's own."""
        for row, length in enumerate(self.lengths):
            self.keys[row][call.layer] = CleanKeys.of(call, row, length)
        return call.output()


@dataclass
class _QueriesOnCleanKeys(_EveryLayer):
    """Single queries of a window on the keys of its clean run, with cells moved."""

    clean: dict[int, CleanKeys]
    moves: Moves
    moved: Tensor
    """Attention that was moved for each query; filled while the layers run."""

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of single queries."""
        clean = self.clean[call.layer]
        position = torch.from_numpy(self.moves.query).to(call.query.device)
        query, key, value = (part[:, :, 0] for part in (call.query, call.key, call.value))
        attention, read = clean.read(query, key, value, position)
        items = np.flatnonzero(self.moves.layer == call.layer)
        if len(items):
            self._move(items, clean, attention, read)
        return read.to(call.value.dtype)[:, None].contiguous()

    def _move(self, numbers: ndarray, clean: CleanKeys, attention: Tensor, read: Tensor) -> None:
        """Move cells of the items whose head is in this layer; changes `read` and `moved`."""
        items = torch.from_numpy(numbers).to(attention.device)
        first = None if clean.terms.sink is not None else (attention[items, 0] > 0).int().argmax(-1)
        sinks = [None] * len(items) if first is None else first.tolist()
        per_row = zip(numbers.tolist(), attention[items], sinks, strict=True)
        removed = torch.stack(
            [attention_taken(self.moves, item, row, sink=sink) for item, row, sink in per_row]
        )
        moved, change = removed.sum(-1), -removed
        if first is not None:  # a learned sink has no value
            change[torch.arange(len(items), device=items.device), :, first] += moved
        groups = attention.shape[1] // clean.value.shape[0]
        by_group = change.view(len(items), -1, groups, change.shape[-1])
        read[items] += torch.einsum("ngcl,glv->ngcv", by_group, clean.value.float()).flatten(1, 2)
        self.moved[items] = moved.sum(-1)


class QueryRerunner:
    """A causal model whose queries can be run again, with cells of a head moved to the sink.

    Raises:
        ModelError: it runs under another engine, is an encoder, or has layers that mix tokens in
            another way than by attention, as hybrids have.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.network: Any = network_of(model)
        difference = self._difference()
        if not difference <= ROUNDING:
            raise ModelError(
                f"{model.name}: a token run alone on the keys of those before it gives another "
                f"result (by {difference:.2g}): this model mixes tokens by more than attention"
            )

    @torch.inference_mode()
    def run(self, tokens: Int[ndarray, " position"], moves: Moves) -> Changed:
        """Run a window, then each of some of its queries with cells of one head moved."""
        ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(self.model.device)
        reader = _KeyReader(self.model.attention_layers, [len(ids)], [{}])
        with reader.applied(self.model):
            stream = last_stream(self.network, ids[None])[0]
        starts = range(0, len(moves.query), AT_ONCE)
        parts = [
            self._again(ids, stream, moves.between(start, start + AT_ONCE), reader.keys[0])
            for start in starts
        ]
        return Changed(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))

    def _again(
        self, ids: Tensor, clean_stream: Tensor, moves: Moves, clean: dict[int, CleanKeys]
    ) -> Changed:
        position = torch.from_numpy(moves.query).to(ids.device)
        moved = torch.zeros(len(position), device=ids.device)
        queries = _QueriesOnCleanKeys(self.model.attention_layers, clean, moves, moved)
        with queries.applied(self.model):
            stream = self.streams(ids[position], position)
        unique, back = np.unique(moves.query, return_inverse=True)
        before = self._logarithms(clean_stream[torch.from_numpy(unique)])[torch.from_numpy(back)]
        after = self._logarithms(stream)
        divergence = (before.exp() * (before - after)).sum(-1).clamp_min(0)
        following = ids[(position + 1).clamp_max(len(ids) - 1)][:, None]
        last = position == len(ids) - 1
        known, changed = (
            logarithms.gather(1, following)[:, 0].masked_fill(last, torch.nan)
            for logarithms in (before, after)
        )
        columns = (divergence, moved, known, changed)
        return Changed(*(column.double().cpu().numpy() for column in columns))

    def streams(
        self, tokens: Int[Tensor, " item"], position: Int[Tensor, " item"]
    ) -> Float[Tensor, "item d_model"]:
        """Stream that is unembedded of single tokens at these positions, each run alone."""
        parameters = inspect.signature(self.network.base_model.forward).parameters
        # a network of which attention alone uses positions takes none
        takes_positions = "position_ids" in parameters
        options = {"position_ids": position[:, None]} if takes_positions else {}
        return last_stream(self.network, tokens[:, None], **options)[:, 0]

    def _logarithms(self, stream: Tensor) -> Tensor:
        logits: Tensor = self.network.get_output_embeddings()(stream)
        return logits.float().log_softmax(-1)

    def _difference(self) -> float:
        """Divergence of the predictions of some tokens, in nats."""
        tokens = np.arange(1, 33) % self.model.vocabulary_size
        query = np.arange(0, 32, 3)
        nothing = np.zeros(0, np.int64)
        layer = np.full(len(query), -1)
        changed = self.run(tokens, Moves(query, layer, layer, layer + 1, nothing, nothing))
        return float(np.nan_to_num(changed.divergence, nan=np.inf).max())


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


@dataclass(frozen=True, eq=False)
class LastToken:
    """Values of one clean run of one prompt, at its last token."""

    tokens: Int[Tensor, " position"]
    streams: Sequence[Float[Tensor, " d_model"]]
    """Input of each block there."""
    z: dict[int, Float[Tensor, "head width"]]
    """Each layer's heads' outputs there, as W_O reads them."""
    state: Float[Tensor, " d_model"]
    """Residual stream that is unembedded there."""
    keys: dict[int, CleanKeys]
    """Empty unless wanted."""


class LastTokenRunner:
    """A causal model whose prompts' last tokens can be run again, with a head's output set.

    What follows a prompt is predicted at its last token. It is run again from the changed layer on;
    all heads of a layer, values and prompts run side by side.

    Raises:
        ModelError: see `QueryRerunner`.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.rerunner = Rerunner(model)
        self.queries = QueryRerunner(model)
        self.network = self.queries.network

    @torch.inference_mode()
    def read(
        self,
        prompts: Sequence[Int[Tensor, " position"]],
        *,
        keys: bool = False,
    ) -> list[LastToken]:
        """The clean runs of some prompts.

        Args:
            prompts: tokens of each, the beginning-of-text token first.
            keys: keep what `states` needs.
        """
        order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
        runs: dict[int, LastToken] = {}
        while order:
            # the shortest prompts first, so that padding is little
            count = next(
                n
                for n in range(len(order), 0, -1)
                if n == 1 or n * len(prompts[order[n - 1]]) <= TOKENS_AT_ONCE
            )
            batch, order = order[:count], order[count:]
            runs |= zip(batch, self._read([prompts[i] for i in batch], keys=keys), strict=True)
        return [runs[i] for i in range(len(prompts))]

    def _read(self, prompts: Sequence[Int[Tensor, " position"]], *, keys: bool) -> list[LastToken]:
        tokens = nn.utils.rnn.pad_sequence([*prompts], batch_first=True).to(self.model.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        rows, last = torch.arange(len(prompts)), lengths - 1
        reader = _KeyReader(self.model.attention_layers, lengths.tolist(), [{} for _ in prompts])
        # the place after a prompt is predicted at its last token, whatever its label
        places = TokenRows(tokens, lengths, rows, lengths, labels=tokens[:, 0])
        with reader.applied(self.model) if keys else nullcontext():
            run = self.rerunner.clean(places)
        streams = [stream[rows, last] for stream in run.inputs]
        z = {layer: outputs[rows, last] for layer, outputs in run.z.items()}
        return [
            LastToken(
                tokens[i, : len(prompts[i])],
                [stream[i] for stream in streams],
                {layer: outputs[i] for layer, outputs in z.items()},
                run.states[i],
                reader.keys[i],
            )
            for i in range(len(prompts))
        ]

    @torch.inference_mode()
    def states(
        self,
        prompts: Sequence[LastToken],
        layer: int,
        *,
        prompt: Int[Tensor, " item"],
        head: Int[Tensor, " item"],
        value: Float[Tensor, "item width"],
    ) -> Float[Tensor, "item d_model"]:
        """Last residual stream at the last token, with one head's output set for each item.

        Args:
            prompts: their clean runs, with keys.
            layer: the number of the layer of all the heads.
            prompt: the prompt of each item, in order: those of one prompt follow each other.
            head: the head of each item.
            value: its output.
        """
        parts = []
        for start in range(0, len(head), ITEMS_AT_ONCE):
            part = slice(start, start + ITEMS_AT_ONCE)
            parts.append(self._states(prompts, layer, prompt[part], head[part], value[part]))
        return torch.cat(parts)

    def _states(
        self, prompts: Sequence[LastToken], layer: int, prompt: Tensor, head: Tensor, value: Tensor
    ) -> Float[Tensor, "item d_model"]:
        device = self.model.device
        tokens = torch.stack([run.tokens[-1] for run in prompts])[prompt].to(device)
        positions = torch.tensor([len(run.tokens) - 1 for run in prompts], device=device)[prompt]
        stream = torch.stack([run.streams[layer] for run in prompts])[prompt][:, None]
        counts = torch.bincount(prompt, minlength=len(prompts)).tolist()
        again = _LastOnCleanKeys(self.model.attention_layers, prompts, counts)
        change = RowHeadsSet(layer, head.to(device), value[:, None].to(device))
        with (
            self.rerunner.handing_on(layer, stream),
            again.applied(self.model),
            change.applied(self.model),
        ):
            return self.queries.streams(tokens, positions)


@dataclass
class _LastOnCleanKeys(_EveryLayer):
    """Last tokens that attend on the keys of their prompts' clean runs."""

    prompts: Sequence[LastToken]
    counts: Sequence[int]
    """Items of each prompt."""

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of each item's heads."""
        vectors = (call.query, call.key, call.value)
        items = (torch.split(part[:, :, 0], [*self.counts]) for part in vectors)
        parts = []
        for run, query, key, value in zip(self.prompts, *items, strict=True):
            if len(query):
                position = torch.full((len(query),), len(run.tokens) - 1, device=query.device)
                parts.append(run.keys[call.layer].read(query, key, value, position)[1])
        return torch.cat(parts)[:, None].to(call.value.dtype).contiguous()
