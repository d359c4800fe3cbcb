"""Two prompts whose activations are exchanged: single heads, edges, or their attention alone.

An edge is a cell of a head's pattern; it carries the attention there times the value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.intervention import AttentionChange, RowHeadsSet
from headscope.causal.loss import logits_of
from headscope.causal.rerun import CleanRun, Rerunner, TokenRows
from headscope.corpus.window import Window
from headscope.models.engines.attention import AttentionCall, Output

ROWS_TOKENS = 2_048


class Patch(NamedTuple):
    """A head that is taken from the other prompt, or one edge of it."""

    layer: int
    head: int
    query: int | None = None
    key: int | None = None
    """Positions in the clean prompt; both None for the whole head."""


class Alignment(NamedTuple):
    """Positions of two prompts that correspond, in the same order."""

    clean: Int[ndarray, " pair"]
    corrupt: Int[ndarray, " pair"]

    @property
    def edge_positions(self) -> tuple[int, ...]:
        """Positions of the clean prompt that queries and keys of edges can have."""
        return tuple(self.clean.tolist())


def aligned(
    clean: Int[ndarray, " clean_position"], corrupt: Int[ndarray, " corrupt_position"]
) -> Alignment:
    """The positions of two prompts that correspond, of prompts of unequal length from their ends.

    If both prompts begin with the same token, such as the beginning-of-text token, these
    correspond too. The other tokens at the beginning of the longer prompt have no counterpart.

    Args:
        clean: tokens of the clean prompt.
        corrupt: tokens of the corrupt prompt.

    >>> aligned(np.array([0, 5, 6]), np.array([0, 7, 8, 5, 6])).corrupt.tolist()
    [0, 3, 4]
    """
    length = min(len(clean), len(corrupt))
    positions = []
    for tokens in (clean, corrupt):
        last_positions = np.arange(len(tokens) - length, len(tokens))
        if clean[0] == corrupt[0]:
            last_positions[0] = 0
        positions.append(last_positions)
    return Alignment(*positions)


@dataclass(frozen=True, eq=False)
class HeadAttention:
    """A layer's patterns on a prompt, and the values that its heads read by them."""

    pattern: Float[Tensor, "head query key"]
    value: Float[Tensor, "head key width"]

    def at(self, positions: Int[Tensor, " pair"]) -> HeadAttention:
        """The attention among some positions alone."""
        pattern = self.pattern[:, positions][:, :, positions]
        return HeadAttention(pattern, self.value[:, positions])

    def carried(self, head: int) -> Float[Tensor, "query key width"]:
        """Attention times value, for each edge of a head."""
        return self.pattern[head, :, :, None] * self.value[head]


def _outputs(
    run: PromptRun, layer: int, heads: Sequence[int]
) -> Float[Tensor, "head position width"]:
    """Outputs z of some heads in a run of one prompt."""
    z = run.clean.z[layer][0]
    return z[:, heads].transpose(0, 1)


@dataclass(frozen=True, eq=False)
class PromptRun:
    """One untouched run of a prompt."""

    clean: CleanRun
    positions: Int[Tensor, " pair"]
    """Positions with a counterpart in the other prompt."""
    attention: dict[int, HeadAttention]
    """Patterns and values by layer, among these positions."""
    metric: float


@dataclass(frozen=True, eq=False)
class PromptPair:
    """A model on two prompts; only the layers from a patch on run again.

    What a patch takes from the other prompt are activations at positions that correspond, and
    attention at cells of two such positions. Other positions and cells keep their own.
    """

    rerunner: Rerunner
    compared: Sequence[int]
    """The two tokens whose logits are compared: the answer and the wrong one."""
    alignment: Alignment
    clean: PromptRun
    corrupt: PromptRun

    @classmethod
    def of(
        cls,
        rerunner: Rerunner,
        windows: Sequence[Window],
        compared: Sequence[int],
        layers: Sequence[int],
    ) -> PromptPair:
        """Run both prompts, and store the attention of some layers."""
        clean, corrupt = windows
        alignment = aligned(clean.tokens, corrupt.tokens)
        return cls(
            rerunner,
            compared,
            alignment,
            clean=_run(rerunner, clean, alignment.clean, compared, layers),
            corrupt=_run(rerunner, corrupt, alignment.corrupt, compared, layers),
        )

    @torch.inference_mode()
    def patched(
        self, patches: Sequence[Patch], *, denoise: bool, attention_only: bool
    ) -> list[float]:
        """The metric with each patch of one layer separately.

        Args:
            patches: of one and the same layer.
            denoise: run the corrupt prompt with activations of the clean one; else the clean one
                with those of the corrupt.
            attention_only: take the attention of the other prompt, and leave the values.
        """
        base, source = (self.corrupt, self.clean) if denoise else (self.clean, self.corrupt)
        change = self._change(patches, base, source, attention_only=attention_only)
        repeated = base.clean.repeated(len(patches))
        streams = self.rerunner.streams(repeated, change)
        return _metrics(self.rerunner, streams, self.compared)

    @property
    def rows_at_once(self) -> int:
        """Patches of a layer that run together."""
        lengths = [run.clean.rows.tokens.shape[1] for run in (self.clean, self.corrupt)]
        return max(1, ROWS_TOKENS // max(lengths))

    def carried_change(self, layer: int, head: int) -> Float[Tensor, "pair pair"]:
        """Norm of the difference of attention times value between the prompts, for each edge."""
        clean = self.clean.attention[layer].carried(head)
        corrupt = self.corrupt.attention[layer].carried(head)
        norms: Tensor = (clean - corrupt).norm(dim=-1)
        return norms

    def _change(
        self, patches: Sequence[Patch], base: PromptRun, source: PromptRun, *, attention_only: bool
    ) -> RowHeadsSet:
        """The patches as outputs z of one head of each row."""
        layer = patches[0].layer
        heads = [patch.head for patch in patches]
        z = _outputs(base, layer, heads).clone()
        # whole outputs of the heads are those of the other run
        if patches[0].query is None and not attention_only:
            z_of_source = _outputs(source, layer, heads)
            z[:, base.positions] = z_of_source[:, source.positions].to(z)
            return RowHeadsSet(layer, heads, z)
        # of single cells, what they carry changes: attention, or attention times value
        base_attention = base.attention[layer]
        source_attention = source.attention[layer]
        values = base_attention.value if attention_only else source_attention.value
        changes = []
        for cells in self._cells(patches):
            changes.append(cells.difference(base_attention, source_attention, values))
        z[:, base.positions] += torch.stack(changes).to(z)
        return RowHeadsSet(layer, heads, z)

    def _cells(self, patches: Sequence[Patch]) -> list[_Cells]:
        """The cells of each patch, numbered among the corresponding positions."""
        positions = self.alignment.edge_positions
        number_of = {position: number for number, position in enumerate(positions)}
        cells = []
        for patch in patches:
            queries = _one_or_all(patch.query, number_of)
            keys = _one_or_all(patch.key, number_of)
            cells.append(_Cells(patch.head, queries, keys))
        return cells


@dataclass(frozen=True, eq=False)
class _Stored(AttentionChange):
    """Stores patterns and values of some layers; attention is unchanged."""

    numbers: frozenset[int]
    attention: dict[int, HeadAttention] = field(default_factory=dict)

    @property
    def layers(self) -> frozenset[int]:
        """The layers to store."""
        return self.numbers

    def attend(self, call: AttentionCall) -> Output:
        """The layer's unchanged output."""
        pattern = call.pattern()[0].float()
        value = call.value[0].float()
        heads_per_value = len(pattern) // len(value)  # grouped query heads
        shared = value.repeat_interleave(heads_per_value, 0)
        self.attention[call.layer] = HeadAttention(pattern, shared)
        return call.output()


@torch.inference_mode()
def likeliest_next(rerunner: Rerunner, window: Window) -> int:
    """The most likely token after a prompt."""
    clean = rerunner.clean(_rows(rerunner, window))
    last = rerunner.streams(clean, None)[:, -1]
    return int(logits_of(rerunner.network, last).argmax())


@torch.inference_mode()
def _run(
    rerunner: Rerunner,
    window: Window,
    positions: Int[ndarray, " pair"],
    compared: Sequence[int],
    layers: Sequence[int],
) -> PromptRun:
    clean = rerunner.clean(_rows(rerunner, window))
    stored = _Stored(frozenset(layers))
    streams = rerunner.streams(clean, stored)
    (metric,) = _metrics(rerunner, streams, compared)
    corresponding = torch.from_numpy(positions).to(rerunner.model.device)
    attention = {}
    for layer, of_prompt in stored.attention.items():
        attention[layer] = of_prompt.at(corresponding)
    return PromptRun(clean, corresponding, attention, metric)


def _rows(rerunner: Rerunner, window: Window) -> TokenRows:
    tokens = torch.from_numpy(window.tokens)[None].to(rerunner.model.device)
    nothing = torch.zeros(0, dtype=torch.long, device=tokens.device)
    return TokenRows(
        tokens=tokens,
        lengths=torch.tensor([len(window)]),
        row=nothing,
        position=nothing,
    )


def _metrics(
    rerunner: Rerunner, streams: Float[Tensor, "row position d_model"], compared: Sequence[int]
) -> list[float]:
    """The logit difference of each row after its last token."""
    answer, wrong = compared
    metrics = []
    for stream in streams:
        last = stream[None, -1:]
        logits = logits_of(rerunner.network, last).float()[0, -1]
        difference = logits[answer] - logits[wrong]
        metrics.append(float(difference))
    return metrics


@dataclass(frozen=True)
class _Cells:
    """Cells of a head's pattern, among corresponding positions."""

    head: int
    queries: slice
    keys: slice

    def difference(
        self, here: HeadAttention, other: HeadAttention, values: Float[Tensor, "head key width"]
    ) -> Float[Tensor, "pair width"]:
        """The change of the head's output at each position if the other attention reads values."""
        incoming = self._carried(other.pattern, values)
        outgoing = self._carried(here.pattern, here.value)
        change = here.value.new_zeros(here.value.shape[1:])
        change[self.queries] = incoming - outgoing
        return change

    def _carried(
        self, pattern: Float[Tensor, "head query key"], value: Float[Tensor, "head key width"]
    ) -> Float[Tensor, "some_query width"]:
        """Attention of these cells times value, summed over keys."""
        attention = pattern[self.head, self.queries, self.keys]
        return attention @ value[self.head, self.keys]


def _one_or_all(position: int | None, number_of: Mapping[int, int]) -> slice:
    if position is None:
        return slice(None)
    number = number_of[position]
    return slice(number, number + 1)
