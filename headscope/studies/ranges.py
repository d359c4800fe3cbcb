"""Range of heads: the window that keeps their outputs, and induction by the distance of the copies.

A study rather than a stimulus: its numbers are outputs and curves, not masses on pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from headscope.causal.kept_keys import AttentionTile, chosen_rows
from headscope.corpus.shipped import asked_corpora
from headscope.errors import CorpusError
from headscope.heads import head_name
from headscope.measure.study_windows import evenly
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.models.plain_network import plain_network_of
from headscope.options import Device, Flag, Positive, Revision, RunCorpus, Seed, Source
from headscope.progress import Progress, Steps, progress_bar
from headscope.resolve import ModelOrRun, model_or_run, text_of
from headscope.runs.recorded_paths import name_of
from headscope.stimuli.natural_text import TextWindows, readable
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Lines
from headscope.views.study_result import StudyResult

LENGTH, WINDOWS, QUERIES = 2_048, 4, 32
FIRST = 4
"""First tokens that every window keeps, as StreamingLLM does (Xiao et al. 2024)."""
ENOUGH = 0.95
SHORTEST = 16
"""Tokens of the shortest window."""
COPY = 32
"""Tokens of a passage that comes twice."""
NEAREST = 64
"""Least distance of two copies."""
LEAST_MASS = 0.1
"""Least mass at the nearest copies of a head whose range is stated."""
FIGURE_HEADS = 8
"""Heads with the longest windows that the figure shows."""
KINDS = ("random", "natural")

STUDY = Study(
    command=Command(
        group="study",
        name="range",
        summary="Measure how far back each head looks.",
        examples=("headscope study range smollm2 --length 2048 --figure range.png",),
    ),
    rows="head",
    columns=table_columns("""
        layer, head | count, ≥ 0 | layer of the head, and its number there
        tags | types joined by `;` | tags of the head in the run; empty without a run
        window | tokens | least n, doubled from 16, with which the last n tokens and the first four
            keep 95 % of its output, as all larger windows do
        first | share | attention on the first four tokens
        random, natural | share | attention on the token after the earlier copy, at copies of random
            or of natural tokens that lie 64 tokens apart
        random_range, natural_range | tokens | largest distance of the copies up to which that is at
            least half of it; empty below 0.1
    """),
    figure=Lines(x="tokens", y="share", by="head", panels=("curve",)),
    encoders=False,
    bad_call={"windows": 0},
)


@study(STUDY)
def ranges(
    model: ModelOrRun,
    corpus: RunCorpus = None,
    *,
    length: Annotated[
        Positive, Field(description="Tokens of a window, at most the model's context.")
    ] = LENGTH,
    windows: Annotated[Positive, Field(description="Windows of each kind.")] = WINDOWS,
    queries: Annotated[
        Positive, Flag(""), Field(description="Queries of each window, in its second half.")
    ] = QUERIES,
    seed: Seed = 0,
    progress: Progress = True,
    source: Source = None,
    revision: Revision = None,
    device: Device = "auto",
) -> StudyResult:
    """Measure how far back each head looks: the window that it needs, and the reach of induction.

    A window of n tokens attends to the last n tokens and the first four alone, with attention
    renormalised. It keeps 1 − Σ ‖z − z_n‖ ÷ Σ ‖z‖ of a head's output z, over queries in the second
    half of natural text. Induction is read at passages of 32 tokens that come again after 64, 128,
    … tokens, in random tokens and in natural text.

    Raises:
        CorpusError: the text cannot be read, or has no window that long.
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        RunError: the run has no model, or its weights have changed.
    """
    # a text that cannot be read is refused before a model is loaded
    corpus = readable(corpus, seed=seed)
    with progress_bar(progress) as bar:
        loaded, run = model_or_run(model, source=source, revision=revision, device=device)
        refuse_encoder(loaded, "study range")
        length = min(length, loaded.longest_window)
        if length < 2 * (NEAREST + COPY):
            raise CorpusError(f"length is {length}; at least {2 * (NEAREST + COPY)} are needed")
        texts = _texts(loaded, asked_corpora(text_of(run, corpus)), length, windows, seed)
        steps = Steps(bar, 3 * len(texts) * length)

        # how much of each head's output every window keeps
        outputs = WindowOutputs(loaded, length)
        for tokens in texts:
            at = length // 2 + evenly(length - length // 2, queries)
            read_rows(loaded, tokens, at, outputs.add)
            steps.advance(length)

        # attention on the token after the earlier copy, by the distance of the copies
        curves: dict[str, Float[ndarray, "distance layer head"]] = {}
        rng = np.random.default_rng(seed)
        vocabulary = loaded.tokenizer.ordinary_tokens(loaded.vocabulary_size)
        for kind in KINDS:
            masses: list[ndarray] = []
            for text in texts:
                tokens = text.copy()
                if kind == "random":
                    tokens[1:] = rng.choice(vocabulary, length - 1)
                masses.append(induction_masses(loaded, tokens))
                steps.advance(length)
            curves[kind] = np.mean(masses, 0)

    # a head needs a window if its output is another without it, whatever its pattern looks like
    shares = outputs.shares()
    table = _table(loaded, run, outputs, shares, curves)
    curve_rows = _curve_rows(table, outputs.sizes, shares, curves)
    far = int((table["window"] > length // 4).sum())
    return StudyResult(
        title=f"{name_of(loaded.name)}: {far} of {len(table)} heads need more than {length // 4:,} "
        f"of {length:,} tokens",
        table=table,
        terminal_table=table.sort_values("window", ascending=False, kind="stable"),
        values={"curves": curve_rows.to_dict("records"), "length": length},
        draw=partial(STUDY.draw, table=_rows_of_figure(curve_rows, table)),
    )


def _texts(
    model: Model, corpora: Sequence[Any], length: int, count: int, seed: int
) -> list[Int[ndarray, " token"]]:
    """Tokens of natural text; documents are joined, since few are that long."""
    max_tokens = count * length + length
    text = TextWindows(
        corpora, model.tokenizer, max_tokens=max_tokens, max_length=length, seed=seed
    )
    joined = np.concatenate([window.tokens[1:] for window in text])
    size = length - 1
    bos = np.array([model.tokenizer.bos])
    pieces = [joined[start : start + size] for start in range(0, len(joined) - size, size)]
    if not pieces:
        raise CorpusError(f"the text has no {length:,} tokens; state a shorter length")
    return [np.concatenate([bos, piece]) for piece in pieces[:count]]


@torch.inference_mode()
def read_rows(
    model: Model, tokens: Int[ndarray, " token"], queries: Int[ndarray, " query"], on_tile: Any
) -> None:
    """Run a model on a window, and hand on its attention at some queries."""
    network = plain_network_of(model)
    with chosen_rows(model.attention_layers, queries, on_tile).applied(model):
        network.base_model(torch.from_numpy(tokens)[None].to(model.device), use_cache=False)


class WindowOutputs:
    """Share of each head's output that is left if it sees the last and the first tokens alone.

    Args:
        model: whose heads these are.
        length: of the windows; sizes are doubled up to it.
    """

    def __init__(self, model: Any, length: int) -> None:
        self.sizes = [SHORTEST * 2**power for power in range(20) if SHORTEST * 2**power < length]
        self.sizes.append(length)
        self._row = {layer: row for row, layer in enumerate(model.attention_layers)}
        heads = len(self._row), model.heads
        self._lost = np.zeros((len(self.sizes), *heads))
        self._norm = np.zeros(heads)
        self._first = np.zeros(heads)
        self._queries = np.zeros(heads)

    def add(self, tile: AttentionTile) -> None:
        """Add some rows of a layer."""
        row = self._row[tile.layer]
        output = tile.read_by(tile.attention)
        key = torch.arange(tile.attention.shape[-1], device=output.device)
        distance = tile.query[:, None] - key
        in_sink = 1 - tile.attention.sum(-1, keepdim=True)  # what a learned sink takes

        def add_to(sums: ndarray, by_query: Float[Tensor, "item head"]) -> None:
            sums[row] += by_query.sum(0).double().cpu().numpy()

        # what a head loses with each window, its attention renormalised over what is left
        for number, size in enumerate(self.sizes):
            is_near = (distance < size) | (key < FIRST)
            attention = tile.attention * is_near[:, None]
            total = attention.sum(-1, keepdim=True) + in_sink
            of_window = tile.read_by(attention / total.clamp_min(1e-12))
            add_to(self._lost[number], (output - of_window).norm(dim=-1))
        add_to(self._norm, output.norm(dim=-1))
        on_first = tile.attention[..., :FIRST].sum((0, 2))
        self._first[row] += on_first.double().cpu().numpy()
        self._queries[row] += len(tile.query)

    def shares(self) -> Float[ndarray, "size layer head"]:
        """The share of the output that each window keeps; a head without output keeps all."""
        lost = np.divide(
            self._lost, self._norm, out=np.zeros_like(self._lost), where=self._norm > 0
        )
        return np.asarray(1 - lost)

    def first(self) -> Float[ndarray, "layer head"]:
        """Mean attention on the first tokens."""
        return np.asarray(self._first / self._queries)

    def window(self, shares: Float[ndarray, "size layer head"]) -> Int[ndarray, "layer head"]:
        """The least window that keeps enough, as all larger ones do."""
        falls_short = shares < ENOUGH
        falls_short[-1] = False  # the whole window keeps all, up to rounding
        above = len(self.sizes) - falls_short[::-1].argmax(0)
        number = np.where(falls_short.any(0), above, 0)
        return np.array(self.sizes)[number]


def distances_in(length: int) -> list[int]:
    """Distances of copies in a window of so many tokens.

    >>> distances_in(512)
    [64, 128, 256]
    """
    return [d for d in (NEAREST * 2**power for power in range(20)) if d + 2 * COPY < length]


def with_copies(tokens: Int[ndarray, " token"]) -> dict[int, int]:
    """Copy passages of a window to other places in it, the farthest first.

    Returns:
        The first position of the second copy, by the distance of the copies.
    """
    distances = distances_in(len(tokens))
    is_free = np.ones(len(tokens), bool)
    # the first token is a sink, so that nothing is copied from or over it
    is_free[0] = False
    second: dict[int, int] = {}
    for distance in reversed(distances):
        # the first place where neither passage covers another copy
        for start in range(1, len(tokens) - distance - COPY):
            one = slice(start, start + COPY)
            other = slice(start + distance, start + distance + COPY)
            if is_free[one].all() and is_free[other].all():
                tokens[other] = tokens[one]
                is_free[one] = is_free[other] = False
                second[distance] = start + distance
                break
    return second


def induction_masses(
    model: Model, tokens: Int[ndarray, " token"]
) -> Float[ndarray, "distance layer head"]:
    """Attention on the token after the earlier copy, at each distance; changes the tokens.

    The first quarter of a copy is not read: there the passage is not recognised yet.
    """
    second = with_copies(tokens)
    distances = distances_in(len(tokens))
    masses = np.zeros((len(distances), len(model.attention_layers), model.heads))
    read_from = COPY // 4
    of_query: dict[int, tuple[int, int]] = {}
    for number, distance in enumerate(distances):
        if distance in second:
            # the key is the token after the query's earlier copy
            for query in range(second[distance] + read_from, second[distance] + COPY - 1):
                of_query[query] = number, query - distance + 1
        else:
            masses[number] = np.nan
    row = {layer: index for index, layer in enumerate(model.attention_layers)}

    def add(tile: AttentionTile) -> None:
        for item, query in enumerate(tile.query.tolist()):
            number, key = of_query[query]
            of_heads: Tensor = tile.attention[item, :, key]
            masses[number, row[tile.layer]] += of_heads.double().cpu().numpy()

    # these rows alone: the whole pattern of a long window would not fit into memory
    read_rows(model, tokens, np.array(sorted(of_query)), add)
    return masses / (COPY - 1 - read_from)


def reach(
    curve: Float[ndarray, "distance layer head"], length: int
) -> Float[ndarray, "layer head"]:
    """The largest distance up to which the mass is at least half of that at the least distance.

    >>> reach(np.array([0.4, 0.3, 0.1, 0.3])[:, None, None], 1024).item()
    128.0
    """
    distances = np.array(distances_in(length), float)
    is_held = np.logical_and.accumulate(curve >= curve[0] / 2, axis=0)
    last = distances[is_held.sum(0) - 1]
    return np.where(curve[0] >= LEAST_MASS, last, np.nan)


def _table(
    model: Model, run: Any, outputs: WindowOutputs, shares: ndarray, curves: dict[str, ndarray]
) -> pd.DataFrame:
    layers, heads = np.meshgrid(model.attention_layers, range(model.heads), indexing="ij")
    table = pd.DataFrame({"layer": layers.ravel(), "head": heads.ravel()})
    table["tags"] = ""
    if run is not None:
        tags = run.heads.set_index(["layer", "head"])["tags"]
        table["tags"] = tags.reindex(pd.MultiIndex.from_frame(table[["layer", "head"]])).to_numpy()
    table["window"] = outputs.window(shares).ravel()
    table["first"] = outputs.first().ravel()
    for kind, curve in curves.items():
        table[kind] = curve[0].ravel()
        table[f"{kind}_range"] = reach(curve, outputs.sizes[-1]).ravel()
    return table[STUDY.names]


def _curve_rows(
    table: pd.DataFrame, sizes: Sequence[int], shares: ndarray, curves: dict[str, ndarray]
) -> pd.DataFrame:
    """Each curve of each head, a row for each point."""
    points = [("output kept by a window", sizes, shares)]
    distances = distances_in(sizes[-1])
    for kind, masses in curves.items():
        points.append((f"induction, {kind}", distances, masses))
    names = head_names(table)
    parts: list[pd.DataFrame] = []
    for curve, tokens, values in points:
        by_head = values.reshape(len(tokens), -1)
        wide = pd.DataFrame(by_head, index=list(tokens), columns=names)
        # a distance without copies has no point
        long = wide.stack().rename("share")
        long = long.rename_axis(["tokens", "head"]).reset_index()
        parts.append(long.assign(curve=curve))
    return pd.concat(parts, ignore_index=True)


def _rows_of_figure(curve_rows: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The curves of the heads with the longest windows, and with the most induction."""
    longest = table.sort_values(["window", "natural"], ascending=False, kind="stable")
    inducing = table.sort_values("random", ascending=False, kind="stable")
    half = FIGURE_HEADS // 2
    strongest = pd.concat([longest.head(half), inducing.head(half)])
    is_shown = curve_rows["head"].isin(head_names(strongest))
    rows = curve_rows[is_shown]
    # the distances double, so that as names they stand apart evenly
    return rows.assign(tokens=rows["tokens"].astype(str))


def head_names(table: pd.DataFrame) -> list[str]:
    """Names of the heads of a table, row by row."""
    return [head_name(row.layer, row.head) for row in table.itertuples()]
