"""Attention of a model on windows, layer by layer: no more than a layer of a batch is in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from jaxtyping import Float
from torch import Tensor, nn

from headscope.corpus.window import Window
from headscope.models.batching import in_batches, padded_tokens
from headscope.models.engines.engine import Request, Tile, full_tile
from headscope.models.engines.fused import FusedEngine
from headscope.models.engines.override import module_input
from headscope.models.layout.modules import attention_by_layer
from headscope.models.load import Model

Regions = Callable[[Sequence[Window]], Sequence[Request]]
"""Of windows that run together, what is read of every layer."""


@dataclass(frozen=True, eq=False)
class LayerAttention:
    """One layer's attention on the windows of a batch."""

    layer: int
    """Its number in the model."""
    windows: Sequence[Window]
    regions: Sequence[Request]
    rows: Iterable[Any]
    """Of each region what the engine reads there, computed when it is reached; see `Engine.run`."""
    logarithms: bool
    """Whether these are logarithms of probabilities instead of probabilities."""
    block_input: Float[Tensor, "window position d_model"] | None
    """The residual stream that enters the layer, where the engine shows it."""
    attention_input: Float[Tensor, "window position d_model"] | None
    """The stream that the layer's attention reads, after its norm."""

    def probabilities(self) -> Iterator[Tensor]:
        """Attention in each region, in [0, 1]."""
        for rows in self.rows:
            yield rows.exp() if self.logarithms else rows

    def log_probabilities(self) -> Iterator[Tensor]:
        """Logarithms of attention in each region, in single precision; −∞ where it is 0."""
        for rows in self.rows:
            yield rows.float() if self.logarithms else rows.float().log()


def stream_attention(
    model: Model,
    windows: Sequence[Window],
    regions: Regions,
    on_layer: Callable[[LayerAttention], None],
    *,
    batch_tokens: int = 1,
    layers: int | None = None,
) -> None:
    """Run windows, and hand on each layer's attention while the layer runs.

    Args:
        model: of any engine.
        windows: of text.
        regions: what is read: `whole_patterns`, or tiles, rows of queries, entries, or queries,
            keys and values (`headscope.models.engines.engine.Vectors`) of the fused engine.
        on_layer: called for each batch and layer in order; what it raises ends the run.
        batch_tokens: tokens of windows that run together; by default each runs by itself.
        layers: the first layers of the model that are read; all when None.

    Raises:
        ModelError: the engine does not read such regions.
    """
    engine: Any = model.engine
    for batch in in_batches(windows, batch_tokens):
        requests = list(regions(batch))
        with _inputs(engine) as streams:

            def take(
                layer: int,
                rows: Iterable[Any],
                batch: Sequence[Window] = batch,
                requests: Sequence[Request] = requests,
                streams: _Streams = streams,
            ) -> None:
                stream = streams.blocks.pop(layer, None), streams.attention.pop(layer, None)
                on_layer(LayerAttention(layer, batch, requests, rows, engine.logarithms, *stream))

            engine.run(padded_tokens(batch).to(model.device), requests, take, layers)


def whole_patterns(windows: Sequence[Window]) -> list[Request]:
    """Every row of every window, as one tile."""
    return [full_tile(len(windows), max(map(len, windows)))]


def tiled_patterns(model: Model) -> Regions:
    """Every row of every window, in the tiles that an engine reads fastest."""

    def tiles(windows: Sequence[Window]) -> list[Tile]:
        return model.engine.layout(len(windows), max(map(len, windows)))

    return tiles


@dataclass(frozen=True, eq=False)
class _Streams:
    """By layer, what the blocks and the attention modules of a running network read."""

    blocks: dict[int, Tensor]
    attention: dict[int, Tensor]


@contextmanager
def _inputs(engine: Any) -> Iterator[_Streams]:
    """Store what blocks and attention modules read, until a layer's attention is handed on."""
    streams = _Streams({}, {})
    with ExitStack() as hooks:
        if isinstance(engine, FusedEngine):
            for stored, modules in (
                (streams.blocks, attention_blocks(engine.network)),
                (streams.attention, attention_by_layer(engine.network)),
            ):
                for layer, module in modules.items():
                    hook = _store(stored, layer)
                    handle = module.register_forward_pre_hook(hook, with_kwargs=True)
                    hooks.enter_context(handle)
        yield streams


def _store(streams: dict[int, Tensor], layer: int) -> Callable[..., None]:
    def hook(_: nn.Module, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> None:
        streams[layer] = module_input(arguments, keywords)

    return hook


def attention_blocks(network: nn.Module) -> dict[int, nn.Module]:
    """The block around each attention module, by layer: its entry of the list of blocks."""
    modules = dict(network.named_modules())
    numbers = {id(module): layer for layer, module in attention_by_layer(network).items()}
    blocks = {}
    for name, module in modules.items():
        if id(module) not in numbers:
            continue
        parts = name.split(".")
        for end in range(1, len(parts) + 1):
            if isinstance(modules[".".join(parts[: end - 1])], nn.ModuleList):
                blocks[numbers[id(module)]] = modules[".".join(parts[:end])]
                break
    return blocks
