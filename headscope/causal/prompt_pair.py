"""Two prompts whose activations are exchanged: single heads, edges, or their attention alone.

An edge is a cell of a head's pattern; it carries the attention there times the value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.causal.intervention import AttentionChange, RowHeadsSet
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
    """Both None for the whole head."""


@dataclass(frozen=True, eq=False)
class HeadAttention:
    """A layer's patterns on a prompt, and the values that its heads read by them."""

    pattern: Float[Tensor, "head query key"]
    value: Float[Tensor, "head key width"]


@dataclass(frozen=True, eq=False)
class PromptRun:
    """One untouched run of a prompt."""

    clean: CleanRun
    attention: dict[int, HeadAttention]
    """Patterns and values by layer."""
    metric: float


@dataclass(frozen=True, eq=False)
class PromptPair:
    """A model on two prompts of equal length; only the layers from a patch on run again."""

    rerunner: Rerunner
    compared: Sequence[int]
    """The tokens whose logits are compared."""
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
        runs = (_run(rerunner, window, compared, layers) for window in windows)
        return cls(rerunner, compared, *runs)

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
    def length(self) -> int:
        """Tokens of each prompt."""
        return int(self.clean.clean.rows.tokens.shape[1])

    @property
    def rows_at_once(self) -> int:
        """Patches of a layer that run together."""
        return max(1, ROWS_TOKENS // self.clean.clean.rows.tokens.shape[1])

    def carried_change(self, layer: int, head: int) -> Float[Tensor, "query key"]:
        """Norm of the difference of attention times value between the prompts, for each edge."""
        one, other = self.clean.attention[layer], self.corrupt.attention[layer]
        carried = one.pattern[head, :, :, None] * one.value[head]
        carried = carried - other.pattern[head, :, :, None] * other.value[head]
        lengths: Tensor = carried.norm(dim=-1)
        return lengths

    def _change(
        self, patches: Sequence[Patch], base: PromptRun, source: PromptRun, *, attention_only: bool
    ) -> RowHeadsSet:
        layer, heads = patches[0].layer, [patch.head for patch in patches]
        if patches[0].query is None and not attention_only:
            return RowHeadsSet(layer, heads, source.clean.z[layer][0][:, heads].transpose(0, 1))
        other, here = source.attention[layer], base.attention[layer]
        values = here.value if attention_only else other.value
        rows = [_difference(patch, here, other, values) for patch in patches]
        z = base.clean.z[layer][0][:, heads].transpose(0, 1)
        return RowHeadsSet(layer, heads, z + torch.stack(rows).to(z))


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
        pattern, value = call.pattern()[0].float(), call.value[0].float()
        shared = value.repeat_interleave(len(pattern) // len(value), 0)  # grouped query heads
        self.attention[call.layer] = HeadAttention(pattern, shared)
        return call.output()


@torch.inference_mode()
def likeliest_next(rerunner: Rerunner, window: Window) -> int:
    """The most likely token after a prompt."""
    clean = rerunner.clean(_rows(rerunner, window))
    stream = rerunner.streams(clean, None)[:, -1]
    return int(rerunner.network.get_output_embeddings()(stream).argmax())


@torch.inference_mode()
def _run(
    rerunner: Rerunner, window: Window, compared: Sequence[int], layers: Sequence[int]
) -> PromptRun:
    clean = rerunner.clean(_rows(rerunner, window))
    stored = _Stored(frozenset(layers))
    (value,) = _metrics(rerunner, rerunner.streams(clean, stored), compared)
    return PromptRun(clean, stored.attention, value)


def _rows(rerunner: Rerunner, window: Window) -> TokenRows:
    tokens = torch.from_numpy(window.tokens)[None].to(rerunner.model.device)
    nothing = torch.zeros(0, dtype=torch.long, device=tokens.device)
    return TokenRows(tokens, torch.tensor([tokens.shape[1]]), nothing, nothing)


def _metrics(
    rerunner: Rerunner, streams: Float[Tensor, "row position d_model"], compared: Sequence[int]
) -> list[float]:
    """The logit difference of each row after its last token."""
    unembed = rerunner.network.get_output_embeddings()
    logits = (unembed(stream[None, -1:]).float()[0, -1] for stream in streams)
    return [float(values[compared[0]] - values[compared[1]]) for values in logits]


def _difference(
    patch: Patch, here: HeadAttention, other: HeadAttention, values: Float[Tensor, "head key width"]
) -> Float[Tensor, "position width"]:
    """The change of a head's output at each position."""
    queries = slice(None) if patch.query is None else slice(patch.query, patch.query + 1)
    keys = slice(None) if patch.key is None else slice(patch.key, patch.key + 1)
    head = patch.head
    incoming = other.pattern[head, queries, keys] @ values[head, keys]
    outgoing = here.pattern[head, queries, keys] @ here.value[head, keys]
    added = here.value.new_zeros(here.value.shape[1:])
    added[queries] = incoming - outgoing
    return added
