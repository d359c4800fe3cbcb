"""Windows to tallies: dealt into blocks, run in batches, summed from the rows of every layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from headscope.ahead import ahead
from headscope.batches import Batch
from headscope.corpus.window import Window
from headscope.engine import Block, Rows
from headscope.profile import ProfileRows
from headscope.relations.relation import Relation
from headscope.schedule import Choose, Step, schedule
from headscope.selection import Selection, select
from headscope.tally import Tally

if TYPE_CHECKING:
    from headscope.models import Model

Progress = Callable[[int], None]


@dataclass(frozen=True, eq=False)
class Prepared:
    """A batch that is ready to run: its tokens, its cells, and where its rows come in blocks."""

    step: Step
    tokens: Int[Tensor, "window position"]
    blocks: list[Block]
    selection: Selection | None

    @property
    def batch(self) -> Batch:
        """The windows that run together."""
        return self.step.batch


def measure(
    model: Model,
    text: Iterable[Window],
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
    share: Choose = lambda windows: set(),
    progress: Progress = lambda tokens: None,
) -> tuple[Tally, list[Prepared]]:
    """Run the model once over all windows and sum up what the relations ask about.

    While an accelerator runs a batch, the next one is read from the corpus, tokenised and searched
    for pairs.

    Args:
        model: the model to run.
        text: windows of natural text, one after the other; they need not fit into memory.
        synthetic: windows of the other stimuli.
        relations: the rows of the table to score.
        seed: seeds the control draws.
        batch_tokens: tokens of one forward pass; bounds memory.
        share: says which of the next windows are to be read again; their batches are kept.
        progress: called after each batch with its number of tokens, padding left out.

    Returns:
        The sums, and the batches to read again.
    """
    tally = Tally.zeros(tuple(r.id for r in relations), model.layers, model.heads)
    kept: list[Prepared] = []
    steps = schedule(text, synthetic, batch_tokens=batch_tokens, share=share)
    batches = prepare(model, steps, relations, seed)
    # on a processor's cores the model and its next batch would only be in each other's way
    for prepared in batches if model.device == "cpu" else ahead(batches):
        if prepared.step.halves:
            tally.halve()
        _read(model, prepared, tally)
        if prepared.step.shared:
            kept.append(prepared)
        progress(sum(map(len, prepared.batch.windows)))
    return tally, kept


def measure_again(
    model: Model, kept: Iterable[Prepared], relations: Sequence[Relation],
    progress: Progress = lambda tokens: None,
) -> Tally:  # fmt: skip
    """Run batches again that `measure` kept; the model may have other weights by now."""
    tally = Tally.zeros(tuple(r.id for r in relations), model.layers, model.heads)
    for prepared in kept:
        _read(model, prepared, tally)
        progress(sum(map(len, prepared.batch.windows)))
    return tally


def prepare(
    model: Model, steps: Iterable[Step], relations: Sequence[Relation], seed: int
) -> Iterator[Prepared]:
    """Each batch with its cells found and drawn, on the model's device."""
    for step in steps:
        tokens = step.batch.tokens()
        blocks = model.engine.layout(*tokens.shape)
        selection = select(step.batch, relations, blocks, heads=model.heads, seed=seed)
        selection = selection and selection.to(model.device)
        yield Prepared(step, tokens.to(model.device), blocks, selection)


def _read(model: Model, prepared: Prepared, tally: Tally) -> None:
    if prepared.selection is not None:
        add_counts(tally, prepared.selection)

    def on_layer(layer: int, rows: Iterable[Rows]) -> None:
        add_layer(
            tally, prepared.batch, prepared.selection, layer,
            zip(prepared.blocks, rows, strict=True), logarithms=model.engine.logarithms,
        )  # fmt: skip

    model.engine.run(prepared.tokens, prepared.blocks, on_layer)


def add_counts(tally: Tally, selection: Selection) -> None:
    """Add what does not depend on heads: queries, chance and the simple rules' right guesses."""
    place = (selection.block, selection.relation)
    np.add.at(tally.queries, place, selection.queries)
    np.add.at(tally.chance, place, selection.chance)
    np.add.at(tally.guesses, selection.relation, selection.guesses)


@torch.inference_mode()
def add_layer(
    tally: Tally,
    batch: Batch,
    selection: Selection | None,
    layer: int,
    rows: Iterable[tuple[Block, Rows]],
    *,
    logarithms: bool,
) -> None:
    """Add one layer's rows on one batch, block by block."""
    profile = ProfileRows(tally.profile, batch, layer, logarithms=logarithms)
    parts: list[tuple[Tensor, Tensor]] = []
    for number, (block, own) in enumerate(rows):
        if selection is not None:
            parts.append(selection.parts[number].sums(own, logarithms=logarithms))
        profile.add(block, own)
    if selection is not None:
        sums = selection.sums(parts)
        # the rows of a selection are distinct, so plain indexing adds each of them once
        tally.target[selection.block, selection.relation, layer] += sums.target
        tally.control[selection.block, selection.relation, layer] += sums.control
        tally.hits[selection.block, selection.relation, layer] += sums.hits
