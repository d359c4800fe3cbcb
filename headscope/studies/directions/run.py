"""`directions`: from a head and a relation to the directions that tell targets from controls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Unpack

import numpy as np
import pandas as pd
from numpy import ndarray
from torch import Tensor

from headscope.arguments import KINDS, NAME, kinds_of, maybe, takes
from headscope.errors import ChoiceError, CorpusError, HeadscopeError
from headscope.evidence.result import Result
from headscope.evidence.tags import is_sink
from headscope.heads import head_name, parse_head
from headscope.measure.bootstrap import interval, resample
from headscope.measure.of_each_document import LENGTH, edge_windows
from headscope.measure.text_loss import network_of
from headscope.relations import relations_of
from headscope.runs.named import A_RUN, the_run
from headscope.runs.reload import Again, corpora_of, model_of
from headscope.studies.directions.contrast import (
    Seen,
    block_sums,
    dimensions_for,
    halves,
    held_by,
    pairs_of,
    random_directions,
    seen_by,
)
from headscope.studies.directions.result import COLUMNS, SHARE, Directions

CONTROLS = 5
"""Random subspaces of each size that are removed instead."""
FEWEST = 4
"""Blocks of documents of each half."""


@takes(run=A_RUN, relation=maybe(NAME), seed=KINDS["seed"], **kinds_of(Again))
def directions(
    run: Result | str | Path,
    head: str,
    *,
    relation: str | None = None,
    corpus: str | Path | Sequence[str | Path] = (),
    seed: int = 0,
    **again: Unpack[Again],
) -> Directions:
    """Which directions of a head's queries and keys tell a relation's targets from its controls.

    The covariance of q kᵀ on targets less that on controls (contrastive covariance, arXiv
    2602.04752) is taken on half of the documents; its singular pairs are the directions. On the
    other half it is measured what each pair holds of that contrast, and what happens to attention
    when the first of them are projected out of queries and keys.

    Args:
        run: a run or its folder, whose model is loaded again.
        head: `L5H1` or `5.1`.
        relation: its full name, such as `induction/repeat`; the head's tag with the largest lift
            when None.
        corpus: files or folders of text; those of the run when empty.
        seed: seeds controls, random subspaces and intervals.
        again: `source` and `device`, as for `headscope.studies.ablate.run.ablate`.

    Raises:
        HeadscopeError: the run has no such head, or it has no tag and no relation is named.
        ChoiceError: no such relation.
        ModelError: the model cannot be loaded, or runs under another engine.
        CorpusError: too few documents have queries of the relation, or it is asked of made
            sequences alone and a corpus is named.
    """
    run = the_run(run)
    layer, number = parse_head(head)
    name = head_name(layer, number)
    if name not in run.heads.index:
        raise HeadscopeError(f"no head {name} in this run")
    known = {each.id: each for each in relations_of()}
    asked = relation or _strongest(run, layer, number)
    if asked not in known:
        raise ChoiceError("relation", asked, known)
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    stimuli = known[asked].stimuli
    if corpora and "text" not in stimuli:
        raise CorpusError(f"{asked} is asked of made sequences, and no corpus is read for it")
    model = model_of(run, longest=LENGTH, **again)
    if "text" in stimuli:
        corpora = corpora or [*corpora_of(run)]
    windows = edge_windows(model, corpora, stimuli, seed=seed)
    seen = list(seen_by(network_of(model), (layer, number), windows, known[asked], seed=seed))
    found, held_out = halves(seen)
    if min(len({each.block for each in half}) for half in (found, held_out)) < FEWEST:
        raise CorpusError(
            f"{asked} has queries in {len({each.block for each in seen})} documents; directions "
            f"are found on half of them and judged on the other, which takes {2 * FEWEST}"
        )
    table, needed = _judged(found, held_out, seed)
    return Directions(f"{run.name} {name}", asked, table, needed)


def _strongest(run: Result, layer: int, head: int) -> str:
    """The head's tag with the largest lift."""
    own = run.evidence[(run.evidence["layer"] == layer) & (run.evidence["head"] == head)]
    ids = own["type"] + "/" + own["relation"]
    tagged = own[own["tagged"].astype(bool) & ~is_sink(ids)]
    if tagged.empty:
        raise HeadscopeError(
            f"{head_name(layer, head)} has no tag in this run; name a relation to ask it about"
        )
    return str(ids[tagged["lift"].idxmax()])


def _judged(found: Sequence[Seen], held_out: Sequence[Seen], seed: int) -> tuple[pd.DataFrame, int]:
    """A row per number of removed dimensions, and how many hold most of the lift."""
    contrasts = [sum(each.contrast() for each in half) for half in (found, held_out)]
    queries, keys = pairs_of(contrasts[0])  # type: ignore[arg-type]
    held = held_by(contrasts[1], queries, keys)  # type: ignore[arg-type]
    needed, width = dimensions_for(held, SHARE), len(held)
    sizes = sorted({0, needed, *(2**i for i in range(12) if 2**i < width)})
    blocks = np.array([each.block for each in held_out], np.int64)
    rng = np.random.default_rng(seed)
    rows = []
    for size in sizes:
        own = [each.masses((queries[:size], keys[:size]) if size else None) for each in held_out]
        first = queries[:size], keys[:size]
        drawn = [_random_lift(held_out, blocks, first, rng) for _ in range(CONTROLS)]
        on, off, count = (float(sum(part)) for part in zip(*own, strict=True))
        sums, counts = block_sums(own, blocks)
        low, high = interval(sums, counts, resample(len(sums), np.random.default_rng(seed)))
        share = float(held[size - 1]) if size else 0.0
        lift = (on - off) / count
        rows.append((size, share, on / count, off / count, lift, low, high, float(np.mean(drawn))))
    return pd.DataFrame(rows, columns=COLUMNS), needed


def _random_lift(
    held_out: Sequence[Seen],
    blocks: ndarray,
    first: tuple[Tensor, Tensor],
    rng: np.random.Generator,
) -> float:
    """The lift that is left without as many directions, turned at random.

    Those of queries and of keys are turned together, so that they lie to each other as before.
    """
    turn = random_directions(first[0].shape[1], first[0].shape[1], rng)
    drawn = (first[0] @ turn, first[1] @ turn) if len(first[0]) else None
    sums, counts = block_sums([each.masses(drawn) for each in held_out], blocks)
    return float(sums.sum() / counts.sum())
