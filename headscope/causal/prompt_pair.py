"""Two prompts whose activations are exchanged: single heads, edges, or their attention alone.

An edge is a cell of a head's pattern; it carries the attention there times the value. What a patch
takes from the other prompt are activations at positions that correspond, and attention at cells of
two such positions. Other positions and cells keep their own.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.causal.intervention import AttentionRead, RowHeadsSet
from headscope.causal.loss import logits_of
from headscope.causal.rerun import CleanRun, Rerunner, TokenRows
from headscope.corpus.window import Window
from headscope.models.engines.attention import AttentionCall


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

    def carried(self, head: int) -> Float[Tensor, "query key width"]:
        """Attention times value, for each edge of a head."""
        return self.pattern[head, :, :, None] * self.value[head]


@dataclass(frozen=True, eq=False)
class PromptRun:
    """One untouched run of a prompt, whose place is after its last token."""

    run: CleanRun
    positions: Int[Tensor, " pair"]
    """Positions with a counterpart in the other prompt."""
    attention: dict[int, HeadAttention]
    """Patterns and values by layer, among these positions."""


@dataclass(frozen=True, eq=False)
class PromptPair:
    """A clean and a corrupt prompt as a model reads them."""

    alignment: Alignment
    clean: PromptRun
    corrupt: PromptRun

    @classmethod
    def of(
        cls, rerunner: Rerunner, windows: Sequence[Window], layers: Collection[int]
    ) -> PromptPair:
        """Run the clean and the corrupt prompt, and store the attention of some layers."""
        clean, corrupt = windows
        alignment = aligned(clean.tokens, corrupt.tokens)
        return cls(
            alignment,
            prompt_run(rerunner, clean, alignment.clean, layers),
            prompt_run(rerunner, corrupt, alignment.corrupt, layers),
        )

    def carried_change(self, layer: int, head: int) -> Float[Tensor, "pair pair"]:
        """Norm of the difference of attention times value between the prompts, for each edge."""
        clean = self.clean.attention[layer].carried(head)
        corrupt = self.corrupt.attention[layer].carried(head)
        norms: Tensor = (clean - corrupt).norm(dim=-1)
        return norms

    def change(
        self, patches: Sequence[Patch], *, denoise: bool, attention_only: bool
    ) -> RowHeadsSet:
        """The patches of one layer as outputs z of one head of each row.

        Args:
            patches: either whole heads or edges.
            denoise: put activations of the clean prompt into the corrupt one, whose run is to
                change; else those of the corrupt prompt into the clean one.
            attention_only: take the attention of the other prompt, and leave the values.
        """
        base, source = (self.corrupt, self.clean) if denoise else (self.clean, self.corrupt)
        layer = patches[0].layer
        heads = [patch.head for patch in patches]
        z = base.run.z[layer][0][:, heads].transpose(0, 1).clone()
        # whole outputs of the heads are those of the other run
        if patches[0].query is None and not attention_only:
            z_of_source = source.run.z[layer][0][:, heads].transpose(0, 1)
            z[:, base.positions] = z_of_source[:, source.positions].to(z)
            return RowHeadsSet(layer, heads, z)

        # of single cells, what they carry changes: attention, or attention times value
        here, other = base.attention[layer], source.attention[layer]
        values = here.value if attention_only else other.value
        number_of = {at: number for number, at in enumerate(self.alignment.clean.tolist())}

        def among_pairs(position: int | None) -> slice:
            if position is None:
                return slice(None)
            return slice(number_of[position], number_of[position] + 1)

        changes = []
        for patch in patches:
            queries, keys = among_pairs(patch.query), among_pairs(patch.key)
            incoming = other.pattern[patch.head, queries, keys] @ values[patch.head, keys]
            outgoing = here.pattern[patch.head, queries, keys] @ here.value[patch.head, keys]
            change = torch.zeros_like(here.value[patch.head])
            change[queries] = incoming - outgoing
            changes.append(change)
        z[:, base.positions] += torch.stack(changes).to(z)
        return RowHeadsSet(layer, heads, z)


@torch.inference_mode()
def prompt_run(
    rerunner: Rerunner,
    window: Window,
    positions: Int[ndarray, " pair"],
    layers: Collection[int] = (),
) -> PromptRun:
    """Run a prompt, and store the attention of some layers among some positions."""
    device = rerunner.model.device
    at = torch.from_numpy(positions).to(device)
    attention: dict[int, HeadAttention] = {}

    # edges are exchanged between positions that have a counterpart, so that others are not kept
    def store(call: AttentionCall) -> None:
        pattern = call.pattern()[0].float()
        value = call.value[0].float()
        heads_per_value = len(pattern) // len(value)  # grouped query heads
        shared = value.repeat_interleave(heads_per_value, 0)
        attention[call.layer] = HeadAttention(pattern[:, at][:, :, at], shared[:, at])

    # the place is after the last token
    length = torch.tensor([len(window)])
    tokens = torch.from_numpy(window.tokens)[None].to(device)
    with AttentionRead(layers, store).applied(rerunner.model):
        run = rerunner.clean(TokenRows(tokens, length, torch.zeros_like(length), length))
    return PromptRun(run, at, attention)


@torch.inference_mode()
def likeliest_next(rerunner: Rerunner, window: Window) -> int:
    """The most likely token after a prompt."""
    run = prompt_run(rerunner, window, np.arange(0))
    return int(logits_of(rerunner.network, run.run.states).argmax())


@torch.inference_mode()
def logit_differences(
    rerunner: Rerunner, states: Float[Tensor, "row d_model"], compared: Sequence[int]
) -> list[float]:
    """The logit of the first of two tokens minus that of the other, at each state."""
    answer, wrong = compared
    differences = []
    # states run one by one, so that no result depends on the other states
    for state in states:
        logits = logits_of(rerunner.network, state[None, None]).float()[0, 0]
        differences.append(float(logits[answer] - logits[wrong]))
    return differences
