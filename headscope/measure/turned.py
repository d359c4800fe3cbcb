"""S-inhibition: how what heads write turns later heads' queries from one name to another.

Of each prompt "Mary and John …, John gave a drink to": the change of the scores of all later heads
on a name, a mean weighted by how much each of them looks at both names. The weights are of all
heads of the model, so that a late head, after which few look at names, has little effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.measure.batches import Batch
from headscope.measure.effect_names import effect_names, self_places
from headscope.measure.tally import Tally, grained
from headscope.models.direct.paths import DirectPaths
from headscope.models.direct.scores import LayerScores, Places, later_scores, unknown_scores
from headscope.relations.writes.effect import Effect

if TYPE_CHECKING:
    from headscope.models.load import Model


class Named(NamedTuple):
    """Where a prompt's names stand."""

    query: int
    subject: int
    """The first place of the name that comes twice."""
    again: int
    """Its second place."""
    due: int
    """The place of the name that comes once."""


@dataclass(frozen=True, eq=False)
class TurnedSums:
    """What a batch adds to the sums: rows are block × (effect, what is read elsewhere)."""

    block: Int[ndarray, " window"]
    rows: dict[int, tuple[Float[ndarray, "window layer head"], Float[ndarray, "window layer head"]]]
    """Target and control by the place among `effect_names`."""
    names: int

    def add_to(self, tally: Tally) -> None:
        """Add all of it; the names of effects are the last of a tally."""
        first = len(tally.relations) - self.names
        for place, (target, control) in self.rows.items():
            np.add.at(tally.target[:, first + place], self.block, target)
            np.add.at(tally.control[:, first + place], self.block, control)
            np.add.at(tally.hits[:, first + place], self.block, np.ones_like(target))
            np.add.at(tally.queries[:, first + place], self.block, 1)


def turned(
    model: Model, paths: DirectPaths, batch: Batch, effects: Sequence[Effect]
) -> TurnedSums | None:
    """What a batch says of effects that are about later heads' scores; None where it has none."""
    asked = [index for index, each in enumerate(effects) if each.of_keys]
    if not asked:
        return None
    (place,) = asked  # a second one would need prompts and places of its own
    effect = effects[place]
    named = [named_places(window, effect.prompt) for window in batch.windows]
    rows = [row for row, each in enumerate(named) if each is not None]
    if not rows or unknown_scores(model, paths):
        return None
    tokens = batch.tokens()[rows]
    places = _places([each for each in named if each is not None], tokens.shape[1])
    places = Places(*(each.to(model.device) for each in places))
    layers = later_scores(model.engine, paths, tokens.to(model.device), places)
    on, read = effects_on(layers, paths)
    subject, due = (grained(each.double().cpu().numpy()) for each in on)
    elsewhere = on - read
    rest = grained((elsewhere[0] - elsewhere[1]).double().cpu().numpy())
    nothing = np.zeros_like(subject)
    return TurnedSums(
        np.asarray(batch.blocks)[rows],
        {
            place: (subject, due),
            self_places(effects)[place]: (rest, nothing),
        },
        len(effect_names(effects)),
    )


def named_places(window: Window, kind: str) -> Named | None:
    """Where the names of a window's question stand; None where it has no such question.

    The name that is due must stand once before the query, and the other one twice.
    """
    for each in window.questions:
        if each.kind != kind or len(each.right) != 1 or len(each.wrong) != 1:
            continue
        before = window.tokens[: each.query]
        due, subject = (np.flatnonzero(before == side[0]) for side in (each.right, each.wrong))
        if len(due) == 1 and len(subject) == 2:
            return Named(each.query, int(subject[0]), int(subject[1]), int(due[0]))
    return None


@torch.no_grad()
def effects_on(
    layers: Sequence[LayerScores], paths: DirectPaths
) -> tuple[Float[Tensor, "side window layer head"], Float[Tensor, "side window layer head"]]:
    """Each head's effect on each side's score, in nats, and its part that is read as asked."""
    total = torch.stack([each.mass.sum(1) for each in layers]).sum(0)
    ahead = torch.zeros_like(layers[-1].directions)
    whole, read = [], []
    for place in reversed(range(len(layers))):
        each = layers[place]
        through = paths.through_heads(place, ahead.flatten(0, 1))
        through = through.view(*ahead.shape[:2], *through.shape[1:])
        size = (each.behind / total.clamp_min(1e-30))[:, None]
        whole.append((through * each.z).sum(-1) * size)
        read.append((through * each.read).sum(-1) * size)
        ahead = ahead + each.directions
    return torch.stack(whole[::-1], 2), torch.stack(read[::-1], 2)


def _places(named: Sequence[Named], length: int) -> Places:
    names, read, *sides = torch.zeros(4, len(named), length)
    for row, each in enumerate(named):
        names[row, [each.subject, each.due]] = 1.0
        read[row, [each.subject, each.again]] = 1.0
        sides[0][row, each.subject] = sides[1][row, each.due] = 1.0
    query = torch.tensor([each.query for each in named])
    return Places(query, names, read, torch.stack(sides))
