"""Export of a run as the data folder that HeadVis and Neuronpedia read."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from pydantic import Field
from torch import Tensor

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.study_windows import long_enough
from headscope.models.model import Model
from headscope.models.stream import LayerAttention, stream_attention, tiled_patterns
from headscope.options import Device, Flag, Heads, Overwrite, PathName, Positive, RunCorpus, Source
from headscope.printing import visible
from headscope.progress import Progress, Steps, progress_bar
from headscope.resolve import RunName, model_of, text_of, the_run
from headscope.runs.listing import Head, selected_heads
from headscope.runs.recorded_paths import name_of
from headscope.runs.site import check_site, new_site
from headscope.runs.write import write_file
from headscope.stimuli.natural_text import TextWindows
from headscope.studies.study import Column, Command, Study, study
from headscope.views.study_result import StudyResult

SEQUENCES, MAX_LENGTH = 500, 256
SHORTEST = 3
"""Tokens of a sequence with a cell off the diagonal and off the first token's column."""
LEAST_INDUCTION = 0.01
"""Neuronpedia's script leaves weaker attention out of `induction_score`."""
INTERVALS, PER_INTERVAL = 10, 20
"""Tenths of a head's sequences by their largest attention, and the number written of each."""
STRONGEST, FAINTEST = 8, 0.005
"""Largest number of cells of a row that are written, and their least attention."""
TOP_PAIR = 0.1
"""Least attention of a query to its strongest key in the histogram of distances."""
LISTED, BINS = 50, 20
"""Tokens in a table, and bins of the histogram of largest attention."""
SAMPLED_TOKENS = 7_680
"""Tokens of a head's sequences together: eight cells of each take less than 1 MB."""
CANDIDATES = 2
"""Sequences whose strongest cells are kept, for each that is written of a head."""
LEAST_LOGARITHM = -1e3
"""Logarithm in place of −∞; its exponential is 0."""
METRICS = {
    "self_attention_score": "Mean attention of a token to itself: the mean of the diagonal.",
    "prev_token_score": "Mean attention to the token before: the mean of the subdiagonal.",
    "pattern_entropy": "Mean Shannon entropy of a query's attention, in nats.",
    "qk_distance": "Mean |q − k| in tokens, weighted by attention.",
    "qk_distance_variance": "Variance of |q − k|, weighted by attention.",
    "induction_score": (
        "Mean attention to whatever followed the same token before; "
        f"less than {LEAST_INDUCTION:g} on a key counts as none."
    ),
}
"""Metrics and their tooltips: names and definitions of Neuronpedia's `compute-head-metrics.py`
(hijohnnylin/neuronpedia ebb8426)."""
PAGE: dict[str, Any] = {
    "n_intervals": INTERVALS,
    "head_data_pattern": "L{layer}H{head}.json",
    "has_umap": False,
    "umap_heads": [],
    "custom_plots": [{"key": "qk_distance_histogram", "label": "Q-K distance"}],
    "custom_tables": [
        {"key": "top_query_tokens", "label": "Query tokens by attention"},
        {"key": "top_key_tokens", "label": "Key tokens by attention"},
    ],
    "statistics_display": {
        "mean_max_activation": {"label": "Mean max activation", "format": "default"},
        "n_samples": {"label": "Sequences read", "format": "default"},
        "n_tokens": {"label": "Tokens read", "format": "default"},
    },
}
"""Entries of `config.json` that are the same for every run."""
EMPTY_FILES = ("server_config.json", "attributions/manifest.json")
"""Files that tell HeadVis' page that no server runs; Neuronpedia's script writes them too."""

Sample = list[tuple[int, int]]
"""Numbers of the windows that are written of a head, and their tenths."""

STUDY = Study(
    command=Command(
        group="export",
        summary="Write the data for HeadVis and Neuronpedia.",
        examples=(
            "headscope export headvis runs/mini --heads L1H0,L5H3 --sequences 100 --overwrite",
        ),
        out="",
        figure="",
    ),
    rows="head, with the metrics of `scatter_data.json`",
    columns=(
        Column("layer", "count, ≥ 0", "layer of the head"),
        Column("head", "count, ≥ 0", "number of the head in its layer"),
        *(Column(name, "", text.rstrip(".").replace("|", "")) for name, text in METRICS.items()),
    ),
    bad_call={"sequences": 0},
)


@study(STUDY)
def headvis(
    run: RunName,
    out: Annotated[
        PathName, Field(description="Folder, new or empty; HeadVis looks for one named data.")
    ] = "data",
    *,
    heads: Heads = "all",
    overwrite: Overwrite = False,
    progress: Progress = True,
    corpus: RunCorpus = None,
    sequences: Annotated[Positive, Field(description="Sequences of text to read.")] = SEQUENCES,
    max_length: Annotated[
        int, Flag(""), Field(ge=8, le=2**20, description="Tokens of the longest sequence.")
    ] = MAX_LENGTH,
    source: Source = None,
    device: Device = "auto",
) -> StudyResult:
    """Write the data folder that HeadVis and Neuronpedia read: metrics and sequences.

    HeadVis is github.com/anthropics/headvis. Neuronpedia's loaders import the folder from
    `EXPORTS/ID/headvis/TEXT`, where ID is Neuronpedia's name of the model.

    Raises:
        RunError: no run there, or one without a model.
        ModelError: the model cannot be loaded.
        CorpusError: the text cannot be read, or has no sequence of three tokens.
        WriteError: the folder holds files, or nothing can be written there.
        HeadscopeError: no such head, or none tagged.
    """
    # the folder is checked before the model loads
    folder = Path(out)
    check_site(folder, overwrite=overwrite)
    run = the_run(run)
    exported_heads = sorted(set(selected_heads(run, heads)))
    corpora = text_of(run, corpus)
    with progress_bar(progress) as bar:
        model = model_of(run, source=source, device=device)
        # all sequences are read once, for all heads together
        length = min(max_length, model.longest_window)
        windows = _windows(model, corpora, sequences, length)
        tokens = sum(len(window) for window in windows)
        reading = Reading(windows, exported_heads)
        reading.read(model, Steps(bar, tokens).advance)
        table = reading.metrics()
        # written beside its place, and moved there whole
        with new_site(folder, overwrite=overwrite) as new:
            _write(new / "config.json", page_config(run.name, corpora, model, windows, table))
            _write(new / "scatter_data.json", table.to_dict("records"))
            for head, content in zip(exported_heads, head_files(reading), strict=True):
                _write(new / "heads" / f"{head_name(*head)}.json", content)
            for name in EMPTY_FILES:
                _write(new / name, {})
    notes = []
    if length < max_length != MAX_LENGTH:
        notes.append(f"sequences have at most {length:,} tokens, the most that the model reads")
    if len(windows) < sequences:
        notes.append(f"the text has {len(windows):,} sequences")
    return StudyResult(
        title=f"{name_of(run.name)}: {len(table)} heads on {len(windows):,} sequences of "
        f"{tokens:,} tokens, for HeadVis in {folder}",
        table=table,
        notes=notes,
        values={"folder": str(folder), "sequences": len(windows), "tokens": tokens},
    )


def _windows(
    model: Model, corpora: Sequence[str | Path], sequences: int, length: int
) -> list[Window]:
    text = TextWindows(
        corpora,
        model.tokenizer,
        max_tokens=sequences * length,
        max_length=length,
        seed=0,
    )
    return long_enough(text, corpora, tokens=SHORTEST, count=sequences)


def _write(path: Path, content: Any) -> None:
    text = json.dumps(content, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    write_file(path, text + "\n")


class StrongCells(NamedTuple):
    """The strongest cells of a head, in the order of windows, queries and keys."""

    window: Int[ndarray, " cell"]
    query: Int[ndarray, " cell"]
    key: Int[ndarray, " cell"]
    attention: Float[ndarray, " cell"]

    def some(self, which: Any) -> StrongCells:
        """The cells of a slice or a mask."""
        return StrongCells(*(column[which] for column in self))


class TokenTexts:
    """Windows as text, their tokens numbered in alphabetical order."""

    def __init__(self, windows: Sequence[Window], numbers: Sequence[int]) -> None:
        """Spell the windows with these numbers."""
        self.windows = windows
        self.tokens: dict[int, list[str]] = {}
        all_tokens: list[str] = []
        self._start = np.zeros(len(windows), np.int64)
        for number in numbers:
            tokens = [visible(token) for token in windows[number].strings]
            self.tokens[number] = tokens
            self._start[number] = len(all_tokens)
            all_tokens += tokens
        self._codes, self._names = pd.factorize(np.array(all_tokens, object), sort=True)

    def table(self, cells: StrongCells, positions: Int[ndarray, " cell"]) -> list[dict[str, Any]]:
        """The tokens at one side of cells that have the largest share of their attention."""
        codes = self._codes[self._start[cells.window] + positions]
        sums = np.bincount(codes, cells.attention, len(self._names))
        weights = sums / max(sums.sum(), 1e-9)
        largest = np.argsort(-weights, kind="stable")[:LISTED]
        rows = []
        for code in largest:
            if weights[code] > 0:
                rows.append({"token": self._names[code], "weight": round(weights[code], 4)})
        return rows


@dataclass(frozen=True, eq=False)
class _Tile:
    """The strongest cells of some rows of a pattern."""

    first: int
    """Position of the first row's query."""
    keys: Int[ndarray, "query rank"]
    attention: Float[ndarray, "query rank"]


class Reading:
    """Metrics of some heads and their strongest cells, from one pass over windows of text."""

    def __init__(self, windows: Sequence[Window], heads: Sequence[Head]) -> None:
        """Start with empty sums."""
        self.windows = windows
        self.heads = heads
        self.longest = max(len(window) for window in windows)
        """Tokens of the longest window."""
        limit = SAMPLED_TOKENS // (INTERVALS * self.longest)
        self.per_tenth = max(1, min(PER_INTERVAL, limit))
        """Largest number of a head's sequences that are written of a tenth."""
        # cells of few windows are kept, chosen before their attention is known
        size = min(len(windows), CANDIDATES * INTERVALS * self.per_tenth)
        rng = np.random.default_rng(0)
        numbers = rng.choice(len(windows), size, replace=False)
        self.candidates: Int[ndarray, " candidate"] = np.sort(numbers)
        """Numbers of the windows whose strongest cells are kept."""
        self.largest: Float[ndarray, "window head"] = np.zeros((len(windows), len(heads)))
        """Largest attention beyond the first token's row and column and the diagonal."""
        # sums alone are kept, as patterns of all windows would not fit into memory
        self._sums: dict[str, Float[ndarray, " head"]] = defaultdict(self._zeros)
        self._counts: dict[str, Float[ndarray, " head"]] = defaultdict(self._zeros)
        self._tiles: dict[tuple[int, int], list[_Tile]] = defaultdict(list)
        """The strongest cells by index of the head and number of the window."""

    def _zeros(self) -> Float[ndarray, " head"]:
        return np.zeros(len(self.heads))

    def read(self, model: Model, advance: Callable[[int], None]) -> None:
        """Run the model once; `advance` is called with the tokens of each window."""
        tiles = tiled_patterns(model)
        layers = 1 + max(layer for layer, _ in self.heads)
        for number, window in enumerate(self.windows):
            tokens = torch.from_numpy(window.tokens).to(model.device)
            on_layer = partial(self._read_layer, number, tokens)
            stream_attention(model, [window], tiles, on_layer, layers=layers)
            advance(len(window))

    def _read_layer(
        self, number: int, tokens: Int[Tensor, " position"], attention: LayerAttention
    ) -> None:
        """Add the rows of the heads of one layer in window `number`."""
        members = [i for i, (layer, _) in enumerate(self.heads) if layer == attention.layer]
        if not members:
            return
        heads = [self.heads[index][1] for index in members]
        # tiles of rows come in order
        first = 0
        for rows in attention.rows:
            # both are needed: metrics of attention take shares, and entropy logarithms
            values = rows[0, heads].float()
            if attention.logarithms:
                logarithms = values
                weights = values.exp()
            else:
                logarithms = values.log()
                weights = values
            numbers = row_numbers(weights, logarithms, tokens, first)
            self._add(number, members, numbers)
            if number in self.candidates:
                self._keep(number, members, weights, first)
            first += values.shape[1]

    def _add(self, number: int, members: list[int], rows: Mapping[str, Tensor]) -> None:
        for name, values in rows.items():
            if name == "largest":
                so_far = self.largest[number, members]
                of_rows = values.amax(1).cpu().numpy()
                self.largest[number, members] = np.maximum(so_far, of_rows)
                continue
            sums = values.double().nansum(1)
            counts = (~values.isnan()).sum(1)
            self._sums[name][members] += sums.cpu().numpy()
            self._counts[name][members] += counts.cpu().numpy()

    def _keep(self, number: int, members: list[int], attention: Tensor, first: int) -> None:
        count = min(STRONGEST, attention.shape[-1])
        top = attention.topk(count, -1)
        sorted_keys, order = top.indices.sort(-1)
        keys = sorted_keys.cpu().numpy()
        values = top.values.gather(-1, order).cpu().numpy()
        for row, index in enumerate(members):
            tile = _Tile(first=first, keys=keys[row], attention=values[row])
            self._tiles[index, number].append(tile)

    def metrics(self) -> pd.DataFrame:
        """A row of metrics per head."""
        columns = {}
        with np.errstate(invalid="ignore"):  # no token of the text comes twice
            for name in METRICS:
                if name in self._sums:
                    columns[name] = self._sums[name] / self._counts[name]
        # a learned sink takes a part of each row's mass
        mass = self._sums["mass"]
        distance = self._sums["distance"] / mass
        columns["qk_distance"] = distance
        columns["qk_distance_variance"] = self._sums["square"] / mass - distance**2
        metrics = pd.DataFrame(columns)[list(METRICS)]
        metrics = metrics.dropna(axis=1).round(4) + 0.0  # −0 becomes 0
        heads = pd.DataFrame(self.heads, columns=["layer", "head"])
        return heads.join(metrics)

    def strongest(self, index: int, sample: Sample) -> StrongCells:
        """The strongest cells of a head in the windows of its sample.

        Their attention is in [`FAINTEST`, 1]. Each row of a pattern has at most `STRONGEST`.
        """
        parts = []
        for number in sorted(number for number, _ in sample):
            for tile in self._tiles[index, number]:
                # weaker cells could not be seen, and would make the files large
                row, rank = np.nonzero(tile.attention >= FAINTEST)
                cells = StrongCells(
                    window=np.full(len(row), number),
                    query=tile.first + row,
                    key=tile.keys[row, rank],
                    attention=tile.attention[row, rank],
                )
                parts.append(cells)
        return StrongCells(
            window=np.concatenate([cells.window for cells in parts]),
            query=np.concatenate([cells.query for cells in parts]),
            key=np.concatenate([cells.key for cells in parts]),
            attention=np.concatenate([cells.attention for cells in parts]),
        )


def page_config(
    name: str,
    corpora: Sequence[str | Path],
    model: Model,
    windows: Sequence[Window],
    table: pd.DataFrame,
) -> dict[str, Any]:
    """Entries of `config.json`: names of model and text, sizes, and settings of the page."""
    metrics = [column for column in table if column in METRICS]
    return {
        "model_name": name_of(name),
        "dataset_name": ", ".join(name_of(str(path)) for path in corpora),
        **PAGE,
        "n_sequences": len(windows),
        "seq_len": max(map(len, windows)),
        "dtype": model.dtype,
        "attn_implementation": f"headscope {model.engine.name}",
        "heads": table[["layer", "head"]].to_numpy().tolist(),
        "n_layers": model.layers + len(model.others),
        "n_heads": model.heads,
        "metrics": metrics,
        "metric_descriptions": {name: METRICS[name] for name in metrics},
    }


def row_numbers(
    attention: Float[Tensor, "head query key"],
    logarithms: Float[Tensor, "head query key"],
    tokens: Int[Tensor, " position"],
    first: int,
) -> dict[str, Float[Tensor, "head query"]]:
    """Numbers of each row of attention; NaN for a row without such a number.

    They are the metrics that are means over queries; the row's `mass`, `distance` Σ A |q − k| and
    `square` Σ A |q − k|²; and its `largest` attention without first token and diagonal.
    `logarithms` are those of attention, `tokens` are those of the whole window, and `first` is the
    position of the first query.
    """
    _, queries, keys = attention.shape
    # mass, distance and square of the distance by one product
    grid = _grid(first, queries, keys, attention.device)
    by_query = attention.transpose(0, 1)
    mass, distance, square = torch.bmm(by_query, grid.powers).permute(2, 1, 0)
    before = attention.diagonal(first - 1, -2, -1)
    if first == 0:
        before = torch.nn.functional.pad(before, (1, 0), value=torch.nan)
    # entropy with the logarithms that are there
    entropy = -(attention * logarithms.clamp_min(LEAST_LOGARITHM)).sum(-1)
    beyond = attention.masked_fill(grid.left_out, -1.0)
    heads, rows, keys = attention.shape
    # key k continues an earlier copy of the query's token if k − 1 has that token
    query_tokens = tokens[first : first + rows, None]
    is_copy = (query_tokens == tokens[: keys - 1]).tril(first - 1)
    query, copy = is_copy.nonzero(as_tuple=True)
    copied = attention[:, query, copy + 1]
    copied = copied.masked_fill(copied < LEAST_INDUCTION, 0.0)
    scores = attention.new_full((heads, rows), torch.nan)
    scores = scores.index_fill(1, query, 0.0)
    return {
        "self_attention_score": attention.diagonal(first, -2, -1),
        "prev_token_score": before,
        "pattern_entropy": entropy,
        "induction_score": scores.index_add(1, query, copied),
        "mass": mass,
        "distance": distance,
        "square": square,
        "largest": beyond.amax(-1),
    }


class _Grid(NamedTuple):
    """Role of a tile's cells in a metric."""

    powers: Float[Tensor, "query key power"]
    """Powers 0, 1 and 2 of |q − k|."""
    left_out: Bool[Tensor, "query key"]
    """True for the first token's cells and the diagonal."""


@lru_cache(maxsize=16)
def _grid(first: int, queries: int, keys: int, device: torch.device) -> _Grid:
    query = first + torch.arange(queries, device=device)[:, None]
    key = torch.arange(keys, device=device)
    distance = (query - key).abs().float()
    exponents = torch.arange(3, device=device)
    return _Grid(
        powers=distance[..., None] ** exponents,
        left_out=(query == 0) | (key == 0) | (query == key),
    )


def sample_sequences(
    largest: Float[ndarray, " sequence"],
    rng: np.random.Generator,
    candidates: Int[ndarray, " candidate"],
    per_tenth: int,
) -> Sample:
    """Numbers of candidates picked from each tenth by largest attention, the strongest first."""
    # ranks decide the tenth; equal ones keep their order
    rank = np.empty(len(largest), np.int64)
    order = np.argsort(largest, kind="stable")
    rank[order] = np.arange(1, len(largest) + 1)
    tenths = -(-rank[candidates] * INTERVALS // len(largest))
    sample: Sample = []
    for tenth in range(INTERVALS, 0, -1):
        members = candidates[tenths == tenth]
        if not len(members):
            continue
        count = min(per_tenth, len(members))
        # at random within a tenth, so that the typical is shown beside the extreme
        picks = rng.choice(members, count, replace=False).tolist()
        picks.sort(key=lambda number: (-largest[number], number))
        for number in picks:
            sample.append((number, tenth))
    return sample


def head_files(reading: Reading) -> Iterator[dict[str, Any]]:
    """Content of `heads/L{layer}H{head}.json` of each head."""
    texts = TokenTexts(reading.windows, reading.candidates.tolist())
    for index, head in enumerate(reading.heads):
        largest = reading.largest[:, index]
        rng = np.random.default_rng([0, *head])
        sample = sample_sequences(largest, rng, reading.candidates, reading.per_tenth)
        cells = reading.strongest(index, sample)
        yield head_file(texts, largest, sample, cells)


def head_file(
    texts: TokenTexts, largest: Float[ndarray, " window"], sample: Sample, cells: StrongCells
) -> dict[str, Any]:
    """Content of `heads/L{layer}H{head}.json`; `cells` are those of `Reading.strongest`."""
    # each sampled sequence with its strongest cells
    sequences = []
    for number, tenth in sample:
        length = len(texts.windows[number])
        start, end = np.searchsorted(cells.window, [number, number + 1])
        strong = cells.some(slice(start, end))
        sequence = {
            "sequence_id": number,
            "interval": tenth,
            "tokens": texts.tokens[number],
            "attention_indices": (strong.query * length + strong.key).tolist(),
            "attention_values": strong.attention.astype(float).round(4).tolist(),
            "seq_len": length,
            "max_activation": largest[number].round(4),
        }
        sequences.append(sequence)
    # tokens that are looked at or from, the first token left out
    inner = cells.some((cells.query > 0) & (cells.key > 0))
    lengths = [len(window) for window in texts.windows]
    # histograms are of all sequences, though few are written
    maxima, bins = np.histogram(largest.clip(0, 1), BINS, (0, 1))
    # distances from queries to their strongest key, if it has enough attention
    pairs = inner.some(inner.attention >= TOP_PAIR)
    order = np.lexsort((-pairs.attention, pairs.query, pairs.window))
    by_query = pairs.some(order)
    queries = np.stack([by_query.window, by_query.query])
    _, first = np.unique(queries, axis=1, return_index=True)
    strongest = by_query.some(first)
    distances = np.abs(strongest.query - strongest.key)
    powers = range((max(lengths) - 1).bit_length() + 1)
    edges = [0] + [2**power for power in powers]
    counts, _ = np.histogram(distances, edges)
    return {
        "sequences": sequences,
        "qk_distance_histogram": {"bin_edges": edges, "bin_values": counts.tolist()},
        "top_query_tokens": texts.table(inner, inner.query),
        "top_key_tokens": texts.table(inner, inner.key),
        "histogram": {"bin_edges": bins.round(4).tolist(), "bin_values": maxima.tolist()},
        "statistics": {
            "mean_max_activation": largest.mean().round(4),
            "n_samples": len(texts.windows),
            "n_tokens": sum(lengths),
        },
    }
