"""What W_O's mixing is worth: the loss when heads' outputs are no longer mixed by it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
from torch import Tensor, nn

from headscope.errors import ModelError
from headscope.fused import attention_layers
from headscope.interventions.layer_losses import layer_losses
from headscope.interventions.text_loss import MAX_TOKENS
from headscope.models import Model, load_model
from headscope.projections import output_projection

NO_MIXING = "no W_O"


def unmix(
    model: str | Model, corpus: str | Path | Sequence[str | Path] = (), *,
    max_tokens: int = MAX_TOKENS, seed: int = 0,
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> pd.DataFrame:  # fmt: skip
    """The loss when W_O of one layer, or of all, is a block-diagonal identity.

    Each head then writes its z into coordinates of its own, so that no output feature depends on
    more than one head; W_O's bias stays.

    Args:
        model: a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when empty.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.

    Returns:
        The table of `layer_losses`, with the one way `no W_O`.

    Raises:
        ModelError: the model does not run under the fused engine, or its heads together are not as
            wide as the residual stream.
        CorpusError: the text cannot be read.
    """
    loaded = load_model(model) if isinstance(model, str) else model
    ways = {NO_MIXING: partial(without_mixing, loaded.name)}
    return layer_losses(loaded, ways, corpus, max_tokens=max_tokens, seed=seed, progress=progress)


def without_mixing(name: str, network: Any, layers: set[int]) -> AbstractContextManager[None]:
    """A context within which W_O of these layers is a block-diagonal identity; see `unmixed`."""
    attention = attention_layers(network)
    return unmixed(name, [output_projection(attention[layer]) for layer in sorted(layers)])


@contextmanager
def unmixed(name: str, outputs: Sequence[nn.Module]) -> Iterator[None]:
    """Within this context these output projections hand on z as it is, with their bias.

    Raises:
        ModelError: z is not as wide as the residual stream.
    """

    def hand_on(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        z = inputs[0]
        if z.shape != output.shape:
            raise ModelError(
                f"{name}: its heads have {z.shape[-1]} numbers together and the residual stream "
                f"{output.shape[-1]}, so that W_O cannot be an identity"
            )
        return z if module.bias is None else z + module.bias

    with ExitStack() as hooks:
        for output in outputs:
            hooks.callback(output.register_forward_hook(hand_on).remove)
        yield
