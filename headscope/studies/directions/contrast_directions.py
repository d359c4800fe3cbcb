"""`directions`: the directions by which a head tells a relation's targets from its controls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from numpy import ndarray
from torch import Tensor

from headscope.arguments import NAME, maybe, takes
from headscope.errors import CorpusError
from headscope.measure.bootstrap import interval, resample
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.study_windows import LENGTH, edge_windows
from headscope.models.loss import changeable_network_of
from headscope.runs.head_relation import head_relation
from headscope.runs.reopen_model import Again, model_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.result import Result
from headscope.studies.directions.contrast import (
    HeadWindow,
    block_sums,
    dimensions_for,
    halves,
    head_windows,
    held_by,
    pairs_of,
    random_directions,
)
from headscope.studies.directions.directions_result import COLUMNS, SHARE, Directions

CONTROLS = 5
"""Random subspaces of each size that are removed instead."""
FEWEST = 4
"""Blocks of documents of each half."""


@takes(run=A_RUN, relation=maybe(NAME))
def directions(
    run: Result | str | Path,
    head: str,
    *,
    relation: str | None = None,
    corpus: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    progress: Progress = True,
    **again: Unpack[Again],
) -> Directions:
    """Say by how many directions a head tells a relation's targets from its controls.

    They are directions of the head's queries and keys. The covariance of q kᵀ on targets less that
    on controls (contrastive covariance, arXiv 2602.04752) is taken on half of the documents; its
    singular pairs are the directions. On the other half it is measured what each pair holds of that
    contrast, and what happens to attention when the first of them are projected out of queries and
    keys.

    Args:
        run: a run or its folder, whose model is loaded again.
        head: `L5H1` or `5.1`.
        relation: a relation, e.g. `induction/repeat`; else its best tag. That is the tag of the
            head with the largest lift.
        corpus: files or folders of text; those of the run when None.
        seed: seeds controls, random subspaces and intervals.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the windows done and the windows in all.
        again: `source` and `device`, as for `headscope.studies.ablate.causal_table.ablate`.

    Raises:
        HeadscopeError: the run has no such head, or it has no tag and no relation is named.
        ChoiceError: no such relation.
        ModelError: the model cannot be loaded, or runs under another engine.
        CorpusError: too few documents have queries of the relation, or it is of_head of made
            sequences alone and a corpus is named.
    """
    run = the_run(run)
    of_head = head_relation(run, head, relation, corpus, seed=seed)
    with progress_bar(progress, "finding directions", unit="windows") as bar:
        model = model_of(run, longest=LENGTH, **again)
        stimuli = of_head.relation.stimuli
        windows = edge_windows(model, of_head.corpora, stimuli, seed=seed)
        changeable_network_of(model)  # refuses what the fused engine does not run
        advance = Steps(bar, len(windows)).advance
        read = list(
            head_windows(
                model,
                (of_head.layer, of_head.head),
                windows,
                of_head.relation,
                seed=seed,
                advance=advance,
            )
        )
        fitted, held_out = halves(read)
        if min(len({window.block for window in half}) for half in (fitted, held_out)) < FEWEST:
            raise CorpusError(
                f"{of_head.relation.id} has queries in "
                f"{len({window.block for window in read})} documents; "
                "directions are found on half of them and judged on the other, which takes "
                f"{2 * FEWEST}"
            )
        table, needed = _judged(fitted, held_out, seed)
    return Directions(f"{run.name} {of_head.name}", of_head.relation.id, table, needed)


def _judged(
    fitted: Sequence[HeadWindow], held_out: Sequence[HeadWindow], seed: int
) -> tuple[pd.DataFrame, int]:
    """A row per number of removed dimensions, and how many hold most of the lift."""
    contrasts = [sum(window.contrast() for window in half) for half in (fitted, held_out)]
    queries, keys = pairs_of(contrasts[0])  # type: ignore[arg-type]
    held = held_by(contrasts[1], queries, keys)  # type: ignore[arg-type]
    needed, width = dimensions_for(held, SHARE), len(held)
    sizes = sorted({0, needed, *(2**i for i in range(12) if 2**i < width)})
    blocks = np.array([window.block for window in held_out], np.int64)
    rng = np.random.default_rng(seed)
    rows = []
    for size in sizes:
        first = queries[:size], keys[:size]
        masses = [window.masses(first if size else None) for window in held_out]
        random_lifts = [_random_lift(held_out, blocks, first, rng) for _ in range(CONTROLS)]
        on, off, count = (float(sum(part)) for part in zip(*masses, strict=True))
        sums, counts = block_sums(masses, blocks)
        low, high = interval(sums, counts, resample(len(sums), np.random.default_rng(seed)))
        share = float(held[size - 1]) if size else 0.0
        lift = (on - off) / count
        rows.append(
            (size, share, on / count, off / count, lift, low, high, float(np.mean(random_lifts)))
        )
    return pd.DataFrame(rows, columns=COLUMNS), needed


def _random_lift(
    held_out: Sequence[HeadWindow],
    blocks: ndarray,
    first: tuple[Tensor, Tensor],
    rng: np.random.Generator,
) -> float:
    """The lift that is left without as many directions, turned at random.

    Those of queries and of keys are turned together, so that they lie to each other as before.
    """
    turn = random_directions(first[0].shape[1], first[0].shape[1], rng)
    rotated = (first[0] @ turn, first[1] @ turn) if len(first[0]) else None
    sums, counts = block_sums([window.masses(rotated) for window in held_out], blocks)
    return float(sums.sum() / counts.sum())
