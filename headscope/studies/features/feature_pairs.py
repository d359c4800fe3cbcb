"""`features`: the pairs of query and key features that carry a head's scores on its own edges."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Unpack

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from scipy.special import stdtr
from torch import Tensor

from headscope.arguments import NAME, PATH, Default, maybe, takes
from headscope.errors import CorpusError
from headscope.measure.bootstrap import interval, ratio_error, resample
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.study_windows import LENGTH, edge_windows
from headscope.models.loss import network_of
from headscope.models.model_kinds import refuse_encoder
from headscope.runs.head_relation import head_relation
from headscope.runs.reopen_model import Again, model_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.estimates import adjusted
from headscope.statistics.result import Result
from headscope.studies.features.dictionary import Dictionary, load_dictionary
from headscope.studies.features.edge_scores import PARTS, EdgeReader, EdgeScores, summed
from headscope.studies.features.features_result import (
    PAIR_COLUMNS,
    PART_COLUMNS,
    POSITIONS,
    FeaturePairs,
)

CANDIDATES = 200
"""Pairs that are judged: those of the largest contrast, either way, on half of the documents."""
STORED = 2**22
"""Pairs whose sums are kept while that half is read; twice as many drop the smaller half."""
FEWEST = 4
"""Blocks of documents of each half."""
TOKENS = 3
"""Tokens that are named for each end of a pair."""


TokenSums = dict[str, Float[ndarray, " pair"]]
"""By token the size of what stands at it of each pair's score on targets."""


class FeatureOptions(Again, total=False):
    """Options of `features` about what is drawn, and where the model is."""

    seed: Annotated[int, Default(0)]
    """Seeds controls and intervals."""


@takes(run=A_RUN, relation=maybe(NAME), dictionary=PATH)
def features(
    run: Result | str | Path,
    head: str,
    *,
    dictionary: str | Path,
    relation: str | None = None,
    corpus: str | Path | Sequence[str | Path] | None = None,
    progress: Progress = True,
    **options: Unpack[FeatureOptions],
) -> FeaturePairs:
    """Say which pairs of features carry a head's scores on a relation's targets.

    A feature is a direction of the residual stream that a sparse autoencoder or transcoder found.
    With the norms' scales frozen at the run's values a score is a sum over pairs of a feature at
    the query and a feature at the key, and of what the dictionary leaves out. Pairs are found on
    half of the documents, by their score on targets less that on the relation's controls, and
    judged on the other half.

    Args:
        run: a run or its folder, whose model is loaded again.
        head: `L5H1` or `5.1`.
        dictionary: a folder of SAELens, or a .safetensors file with W_dec.
        relation: a relation, e.g. `induction/repeat`; else its best tag. That is the tag of the
            head with the largest lift.
        corpus: files or folders of text; those of the run when None.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the windows done and the windows in all.
        options: see `FeatureOptions`.

    Raises:
        HeadscopeError: the run has no such head, or it has no tag and no relation is named; or the
            dictionary cannot be read, or is of another stream.
        ChoiceError: no such relation.
        ModelError: the model cannot be loaded, runs under another engine, or its queries are no
            linear map of a normed stream.
        CorpusError: too few documents have queries of the relation, or it is asked of made
            sequences alone and a corpus is named.
    """
    run, seed = the_run(run), options.pop("seed", 0)
    again: Again = options  # the model's
    of_head = head_relation(run, head, relation, corpus, seed=seed)
    with progress_bar(progress, "reading features", unit="windows") as bar:
        model = model_of(run, longest=LENGTH, **again)
        refuse_encoder(model, "study features")
        network = network_of(model)  # refuses what the fused engine does not run
        width = network.get_input_embeddings().weight.shape[1]
        loaded = load_dictionary(dictionary, d_model=width, layer=of_head.layer)
        windows = edge_windows(model, of_head.corpora, of_head.relation.stimuli, seed=seed)
        reader = EdgeReader(
            model, of_head.layer, of_head.head, windows, of_head.relation, loaded, seed
        )
        pairs, parts, sums = find_pairs(reader, Steps(bar, len(windows)).advance)
    name = f"{run.name} {of_head.name}"
    return FeaturePairs(name, of_head.relation.id, pairs, parts, sums.unexplained, sums.error)


def find_pairs(
    reader: EdgeReader, advance: Callable[[], None] = lambda: None
) -> tuple[pd.DataFrame, pd.DataFrame, PartSums]:
    """The tables of pairs and of parts of one head, and the sums of the latter.

    Pairs are found on the windows of even blocks of documents, and judged on those of odd ones.

    Args:
        reader: of the head's edges.
        advance: called after each window.

    Raises:
        CorpusError: too few documents have queries of the relation.
    """
    parts, dictionary, seed = PartSums(), reader.dictionary, reader.seed
    candidates = search_pairs(reader.read(0, advance), parts)
    pairs = judge_pairs(reader.read(1, advance), parts, candidates, len(dictionary.decoder) + 1)
    if min(parts.blocks_of_half(half) for half in (0, 1)) < FEWEST:
        raise CorpusError(
            f"{reader.relation.id} has queries in {len(set(parts.blocks))} documents; pairs are "
            f"found on half of them and judged on the other, which takes {2 * FEWEST}"
        )
    table = parts.table(seed)
    return _pair_table(pairs, dictionary, parts.contrast(half=1), seed), table, parts


class PartSums:
    """Running sums of what the parts of a score give on targets and on controls."""

    def __init__(self) -> None:
        self.blocks: list[int] = []
        self.error = 0.0
        """By how much the sum of the parts was off a score, at most."""
        self._counts: list[int] = []
        self._rows: list[Float[ndarray, "part side"]] = []
        self._left = self._all = 0.0

    def add(self, edges: EdgeScores) -> None:
        """Another window's."""
        scores, parts = edges.scores(), edges.parts().flatten(0, 1)
        total = parts.sum(0)
        rows = [*parts, torch.zeros_like(total)]
        if edges.bias is not None:
            rows[-1] = edges.bias
            total = total + edges.bias
        self.error = max(self.error, float((total - scores).abs().max()))
        rows.append(scores)
        self.blocks.append(edges.block)
        self._counts.append(edges.count)
        self._rows.append((torch.stack(rows) @ edges.weight.T).numpy())
        remainder, stream = edges.left_out()
        varied = stream - stream.mean(0)
        self._left += float(remainder.double().square().sum())
        self._all += float(varied.double().square().sum())

    @property
    def unexplained(self) -> float:
        """Share of the stream's variance at the edges' ends that the dictionary leaves out."""
        return self._left / max(self._all, 1e-30)

    def contrast(self, half: int) -> float:
        """The whole score on targets less that on controls, of the even or the odd blocks."""
        of_half = np.array(self.blocks) % 2 == half
        target, control = np.stack(self._rows)[of_half, -1].sum(0)
        return float((target - control) / np.array(self._counts)[of_half].sum())

    def blocks_of_half(self, half: int) -> int:
        """Blocks with edges, of the even or the odd ones."""
        return len({block for block in self.blocks if block % 2 == half})

    def table(self, seed: int) -> pd.DataFrame:
        """A row per part of query × part of key; positions; and the whole score."""
        blocks, counts = sums_of_blocks(self.blocks, np.array(self._counts, float)[:, None])
        _, sums = sums_of_blocks(self.blocks, np.stack(self._rows).reshape(len(self.blocks), -1))
        sums = sums.reshape(len(blocks), -1, 2)
        contrast = sums[..., 0] - sums[..., 1]
        total = counts.sum()
        draws = resample(len(blocks), np.random.default_rng(seed))
        low, high = interval(contrast, counts[:, 0], draws)
        names = [(query, key) for query in PARTS for key in PARTS]
        names += [(POSITIONS, POSITIONS), ("all", "all")]
        target, control = sums.sum(0).T / total
        table = pd.DataFrame(names, columns=["query", "key"]).assign(
            n=int(total),
            target=target,
            control=control,
            contrast=target - control,
            ci_low=low,
            ci_high=high,
            share=(target - control) / (target - control)[-1],
        )
        return table[PART_COLUMNS]


@dataclass
class PairSums:
    """Sums of the pairs that are judged, on held-out documents."""

    query_feature: Int[ndarray, " pair"]
    key_feature: Int[ndarray, " pair"]
    sign: Float[ndarray, " pair"]
    """Of the contrast on the documents on which they were found."""
    blocks: list[int]
    counts: list[int]
    values: list[Float[ndarray, "side pair"]]
    """Of each window what they give, on targets and on controls."""
    active: list[Float[ndarray, "side pair"]]
    """Queries on whose edges both are active."""
    tokens: tuple[TokenSums, TokenSums]
    """Of queries and of keys."""


def search_pairs(
    edges: Iterator[EdgeScores], parts: PartSums
) -> tuple[Int[Tensor, " pair"], Float[Tensor, " pair"]]:
    """The pairs with the largest contrasts, by number, and their contrasts."""
    numbers, sums = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.float64)
    for window in edges:
        parts.add(window)
        added = window.pair_sums()
        numbers, sums = summed(torch.cat([numbers, added[0]]), torch.cat([sums, added[1]]))
        if len(numbers) > 2 * STORED:
            largest = sums.abs().topk(STORED).indices
            numbers, sums = numbers[largest], sums[largest]
    largest = sums.abs().topk(min(CANDIDATES, len(sums))).indices
    largest = largest[sums[largest] != 0]
    return numbers[largest], sums[largest]


def judge_pairs(
    edges: Iterator[EdgeScores],
    parts: PartSums,
    candidates: tuple[Int[Tensor, " pair"], Float[Tensor, " pair"]],
    ends: int,
) -> PairSums:
    """What the candidates, numbered by so many features at an end, give on held-out documents."""
    first, second = candidates[0] // ends, candidates[0] % ends
    tokens: tuple[TokenSums, TokenSums] = ({}, {})
    sums = PairSums(
        first.numpy(), second.numpy(), candidates[1].sign().numpy(), [], [], [], [], tokens
    )
    for window in edges:
        parts.add(window)
        values, active = window.of_pairs(first, second)
        sums.blocks.append(window.block)
        sums.counts.append(window.count)
        sums.values.append((window.weight @ values).numpy())
        sums.active.append((window.weight @ active).numpy())
        on_targets = (window.weight[0][:, None] * values).abs().numpy()
        for totals, at in zip(tokens, (window.query, window.key), strict=True):
            strings = np.array(window.window.strings, dtype=object)[at.numpy()]
            for token in set(strings):
                of_token = on_targets[strings == token].sum(0)
                totals[token] = totals.get(token, 0.0) + of_token
    return sums


def sums_of_blocks(
    blocks: Sequence[int], values: Float[ndarray, "window column"]
) -> tuple[Int[ndarray, " block"], Float[ndarray, "block column"]]:
    """The blocks that have windows, and the sums of the windows' values in each.

    >>> sums_of_blocks([3, 1, 3], np.array([[1.0], [2.0], [4.0]]))[1].tolist()
    [[2.0], [5.0]]
    """
    distinct, which = np.unique(blocks, return_inverse=True)
    sums = np.zeros((len(distinct), values.shape[1]))
    np.add.at(sums, which, values)
    return distinct, sums


def _pair_table(sums: PairSums, dictionary: Dictionary, score: float, seed: int) -> pd.DataFrame:
    """A row per pair that was judged, the surest first: by the lower end of its interval."""
    pairs = len(sums.query_feature)
    blocks, counts = sums_of_blocks(sums.blocks, np.array(sums.counts, float)[:, None])
    values = np.stack(sums.values)
    _, contrast = sums_of_blocks(sums.blocks, values[:, 0] - values[:, 1])
    total = counts.sum()
    target, control = values.sum(0) / total
    fires, control_fires = np.stack(sums.active).sum(0) / total
    if not dictionary.is_sparse:
        fires = control_fires = np.full(pairs, np.nan)
    low, high = interval(contrast, counts[:, 0], resample(len(blocks), np.random.default_rng(seed)))
    with np.errstate(divide="ignore", invalid="ignore"):
        t = sums.sign * (contrast.sum(0) / total) / ratio_error(contrast, counts)
    p_values = stdtr(len(blocks) - 1, -np.nan_to_num(t))
    table = pd.DataFrame(
        {
            "query_feature": _numbers(sums.query_feature, dictionary),
            "query_name": [dictionary.name_of(int(i)) for i in sums.query_feature],
            "key_feature": _numbers(sums.key_feature, dictionary),
            "key_name": [dictionary.name_of(int(i)) for i in sums.key_feature],
            "target": target,
            "control": control,
            "contrast": target - control,
            "ci_low": low,
            "ci_high": high,
            "q_value": adjusted(p_values) if pairs else p_values,
            "share": (target - control) / score,
            "fires": fires,
            "control_fires": control_fires,
            "query_tokens": [_main_tokens(sums.tokens[0], pair) for pair in range(pairs)],
            "key_tokens": [_main_tokens(sums.tokens[1], pair) for pair in range(pairs)],
        }
    )
    return table.sort_values("ci_low", ascending=False, kind="stable", ignore_index=True)[
        PAIR_COLUMNS
    ]


def _numbers(features: Int[ndarray, " pair"], dictionary: Dictionary) -> pd.Series[int]:
    """Numbers of features; missing for the biases, which are none."""
    numbers = pd.Series(features, dtype="Int64")
    return numbers.where(features < len(dictionary.decoder))


def _main_tokens(sums: TokenSums, pair: int) -> str:
    """The tokens at which most of a pair's score stands."""
    largest = sorted(sums, key=lambda token: -sums[token][pair])[:TOKENS]
    return " ".join(repr(token) for token in largest if sums[token][pair] > 0)
