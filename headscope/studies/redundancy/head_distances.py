"""Distances of a run's heads by where they look, as a table, groups, clusters of heads that are
alike, and a map: points in a plane whose distances are as close to those given as can be.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import numpy as np
import pandas as pd
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from headscope.arguments import takes
from headscope.corpus.window import Window
from headscope.errors import CorpusError, HeadscopeError, RunError
from headscope.heads import head_name
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.study_windows import evenly
from headscope.measure.tally import MIN_BLOCKS
from headscope.models.load import Model
from headscope.runs.reopen_model import Again, model_of, text_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.settings import Settings
from headscope.statistics.result import Result
from headscope.stimuli.text import TextWindows
from headscope.studies.redundancy.divergence import read_divergences
from headscope.studies.redundancy.group_tests import compare_groups
from headscope.studies.redundancy.redundancy_result import Redundancy

WINDOWS = 32
QUERIES = 12
"""Queries of a window: neighbours look at much the same keys, so that more windows tell more."""
COLUMNS = ["layer", "head", "primary", "cluster", "x", "y", "nearest", "distance"]


@takes(run=A_RUN)
def redundancy(
    run: Result | str | Path,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    windows: int = WINDOWS,
    queries: int = QUERIES,
    seed: int = 0,
    progress: Progress = True,
    **again: Unpack[Again],
) -> Redundancy:
    """Say how alike a model's heads are: nearest heads, clusters, a map, groups compared.

    All heads of a run's model are compared, across layers, by where they look on natural text. The
    distance of two heads is the Jensen–Shannon divergence of their attention, summed over
    tokens as in Clark et al. 2019 (section 6), divided by the number of tokens; see
    `headscope.studies.redundancy.divergence`. Its square root at one query is a metric (Endres and
    Schindelin 2003) and a Euclidean one (Fuglede and Topsøe 2004), and so is the root of the mean
    over queries. Average linkage and classical scaling therefore work on the root: the scaling
    loses nothing but the axes that a plane has no room for. Clark et al. scale the divergence
    itself, where the triangle inequality need not hold.

    Args:
        run: a run or its folder; its heads' types colour the map.
        corpus: files or folders of text; those of the run when None.
        windows: windows of text to read, evenly spread over those of the run.
        queries: queries of each window, evenly spread; the beginning-of-text token is none.
        seed: seeds bootstrap and permutations. Which text is read depends on the run's own seed.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all.
        again: `source`, the run's model, or where it is now if it is not where it was; `device`,
            `cpu`, `cuda`, …, where `auto`, the default, takes a GPU when there is one.

    Raises:
        RunError: no run there, or one without a model.
        ModelError: the model cannot be loaded.
        CorpusError: the text is not there any more, or has no window of two tokens.
        HeadscopeError: a number is out of range, or the model has a single head.
    """
    run = the_run(run)
    corpora = text_of(run, corpus)
    with progress_bar(progress) as bar:
        model = model_of(run, **again)
        if model.parts:
            raise RunError(
                f"{model.name}: heads that read different texts, as in an encoder and a decoder, "
                "are not compared"
            )
        heads = _heads(run, model)
        text = _text(run, model, corpora, windows)
        divergences = read_divergences(model, text, queries, bar)
    mean = divergences.mean
    roots = np.sqrt(mean)
    clusters, placed = cluster(roots), plane(squareform(roots))
    comparison = compare_groups(heads, divergences, seed=seed)
    distances = squareform(mean)
    return Redundancy(
        Path(model.name).name,
        _table(heads, distances, clusters.numbers, placed.points),
        comparison.groups,
        comparison.tests,
        distances,
        clusters.silhouette,
        placed.variance_share,
        len(text),
        int(divergences.queries.sum()),
        tuple(_notes(len(text), windows)),
    )


def _heads(run: Result, model: Model) -> pd.DataFrame:
    """The run's heads in the order in which the model's layers come."""
    heads = run.heads.sort_values(["layer", "head"], ignore_index=True)
    grid = [(layer, head) for layer in model.attention_layers for head in range(model.heads)]
    if list(zip(heads["layer"], heads["head"], strict=True)) != grid:
        last = head_name(int(heads["layer"].max()), int(heads["head"].max()))
        raise RunError(
            f"{model.name} has {model.layers} layers × {model.heads} heads, but the run has "
            f"{len(heads)} heads up to {last}; classify the model again"
        )
    if len(grid) < 2:
        raise HeadscopeError(f"{model.name} has a single head; there is no other to compare with")
    return heads


def _text(run: Result, model: Model, corpora: Sequence[str | Path], windows: int) -> list[Window]:
    """Windows evenly spread over what the run read: the first ones may all be of one document."""
    settings = Settings.from_json(run.info["settings"])
    options = {name: getattr(settings, name) for name in ("max_tokens", "max_length", "seed")}
    text = TextWindows(corpora, model.tokenizer, **options)
    readable = [window for window in text if len(window) > 1]
    if not readable:
        raise CorpusError(f"{', '.join(map(str, corpora))}: no text of even one token to read")
    return [readable[i] for i in evenly(len(readable), windows)]


def _table(
    heads: pd.DataFrame, distances: Float[ndarray, "head head"], clusters: ndarray, points: ndarray
) -> pd.DataFrame:
    others = np.where(np.eye(len(heads), dtype=bool), np.inf, distances)
    nearest = others.argmin(1)
    names = [head_name(row.layer, row.head) for row in heads.itertuples()]
    return heads[["layer", "head", "primary"]].assign(
        cluster=clusters,
        x=points[:, 0],
        y=points[:, 1],
        nearest=[names[i] for i in nearest],
        distance=others.min(1),
    )[COLUMNS]


def _notes(read: int, requested: int) -> list[str]:
    notes = []
    if read < requested:
        notes.append(f"{requested} windows were asked for, but the text has {read}")
    if read < MIN_BLOCKS:
        notes.append(f"{read} windows, fewer than {MIN_BLOCKS}: no intervals")
    return notes


MAX_CLUSTERS = 40
"""More clusters are not tried: a table or a map of more could not be read."""


class Clusters(NamedTuple):
    """The cluster of each head."""

    numbers: Int[ndarray, " head"]
    """From 1, the largest cluster first; of equal ones, that with the earliest head."""
    silhouette: float
    """The mean silhouette, in [−1, 1]; NaN for a single cluster."""


def cluster(distances: Float[ndarray, " pair"]) -> Clusters:
    """Cluster heads by average linkage (Sokal and Michener 1958).

    Average linkage weighs all pairs of two clusters alike: single linkage chains heads that differ,
    and Ward's assumes round clusters. The tree is cut into the number of clusters, from 2 to 40,
    with the largest mean silhouette (Rousseeuw 1987), the fewest of equals.

    Args:
        distances: of all pairs of at least two heads, in condensed order; a metric.
    """
    square = squareform(distances)
    tree = linkage(distances, "average")
    best = Clusters(np.ones(len(square), np.int64), float("nan"))
    for count in range(2, min(len(square) - 1, MAX_CLUSTERS) + 1):
        numbers = fcluster(tree, count, "maxclust").astype(np.int64)
        if numbers.max() > 1:
            value = silhouette(square, numbers)
            if not value <= best.silhouette:
                best = Clusters(numbers, value)
    return Clusters(_by_size(best.numbers), best.silhouette)


def silhouette(distances: Float[ndarray, "head head"], numbers: Int[ndarray, " head"]) -> float:
    """The mean of (b − a) / max(a, b) over heads (Rousseeuw 1987); 0 for a head alone.

    a is a head's mean distance to the others of its cluster, b that to the nearest other cluster.
    Above 0.5 clusters are clear, below 0.25 there are none to speak of (Kaufman and Rousseeuw
    1990, table 4).
    """
    _, numbers = np.unique(numbers, return_inverse=True)
    member = np.eye(numbers.max() + 1)[numbers]
    sizes = member.sum(0)
    sums = distances @ member
    is_member = numbers[:, None] == np.arange(len(sizes))
    inside = sums[is_member] / np.maximum(sizes[numbers] - 1, 1)
    outside = np.where(is_member, np.inf, sums / sizes).min(1)
    larger = np.maximum(inside, outside)
    alone = (sizes[numbers] == 1) | (larger == 0)
    return float(np.where(alone, 0, (outside - inside) / np.where(larger > 0, larger, 1)).mean())


class Plane(NamedTuple):
    """Points in a plane."""

    points: Float[ndarray, "head 2"]
    """Around 0, in the unit of the distances; the first axis spreads the most."""
    variance_share: float
    """The share of all variance that the plane shows, in [0, 1]; NaN when all points are one."""


def plane(distances: Float[ndarray, "head head"]) -> Plane:
    """Classical multidimensional scaling (Torgerson 1952; Gower 1966).

    Twice centred, −½ d² is the matrix of inner products of the points; its first two eigenvectors,
    each times the root of its eigenvalue, are their coordinates. Each axis points to where its
    farthest point lies, so that the same distances always give the same map.
    """
    squares = distances**2
    inner = -(squares - squares.mean(0) - squares.mean(1)[:, None] + squares.mean()) / 2
    values, vectors = np.linalg.eigh(inner)
    largest = np.argsort(values)[::-1][:2]
    eigenvalues = values[largest].clip(0)
    points = np.zeros((len(distances), 2))
    points[:, : len(largest)] = vectors[:, largest] * np.sqrt(eigenvalues)
    farthest = points[np.abs(points).argmax(0), [0, 1]]
    total = values.clip(0).sum()
    variance_share = float(eigenvalues.sum() / total) if total > 0 else float("nan")
    return Plane(points * np.where(farthest < 0, -1, 1), variance_share)


def _by_size(numbers: Int[ndarray, " head"]) -> Int[ndarray, " head"]:
    """The same clusters numbered from 1, the largest first."""
    _, first, inverse, sizes = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True
    )
    rank = np.empty(len(sizes), np.int64)
    rank[np.lexsort((first, -sizes))] = np.arange(1, len(sizes) + 1)
    ranked: Int[ndarray, " head"] = rank[inverse]
    return ranked
