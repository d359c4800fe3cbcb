"""Redundancy of attention heads: divergence of their patterns, similarity of Q, K and V."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from einops import rearrange, reduce, repeat
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from torch import Tensor, nn

from headscope.corpus.window import Window
from headscope.errors import ModelError
from headscope.heads import head_name
from headscope.measure.study_windows import evenly, long_enough
from headscope.models.layout.projections import (
    block_input,
    input_projections,
    projection_modules,
)
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.models.stream import LayerAttention, stream_attention, whole_patterns
from headscope.options import Device, Flag, Positive, RunCorpus, Source, Windows
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.resolve import RunName, model_of, text_of, the_run
from headscope.runs.recorded_paths import name_of
from headscope.settings import Settings
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Points
from headscope.views.study_result import StudyResult

WINDOWS = 32
QUERIES = 12
CKA = ["query_cka", "key_cka", "value_cka"]
CLUSTER_BITS = 0.1
"""Largest divergence of two heads of a cluster."""
MOST_CLUSTERS = 5
"""Clusters that the notes list; the table has all."""


STUDY = Study(
    command=Command(
        group="study",
        summary="Measure how similar the heads are.",
        examples=("headscope study redundancy runs/mini --figure map.png",),
    ),
    rows="head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        primary | a head type | as in `heads.csv`
        x, y | root of bits | place on the map
        nearest | a head | the head whose attention is most alike
        distance | bits, [0, 1] | mean Jensen–Shannon divergence from it
        cluster | a head | first head of its cluster, in which any two heads have a divergence of at
            most 0.1 bits; empty if the head is in none
        query_cka, key_cka, value_cka | [0, 1] | mean linear CKA with the queries, keys or values of
            the other heads of the layer; blank if all share one
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
    """Measure how similar heads are in their attention patterns, queries, keys and values.

    The distance of two heads is the Jensen–Shannon divergence of their attention in bits, averaged
    over queries (Clark et al. 2019, section 6): 0 for heads with the same pattern, 1 for heads that
    never attend to the same key. The map (classical scaling) uses its square root, a metric (Endres
    and Schindelin 2003).

    A cluster is a set of heads of which any two have a divergence of at most 0.1 bits (complete
    linkage).

    Linear CKA (Kornblith et al. 2019) compares the outputs of W_Q, W_K and W_V at all tokens of the
    windows but the first: before rotary embedding, which turns all heads of a position alike, and
    before norms of single heads. Query heads of a group have one key and one value head, so that
    they share a number; a key head is compared with each other key head once. With few tokens for
    a head's width, CKA is too large, and equally so for queries, keys and values.

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
        notes = [f"the text has only {len(text)} windows"] if len(text) < windows else []
        # the inputs of each layer are summed in the pass that reads its patterns
        with ExitStack() as hooks:
            try:
                layers = watched_layers(model, hooks)
            except ModelError as error:
                layers = []
                notes.append(f"queries, keys and values are not compared: {error}")
            mean, count = mean_divergences(model, text, queries, bar)
    # patterns say what heads attend to, and CKA what they read there
    table = _head_table(run, mean, layers)
    by_layer = layer_means(table)
    return StudyResult(
        title=f"{name_of(model.name)}: {len(table)} heads, {count:,} queries of {len(text)} "
        "windows; distance: Jensen-Shannon divergence in bits",
        table=table,
        terminal_table=table.drop(columns=["x", "y"]).sort_values("distance", kind="stable"),
        notes=[*_cka_notes(table, by_layer), *_cluster_notes(table), *notes],
        values={"queries": count, "layers": by_layer.reset_index().to_dict("records")},
        draw=STUDY.draw,
    )


def layer_means(table: pd.DataFrame) -> pd.DataFrame:
    """Mean CKA of queries, keys and values by layer, where it is known."""
    return table.groupby("layer")[CKA].mean().dropna(how="all")


def _cka_notes(table: pd.DataFrame, by_layer: pd.DataFrame) -> list[str]:
    """Mean similarities, and in how many layers keys and values are above and below queries."""
    if by_layer.empty:
        return []
    # means over heads, then by layer
    means = table[CKA].mean().dropna()
    texts = [f"{name} {value:.2f}" for name, value in means.items()]
    notes = [f"mean similarity of two heads of a layer: {', '.join(texts)}"]
    for name in means.index:
        values = " ".join(f"{value:.2f}" for value in by_layer[name])
        notes.append(f"{name} by layer: {values}")
    # keys and values against queries, layer by layer
    for name in ("key_cka", "value_cka"):
        known = by_layer[["query_cka", name]].dropna()
        if len(known):
            higher = int((known[name] > known["query_cka"]).sum())
            notes.append(f"{name} is above query_cka in {higher} of {len(known)} layers")
    return notes


def _cluster_notes(table: pd.DataFrame) -> list[str]:
    """The largest clusters with the names of their heads."""
    in_cluster = table[table["cluster"] != ""]
    if in_cluster.empty:
        return [f"no two heads have a divergence of at most {CLUSTER_BITS} bits"]
    members: dict[str, list[str]] = {}
    for row in in_cluster.itertuples():
        members.setdefault(str(row.cluster), []).append(head_name(row.layer, row.head))
    largest = sorted(members.values(), key=len, reverse=True)
    texts = [", ".join(heads) for heads in largest[:MOST_CLUSTERS]]
    return [
        f"{len(in_cluster)} heads are in {len(largest)} clusters (at most {CLUSTER_BITS} bits "
        f"between any two); the largest: {'; '.join(texts)}"
    ]


def _head_table(
    run: Result, divergences: Float[ndarray, " pair"], layers: Sequence[LayerInputs]
) -> pd.DataFrame:
    """The table of the study, without values of CKA if no layer was read."""
    points = plane(squareform(np.sqrt(divergences)))
    heads = run.heads.sort_values(["layer", "head"], ignore_index=True)
    # no head is the nearest of itself
    others = squareform(divergences) + np.diag(np.full(len(heads), np.inf))
    names = np.array([head_name(row.layer, row.head) for row in heads.itertuples()])
    table = heads[["layer", "head", "primary"]].assign(
        x=points[:, 0],
        y=points[:, 1],
        nearest=names[others.argmin(1)],
        distance=others.min(1),
        cluster=cluster_names(names, divergences),
    )
    table[CKA] = np.concatenate([layer.similarities() for layer in layers]) if layers else np.nan
    return table


def cluster_names(names: ndarray, divergences: Float[ndarray, " pair"]) -> list[str]:
    """The first head of each head's cluster; empty for a head in none.

    >>> cluster_names(np.array(["a", "b", "c"]), np.array([0.05, 0.9, 0.8]))
    ['a', 'a', '']
    """
    if len(names) < 2:
        return [""] * len(names)
    tree = linkage(divergences, "complete")
    labels = fcluster(tree, CLUSTER_BITS, "distance")
    clusters = []
    for label in labels:
        members = np.flatnonzero(labels == label)
        clusters.append(str(names[members[0]]) if len(members) > 1 else "")
    return clusters


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
    if len(rows) < 2:
        return np.empty(0)
    entropies = _entropy(rows)
    blocks = []
    # one head against all later ones, so that memory grows with heads × keys, not with its square
    for head in range(len(rows) - 1):
        later = slice(head + 1, None)
        mixture = (rows[head] + rows[later]) / 2
        mean_entropy = (entropies[head] + entropies[later]) / 2
        blocks.append(_entropy(mixture) - mean_entropy)
    divergences: Float[ndarray, " pair"] = torch.cat(blocks).numpy()
    return divergences.clip(0, 1)


def _entropy(rows: Float[Tensor, "head key"]) -> Float[Tensor, " head"]:
    # the smallest normal number stands in for 0 in the logarithm, since 0 · log 0 is 0
    return -(rows * rows.clamp_min(torch.finfo(rows.dtype).tiny).log2()).sum(-1)


@dataclass(eq=False)
class LayerInputs:
    """W_Q, W_K and W_V of a layer, and sums over the tokens that they read."""

    weights: Sequence[Float[Tensor, "_ width d_model"]]
    """W_Q by head, W_K and W_V by key head."""
    moments: Tensor = field(default_factory=lambda: torch.zeros(1, 1).double())
    """Sum of y yᵀ over tokens in double precision, y = (1, input of the attention)."""

    def add(self, module: nn.Module, arguments: Any, keywords: Any) -> None:
        """Add the tokens of a window; called by torch before the attention."""
        # every window has the same first token
        inputs = block_input(arguments, keywords)[0, 1:].cpu().double()
        inputs = nn.functional.pad(inputs, (1, 0), value=1)
        self.moments = self.moments + inputs.T @ inputs

    def similarities(self) -> Float[ndarray, "head 3"]:
        """Mean CKA of each head with the others, in queries, keys and values; NaN if one is all."""
        count = self.moments[0, 0]
        mean = self.moments[0, 1:] / count
        second_moments = self.moments[1:, 1:] / count
        covariance = second_moments - mean.outer(mean)
        heads = len(self.weights[0])
        columns = []
        for weights in self.weights:
            cka = linear_cka(weights.cpu().double(), covariance)
            with_others = cka.sum(1) - cka.diagonal()
            of_groups = with_others / (len(cka) - 1)
            # heads that share a key or value head have the same similarity
            of_heads = repeat(of_groups, "group -> (group head)", head=heads // len(cka))
            columns.append(of_heads)
        return torch.stack(columns, 1).numpy()


def watched_layers(model: Model, hooks: ExitStack) -> list[LayerInputs]:
    """The layers with attention, to which the tokens of each forward pass are added.

    Raises:
        ModelError: W_Q, W_K and W_V of the model are not known.
    """
    engine: Any = model.engine
    heads = engine.dimensions.heads
    layers = []
    for module in projection_modules(plain_network_of(model)):
        # CKA of linear maps needs the covariance of their inputs alone, not the outputs
        matrices = input_projections(module, engine.dimensions)
        # the heads of a group share keys and values
        query, key, value = (matrix.reshape(-1, matrix.shape[-1]) for matrix in matrices)
        width = query.shape[-1]
        groups = heads * len(key) // len(query)  # some models have another number by layer
        by_head = [
            query.reshape(heads, -1, width),
            key.reshape(groups, -1, width),
            value.reshape(groups, -1, width),
        ]
        layer = LayerInputs(by_head)
        hooks.enter_context(module.register_forward_pre_hook(layer.add, with_kwargs=True))
        layers.append(layer)
    return layers


def linear_cka(
    weights: Float[Tensor, "head width d_model"], covariance: Float[Tensor, "d_model d_model"]
) -> Float[Tensor, "head head"]:
    """Linear CKA between all pairs of linear heads W x, in [0, 1].

        CKA(i, j) = ‖W_i C W_jᵀ‖² / (‖W_i C W_iᵀ‖ ‖W_j C W_jᵀ‖)

    with the covariance C of x and Frobenius norms (Kornblith et al. 2019, section 3).

    >>> weights = torch.tensor([[[1.0, 0.0]], [[0.0, 2.0]], [[1.0, 1.0]]])
    >>> linear_cka(weights, torch.eye(2)).tolist()
    [[1.0, 0.0, 0.5], [0.0, 1.0, 0.5], [0.5, 0.5, 1.0]]
    """
    width = weights.shape[1]
    rows = rearrange(weights, "head width d_model -> (head width) d_model")
    products = rows @ covariance @ rows.T
    squares = products.square()
    products = reduce(squares, "(i a) (j b) -> i j", "sum", a=width, b=width)
    norms = products.diagonal().sqrt()
    return products / norms.outer(norms)


def plane(distances: Float[ndarray, "head head"]) -> Float[ndarray, "head 2"]:
    """Classical multidimensional scaling to two dimensions (Torgerson 1952; Gower 1966).

    Points lie around 0, and each axis is turned so that its farthest point is positive.
    """
    squares = distances**2
    row_means = squares.mean(1, keepdims=True)
    column_means = squares.mean(0)
    # centred on both sides, squared distances become scalar products
    products = -(squares - row_means - column_means + squares.mean()) / 2
    values, vectors = np.linalg.eigh(products)
    points = np.zeros((len(distances), 2))
    for axis, number in enumerate(np.argsort(values)[::-1][:2]):
        length = np.sqrt(values[number].clip(0))
        points[:, axis] = vectors[:, number] * length
        # the sign of an eigenvector is arbitrary: the farthest point lies to the right, or above
        farthest = np.abs(points[:, axis]).argmax()
        if points[farthest, axis] < 0:
            points[:, axis] *= -1
    return points


def _text(run: Result, model: Model, corpora: Sequence[str | Path], windows: int) -> list[Window]:
    settings = Settings.from_json(run.info["settings"])
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=settings.max_tokens,
        max_length=settings.max_length,
        seed=settings.seed,
    )
    readable = long_enough(text, corpora)
    # evenly spread: the first windows may all be of one document
    return [readable[number] for number in evenly(len(readable), windows)]
