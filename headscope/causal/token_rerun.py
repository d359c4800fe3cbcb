"""Single tokens of a prompt or window run again on the keys and values of one clean run.

What a causal model computes at a token depends on earlier tokens through their keys and values
alone. A token that is changed is thus run again alone, and costs a token instead of a window.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor, nn

from headscope.causal.intervention import AttentionChange, Intervention, RowHeadsSet
from headscope.causal.loss import last_stream, logits_of, network_of
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
        return Moves(
            query=self.query[part],
            layer=self.layer[part],
            head=self.head[part],
            draw=self.draw[part],
            item=self.item[inside] - start,
            key=self.key[inside],
        )


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

    def between(self, start: int, stop: int) -> Changed:
        """Some of the rows."""
        part = slice(start, stop)
        return Changed(
            divergence=self.divergence[part],
            moved=self.moved[part],
            clean=self.clean[part],
            changed=self.changed[part],
        )


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
        attention, read = clean.read(
            call.query[:, :, 0],
            call.key[:, :, 0],
            call.value[:, :, 0],
            position,
        )
        items = np.flatnonzero(self.moves.layer == call.layer)
        if len(items):
            self._move(items, clean, attention, read)
        return read.to(call.value.dtype)[:, None].contiguous()

    def _move(self, numbers: ndarray, clean: CleanKeys, attention: Tensor, read: Tensor) -> None:
        """Move cells of the items whose head is in this layer; changes `read` and `moved`."""
        items = torch.from_numpy(numbers).to(attention.device)
        rows = attention[items]
        first = None
        sinks: list[int | None] = [None] * len(items)
        if clean.terms.sink is None:
            # the first token that a query sees takes what is moved
            first = (rows[:, 0] > 0).int().argmax(-1)
            sinks = list(first.tolist())
        removed_of_rows = []
        for item, row, sink in zip(numbers.tolist(), rows, sinks, strict=True):
            removed_of_rows.append(attention_taken(self.moves, item, row, sink=sink))
        removed = torch.stack(removed_of_rows)
        moved = removed.sum(-1)
        change = -removed
        if first is not None:  # a learned sink has no value
            number = torch.arange(len(items), device=items.device)
            change[number, :, first] += moved
        # the heads of a group share its values
        count, heads, positions = change.shape
        groups = clean.value.shape[0]
        by_group = change.view(count, groups, heads // groups, positions)
        outputs = torch.einsum("ngcl,glv->ngcv", by_group, clean.value.float())
        read[items] += outputs.flatten(1, 2)
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
        # clean keys and values of the window, on which each query runs again
        ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(self.model.device)
        reader = _KeyReader(self.model.attention_layers, [len(ids)], [{}])
        with reader.applied(self.model):
            stream = last_stream(self.network, ids[None])[0]
        (keys,) = reader.keys
        parts = []
        for start in range(0, len(moves.query), AT_ONCE):
            part = moves.between(start, start + AT_ONCE)
            parts.append(self._again(ids, stream, part, keys))
        return Changed(
            divergence=np.concatenate([part.divergence for part in parts]),
            moved=np.concatenate([part.moved for part in parts]),
            clean=np.concatenate([part.clean for part in parts]),
            changed=np.concatenate([part.changed for part in parts]),
        )

    def _again(
        self, ids: Tensor, clean_stream: Tensor, moves: Moves, clean: dict[int, CleanKeys]
    ) -> Changed:
        position = torch.from_numpy(moves.query).to(ids.device)
        moved = torch.zeros(len(position), device=ids.device)
        queries = _QueriesOnCleanKeys(self.model.attention_layers, clean, moves, moved)
        with queries.applied(self.model):
            stream = self.streams(ids[position], position)
        # a query that is run again several times is unembedded once
        unique, back = np.unique(moves.query, return_inverse=True)
        clean_logarithms = self._logarithms(clean_stream[torch.from_numpy(unique)])
        before = clean_logarithms[torch.from_numpy(back)]
        after = self._logarithms(stream)
        divergence = (before.exp() * (before - after)).sum(-1)
        # the window's last query predicts no token of it
        last = len(ids) - 1
        following = ids[(position + 1).clamp_max(last)]

        def of_following(logarithms: Tensor) -> ndarray:
            values = logarithms.gather(1, following[:, None])[:, 0]
            return _doubles(values.masked_fill(position == last, torch.nan))

        return Changed(
            divergence=_doubles(divergence.clamp_min(0)),
            moved=_doubles(moved),
            clean=of_following(before),
            changed=of_following(after),
        )

    @torch.inference_mode()
    def log_probabilities(
        self,
        tokens: Int[ndarray, " position"],
        query: Int[ndarray, " query"],
        keys: dict[int, CleanKeys],
        change: Intervention,
    ) -> Float[Tensor, "query vocabulary"]:
        """What follows some queries, run again on the keys of a clean run with a change."""
        ids = torch.from_numpy(tokens[query]).to(self.model.device)
        position = torch.from_numpy(query).to(ids.device)
        none = np.zeros(0, np.int64)
        nowhere = np.full(len(query), -1)
        moves = Moves(query, nowhere, nowhere, np.full(len(query), ALL), none, none)
        moved = torch.zeros(len(query), device=ids.device)
        on_keys = _QueriesOnCleanKeys(self.model.attention_layers, keys, moves, moved)
        with on_keys.applied(self.model), change.applied(self.model):
            return self._logarithms(self.streams(ids, position))

    def streams(
        self, tokens: Int[Tensor, " item"], position: Int[Tensor, " item"]
    ) -> Float[Tensor, "item d_model"]:
        """Stream that is unembedded of single tokens at these positions, each run alone."""
        parameters = inspect.signature(self.network.base_model.forward).parameters
        options = {}
        # a network of which attention alone uses positions takes none
        if "position_ids" in parameters:
            options["position_ids"] = position[:, None]
        streams = last_stream(self.network, tokens[:, None], **options)
        return streams[:, 0]

    def _logarithms(self, stream: Tensor) -> Tensor:
        return logits_of(self.network, stream).float().log_softmax(-1)

    def _difference(self) -> float:
        """Divergence of the predictions of some tokens, in nats."""
        # reruns that move nothing must predict what the window's own run does
        tokens = np.arange(1, 33) % self.model.vocabulary_size
        query = np.arange(0, 32, 3)
        no_cells = np.zeros(0, np.int64)
        no_layer = np.full(len(query), -1)
        moves = Moves(
            query=query,
            layer=no_layer,
            head=no_layer,
            draw=np.full(len(query), ALL),
            item=no_cells,
            key=no_cells,
        )
        divergence = self.run(tokens, moves).divergence
        return float(np.nan_to_num(divergence, nan=np.inf).max())


def attention_taken(
    moves: Moves, item: int, attention: Float[Tensor, "head position"], sink: int | None
) -> Float[Tensor, "head position"]:
    """Attention that each cell of a query's layer gives."""
    # attention on the targeted cells; what a sink takes stays
    head = int(moves.head[item])
    draw = int(moves.draw[item])
    keys = torch.from_numpy(moves.key[moves.item == item]).to(attention.device)
    targeted = torch.zeros_like(attention)
    targeted[head, keys] = attention[head, keys]
    if sink is not None:
        targeted[:, sink] = 0
    if draw == ALL:
        return targeted
    # controls move attention of the other cells of the layer
    others = attention.clone()
    others[:, keys] = 0
    if sink is not None:
        others[:, sink] = 0
    if draw == AS_MUCH:
        share = others.sum() / targeted.sum().clamp_min(TINY)
        return targeted * share.clamp_max(1)
    rng = np.random.default_rng([draw, int(moves.query[item]), int(moves.layer[item]), head])
    # as much attention is taken from drawn cells
    cells = others.flatten()
    clocks = torch.from_numpy(rng.exponential(size=len(cells))).to(cells)
    # the first of several exponential clocks to ring is each one as likely as its rate
    order = (clocks / cells).argsort()  # empty cells last: x ÷ 0 is inf
    in_order = cells[order]
    before = in_order.cumsum(0) - in_order
    missing = (targeted.sum() - before).clamp_min(0)
    removed = torch.zeros_like(cells)
    removed[order] = torch.minimum(missing, in_order)
    return removed.view_as(others)


def _doubles(values: Tensor) -> ndarray:
    return values.double().cpu().numpy()


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
        runs: dict[int, LastToken] = {}
        for batch in _prompt_batches([len(prompt) for prompt in prompts]):
            runs_of_batch = self._read([prompts[number] for number in batch], keys=keys)
            runs.update(zip(batch, runs_of_batch, strict=True))
        return [runs[number] for number in range(len(prompts))]

    def _read(self, prompts: Sequence[Int[Tensor, " position"]], *, keys: bool) -> list[LastToken]:
        tokens = nn.utils.rnn.pad_sequence([*prompts], batch_first=True).to(self.model.device)
        lengths = torch.tensor([len(prompt) for prompt in prompts])
        rows = torch.arange(len(prompts))
        last = lengths - 1
        reader = _KeyReader(self.model.attention_layers, lengths.tolist(), [{} for _ in prompts])
        # the place after a prompt is predicted at its last token, whatever its label
        places = TokenRows(tokens, lengths, rows, lengths, labels=tokens[:, 0])
        with reader.applied(self.model) if keys else nullcontext():
            run = self.rerunner.clean(places)
        # of each prompt, what its last token has
        streams = [stream[rows, last] for stream in run.inputs]
        z = {layer: outputs[rows, last] for layer, outputs in run.z.items()}
        runs = []
        for i, prompt in enumerate(prompts):
            runs.append(
                LastToken(
                    tokens=tokens[i, : len(prompt)],
                    streams=[stream[i] for stream in streams],
                    z={layer: outputs[i] for layer, outputs in z.items()},
                    state=run.states[i],
                    keys=reader.keys[i],
                )
            )
        return runs

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
        # each item goes on at its prompt's last token, from the stream before the layer
        device = self.model.device
        token = torch.stack([run.tokens[-1] for run in prompts])
        last = [len(run.tokens) - 1 for run in prompts]
        position = torch.tensor(last, device=device)
        stream = torch.stack([run.streams[layer] for run in prompts])
        input_of_layer = stream[prompt][:, None]
        # the items of a prompt share its clean keys
        counts = torch.bincount(prompt, minlength=len(prompts))
        on_clean_keys = _LastOnCleanKeys(self.model.attention_layers, prompts, counts.tolist())
        change = RowHeadsSet(layer, head.to(device), value[:, None].to(device))
        with (
            self.rerunner.handing_on(layer, input_of_layer),
            on_clean_keys.applied(self.model),
            change.applied(self.model),
        ):
            tokens = token[prompt].to(device)
            return self.queries.streams(tokens, position[prompt])


def _prompt_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Numbers of prompts that run together: the shortest first, so that padding is little."""
    batch: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda i: lengths[i]):
        padded = (len(batch) + 1) * lengths[number]
        if batch and padded > TOKENS_AT_ONCE:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


@dataclass
class _LastOnCleanKeys(_EveryLayer):
    """Last tokens that attend on the keys of their prompts' clean runs."""

    prompts: Sequence[LastToken]
    counts: Sequence[int]
    """Items of each prompt."""

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of each item's heads."""
        # the items of a prompt stand side by side
        stop = 0
        parts = []
        for run, count in zip(self.prompts, self.counts, strict=True):
            start, stop = stop, stop + count
            if start == stop:
                continue
            items = slice(start, stop)
            last = len(run.tokens) - 1
            _, outputs = run.keys[call.layer].read(
                call.query[items, :, 0],
                call.key[items, :, 0],
                call.value[items, :, 0],
                position=torch.full((count,), last, device=call.query.device),
            )
            parts.append(outputs)
        z = torch.cat(parts)[:, None]
        return z.to(call.value.dtype).contiguous()
