"""S-inhibition: how what heads write turns later heads' queries from one name to another.

Of each prompt "Mary and John …, John gave a drink to": the change of the scores of all later heads
on a name, a mean weighted by how much each of them looks at both names. The weights are of all
heads of the model, so that a late head, after which few look at names, has little effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.effect_queries import EffectRows, EffectSums
from headscope.measure.tally import grained
from headscope.models.frozen_norm_path import DirectPaths
from headscope.models.frozen_norm_path.scores import (
    LayerScores,
    ScoreQueries,
    later_scores,
    unknown_scores,
)
from headscope.relations.contested import SELF
from headscope.relations.effect import Effect

if TYPE_CHECKING:
    from headscope.models.load import Model


class NamePositions(NamedTuple):
    """Positions of a prompt's names."""

    query: int
    subject: int
    """The first place of the name that comes twice."""
    again: int
    """Its second place."""
    due: int
    """The place of the name that comes once."""


def query_composition(
    model: Model, paths: DirectPaths, batch: Batch, effects: Sequence[Effect]
) -> EffectSums | None:
    """Effects of a batch's heads on later heads' scores; None where it has none."""
    of_keys = [effect for effect in effects if effect.of_keys]
    if not of_keys:
        return None
    (effect,) = of_keys  # a second one would need prompts and places of its own
    names = [name_positions(window, effect.prompt) for window in batch.windows]
    rows = [row for row, positions in enumerate(names) if positions is not None]
    if not rows or unknown_scores(model, paths):
        return None
    tokens = batch.tokens()[rows]
    places = _places([positions for positions in names if positions is not None], tokens.shape[1])
    queries = ScoreQueries(*(tensor.to(model.device) for tensor in places))
    layers = later_scores(model.engine, paths, tokens.to(model.device), queries)
    on, read = effects_on(layers, paths)
    subject, due = (grained(values.double().cpu().numpy()) for values in on)
    elsewhere = on - read
    self_part = grained((elsewhere[0] - elsewhere[1]).double().cpu().numpy())
    effect_rows = EffectRows(effects)
    rows_of_parts = [
        [effect_rows.add(int(batch.blocks[row]), effect, part, 1) for row in rows]
        for part in ("", SELF)
    ]
    columns = effect_rows.columns()
    shape = (len(columns[0]), *subject.shape[1:])
    target, control, count = (np.zeros(shape) for _ in range(3))
    for part_rows, on_target, on_control in zip(
        rows_of_parts, (subject, self_part), (due, np.zeros_like(due)), strict=True
    ):
        np.add.at(target, part_rows, on_target)
        np.add.at(control, part_rows, on_control)
        np.add.at(count, part_rows, 1.0)
    return EffectSums(*columns, target, control, count)


def name_positions(window: Window, kind: str) -> NamePositions | None:
    """Positions of the names of a window's question; None where it has no such question.

    The name that is due must stand once before the query, and the other one twice.
    """
    for question in window.questions:
        if question.kind != kind or len(question.right) != 1 or len(question.wrong) != 1:
            continue
        before = window.tokens[: question.query]
        due, subject = (
            np.flatnonzero(before == side[0]) for side in (question.right, question.wrong)
        )
        if len(due) == 1 and len(subject) == 2:
            return NamePositions(question.query, int(subject[0]), int(subject[1]), int(due[0]))
    return None


@torch.no_grad()
def effects_on(
    layers: Sequence[LayerScores], paths: DirectPaths
) -> tuple[Float[Tensor, "side window layer head"], Float[Tensor, "side window layer head"]]:
    """Each head's effect on each side's score, in nats, and its part that is read as asked."""
    total = torch.stack([scores.mass.sum(1) for scores in layers]).sum(0)
    later_directions = torch.zeros_like(layers[-1].directions)
    totals, read = [], []
    for number in reversed(range(len(layers))):
        scores = layers[number]
        through = paths.through_heads(number, later_directions.flatten(0, 1))
        through = through.view(*later_directions.shape[:2], *through.shape[1:])
        size = (scores.post_scale / total.clamp_min(1e-30))[:, None]
        totals.append((through * scores.z).sum(-1) * size)
        read.append((through * scores.read).sum(-1) * size)
        later_directions = later_directions + scores.directions
    return torch.stack(totals[::-1], 2), torch.stack(read[::-1], 2)


def _places(names: Sequence[NamePositions], length: int) -> ScoreQueries:
    both, read, *sides = torch.zeros(4, len(names), length)
    for row, name in enumerate(names):
        both[row, [name.subject, name.due]] = 1.0
        read[row, [name.subject, name.again]] = 1.0
        sides[0][row, name.subject] = sides[1][row, name.due] = 1.0
    query = torch.tensor([name.query for name in names])
    return ScoreQueries(query, both, read, torch.stack(sides))
