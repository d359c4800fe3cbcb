"""Collapse: the loss when all heads of a layer share one attention pattern.

Each head keeps its own values and its own output matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from einops import rearrange, reduce, repeat
from jaxtyping import Bool, Float
from pydantic import Field
from torch import Tensor

from headscope.causal.intervention import Intervention, Replacement
from headscope.causal.loss import network_of
from headscope.causal.text_losses import text_losses
from headscope.errors import ModelError
from headscope.measure.study_windows import MAX_TOKENS, text_windows, token_count
from headscope.models.families import refuse_encoder
from headscope.models.layout.projections import (
    attention_by_layer,
    input_biases,
    input_projections,
    outputs_by_layer,
    projection_modules,
)
from headscope.models.model import Model
from headscope.options import Corpus, Device, MaxTokens, Revision, Seed
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run
from headscope.runs.recorded_paths import name_of
from headscope.statistics.ratio import rise
from headscope.stimuli.natural_text import readable
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Points
from headscope.views.study_result import StudyResult

ALL, UNTOUCHED, NO_MIXING = "all", "untouched", "no W_O"
_Patterns = Float[Tensor, "batch head query key"]
_Shared = Float[Tensor, "batch 1 query key"]
_Visible = Bool[Tensor, "_ _ query key"]
_ByHead = Float[Tensor, "head width column"]


def _mean_pattern(patterns: _Patterns, visible: _Visible) -> _Shared:
    return reduce(patterns, "batch head query key -> batch 1 query key", "mean")


def _first_pattern(patterns: _Patterns, visible: _Visible) -> _Shared:
    return patterns[:, :1]


def _uniform(patterns: _Patterns, visible: _Visible) -> _Shared:
    keys = visible[:, :1].to(patterns.dtype).expand(len(patterns), -1, -1, -1)
    return keys / keys.sum(-1, keepdim=True)


WAYS: Mapping[str, Callable[[_Patterns, _Visible], _Shared]] = {
    "mean": _mean_pattern,
    "head 0": _first_pattern,
    "uniform": _uniform,
}
"""Ways to compute the shared pattern from the heads' patterns and the visible keys."""


def _first_weights(weights: _ByHead) -> Float[Tensor, "width column"]:
    return weights[0]


def _mean_weights(weights: _ByHead) -> Float[Tensor, "width column"]:
    return reduce(weights, "head width column -> width column", "mean")


WEIGHT_WAYS: Mapping[str, Callable[[_ByHead], Float[Tensor, "width column"]]] = {
    "mean W_QK": _mean_weights,
    "head 0 W_QK": _first_weights,
}
"""Ways to compute the W_Q, and the W_K, that all heads of a layer get."""
Change = Callable[[frozenset[int]], Intervention]
"""Makes the intervention on these layers."""


STUDY = Study(
    command=Command(
        group="study",
        summary="Measure the loss if the heads of a layer share one pattern.",
        examples=("headscope study collapse mini --weights --mixing --out collapse.csv",),
    ),
    rows="layer × way to replace its patterns, after one for the untouched model",
    columns=table_columns("""
        layer | count, or `all` | layer whose heads share one pattern; empty for the untouched model
        how | `untouched`, `mean`, `head 0`, `uniform`, `mean W_QK`, `head 0 W_QK` or `no W_O` | the
            shared pattern, or the shared W_Q and W_K; for `no W_O` the identity replaces W_O
        loss | nats per token, ≥ 0 | mean loss on text
        rise | nats per token | above the untouched model's
        ci_low, ci_high | nats per token | ends of the rise's 95 % interval
    """),
    figure=Points(x="layer", y="rise", by="how"),
    encoders=False,
    bad_call={"max_tokens": 0},
)


@study(STUDY)
def collapse(
    model: ModelOrRun,
    corpus: Corpus = None,
    *,
    weights: Annotated[
        bool,
        Field(
            description="Also give all heads of a layer the same W_Q and W_K: the heads' mean, or "
            "those of head 0."
        ),
    ] = False,
    mixing: Annotated[
        bool, Field(description="Also replace W_O by the identity, layer by layer (no W_O).")
    ] = False,
    max_tokens: MaxTokens = MAX_TOKENS,
    seed: Seed = 0,
    progress: Progress = True,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Measure the loss when all heads of a layer share one attention pattern.

    A rise of 0 means that the different patterns of this layer do not lower the loss.

    With `weights`, all heads of a layer get the same query and key weights, biases included. Those
    of head 0 give all heads the pattern of head 0, unless each head has a learned sink.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine; with
            `weights`, its W_Q and W_K are not known; with `mixing`, its heads together are not as
            wide as the residual stream.
        CorpusError: the text cannot be read.
    """
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, _ = model_or_run(model, revision=revision, device=device)
        # ways of sharing patterns, sharing weights, and no mixing
        changes: dict[str, Change] = {}
        for way in WAYS:
            changes[way] = partial(collapsed, heads=loaded.heads, way=way)
        if weights:
            changes |= {way: partial(SharedWeights, way=way) for way in WEIGHT_WAYS}
        if mixing:
            changes[NO_MIXING] = Unmixed
        # every change runs on the same windows, so that rises are differences of pairs
        losses = layer_losses(
            loaded, changes, corpus, max_tokens=max_tokens, seed=seed, progress=bar
        )
    return StudyResult(
        title=f"{name_of(loaded.name)}: rise of the loss in nats per token when a layer's heads "
        f"share one pattern; {losses['loss'][0]:.4f} with their own",
        table=losses,
        terminal_table=losses[1:],
        draw=STUDY.draw,
    )


def collapsed(layers: frozenset[int], heads: int, way: str) -> Replacement:
    """The intervention that gives all of the `heads` heads of these layers one pattern.

    The pattern is computed while the model runs, so that a layer above another collapsed layer
    uses the changed residual stream.
    """
    shared = WAYS[way]
    replaced = {layer: range(heads) for layer in layers}
    return Replacement(replaced, lambda call: shared(call.pattern(), call.visible))


def layer_losses(
    model: Model,
    changes: Mapping[str, Change],
    corpus: str | Path | Sequence[str | Path],
    *,
    max_tokens: int,
    seed: int,
    progress: OnProgress,
) -> pd.DataFrame:
    """The loss under each change: of the untouched model, then by layer and for all layers.

    Returns:
        A row per layer × change; the interval is NaN for the untouched model.

    Raises:
        ModelError: the model runs under another engine.
        CorpusError: the text cannot be read.
    """
    refuse_encoder(model, "study collapse")
    network_of(model)  # fails before any text is read
    windows = text_windows(model, corpus, max_tokens=max_tokens, seed=seed)
    # each layer alone, and all of them
    targets = {str(layer): frozenset({layer}) for layer in model.attention_layers}
    targets[ALL] = frozenset(model.attention_layers)
    interventions = {}
    for name, layers in targets.items():
        for way, change in changes.items():
            interventions[name, way] = change(layers)
    # each change counts as a pass, though only the layers from the changed one on run again
    passes = 1 + len(interventions)
    advance = Steps(progress, token_count(windows) * passes).advance
    losses = text_losses(model, windows, interventions, advance=advance)
    # rises over the untouched model, over the same blocks of windows
    clean = losses.unchanged
    rows: list[dict[str, Any]] = [
        {"layer": "", "how": UNTOUCHED, "loss": clean.mean, "rise": 0.0},
    ]
    for (name, way), changed in losses.changed.items():
        change_of_loss = rise(changed, clean, seed=seed)
        rows.append(
            {
                "layer": name,
                "how": way,
                "loss": changed.mean,
                "rise": change_of_loss.mean,
                "ci_low": change_of_loss.low,
                "ci_high": change_of_loss.high,
            }
        )
    return pd.DataFrame(rows, columns=STUDY.names)


@dataclass(frozen=True)
class SharedWeights(Intervention):
    """Gives all heads of some layers one W_Q, and one W_K, with their biases."""

    changed: frozenset[int]
    """Numbers of the layers."""
    way: str
    """Name of a way in `WEIGHT_WAYS`."""

    @property
    def layers(self) -> frozenset[int]:
        """Numbers of the layers."""
        return self.changed

    @contextmanager
    def applied(self, model: Model) -> Iterator[None]:
        """Change the weights within this context; afterwards they are copied back.

        Raises:
            ModelError: W_Q and W_K of the model are not known.
        """
        tensors = self._tensors(model)
        originals = [tensor.rows.clone() for tensor in tensors]
        try:
            for tensor in tensors:
                _share(tensor, WEIGHT_WAYS[self.way])
            yield
        finally:
            for tensor, original in zip(tensors, originals, strict=True):
                tensor.rows.copy_(original)

    def _tensors(self, model: Model) -> list[_SharedRows]:
        """W_Q and W_K of the layers, and their biases."""
        engine: Any = model.engine
        dimensions = engine.dimensions
        layers = attention_by_layer(engine.network)
        holders = dict(zip(layers, projection_modules(engine.network), strict=True))
        tensors = []
        for layer in sorted(self.changed):
            query, key, _ = input_projections(holders[layer], dimensions)
            biases = input_biases(holders[layer], dimensions)
            width = query[..., 0].numel() // model.heads
            tensors += [_SharedRows(rows, width) for rows in (query, key, *biases[:2])]
        return tensors


@dataclass(frozen=True, eq=False)
class _SharedRows:
    """A matrix or bias of a layer, a view in place."""

    rows: Float[Tensor, "*rows column"]
    """Rows of head 0, then of head 1, and so on."""
    width: int
    """Rows of a head."""


def _share(
    tensor: _SharedRows, shared_by: Callable[[_ByHead], Float[Tensor, "width column"]]
) -> None:
    """Write one head's rows into the rows of every head, in place."""
    rows = tensor.rows.reshape(-1, tensor.rows.shape[-1])
    by_head = rearrange(rows, "(head width) column -> head width column", width=tensor.width)
    shared = shared_by(by_head)
    of_all = repeat(shared, "width column -> (head width) column", head=len(by_head))
    tensor.rows.copy_(of_all.view(tensor.rows.shape))


@dataclass(frozen=True)
class Unmixed(Intervention):
    """Replaces W_O by the identity; the bias stays."""

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
        outputs = outputs_by_layer(engine.network)

        # W_O gives what it reads: heads write what they read, unmixed
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
                hooks.callback(outputs[layer].register_forward_hook(hand_on).remove)
            yield
