"""A clean and a corrupt prompt, each run once, and rerun with activations of the other.

A patch takes one head, or one edge (a cell of its pattern), from the other prompt. It is taken
whole (the head's output, or the attention of the edge times the value there), or as attention
alone: then the values stay those of the prompt that is run.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.models.engines.override import AttentionCall, Output
from headscope.models.intervention import AttentionChange, HeadOutputs, OutputChange
from headscope.models.load import Model
from headscope.models.rerun import CleanRun, Rerunner, TokenRows

Metric = Callable[[Float[Tensor, "1 position vocabulary"]], Any]
"""A number of the logits of a prompt; such as TransformerLens' tools take."""
ROWS_TOKENS = 2_048
"""Tokens of the patched rows of a layer that run at once."""


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
    """By layer."""
    metric: float


@dataclass(frozen=True, eq=False)
class LogitDifference:
    """The logit of one token less that of another after the last token of a prompt."""

    answer: int
    wrong: int

    def __call__(self, logits: Float[Tensor, "1 position vocabulary"]) -> float:
        """In logits; above 0 the answer is the likelier one."""
        return float(logits[0, -1, self.answer] - logits[0, -1, self.wrong])


@dataclass(frozen=True, eq=False)
class PromptPair:
    """A model on two prompts of as many tokens.

    Patches of one layer run together, a row for each; below that layer nothing runs again.
    """

    rerunner: Rerunner
    metric: Metric
    clean: PromptRun
    corrupt: PromptRun
    same_answer: PromptRun | None = None
    """Of a third prompt that shares the clean one's answer."""

    @classmethod
    def of(
        cls, rerunner: Rerunner, windows: Sequence[Window], metric: Metric, layers: Sequence[int]
    ) -> PromptPair:
        """Run the prompts, and store the attention of some layers.

        Args:
            rerunner: the model.
            windows: the clean and the corrupt prompt, and the third one if there is one.
            metric: what is read of the logits.
            layers: numbers of the layers with heads that will be patched.
        """
        return cls(rerunner, metric, *(_run(rerunner, one, metric, layers) for one in windows))

    @torch.inference_mode()
    def patched(
        self, patches: Sequence[Patch], *, denoise: bool, attention_only: bool
    ) -> list[float]:
        """The metric with each patch of one layer by itself.

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
        return _metrics(self.rerunner, streams, self.metric)

    @property
    def rows_at_once(self) -> int:
        """Patches of a layer that run together."""
        return max(1, ROWS_TOKENS // self.clean.clean.rows.tokens.shape[1])

    def carried_change(self, layer: int, head: int) -> Float[Tensor, "query key"]:
        """The length of what each edge carries in one prompt less what it does in the other."""
        one, other = self.clean.attention[layer], self.corrupt.attention[layer]
        carried = one.pattern[head, :, :, None] * one.value[head]
        carried = carried - other.pattern[head, :, :, None] * other.value[head]
        lengths: Tensor = carried.norm(dim=-1)
        return lengths

    def _change(
        self, patches: Sequence[Patch], base: PromptRun, source: PromptRun, *, attention_only: bool
    ) -> HeadsFrom | AttentionAdded:
        layer, heads = patches[0].layer, [patch.head for patch in patches]
        if patches[0].query is None and not attention_only:
            return HeadsFrom(layer, heads, source.clean.z[layer][0])
        other, here = source.attention[layer], base.attention[layer]
        values = here.value if attention_only else other.value
        rows = [_difference(patch, here, other, values) for patch in patches]
        return AttentionAdded(layer, heads, torch.stack(rows))


@dataclass(frozen=True, eq=False)
class HeadsFrom(OutputChange):
    """In each row one head's z from another run."""

    layer: int
    heads: Sequence[int]
    """Of each row, the head."""
    source: Float[Tensor, "position head width"]

    @property
    def layers(self) -> frozenset[int]:
        """The one layer."""
        return frozenset({self.layer})

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The outputs with one head of each row replaced."""
        changed, rows = z.clone(), torch.arange(len(z), device=z.device)
        changed[rows, :, self.heads] = self.source[:, self.heads].transpose(0, 1)
        return changed


@dataclass(frozen=True, eq=False)
class AttentionAdded(AttentionChange):
    """In each row something added to what one head reads."""

    layer: int
    heads: Sequence[int]
    """Of each row, the head."""
    addition: Float[Tensor, "row position width"]

    @property
    def layers(self) -> frozenset[int]:
        """The one layer."""
        return frozenset({self.layer})

    def attend(self, call: AttentionCall) -> Output:
        """The layer's own output with the addition."""
        output = call.output().clone()
        rows = torch.arange(len(output), device=output.device)
        output[rows, :, self.heads] += self.addition.to(output)
        return output


@dataclass(frozen=True, eq=False)
class _Stored(AttentionChange):
    """Attention as ever, whose patterns and values are stored."""

    numbers: frozenset[int]
    attention: dict[int, HeadAttention] = field(default_factory=dict)

    @property
    def layers(self) -> frozenset[int]:
        """Those that are stored."""
        return self.numbers

    def attend(self, call: AttentionCall) -> Output:
        """As ever."""
        pattern, value = call.pattern()[0].float(), call.value[0].float()
        shared = value.repeat_interleave(len(pattern) // len(value), 0)  # grouped query heads
        self.attention[call.layer] = HeadAttention(pattern, shared)
        return call.output()


def single_token(model: Model, text: str, option: str) -> int:
    """The number of a token that is given as text.

    Raises:
        HeadscopeError: the text is several tokens, or none.
    """
    tokens = model.tokenizer.encode(Document("answer", text, ())).tokens.tolist()
    if len(tokens) != 1:
        pieces = ", ".join(map(repr, model.tokenizer.spell(tokens))) or "none"
        raise HeadscopeError(
            f"{option} {text!r:.60} is {len(tokens)} tokens ({pieces}), and the metric compares "
            "single ones; a word within a sentence often begins with a space"
        )
    return int(tokens[0])


@torch.inference_mode()
def likeliest_next(rerunner: Rerunner, window: Window) -> int:
    """The number of the token that a model finds likeliest after a prompt."""
    clean = rerunner.clean(_rows(rerunner, window))
    stream = rerunner.streams(clean, None)[:, -1]
    return int(rerunner.network.get_output_embeddings()(stream).argmax())


@torch.inference_mode()
def _run(rerunner: Rerunner, window: Window, metric: Metric, layers: Sequence[int]) -> PromptRun:
    clean = rerunner.clean(_rows(rerunner, window))
    stored = _Stored(frozenset(layers))
    (value,) = _metrics(rerunner, rerunner.streams(clean, stored), metric)
    return PromptRun(clean, stored.attention, value)


def _rows(rerunner: Rerunner, window: Window) -> TokenRows:
    """A prompt as one row, no place of which is scored."""
    tokens = torch.from_numpy(window.tokens)[None].to(rerunner.model.device)
    nothing = torch.zeros(0, dtype=torch.long, device=tokens.device)
    return TokenRows(tokens, torch.tensor([tokens.shape[1]]), nothing, nothing)


def _metrics(
    rerunner: Rerunner, streams: Float[Tensor, "row position d_model"], metric: Metric
) -> list[float]:
    """The metric of each row; all logits of a row exist at once, of several rows never."""
    unembed = rerunner.network.get_output_embeddings()
    if isinstance(metric, LogitDifference):  # which reads no more than the last
        streams = streams[:, -1:]
    return [_number(metric(unembed(stream[None]).float())) for stream in streams]


def _number(value: Any) -> float:
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError) as error:
        shape = tuple(getattr(value, "shape", ()))
        kind = f"{type(value).__name__}" + (f" of shape {shape}" if shape else "")
        raise HeadscopeError(
            f"the metric gave a {kind}, expected one number of logits [1, position, vocabulary]"
        ) from error


def _difference(
    patch: Patch, here: HeadAttention, other: HeadAttention, values: Float[Tensor, "head key width"]
) -> Float[Tensor, "position width"]:
    """What a patch adds to a head's output at each position."""
    queries = slice(None) if patch.query is None else slice(patch.query, patch.query + 1)
    keys = slice(None) if patch.key is None else slice(patch.key, patch.key + 1)
    head = patch.head
    incoming = other.pattern[head, queries, keys] @ values[head, keys]
    outgoing = here.pattern[head, queries, keys] @ here.value[head, keys]
    added = here.value.new_zeros(here.value.shape[1:])
    added[queries] = incoming - outgoing
    return added
