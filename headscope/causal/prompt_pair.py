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
        length = self.clean.clean.rows.tokens.shape[1]
        return max(1, ROWS_TOKENS // length)

    def carried_change(self, layer: int, head: int) -> Float[Tensor, "query key"]:
        """Norm of the difference of attention times value between the prompts, for each edge."""
        change = self.clean.attention[layer].carried(head)
        change = change - self.corrupt.attention[layer].carried(head)
        lengths: Tensor = change.norm(dim=-1)
        return lengths

    def _change(
        self, patches: Sequence[Patch], base: PromptRun, source: PromptRun, *, attention_only: bool
    ) -> RowHeadsSet:
        layer = patches[0].layer
        heads = [patch.head for patch in patches]
        if patches[0].query is None and not attention_only:
            return RowHeadsSet(layer, heads, _outputs(source, layer, heads))
        base_attention = base.attention[layer]
        source_attention = source.attention[layer]
        values = base_attention.value if attention_only else source_attention.value
        changes = []
        for patch in patches:
            changes.append(_difference(patch, base_attention, source_attention, values))
        z = _outputs(base, layer, heads)
        return RowHeadsSet(layer, heads, z + torch.stack(changes).to(z))


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
    unembed = rerunner.network.get_output_embeddings()
    return int(unembed(last).argmax())


@torch.inference_mode()
def _run(
    rerunner: Rerunner, window: Window, compared: Sequence[int], layers: Sequence[int]
) -> PromptRun:
    clean = rerunner.clean(_rows(rerunner, window))
    stored = _Stored(frozenset(layers))
    streams = rerunner.streams(clean, stored)
    (metric,) = _metrics(rerunner, streams, compared)
    return PromptRun(clean=clean, attention=stored.attention, metric=metric)


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
    unembed = rerunner.network.get_output_embeddings()
    first, second = compared[0], compared[1]
    metrics = []
    for stream in streams:
        logits = unembed(stream[None, -1:]).float()[0, -1]
        metrics.append(float(logits[first] - logits[second]))
    return metrics


def _difference(
    patch: Patch, here: HeadAttention, other: HeadAttention, values: Float[Tensor, "head key width"]
) -> Float[Tensor, "position width"]:
    """The change of a head's output at each position."""
    head = patch.head
    queries = _one_or_all(patch.query)
    keys = _one_or_all(patch.key)
    incoming = other.pattern[head, queries, keys] @ values[head, keys]
    outgoing = here.pattern[head, queries, keys] @ here.value[head, keys]
    added = here.value.new_zeros(here.value.shape[1:])
    added[queries] = incoming - outgoing
    return added


def _one_or_all(position: int | None) -> slice:
    return slice(None) if position is None else slice(position, position + 1)
