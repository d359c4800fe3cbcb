"""Effects of silencing heads on the behaviours that their types predict.

A head's tag says where it looks; this says what the model loses. Each type predicts a behaviour:

- induction: log-probability on the second copy of repeated random tokens, per position;
- syntactic: log-odds of the verb that agrees with its subject over a noun of the other number;
- coreference: log-odds of the pronoun that agrees with its antecedent, of two candidates;
- positional, delimiter, semantic: log-probability of the next token at the queries of the head's
  relation (`near`), which must suffer more than all other predictions (`away`).

Of an encoder all types are asked as the last ones are: for the log-probability of a query that is
masked (`masked-near`), or, where it has no head for that, how far its last state moves there
(`state-near`).

The uncertainty of an effect is its interval and test over independent items.
The control of each is what as many heads do that lack the type and are like it in depth and size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int, Real
from numpy import ndarray
from scipy.special import stdtr

from headscope.heads import head_name
from headscope.measure.bootstrap import interval, ratio_error, resample
from headscope.measure.progress import OnProgress
from headscope.models.rerun import Rerunner, Score, TokenRows, silenced
from headscope.relations import head_types
from headscope.statistics.causes import COMPETENT, UNTESTED
from headscope.stimuli import STIMULI
from headscope.stimuli.text import TEXT
from headscope.studies.ablate.ablation_text import AblationText, ItemScore
from headscope.studies.ablate.groups import CONTROLS, Group

ROWS_TOKENS = 2_048

Head = tuple[int, int]


def behaviour_of(type_name: str, score: Score = Score.NEXT) -> str:
    """Behaviour of a type's heads; see `headscope.relations.types.HeadType.behaviour`.

    Those that a causal model shows as it predicts the next token are no encoder's: each of its
    types is asked for at the queries of its relations.
    """
    known = head_types().get(type_name)
    behaviour = known.behaviour if known else TEXT.name
    return behaviour if score is Score.NEXT or _asks_near(behaviour) else TEXT.name


def _asks_near(behaviour: str) -> bool:
    return behaviour in STIMULI and STIMULI[behaviour].ablation_near


def ablate_groups(
    rerunner: Rerunner,
    stimuli: Sequence[AblationText],
    groups: Sequence[Group],
    *,
    method: str,
    seed: int,
    progress: OnProgress = lambda done, total: None,
) -> pd.DataFrame:
    """Silence each group and see what changes, a row per group × behaviour, yet without a verdict.

    - `clean`, `ablated`: the behaviour's mean: log-probability in nats per token, or log-odds.
    - `effect`: ablated − clean; below 0 the behaviour suffers. `ci_low`, `ci_high`: 95 %
      bootstrap over windows or pairs.
    - `control`, `control_low`, `control_high`: the mean effect of the groups that it is compared
      with, and its range.
    - `excess`: effect − control, item by item, with its interval `excess_low`, `excess_high` and
      the p value `p_value` of its being below 0.
    - `verdict`: empty, or why there will be none: the untouched model is not above chance (which
      is an even choice of a pair, and one token of the vocabulary), or too few heads lack the type.

    Args:
        rerunner: the model.
        stimuli: what to read.
        groups: what to silence.
        method: `mean`, `zero` or `resample`.
        seed: seeds the bootstrap and which rows `resample` exchanges.
        progress: called with the runs done and in all.
    """
    sets = {heads for g in groups for heads in (g.heads, *g.controls)}
    types_of: dict[tuple[Head, ...], set[str]] = {heads: set() for heads in sets}
    for group in groups:
        for heads in (group.heads, *group.controls):
            types_of[heads].add(group.type)
    score = rerunner.score
    readings = {stimulus.name: _by_type(stimulus, groups, score) for stimulus in stimuli}
    jobs = {
        stimulus.name: [s for s in sorted(sets) if types_of[s] & set(readings[stimulus.name])]
        for stimulus in stimuli
    }
    total, done = sum(map(len, jobs.values())), 0
    rows: list[dict[str, object]] = []
    for stimulus in stimuli:
        clean, ablated = _run(rerunner, stimulus, jobs[stimulus.name], method, seed)
        done += len(jobs[stimulus.name])
        progress(done, total)
        for group in groups:
            for reading in readings[stimulus.name].get(group.type, ()):
                row = _row(group, reading, clean, ablated, seed)
                chance = -np.log(rerunner.model.vocabulary_size) if reading.per_term else 0.0
                # an untouched state is at no distance from itself
                able = float(row.pop("clean_low")) > chance + COMPETENT or score is Score.STATE
                rows.append(row | {"how": method, "verdict": _reason(group, able=bool(able))})
    return pd.DataFrame(rows)


def _by_type(
    stimulus: AblationText, groups: Sequence[Group], score: Score
) -> dict[str, list[ItemScore]]:
    readings_of: dict[str, list[ItemScore]] = {}
    for name in dict.fromkeys(group.type for group in groups):
        behaviour = behaviour_of(name, score)
        near = _asks_near(behaviour)
        readings = [
            reading
            for reading in stimulus.readings
            if (reading.label == name if near else reading.behaviour == behaviour)
        ]
        if readings:
            readings_of[name] = readings
    return readings_of


def _run(
    rerunner: Rerunner,
    stimulus: AblationText,
    sets: Sequence[tuple[Head, ...]],
    method: str,
    seed: int,
) -> tuple[ndarray, dict[tuple[Head, ...], ndarray]]:
    """Scores of the untouched model and of each silenced one, rows in batches."""
    at_once = max(2, ROWS_TOKENS // stimulus.tokens.shape[1] // 2 * 2)
    generator = np.random.default_rng(seed)
    clean_parts: list[ndarray] = []
    parts: dict[tuple[Head, ...], list[ndarray]] = {heads: [] for heads in sets}
    for start in range(0, len(stimulus.tokens), at_once):
        rows = _rows(stimulus, start, start + at_once, rerunner.model.device)
        clean = rerunner.clean(rows)
        clean_parts.append(_numpy(clean.scores))
        shift = 1 + int(generator.integers(max(1, len(rows.tokens) - 1)))
        for heads in sets:
            without = silenced(method, clean, _by_layer(heads), shift)
            parts[heads].append(_numpy(rerunner.scores(clean, without)))
    return np.concatenate(clean_parts), {k: np.concatenate(v) for k, v in parts.items()}


def _rows(stimulus: AblationText, start: int, end: int, device: str) -> TokenRows:
    inside = (stimulus.row >= start) & (stimulus.row < end)
    arrays = (
        stimulus.tokens[start:end],
        stimulus.lengths[start:end],
        stimulus.row[inside] - start,
        stimulus.position[inside],
        *(() if stimulus.labels is None else (stimulus.labels[inside],)),
    )
    return TokenRows(*(torch.from_numpy(array).to(device) for array in arrays))


def _by_layer(heads: tuple[Head, ...]) -> dict[int, list[int]]:
    layers: dict[int, list[int]] = {}
    for layer, head in heads:
        layers.setdefault(layer, []).append(head)
    return layers


def _row(
    group: Group,
    reading: ItemScore,
    clean: ndarray,
    ablated: Mapping[tuple[Head, ...], ndarray],
    seed: int,
) -> dict[str, Any]:
    before, counts = reading.sums(clean)
    lost = reading.sums(ablated[group.heads])[0] - before
    others = [reading.sums(ablated[control_loss])[0] - before for control_loss in group.controls]
    effect = estimate(lost, counts, seed=seed)
    effects = [float(control_loss.sum() / counts.sum()) for control_loss in others]
    missing = np.full(len(lost), np.nan)
    beyond = lost - np.mean(others, 0) if others else missing
    # a loss is below 0
    excess = estimate(-beyond, counts, seed=seed)
    untouched = estimate(before, counts, seed=seed)
    layer, head = group.heads[0] if group.kind == "head" else (None, None)
    return {
        "kind": group.kind,
        "layer": layer,
        "head": head,
        "type": group.type,
        "heads": ";".join(head_name(*control_loss) for control_loss in group.heads),
        "behaviour": reading.behaviour,
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
        "moved": np.nan,
        "excess": -excess.mean,
        "excess_low": -excess.high,
        "excess_high": -excess.low,
        "times": np.nan,
        "times_low": np.nan,
        "times_high": np.nan,
        "p_value": excess.p_value,
    }


def _reason(group: Group, *, able: bool) -> str:
    """Why a group gets no verdict; nothing if it can have one."""
    if not able:
        return f"{UNTESTED}: the model cannot do it"
    if len(group.controls) < CONTROLS:
        return f"{UNTESTED}: fewer than {CONTROLS} groups of heads to compare with"
    return ""


def _numpy(logp: torch.Tensor) -> ndarray:
    return logp.double().cpu().numpy()


class Estimate(NamedTuple):
    """A mean, its 95 % interval, and the one-sided p value of its being above 0."""

    mean: float
    low: float
    high: float
    p_value: float


def estimate(
    sums: Float[ndarray, " item"], counts: Real[ndarray, " item"], *, seed: int
) -> Estimate:
    """Σ sums / Σ counts over items, such as blocks of documents, windows, or pairs.

    The interval is from the percentile bootstrap over items, the p value from Student's
    distribution with the ratio's standard error (Cochran 1977, 2.11).

    >>> found = estimate(np.array([1.0, 2.0, 3.0]), np.array([1, 1, 1]), seed=0)
    >>> found.mean, bool(found.p_value < 0.05)
    (2.0, True)
    """
    used = counts > 0
    sums, counts = sums[used], counts[used]
    if not len(sums):
        return Estimate(*[float("nan")] * 4)
    low, high = interval(sums, counts, resample(len(sums), np.random.default_rng(seed)))
    mean = float(sums.sum() / counts.sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        error = ratio_error(sums[:, None], counts[:, None])[0]
        t = 0.0 if mean == 0 else mean / error
    p_value = float(stdtr(max(1, len(sums) - 1), -t))
    return Estimate(mean, float(low), float(high), p_value)


def by_block(
    values: Float[ndarray, " query"], block: Int[ndarray, " query"]
) -> tuple[Float[ndarray, " block"], Int[ndarray, " block"]]:
    """The sums and counts of each block's values."""
    return np.bincount(block, values).astype(float), np.bincount(block)
