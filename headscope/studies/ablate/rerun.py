"""Run a model with some heads silenced, from the first layer that is touched.

A head's output z is what goes into W_O; it is replaced there. The residual stream below does not
change, so that it is kept from one clean run and only the layers from the first silenced head on
run again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.models.engines.fused import FusedEngine
from headscope.models.engines.modules import attention_layers
from headscope.models.load import Model
from headscope.models.matrices import output_projection

UNEMBED_ROWS = 256
"""Predictions that are unembedded at once: 256 rows of 50,000 logits are 50 MB."""

Edit = Callable[[Float[Tensor, "row position head width"]], None]
"""Changes z in place."""


class Rows(NamedTuple):
    """Rows of tokens, padded on the right, and the tokens to predict in them."""

    tokens: Int[Tensor, "row position"]
    lengths: Int[Tensor, " row"]
    row: Int[Tensor, " place"]
    position: Int[Tensor, " place"]


@dataclass(frozen=True, eq=False)
class Clean:
    """What one untouched run leaves: each layer's input, each head's z, and the predictions.

    `inputs` and `z` are by the layers' numbers; of a hybrid only some layers have a z.
    """

    rows: Rows
    inputs: Sequence[Float[Tensor, "row position model"]]
    z: Mapping[int, Float[Tensor, "row position head width"]]
    logp: Float[Tensor, " place"]


class Rerunner:
    """A model whose layers can be run again from any of them.

    Raises:
        ModelError: its layers cannot be told apart, or its logits are not the unembedded stream.
    """

    def __init__(self, model: Model) -> None:
        if not isinstance(model.engine, FusedEngine):
            raise ModelError(
                f"{model.name}: interventions need attention that the fused engine runs, and this "
                "model's it does not"
            )
        self.model = model
        self.network: Any = model.engine.network
        attentions = attention_layers(self.network)
        layers = model.attention_layers
        self.blocks = _blocks(model, self.network, attentions)
        self.outputs = {
            layer: output_projection(attention)
            for layer, attention in zip(layers, attentions, strict=True)
        }
        """By the numbers of the layers that have heads."""
        self.tuples = False
        """Whether a block hands its stream on as the first of several things."""
        self._check()

    @torch.inference_mode()
    def clean(self, rows: Rows) -> Clean:
        """The untouched run, with the log-probability of each token that is to be predicted."""
        inputs: list[Tensor] = []
        z: list[Tensor] = []
        keep = _keep_input(inputs)
        with ExitStack() as hooks:
            for block in self.blocks:
                _enter(hooks, block.register_forward_pre_hook(keep, with_kwargs=True))
            for output in self.outputs.values():
                _enter(hooks, output.register_forward_pre_hook(lambda _, x: z.append(x[0])))
            stream = self._stream(rows.tokens)
        by_head = (_by_head(each, self.model.heads) for each in z)
        heads = dict(zip(self.outputs, by_head, strict=True))
        return Clean(rows, inputs, heads, self._logp(stream, rows))

    @torch.inference_mode()
    def edited(self, clean: Clean, edits: Mapping[int, Edit]) -> Float[Tensor, " place"]:
        """The same log-probabilities with z edited in some layers.

        Args:
            clean: the untouched run.
            edits: for each touched layer what to do with its z.
        """
        return self._logp(self._edited(clean, edits), clean.rows)

    @torch.inference_mode()
    def predictions(
        self, clean: Clean, edits: Mapping[int, Edit]
    ) -> Float[Tensor, "position vocabulary"]:
        """The log-probability of every token of the vocabulary after each token of one row.

        Args:
            clean: the untouched run of one row.
            edits: as for `edited`; with none the model is as it was.
        """
        unembed, stream = self.network.get_output_embeddings(), self._edited(clean, edits)[0]
        parts = torch.split(stream, UNEMBED_ROWS)
        return torch.cat([unembed(part).float().log_softmax(-1) for part in parts])

    def _edited(self, clean: Clean, edits: Mapping[int, Edit]) -> Tensor:
        """The last stream, from the first layer that is touched on; with no edit, of the last."""
        first = min(edits, default=len(self.blocks) - 1)
        with ExitStack() as hooks:
            for block in self.blocks[:first]:
                hooks.enter_context(_skipped(block, clean.inputs[first], self.tuples))
            for layer, edit in edits.items():
                hook = _edit_input(edit, self.model.heads)
                _enter(hooks, self.outputs[layer].register_forward_pre_hook(hook))
            return self._stream(clean.rows.tokens)

    def _stream(self, tokens: Tensor) -> Tensor:
        stream: Tensor = self.network.base_model(tokens, use_cache=False).last_hidden_state
        return stream

    def _logp(self, stream: Tensor, rows: Rows) -> Tensor:
        unembed, found = self.network.get_output_embeddings(), []
        for start in range(0, len(rows.row), UNEMBED_ROWS):
            part = slice(start, start + UNEMBED_ROWS)
            row, position = rows.row[part], rows.position[part]
            logits = unembed(stream[row, position - 1]).float()
            wanted = rows.tokens[row, position][:, None]
            found.append(logits.log_softmax(-1).gather(1, wanted)[:, 0])
        return torch.cat(found) if found else stream.new_zeros(0)

    def _note_kind(self, block: nn.Module, inputs: Any, output: Any) -> None:
        self.tuples = isinstance(output, tuple)

    @torch.inference_mode()
    def _check(self) -> None:
        tokens = torch.arange(1, 9, device=self.model.device)[None] % self.model.vocabulary_size
        with ExitStack() as hooks:
            _enter(hooks, self.blocks[0].register_forward_hook(self._note_kind))
            self._stream(tokens)
        own = self.network(tokens, use_cache=False).logits
        unembedded = self.network.get_output_embeddings()(self._stream(tokens))
        if not torch.allclose(own, unembedded, rtol=1e-3, atol=1e-3):
            raise ModelError(f"{self.model.name}: its logits are more than the unembedded stream")


def silence(how: str, clean: Clean, layer: int, heads: Sequence[int], shift: int) -> Edit:
    """The edit that takes heads of a layer out.

    Args:
        how: `zero`; `mean`, each head's mean over the clean run's tokens, the first and the
            padding left out; or `resample`, its output at the same place of another row, counted
            round where that row is shorter.
        clean: the untouched run.
        layer: the layer.
        heads: heads of the layer.
        shift: how many rows further the other row is.
    """
    own = clean.z[layer][:, :, list(heads)]
    lengths = clean.rows.lengths[:, None]
    place = torch.arange(own.shape[1], device=own.device)

    def mean() -> Tensor:
        real = ((place > 0) & (place < lengths))[:, :, None, None]
        return (own * real).sum((0, 1)) / real.sum().clamp(min=1)

    def resample() -> Tensor:
        other = (torch.arange(len(own), device=own.device) + shift) % len(own)
        return own[other[:, None], place % lengths[other]]

    new = {"zero": lambda: torch.zeros_like(own), "mean": mean, "resample": resample}[how]()

    def edit(z: Tensor) -> None:
        z[:, :, list(heads)] = new

    return edit


def _blocks(model: Model, network: Any, attentions: Sequence[nn.Module]) -> nn.ModuleList:
    """The list of layers: the one whose members hold the attention of their numbers."""
    numbers = model.attention_layers
    for module in network.modules():
        if not isinstance(module, nn.ModuleList) or len(module) != len(numbers + model.others):
            continue
        own = [module[number] for number in numbers]
        if all(a in set(b.modules()) for a, b in zip(attentions, own, strict=True)):
            return module
    raise ModelError(f"{model.name}: no list of layers with one attention each")


def _keep_input(kept: list[Tensor]) -> Callable[..., None]:
    def keep(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any]) -> None:
        kept.append(inputs[0] if inputs else named["hidden_states"])

    return keep


def _by_head(z: Tensor, heads: int) -> Float[Tensor, "row position head width"]:
    return z.view(*z.shape[:2], heads, -1)


def _edit_input(edit: Edit, heads: int) -> Callable[..., Any]:
    def hook(_: nn.Module, inputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        z = inputs[0].clone()
        edit(_by_head(z, heads))
        return (z, *inputs[1:])

    return hook


@contextmanager
def _skipped(block: Any, stream: Tensor, as_tuple: bool) -> Iterator[None]:
    """The block hands on a stream instead of computing one."""
    block.forward = lambda *inputs, **named: (stream, None) if as_tuple else stream
    try:
        yield
    finally:
        del block.forward


def _enter(hooks: ExitStack, handle: Any) -> None:
    hooks.callback(handle.remove)
