"""Attention of single queries moved to the sink, and the change of the next token's distribution.

Each query runs again alone on the keys and values of one clean run, and costs a token instead of a
window.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.intervention import AttentionChange
from headscope.causal.kept_keys import TokensOnKeys
from headscope.causal.loss import at_labels, divergence, log_probabilities
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.models.engines.attention import AttentionCall, Output

AT_ONCE = 256
"""Queries that are run again, and unembedded, at once: 50 MB of logits at 50,000 tokens."""
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


@torch.inference_mode()
def move_attention(rerunner: Rerunner, tokens: Int[ndarray, " position"], moves: Moves) -> Changed:
    """Run a window, then some of its queries alone, each with cells of one head moved to the sink.

    Args:
        rerunner: a model that `Rerunner.check_tokens_alone` accepts.
        tokens: of the window.
        moves: a row for each query that runs again.
    """
    # one clean run of the window, on whose keys and values each query runs again
    ids = torch.from_numpy(np.asarray(tokens, np.int64)).to(rerunner.model.device)
    queries, numbers = np.unique(moves.query, return_inverse=True)
    places = torch.from_numpy(queries).to(ids.device) + 1
    rows = TokenRows(ids[None], torch.tensor([len(ids)]), torch.zeros_like(places), places)
    clean = rerunner.at_places(rows)

    parts = []
    for start in range(0, len(numbers), AT_ONCE):
        part = moves.between(start, start + AT_ONCE)
        number = numbers[start : start + AT_ONCE]
        # a query stands in several rows, each with its own cells moved
        run = clean.at_rows(torch.from_numpy(number))
        assert isinstance(run.earlier, TokensOnKeys)
        moved = torch.zeros(len(number), device=ids.device)
        change = _Moved(run.earlier, part, moved)
        after = log_probabilities(rerunner.network, rerunner.states(run, change))
        # a query that is run again several times is unembedded once
        unique, back = np.unique(number, return_inverse=True)
        of_unique = log_probabilities(rerunner.network, clean.states[torch.from_numpy(unique)])
        before = of_unique[torch.from_numpy(back)]

        # the token that follows; the window's last query predicts none of it
        last = len(ids) - 1
        position = torch.from_numpy(part.query).to(ids.device)
        following = ids[(position + 1).clamp_max(last)]
        of_following = []
        for logs in (before, after):
            values = at_labels(logs, following)
            of_following.append(values.masked_fill(position == last, torch.nan))
        columns = (divergence(before, after), moved, *of_following)
        parts.append(Changed(*(column.double().cpu().numpy() for column in columns)))
    return Changed(*(np.concatenate(values) for values in zip(*parts, strict=True)))


@dataclass(frozen=True, eq=False)
class _Moved(AttentionChange):
    """Single queries of one window on the keys of its clean run, with cells moved."""

    tokens: TokensOnKeys
    moves: Moves
    moved: Float[Tensor, " item"]
    """Attention that was moved for each query; filled while the layers run."""

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return self.tokens.layers

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of single queries; adds to `moved` for those whose head is in this layer."""
        # all queries are of one window
        ((attention, z),) = self.tokens.read(call)
        numbers = np.flatnonzero(self.moves.layer == call.layer)
        if len(numbers):
            items = torch.from_numpy(numbers).to(attention.device)
            keys = self.tokens.keys[0][call.layer]

            # the first token that a query sees takes what is moved, or a learned sink
            first = (attention[items, 0] > 0).int().argmax(-1)
            has_sink = keys.terms.sink is not None
            removed_of_rows = []
            for number, to in zip(numbers.tolist(), first.tolist(), strict=True):
                sink = None if has_sink else to
                removed_of_rows.append(attention_taken(self.moves, number, attention[number], sink))
            removed = torch.stack(removed_of_rows)
            moved = removed.sum(-1)
            change = -removed
            if not has_sink:  # a learned sink has no value
                change[torch.arange(len(items), device=items.device), :, first] += moved

            # the heads of a group share its values
            by_group = rearrange(
                change, "item (group head) key -> item group head key", group=len(keys.value)
            )
            outputs = torch.einsum("ngcl,glv->ngcv", by_group, keys.value.float())
            z[items] += outputs.flatten(1, 2)
            self.moved[items] = moved.sum(-1)
        return z.to(call.value.dtype)[:, None].contiguous()


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
