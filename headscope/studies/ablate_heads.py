"""Effects of ablating single heads on the behaviours that their types predict.

`headscope.statistics.causes.BEHAVIOURS` describes the behaviours. An encoder's heads of all types
are tested at the queries of their relations: by the log-probability of masked tokens, or, without a
head for masked tokens, by how far the last state moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy import ndarray

from headscope.corpus.window import Window
from headscope.measure.bootstrap import estimate
from headscope.measure.progress import OnProgress
from headscope.models.batching import batch_tokens_on, in_batches, padded_tokens
from headscope.models.layout.projections import output_matrix
from headscope.models.rerun import Rerunner, Score, TokenRows, ablated
from headscope.runs.listing import Head, chosen_heads, tagged_types
from headscope.statistics.causes import COMPETENT, UNTESTED
from headscope.statistics.result import Result
from headscope.studies.ablate_texts import AblationText, ItemScore

CONTROLS = 5
"""Heads that each head is compared with; with fewer there is no verdict."""
ROWS_TOKENS = 2_048


class HeadOfType(NamedTuple):
    """A head that is ablated as one of a type."""

    head: Head
    type: str
    controls: tuple[Head, ...]
    """Heads without the type that are most similar in depth and output norm."""


def heads_with_controls(run: Result, heads: str, norms: Mapping[Head, float]) -> list[HeadOfType]:
    """Heads to ablate, each for every type that it is tagged with; see `chosen_heads`.

    With `all`, untagged heads are tested for all types.
    """
    types = tagged_types(run)
    rows = []
    for head in chosen_heads(run, heads):
        of_head = [name for name, members in types.items() if head in members]
        for name in of_head or (sorted(types) if heads == "all" else []):
            pool = [other for other in norms if other not in types[name] and other != head]
            rows.append(HeadOfType(head, name, _nearest(head, pool, norms)))
    return rows


def _nearest(head: Head, pool: list[Head], norms: Mapping[Head, float]) -> tuple[Head, ...]:
    layers = 1 + max(layer for layer, _ in norms)
    tiny = 1e-9  # an output may be zero

    def distance(other: Head) -> float:
        size = np.log((norms[other] + tiny) / (norms[head] + tiny))
        return abs(other[0] - head[0]) / layers + abs(float(size))

    return tuple(sorted(pool, key=distance)[:CONTROLS])


def output_norms(rerunner: Rerunner, windows: Sequence[Window]) -> dict[Head, float]:
    """Mean norm of each head's output z W_O over tokens, without the first of each window."""
    heads, device = rerunner.model.heads, rerunner.model.device
    matrices = {}
    for layer, projection in rerunner.outputs.items():
        matrix = output_matrix(projection).float()
        matrices[layer] = matrix.reshape(heads, -1, matrix.shape[-1])
    sums = {layer: np.zeros(heads) for layer in matrices}
    nothing = torch.zeros(0, dtype=torch.long)
    count = 0
    by_length = sorted(windows, key=len, reverse=True)
    for batch in in_batches(by_length, batch_tokens_on(device)):
        tokens = padded_tokens(batch).to(device)
        lengths = torch.tensor([len(window) for window in batch])
        clean = rerunner.clean(TokenRows(tokens, lengths, nothing, nothing))
        position = torch.arange(tokens.shape[1])
        real = ((position > 0) & (position < lengths[:, None])).to(device)
        count += int(real.sum())
        for layer, z in clean.z.items():
            output = torch.einsum("phd,hdm->phm", z[real].float(), matrices[layer])
            sums[layer] += output.norm(dim=-1).sum(0).double().cpu().numpy()
    return {
        (layer, head): float(norm) / count
        for layer, of_layer in sums.items()
        for head, norm in enumerate(of_layer)
    }


def ablate_heads(
    rerunner: Rerunner,
    texts: Sequence[AblationText],
    heads: Sequence[HeadOfType],
    *,
    method: str,
    seed: int,
    progress: OnProgress = lambda done, total: None,
) -> pd.DataFrame:
    """Ablate each head; a row of the table of causes per head × behaviour, yet without a verdict.

    `verdict` has the reason why there will be none: the clean model is not above chance (an even
    choice of a pair, or one token of the vocabulary), or there are too few controls.

    Args:
        rerunner: the model.
        texts: from `ablation_texts`.
        heads: from `heads_with_controls`.
        method: `mean` or `zero`.
        seed: seeds the bootstrap.
        progress: called with the runs done and in all.
    """
    scored: dict[str, list[tuple[HeadOfType, ItemScore]]] = {}
    jobs: dict[str, list[Head]] = {}
    for text in texts:
        scored[text.name] = [(h, s) for h in heads for s in text.scores if h.type in s.types]
        tested = [h for h, _ in scored[text.name]]
        jobs[text.name] = sorted({head for h in tested for head in (h.head, *h.controls)})
    total, done = sum(map(len, jobs.values())), 0
    rows: list[dict[str, object]] = []
    for text in texts:
        clean, changed = _run(rerunner, text, jobs[text.name], method)
        done += len(jobs[text.name])
        progress(done, total)
        for head, score in scored[text.name]:
            row = _row(head, score, clean, changed, seed)
            chance = -np.log(rerunner.model.vocabulary_size) if score.per_term else 0.0
            # the distance of a clean state from itself is 0
            able = float(row.pop("clean_low")) > chance + COMPETENT
            verdict = ""
            if not able and rerunner.score is not Score.STATE:
                verdict = f"{UNTESTED}: the model cannot do it"
            elif len(head.controls) < CONTROLS:
                verdict = f"{UNTESTED}: fewer than {CONTROLS} heads to compare with"
            rows.append(row | {"how": method, "verdict": verdict})
    return pd.DataFrame(rows)


def _run(
    rerunner: Rerunner, text: AblationText, heads: Sequence[Head], method: str
) -> tuple[ndarray, dict[Head, ndarray]]:
    """Scores of the clean model, and with each head ablated; rows in batches."""
    at_once = max(2, ROWS_TOKENS // text.tokens.shape[1] // 2 * 2)
    clean_parts: list[ndarray] = []
    parts: dict[Head, list[ndarray]] = {head: [] for head in heads}
    for start in range(0, len(text.tokens), at_once):
        rows = text.rows(start, start + at_once, rerunner.model.device)
        clean = rerunner.clean(rows)
        clean_parts.append(_numpy(clean.scores))
        for layer, head in heads:
            without = ablated(method, clean, {layer: [head]})
            parts[layer, head].append(_numpy(rerunner.scores(clean, without)))
    return np.concatenate(clean_parts), {k: np.concatenate(v) for k, v in parts.items()}


def _numpy(scores: torch.Tensor) -> ndarray:
    return scores.double().cpu().numpy()


def _row(
    head: HeadOfType,
    score: ItemScore,
    clean: ndarray,
    changed: Mapping[Head, ndarray],
    seed: int,
) -> dict[str, Any]:
    before, counts = score.sums(clean)
    lost = score.sums(changed[head.head])[0] - before
    others = [score.sums(changed[control])[0] - before for control in head.controls]
    effect = estimate(lost, counts, seed=seed)
    effects = [float(control.sum() / counts.sum()) for control in others]
    missing = np.full(len(lost), np.nan)
    beyond = lost - np.mean(others, 0) if others else missing
    # a loss is below 0
    excess = estimate(-beyond, counts, seed=seed)
    untouched = estimate(before, counts, seed=seed)
    return {
        "kind": "head",
        "layer": head.head[0],
        "head": head.head[1],
        "type": head.type,
        "behaviour": score.behaviour,
        "n": int(counts.sum()),
        "clean": untouched.mean,
        "clean_low": untouched.low,
        "ablated": untouched.mean + effect.mean,
        "effect": effect.mean,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "control": np.mean(effects) if effects else np.nan,
        "control_low": min(effects, default=np.nan),
        "control_high": max(effects, default=np.nan),
        "relation": "",
        "excess": -excess.mean,
        "excess_low": -excess.high,
        "excess_high": -excess.low,
        "p_value": excess.p_value,
    }
