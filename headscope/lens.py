"""The `lens` engine: every layer's pattern through TransformerLens hooks, straight into a tally."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from jaxtyping import Float
from torch import Tensor

from headscope.attention import stream_patterns
from headscope.batches import Batch, Selection, batches, select
from headscope.corpus.window import Window
from headscope.measure import add_counts, add_layer, deal
from headscope.models import Model
from headscope.relations.relation import Relation
from headscope.tally import Tally

Progress = Callable[[int], None]


def measure(
    model: Model,
    windows: Sequence[Window],
    relations: Sequence[Relation],
    *,
    seed: int,
    batch_tokens: int,
    progress: Progress = lambda tokens: None,
) -> Tally:
    """Run the model once over all windows and sum up what the relations ask about.

    Args:
        model: the model to run.
        windows: text and synthetic windows, in any order.
        relations: the rows of the table to score.
        seed: seeds the control draws.
        batch_tokens: tokens of one forward pass; bounds memory.
        progress: called after each batch with its number of tokens, padding left out.
    """
    tally = Tally.zeros(tuple(r.id for r in relations), model.layers, model.heads)
    blocks, profiled = deal(windows)
    for batch in batches(windows, blocks, profiled, tokens=batch_tokens):
        selection = select(batch, relations, heads=model.heads, seed=seed)
        if selection is not None:
            selection = selection.to(model.device)
            add_counts(tally, selection)

        def take(
            layer: int,
            pattern: Float[Tensor, "window head query key"],
            batch: Batch = batch,
            selection: Selection | None = selection,
        ) -> None:
            add_layer(tally, batch, selection, layer, pattern)

        stream_patterns(model.bridge, model.layers, batch.tokens().to(model.device), take)
        progress(sum(map(len, batch.windows)))
    return tally
