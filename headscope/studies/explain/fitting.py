"""Text that is read, and rules of all layers from it in one forward pass; of the twin likewise."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.measure.batches import give_back
from headscope.measure.study_windows import evenly
from headscope.models.batching import ALL_TOGETHER
from headscope.models.layout.modules import projections_by_layer
from headscope.models.load import Model
from headscope.models.null_model import EVERY, null_model
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.stimuli.text import TextWindows
from headscope.studies.explain.catalogue import Catalogue, QueryTable, find_cells
from headscope.studies.explain.content_term import queries_and_keys
from headscope.studies.explain.fit import Texts
from headscope.studies.explain.layer_fit import Fitting, explain_layer
from headscope.studies.explain.patterns import Patterns
from headscope.studies.explain.select import Selector
from headscope.studies.explain.surrogate import LayerSurrogates

LENGTH = 128
"""Tokens of a window: attention beyond it is rare in text, and its cells grow with the square."""
SPREAD = 1_200
"""Tokens of text that each chosen window is spread over: neighbours are of one document."""
PARTS = 4
"""Of four documents two fit, one chooses, one judges."""
LOSS_WINDOWS = 24
STEP = 2
"""Every second query of a window: neighbours say nearly the same, other documents say more."""
TWIN_LAYERS = 4
"""Layers that are asked, spread over the depth: heads of a twin differ by chance alone."""


@dataclass(frozen=True, eq=False)
class Read:
    """Windows by what they are for; no document is in two of the first three."""

    fitted: tuple[Window, ...]
    choosing: tuple[Window, ...]
    judging: tuple[Window, ...]
    run: tuple[Window, ...]
    """Of documents that judge: where the loss is taken."""
    notes: tuple[str, ...]

    def rows(self) -> tuple[QueryTable, int, int]:
        """Queries of the windows that fit, then choose, then judge; how many of each of the first
        two together with those before.
        """
        rows = QueryTable.of((*self.fitted, *self.choosing, *self.judging), STEP)
        bounds = (len(self.fitted), len(self.fitted) + len(self.choosing))
        fitted, selection = np.searchsorted(rows.window.numpy(), bounds).tolist()
        return rows, fitted, selection


def read_split_windows(
    model: Model, corpus: str | Path | Sequence[str | Path], *, windows: int, seed: int
) -> Read:
    """Windows spread over a corpus, dealt by document.

    Raises:
        CorpusError: a corpus cannot be read, or has fewer than four windows to deal.
    """
    corpora = asked_corpora(corpus)
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=windows * SPREAD,
        max_length=min(LENGTH, model.context),
        seed=seed,
    )
    windows_read, notes = [window for window in text if len(window) > 2], []
    if len({window.document for window in windows_read}) < 2 * PARTS:
        notes.append(
            f"fewer than {2 * PARTS} documents: each window counts as one, and intervals are too "
            "narrow"
        )
        windows_read = [replace(window, document=i) for i, window in enumerate(windows_read)]
    if len(windows_read) < PARTS:
        raise CorpusError(
            f"{', '.join(map(str, corpora))}: {len(windows_read)} windows of text; a rule is "
            f"fitted, chosen and judged on different ones, which takes {PARTS} at least"
        )
    part = {
        document: i % PARTS for i, document in enumerate(sorted({w.document for w in windows_read}))
    }

    def some(parts: Collection[int], count: int) -> tuple[Window, ...]:
        of_parts = [window for window in windows_read if part[window.document] in parts]
        return tuple(of_parts[i] for i in evenly(len(of_parts), max(1, count)))

    return Read(
        some((0, 1), windows // 2),
        some((2,), windows // 4),
        some((3,), windows // 4),
        some((3,), LOSS_WINDOWS),
        tuple(notes),
    )


def fitting_of(catalogue: Catalogue, read: Read, features: int, rank: int) -> Fitting:
    """The features of all windows, ready to be weighed."""
    rows, fitted, selection = read.rows()
    packed = find_cells(catalogue, rows)
    texts = Texts(rows, packed, fitted, selection)
    resting = catalogue.lexicon.resting
    return Fitting(texts, Selector(packed, rows, fitted), features, rank, resting)


def fit_rules(
    model: Model,
    catalogue: Catalogue,
    fitting: Fitting,
    advance: Callable[[], None],
    *,
    only: Collection[int] | None = None,
) -> Patterns:
    """The rules of every layer, or of some, in one forward pass over all windows."""
    engine: Any = model.engine
    rows = fitting.texts.rows
    modules = projections_by_layer(engine.network)
    rules: dict[int, LayerSurrogates] = {}
    means: dict[int, Tensor] = {}

    def explain(attention: LayerAttention) -> None:
        layer, stream = attention.layer, attention.attention_input
        if only is not None and layer not in only:
            return
        pattern = next(attention.probabilities()).cpu()
        vectors = None
        if fitting.rank and stream is not None:
            query, key = queries_and_keys(modules[layer], engine.dimensions, stream)
            vectors = (query.cpu(), key.cpu())
        visible_rows = pattern[rows.window, :, rows.query].permute(1, 0, 2).float()
        normalised = visible_rows / visible_rows.sum(-1, keepdim=True)
        rules[layer] = explain_layer(fitting, layer, normalised, vectors)
        fitted = int(rows.window[fitting.texts.selection_rows - 1]) + 1
        means[layer] = _mean(pattern[:fitted].float(), rows)
        give_back()
        advance()

    stream_attention(model, rows.windows, whole_patterns, explain, batch_tokens=ALL_TOGETHER)
    return Patterns(catalogue, rules, means, model)


def _mean(pattern: Tensor, rows: QueryTable) -> Float[Tensor, "head place place"]:
    """The mean over windows that are long enough for the query; even where none is.

    For windows of up to `LENGTH` tokens.
    """
    lengths = torch.tensor([len(window) for window in rows.windows[: len(pattern)]])
    real = (torch.arange(pattern.shape[2]) < lengths[:, None]).float()
    mean = torch.einsum("whqk,wq->hqk", pattern, real)
    kind = rows.windows[0].attention_kind
    even = torch.from_numpy(~kind.hidden(LENGTH)).float()
    means = (even / even.sum(-1, keepdim=True)).repeat(len(mean), 1, 1)
    size = pattern.shape[-1]
    total = mean.sum(-1, keepdim=True)
    means[:, :size, :size] = torch.where(total > 0, mean / total, means[:, :size, :size])
    return means


def twin_rules(
    model: Model, catalogue: Catalogue, read: Read, fitting: Fitting, *, seed: int
) -> Mapping[int, LayerSurrogates]:
    """The rules of some layers of the twin, whose attention weights are shuffled.

    They are made as the model's own are, but on fewer windows: what they explain is of nothing
    learned.

    Args:
        model: whose attention weights are shuffled meanwhile; afterwards they are as they were.
        catalogue: where features come from.
        read: the windows of the model's own rules, of which every so many are taken.
        fitting: how large the model's own rules may be.
        seed: seeds the shuffle.
    """
    fitted, choosing, judging = (
        windows[::EVERY] for windows in (read.fitted, read.choosing, read.judging)
    )
    some = Read(fitted, choosing, judging, (), ())
    spread = np.linspace(0, model.layers - 1, min(TWIN_LAYERS, model.layers)).astype(int)
    layers = {model.attention_layers[index] for index in spread}
    twin_fitting = fitting_of(catalogue, some, fitting.features, fitting.rank)
    with null_model(model.engine, seed=seed):
        return fit_rules(model, catalogue, twin_fitting, lambda: None, only=layers).rules
