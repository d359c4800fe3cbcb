"""What breaks without a head: the effect of silencing it on what its type predicts.

A head's tag says where it looks; this says what the model loses. Each type predicts a behaviour:

- induction: log-probability on the second copy of repeated random tokens, per position;
- syntactic: log-odds of the verb that agrees with its subject over a noun of the other number;
- coreference: log-odds of the pronoun that agrees with its antecedent, of two candidates;
- positional, delimiter, semantic: log-probability of the next token at the queries of the head's
  relation (`near`), which must suffer more than all other predictions (`away`).

The control of each is what equally many random heads of the same layers do that lack the type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
import torch
from numpy import ndarray

from headscope.errors import HeadscopeError
from headscope.evidence.causes import CAUSE_COLUMNS
from headscope.evidence.result import Result
from headscope.evidence.tags import is_sink
from headscope.heads import head_name, parse_head
from headscope.measure.bootstrap import interval, resample
from headscope.relations import head_types
from headscope.studies.ablate.rerun import Clean, Edit, Rerunner, Rows, silence
from headscope.studies.ablate.stimulus import Reading, Stimulus

HOW = ("mean", "zero", "resample")
CONTROLS = 5
"""Draws of random heads that each group is compared with."""
ROWS_TOKENS = 2_048

Head = tuple[int, int]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Group:
    """Heads that are silenced together."""

    kind: str
    """`head` for one of them, `type` for all of a type, `control` for random ones."""
    type: str
    heads: tuple[Head, ...]
    controls: tuple[tuple[Head, ...], ...] = ()


def behaviour_of(type_name: str) -> str:
    """What heads of a type predict; see `headscope.relations.types.HeadType.behaviour`."""
    known = head_types().get(type_name)
    return known.behaviour if known else "text"


def tagged_types(run: Result) -> dict[str, list[Head]]:
    """For each type the heads that hold a tag of it, the sink's left out."""
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    tagged = tagged[~is_sink(tagged["type"] + "/" + tagged["relation"])]
    found: dict[str, list[Head]] = {}
    for row in tagged[["type", "layer", "head"]].drop_duplicates().itertuples():
        found.setdefault(str(row.type), []).append((int(row.layer), int(row.head)))
    return found


def choose_groups(run: Result, heads: str, *, seed: int) -> list[Group]:
    """What to silence.

    Args:
        run: the run.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        seed: seeds the random heads.

    Raises:
        RunError: a name is none of the run's heads.
        HeadscopeError: no head of the run is tagged.
    """
    types = tagged_types(run)
    known = [(int(layer), int(head)) for layer, head in run.heads[["layer", "head"]].to_numpy()]
    rng = np.random.default_rng(seed)
    of_head: dict[Head, list[str]] = {head: [] for head in known}
    for name, members in types.items():
        for head in members:
            of_head[head].append(name)
    if heads in ("tagged", "all"):
        chosen = [head for head in known if heads == "all" or of_head[head]]
    else:
        chosen = [parse_head(name) for name in heads.split(",")]
        for head in chosen:
            if head not in of_head:
                last = head_name(*known[-1])
                raise HeadscopeError(f"no head {head_name(*head)} in this run; up to {last}")
    if not chosen:
        raise HeadscopeError("no head of this run has a tag; name heads, or ask for --heads all")
    groups = [
        Group("head", name, (head,), _controls((head,), types.get(name, []), of_head, rng))
        for head in chosen
        for name in of_head[head] or (sorted(types) if heads == "all" else [])
    ]
    if heads in ("tagged", "all"):
        groups += [
            Group("type", name, tuple(members), _controls(members, members, of_head, rng))
            for name, members in types.items()
        ]
    return groups


def _controls(
    heads: Iterable[Head],
    of_type: Sequence[Head],
    tags: Mapping[Head, Sequence[str]],
    rng: np.random.Generator,
) -> tuple[tuple[Head, ...], ...]:
    """Draws of equally many untagged heads of the same layers; where there are too few, of heads
    of the layer that lack the type, then of other layers.
    """
    drawn = []
    for _ in range(CONTROLS):
        taken: list[Head] = []
        for head in heads:
            free = [h for h in tags if h not in of_type and h not in taken and h != head]
            near = [h for h in free if h[0] == head[0]]
            pool = [h for h in near if not tags[h]] or near or free
            if pool:
                taken.append(pool[int(rng.integers(len(pool)))])
        drawn.append(tuple(sorted(taken)))
    return tuple(dict.fromkeys(each for each in drawn if each))


def ablate_groups(
    rerunner: Rerunner,
    stimuli: Sequence[Stimulus],
    groups: Sequence[Group],
    *,
    how: str,
    seed: int,
    progress: Progress = lambda done, total: None,
) -> pd.DataFrame:
    """Silence each group and see what changes, a row per group × behaviour.

    - `clean`, `ablated`: the behaviour's mean: log-probability in nats per token, or log-odds.
    - `effect`: ablated − clean; below 0 the behaviour suffers. `ci_low`, `ci_high`: 95 %
      bootstrap over windows or pairs.
    - `control`, `control_low`, `control_high`: the mean effect of the random groups, and its range.
    - `agrees`: the interval lies below 0 and below every random group's effect; for `near` also
      below the effect on `away`.

    Args:
        rerunner: the model.
        stimuli: what to read.
        groups: what to silence.
        how: `mean`, `zero` or `resample`.
        seed: seeds the bootstrap and which rows `resample` exchanges.
        progress: called with the runs done and in all.
    """
    sets = {each for g in groups for each in (g.heads, *g.controls)}
    wanted: dict[tuple[Head, ...], set[str]] = {each: set() for each in sets}
    for group in groups:
        for each in (group.heads, *group.controls):
            wanted[each].add(group.type)
    readings = {stimulus.name: _by_type(stimulus, groups) for stimulus in stimuli}
    jobs = {
        stimulus.name: [s for s in sorted(sets) if wanted[s] & set(readings[stimulus.name])]
        for stimulus in stimuli
    }
    total, done = sum(map(len, jobs.values())), 0
    rows: list[dict[str, object]] = []
    for stimulus in stimuli:
        clean, ablated = _run(rerunner, stimulus, jobs[stimulus.name], how, seed)
        done += len(jobs[stimulus.name])
        progress(done, total)
        for group in groups:
            for reading in readings[stimulus.name].get(group.type, ()):
                rows.append(_row(group, reading, how, clean, ablated, seed))
    return _judge(pd.DataFrame(rows, columns=CAUSE_COLUMNS))


def _by_type(stimulus: Stimulus, groups: Sequence[Group]) -> dict[str, list[Reading]]:
    found: dict[str, list[Reading]] = {}
    for name in dict.fromkeys(group.type for group in groups):
        behaviour = behaviour_of(name)
        near = behaviour in ("text", "pairs")
        names = (f"near {name}", f"away {name}") if near else (behaviour,)
        own = [reading for reading in stimulus.readings if reading.behaviour in names]
        if own:
            found[name] = own
    return found


def _run(
    rerunner: Rerunner, stimulus: Stimulus, sets: Sequence[tuple[Head, ...]], how: str, seed: int
) -> tuple[ndarray, dict[tuple[Head, ...], ndarray]]:
    """Log-probabilities of the untouched model and of each silenced one, rows in batches."""
    at_once = max(2, ROWS_TOKENS // stimulus.tokens.shape[1] // 2 * 2)
    generator = np.random.default_rng(seed)
    clean_parts: list[ndarray] = []
    parts: dict[tuple[Head, ...], list[ndarray]] = {each: [] for each in sets}
    for start in range(0, len(stimulus.tokens), at_once):
        rows = _rows(stimulus, start, start + at_once, rerunner.model.device)
        clean = rerunner.clean(rows)
        clean_parts.append(_numpy(clean.logp))
        shift = 1 + int(generator.integers(max(1, len(rows.tokens) - 1)))
        for each in sets:
            edits = _edits(each, how, clean, shift)
            parts[each].append(_numpy(rerunner.edited(clean, edits)))
    return np.concatenate(clean_parts), {k: np.concatenate(v) for k, v in parts.items()}


def _rows(stimulus: Stimulus, start: int, end: int, device: str) -> Rows:
    inside = (stimulus.row >= start) & (stimulus.row < end)
    arrays = (
        stimulus.tokens[start:end],
        stimulus.lengths[start:end],
        stimulus.row[inside] - start,
        stimulus.position[inside],
    )
    return Rows(*(torch.from_numpy(array).to(device) for array in arrays))


def _edits(heads: tuple[Head, ...], how: str, clean: Clean, shift: int) -> dict[int, Edit]:
    layers: dict[int, list[int]] = {}
    for layer, head in heads:
        layers.setdefault(layer, []).append(head)
    return {layer: silence(how, clean, layer, own, shift) for layer, own in layers.items()}


def _row(
    group: Group,
    reading: Reading,
    how: str,
    clean: ndarray,
    ablated: Mapping[tuple[Head, ...], ndarray],
    seed: int,
) -> dict[str, object]:
    before, counts = reading.sums(clean)
    after, _ = reading.sums(ablated[group.heads])
    used = counts > 0
    draws = resample(int(used.sum()), np.random.default_rng(seed))
    low, high = interval((after - before)[used], counts[used], draws)
    effects = [
        (reading.sums(ablated[each])[0] - before).sum() / counts.sum() for each in group.controls
    ]
    layer, head = group.heads[0] if group.kind == "head" else (-1, -1)
    return {
        "kind": group.kind,
        "layer": layer,
        "head": head,
        "type": group.type,
        "heads": ";".join(head_name(*each) for each in group.heads),
        "behaviour": reading.behaviour.split()[0],
        "how": how,
        "n": int(counts.sum()),
        "clean": before.sum() / counts.sum(),
        "ablated": after.sum() / counts.sum(),
        "effect": (after - before).sum() / counts.sum(),
        "ci_low": low,
        "ci_high": high,
        "control": np.mean(effects) if effects else np.nan,
        "control_low": min(effects, default=np.nan),
        "control_high": max(effects, default=np.nan),
        "agrees": False,
    }


def _judge(table: pd.DataFrame) -> pd.DataFrame:
    key = ["kind", "type", "heads"]
    away = table[table["behaviour"] == "away"].set_index(key)["effect"]
    elsewhere = pd.MultiIndex.from_frame(table[key]).map(away.to_dict())
    worse = table["ci_high"] < np.fmin(0, table["control_low"].astype(float))
    more_than_away = table["effect"] < pd.Series(elsewhere, index=table.index, dtype=float)
    near = table["behaviour"] == "near"
    has_away = pd.Series(elsewhere, index=table.index, dtype=float).notna()
    table["agrees"] = (worse & (~near | ~has_away | more_than_away)).where(
        table["behaviour"] != "away", False
    )
    table["layer"] = table["layer"].astype("Int64").where(table["layer"] >= 0)
    table["head"] = table["head"].astype("Int64").where(table["head"] >= 0)
    return table


def ratios(table: pd.DataFrame) -> pd.DataFrame:
    """By type and behaviour: the effect of all its heads in units of its random groups' mean."""
    together = table[table["kind"] == "type"]
    return together.assign(ratio=together["effect"] / together["control"])


def _numpy(logp: torch.Tensor) -> ndarray:
    return logp.double().cpu().numpy()
