"""Redundancy of attention heads: Jensen–Shannon divergence between the patterns of all pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field
from scipy.spatial.distance import squareform
from torch import Tensor

from headscope.corpus.window import Window
from headscope.errors import CorpusError
from headscope.heads import head_name
from headscope.measure.study_windows import evenly
from headscope.models.model import Model
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.options import Device, Flag, Positive, RunCorpus, Source, Windows
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.runs.recorded_paths import name_of
from headscope.runs.resolve import RunName, model_of, text_of, the_run
from headscope.settings import Settings
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.study import Study, study, table_columns
from headscope.views.study_figure import Points
from headscope.views.study_result import StudyResult

WINDOWS = 32
QUERIES = 12


STUDY = Study(
    rows="head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        primary | a head type | as in `heads.csv`
        x, y | root of bits | place on the map
        nearest | a head | the head whose attention is most alike
        distance | bits, [0, 1] | mean Jensen–Shannon divergence from it
    """),
    figure=Points(x="x", y="y", by="primary", is_map=True),
    bad_call={"windows": 0},
)


@study(STUDY)
def redundancy(
    run: RunName,
    corpus: RunCorpus = None,
    *,
    windows: Windows = WINDOWS,
    queries: Annotated[
        Positive, Flag(""), Field(description="Queries of each window, evenly spread.")
    ] = QUERIES,
    progress: Progress = True,
    source: Source = None,
    device: Device = "auto",
) -> StudyResult:
    """Measure how similar the attention patterns of a model's heads are.

    The distance of two heads is the Jensen–Shannon divergence of their attention in bits, averaged
    over queries (Clark et al. 2019, section 6): 0 for heads with the same pattern, 1 for heads that
    never attend to the same key. The map (classical scaling) uses its square root, a metric (Endres
    and Schindelin 2003).

    Raises:
        RunError: no run there, or one without a model.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or is empty.
    """
    run = the_run(run)
    corpora = text_of(run, corpus)
    with progress_bar(progress) as bar:
        model = model_of(run, source=source, device=device)
        text = _text(run, model, corpora, windows)
        mean, count = mean_divergences(model, text, queries, bar)
    points = plane(squareform(np.sqrt(mean)))
    heads = run.heads.sort_values(["layer", "head"], ignore_index=True)
    others = squareform(mean) + np.diag(np.full(len(heads), np.inf))
    names = np.array([head_name(row.layer, row.head) for row in heads.itertuples()])
    table = heads[["layer", "head", "primary"]].assign(
        x=points[:, 0],
        y=points[:, 1],
        nearest=names[others.argmin(1)],
        distance=others.min(1),
    )
    return StudyResult(
        title=f"{name_of(model.name)}: {len(table)} heads, {count:,} queries of {len(text)} "
        "windows; distance: Jensen-Shannon divergence in bits",
        table=table,
        terminal_table=table.drop(columns=["x", "y"]).sort_values("distance", kind="stable"),
        notes=[f"the text has only {len(text)} windows"] if len(text) < windows else [],
        values={"queries": count},
        draw=STUDY.draw,
    )


def mean_divergences(
    model: Model, windows: Sequence[Window], queries: int, progress: OnProgress
) -> tuple[Float[ndarray, " pair"], int]:
    """Divergence of all pairs of heads in bits, mean over up to `queries` queries of each window.

    Returns:
        The divergences in scipy's condensed order, (0, 1), (0, 2), …, (n − 2, n − 1), and the
        number of queries.
    """
    sums, count = [], 0
    steps = Steps(progress, sum(map(len, windows)))
    for window in windows:
        # at the beginning-of-text token all heads attend to that token
        positions = 1 + evenly(len(window) - 1, queries)
        sums.append(divergence_sums(_rows(model, window, positions), positions))
        count += len(positions)
        steps.advance(len(window))
    return np.sum(sums, axis=0) / count, count


def divergence_sums(
    rows: Float[Tensor, "head query key"], queries: Int[ndarray, " query"]
) -> Float[ndarray, " pair"]:
    """Divergence of all pairs of heads in bits, summed over queries at these positions."""
    sums = np.zeros(len(rows) * (len(rows) - 1) // 2)
    for row, query in enumerate(queries.tolist()):
        seen = None if rows[:, row, query + 1 :].any() else query + 1  # an encoder sees all keys
        sums += head_divergences(rows[:, row, :seen])
    return sums


def _rows(
    model: Model, window: Window, queries: Int[ndarray, " query"]
) -> Float[Tensor, "head query key"]:
    layers: list[Tensor] = []

    def add(attention: LayerAttention) -> None:
        (pattern,) = attention.probabilities()
        layers.append(pattern[0, :, torch.from_numpy(queries).to(pattern.device)].cpu().double())

    stream_attention(model, [window], whole_patterns, add)
    rows = torch.cat(layers)
    return rows / rows.sum(-1, keepdim=True)  # rows in half precision sum to 1 only approximately


def head_divergences(rows: Float[Tensor, "head key"]) -> Float[ndarray, " pair"]:
    """Jensen–Shannon divergence of all pairs of heads at one query, in bits, in [0, 1].

        JS(p, q) = H(m) − ½ (H(p) + H(q)),  m = ½ (p + q)

    with logarithms to base 2 (Lin 1991, equation 4.1).

    Args:
        rows: attention of each head over the keys, in double precision; each row sums to 1.

    >>> rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]], dtype=torch.double)
    >>> head_divergences(rows).round(3).tolist()
    [1.0, 0.311, 0.311]
    """
    entropies = _entropy(rows)
    # one head against all later ones, so that memory grows with heads × keys, not with its square
    blocks = [
        _entropy((rows[i] + rows[i + 1 :]) / 2) - (entropies[i] + entropies[i + 1 :]) / 2
        for i in range(len(rows) - 1)
    ]
    flat: Float[ndarray, " pair"] = torch.cat(blocks).numpy() if blocks else np.empty(0)
    return flat.clip(0, 1)


def _entropy(rows: Float[Tensor, "head key"]) -> Float[Tensor, " head"]:
    # the smallest normal number stands in for 0 in the logarithm, since 0 · log 0 is 0
    return -(rows * rows.clamp_min(torch.finfo(rows.dtype).tiny).log2()).sum(-1)


def plane(distances: Float[ndarray, "head head"]) -> Float[ndarray, "head 2"]:
    """Classical multidimensional scaling to two dimensions (Torgerson 1952; Gower 1966).

    Points lie around 0, and each axis is turned so that its farthest point is positive.
    """
    squares = distances**2
    inner = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    values, vectors = np.linalg.eigh(inner)
    largest = np.argsort(values)[::-1][:2]
    points = np.zeros((len(distances), 2))
    points[:, : len(largest)] = vectors[:, largest] * np.sqrt(values[largest].clip(0))
    farthest = points[np.abs(points).argmax(0), [0, 1]]
    return points * np.where(farthest < 0, -1, 1)


def _text(run: Result, model: Model, corpora: Sequence[str | Path], windows: int) -> list[Window]:
    settings = Settings.from_json(run.info["settings"])
    options = {name: getattr(settings, name) for name in ("max_tokens", "max_length", "seed")}
    text = TextWindows(corpora, model.tokenizer, **options)
    readable = [window for window in text if len(window) > 1]
    if not readable:
        raise CorpusError(f"{', '.join(map(str, corpora))}: no text of even one token to read")
    # evenly spread: the first windows may all be of one document
    return [readable[i] for i in evenly(len(readable), windows)]
