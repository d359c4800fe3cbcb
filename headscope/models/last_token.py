"""The last tokens of prompts, run again with one head's output set to another value.

What follows a prompt is predicted at its last token. Where a change touches that token alone, it is
run again by itself on the keys and values of one clean run, from the changed layer on; all heads of
a layer, values and prompts run side by side.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.models.clean_keys import CleanKeys, mixes_otherwise, position_option, read_again
from headscope.models.engines.override import AttentionCall, Output, module_input
from headscope.models.intervention import AttentionChange, HeadOutputs, OutputChange, by_head
from headscope.models.load import Model
from headscope.models.loss import last_stream, network_of
from headscope.models.rerun import Rerunner

ROUNDING = 1e-2
"""Share of its length by which an untouched last state that is run again may differ; half precision
rounds so much."""
ITEMS_AT_ONCE, TOKENS_AT_ONCE = 512, 1_024
CHECKED = 12
"""Tokens of the prompt on which a model is checked."""


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
    """A causal model whose prompts' last tokens can be run again.

    Raises:
        ModelError: it runs under another engine, is an encoder, or has layers that mix tokens in
            another way than by attention, as hybrids have.
    """

    def __init__(self, model: Model) -> None:
        self.model = model
        self.network: Any = network_of(model)
        self.rerunner = Rerunner(model)
        self._check()

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
        device = self.model.device
        tokens = nn.utils.rnn.pad_sequence([*prompts], batch_first=True).to(device)
        lengths = [len(prompt) for prompt in prompts]
        rows, last = torch.arange(len(prompts)), torch.tensor(lengths) - 1
        streams: list[Tensor] = []
        z: dict[int, Tensor] = {}
        reader = _KeyReader(self.model.attention_layers, lengths)

        def store_input(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
            streams.append(module_input(arguments, keywords)[rows, last])

        def store_z(layer: int) -> Any:
            def store(_: nn.Module, arguments: tuple[Tensor, ...]) -> None:
                z[layer] = by_head(arguments[0], self.model.heads)[rows, last]

            return store

        with ExitStack() as within:
            for block in self.rerunner.blocks:
                hook = block.register_forward_pre_hook(store_input, with_kwargs=True)
                within.enter_context(hook)
            for layer, output in self.rerunner.outputs.items():
                within.enter_context(output.register_forward_pre_hook(store_z(layer)))
            if keys:
                within.enter_context(reader.applied(self.model))
            states = last_stream(self.network, tokens)[rows, last]
        return [
            LastToken(
                tokens[i, : lengths[i]],
                [stream[i] for stream in streams],
                {layer: outputs[i] for layer, outputs in z.items()},
                states[i],
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
        tokens = torch.stack([run.tokens[-1] for run in prompts])[prompt][:, None]
        positions = torch.tensor([len(run.tokens) - 1 for run in prompts], device=device)[prompt]
        stream = torch.stack([run.streams[layer] for run in prompts])[prompt][:, None]
        counts = torch.bincount(prompt, minlength=len(prompts)).tolist()
        options = position_option(self.network, positions)
        again = _OnCleanKeys(prompts, counts, self.model.attention_layers)
        change = _HeadSet(layer, head.to(device), value.to(device))
        with (
            self.rerunner.handing_on(layer, stream),
            again.applied(self.model),
            change.applied(self.model),
        ):
            return last_stream(self.network, tokens.to(device), **options)[:, 0]

    def _check(self) -> None:
        """Refuse a model whose last token, run again untouched, predicts something else."""
        tokens = torch.arange(1, 1 + CHECKED) % self.model.vocabulary_size
        (run,) = self.read([tokens], keys=True)
        layer = self.model.attention_layers[0]
        items = torch.zeros(1, dtype=torch.long)
        again = self.states([run], layer, prompt=items, head=items, value=run.z[layer][:1])[0]
        apart = float((again - run.state).float().norm() / run.state.float().norm())
        if not apart <= ROUNDING:
            raise mixes_otherwise(
                self.model.name, f"ends in another state (by {apart:.2g} of its length)"
            )


class _KeyReader(AttentionChange):
    """The attention as it is, with keys and values stored for each prompt."""

    def __init__(self, layers: tuple[int, ...], lengths: Sequence[int]) -> None:
        self._layers, self._lengths = frozenset(layers), lengths
        self.keys: list[dict[int, CleanKeys]] = [{} for _ in lengths]

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return self._layers

    def attend(self, call: AttentionCall) -> Output:
        """The layer's own."""
        for row, length in enumerate(self._lengths):
            self.keys[row][call.layer] = CleanKeys.of(call, row, length)
        return call.output()


@dataclass
class _OnCleanKeys(AttentionChange):
    """Last tokens that attend on the keys of their prompts' clean runs."""

    prompts: Sequence[LastToken]
    counts: Sequence[int]
    """Items of each prompt."""
    attention_layers: tuple[int, ...]

    @property
    def layers(self) -> frozenset[int]:
        """All layers with attention."""
        return frozenset(self.attention_layers)

    def attend(self, call: AttentionCall) -> Output:
        """Outputs z of each item's heads."""
        vectors = (call.query, call.key, call.value)
        items = (torch.split(part[:, :, 0], [*self.counts]) for part in vectors)
        parts = []
        for run, query, key, value in zip(self.prompts, *items, strict=True):
            if len(query):
                position = torch.full((len(query),), len(run.tokens) - 1, device=query.device)
                parts.append(read_again(run.keys[call.layer], query, key, value, position)[1])
        return torch.cat(parts)[:, None].to(call.value.dtype).contiguous()


@dataclass(frozen=True, eq=False)
class _HeadSet(OutputChange):
    """Output z of one head of each row set to a value."""

    layer: int
    head: Int[Tensor, " row"]
    value: Float[Tensor, "row width"]

    @property
    def layers(self) -> frozenset[int]:
        """The one layer."""
        return frozenset({self.layer})

    def edit(self, layer: int, z: HeadOutputs) -> HeadOutputs:
        """The outputs with these heads set."""
        changed = z.clone()
        changed[torch.arange(len(z), device=z.device), 0, self.head] = self.value.to(z)
        return changed
