"""The worth of heads that attend differently: all heads of a layer share one pattern.

Each head keeps its own values and its own output matrix; only where it looks is no longer its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from jaxtyping import Bool, Float
from torch import Tensor

from headscope.arguments import either, takes
from headscope.errors import ChoiceError, ModelError
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.measure.readable import readable
from headscope.measure.study_windows import MAX_LENGTH, MAX_TOKENS, rise, text_windows, token_count
from headscope.models.engines.override import AttentionCall
from headscope.models.intervention import Intervention, Pattern, PatternReplaced
from headscope.models.layout.modules import attention_by_layer
from headscope.models.layout.projections import output_projection
from headscope.models.load import Model
from headscope.models.loss import loss, network_of
from headscope.models.model_kinds import refuse_encoder
from headscope.runs.reopen_model import model_or_run
from headscope.runs.resolve import A_MODEL, A_RUN, Named
from headscope.studies.collapse.collapse_result import ALL, COLUMNS, NO_MIXING, UNTOUCHED, Collapse

_Patterns = Float[Tensor, "batch head query key"]
_Shared = Float[Tensor, "batch 1 query key"]
_Visible = Bool[Tensor, "_ _ query key"]


def _mean(patterns: _Patterns, visible: _Visible) -> _Shared:
    return patterns.mean(1, keepdim=True)


def _first(patterns: _Patterns, visible: _Visible) -> _Shared:
    return patterns[:, :1]


def _uniform(patterns: _Patterns, visible: _Visible) -> _Shared:
    keys = visible[:, :1].to(patterns.dtype).expand(len(patterns), -1, -1, -1)
    return keys / keys.sum(-1, keepdim=True)


WAYS: Mapping[str, Callable[[_Patterns, _Visible], _Shared]] = {
    "mean": _mean,
    "head 0": _first,
    "uniform": _uniform,
}
"""The one pattern that all heads of a layer get, from their own and the visible keys; rows sum to
1, or to what the heads' sinks leave."""
Change = Callable[[frozenset[int]], Intervention]
"""From numbers of layers to the intervention that changes them."""


@takes(model=either(A_RUN, A_MODEL))
def collapse(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    mixing: bool = False,
    max_tokens: int = MAX_TOKENS,
    seed: int = 0,
    progress: Progress = True,
    **options: Unpack[Named],
) -> Collapse:
    """Say what head diversity is worth: the loss when a layer's heads share one pattern.

    The heads share it layer by layer, and in all layers at once.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; what ships with headscope when None.
        mixing: also put an identity in W_O's place, layer by layer. It is the way `no W_O`; see
            `headscope.studies.collapse.shared_pattern`.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all passes.
        options: `revision`, a branch, tag or commit on the hub, for a name; `device`, `cpu`,
            `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Returns:
        A table as of `layer_losses`, with a row per layer × way in `WAYS`. A rise of 0 says that
        the heads of the layer might as well have had one pattern.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine, or its
            heads together are not as wide as the residual stream and W_O is to be an identity.
        CorpusError: the text cannot be read.
    """
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, _ = model_or_run(model, longest=MAX_LENGTH, **options)
        changes: dict[str, Change] = {
            way: partial(collapsed, heads=loaded.heads, way=way) for way in WAYS
        }
        if mixing:
            changes[NO_MIXING] = Unmixed
        losses = layer_losses(
            loaded, changes, corpus, max_tokens=max_tokens, seed=seed, progress=bar
        )
    return Collapse(loaded.name, losses)


def collapsed(layers: frozenset[int], heads: int, way: str) -> PatternReplaced:
    """The intervention by which the heads of some layers attend by one pattern.

    It is made from the layer's own queries and keys, in a layer above another collapsed one from
    what that one wrote.

    Args:
        layers: their numbers.
        heads: of a layer.
        way: one of `WAYS`.

    Raises:
        ChoiceError: no such way.
    """
    if way not in WAYS:
        raise ChoiceError("way to collapse", way, WAYS)
    shared = WAYS[way]

    def pattern(call: AttentionCall) -> Pattern:
        return shared(call.pattern(), call.visible)

    return PatternReplaced(dict.fromkeys(layers, range(heads)), pattern)


def layer_losses(
    model: Model,
    changes: Mapping[str, Change],
    corpus: str | Path | Sequence[str | Path],
    *,
    max_tokens: int,
    seed: int,
    progress: OnProgress,
) -> pd.DataFrame:
    """The loss on text under each change, in one layer after the other and then in all.

    Args:
        model: a model that runs under the fused engine.
        changes: each way to change layers, by its name.
        corpus: files or folders of text; what ships with headscope when None.
        max_tokens: tokens of text to read, to the end of a window.
        seed: seeds the choice of files and the bootstrap.
        progress: called with the tokens done and the tokens in all passes.

    Returns:
        First the untouched model, then a row per layer (and `all`) × change: `layer`, `how`, the
        `loss` in nats per token, its `rise` over the untouched model, and the rise's 95 % interval
        `ci_low`, `ci_high` by bootstrap over windows (NaN where there is none).

    Raises:
        ModelError: the model runs under another engine.
        CorpusError: the text cannot be read.
    """
    refuse_encoder(model, "study collapse")
    network_of(model)  # refuses before any text is read
    windows = text_windows(model, corpus, max_tokens=max_tokens, seed=seed)
    targets = {str(layer): frozenset({layer}) for layer in model.attention_layers}
    targets[ALL] = frozenset(model.attention_layers)
    done, total = 0, token_count(windows) * (1 + len(targets) * len(changes))

    def advance(tokens: int) -> None:
        nonlocal done
        done += tokens
        progress(done, total)

    clean = loss(model, windows, advance=advance)
    rows = [("", UNTOUCHED, clean.mean, 0.0, float("nan"), float("nan"))]
    for name, layers in targets.items():
        for way, change in changes.items():
            changed = loss(model, windows, change(layers), advance=advance)
            rows.append((name, way, changed.mean, *rise(changed, clean, seed=seed)))
    return pd.DataFrame(rows, columns=COLUMNS)


@dataclass(frozen=True)
class Unmixed(Intervention):
    """Output projections that hand on z as it is, with their bias: W_O is an identity."""

    changed: frozenset[int]
    """Numbers of the layers."""

    @property
    def layers(self) -> frozenset[int]:
        """Numbers of the layers."""
        return self.changed

    @contextmanager
    def applied(self, model: Model) -> Iterator[None]:
        """Change the model within this context.

        Raises:
            ModelError: while it runs, if z is not as wide as the residual stream.
        """
        engine: Any = model.engine
        attention = attention_by_layer(engine.network)

        def hand_on(module: Any, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            z = inputs[0]
            if z.shape != output.shape:
                raise ModelError(
                    f"{model.name}: its heads have {z.shape[-1]} numbers together and the "
                    f"residual stream {output.shape[-1]}, so that W_O cannot be an identity"
                )
            return z if module.bias is None else z + module.bias

        with ExitStack() as hooks:
            for layer in sorted(self.changed):
                module = output_projection(attention[layer])
                hooks.callback(module.register_forward_hook(hand_on).remove)
            yield
