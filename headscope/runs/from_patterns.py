"""Patterns from anywhere: the same evidence for arrays from another tool or a paper's data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from headscope.arguments import ANYTHING, maybe, takes
from headscope.corpus.window import Window
from headscope.errors import PatternError
from headscope.evidence.judge import judge
from headscope.evidence.result import Result
from headscope.measure.accumulate import Prepared, add_counts, add_sums, layer_sums
from headscope.measure.batches import Batch
from headscope.measure.deal import deal, few_documents
from headscope.measure.profile import profiled_tiles
from headscope.measure.resting import late_tiles
from headscope.measure.selection import select
from headscope.measure.survey import survey
from headscope.measure.tally import Tally
from headscope.models.engines.engine import looked_at, whole
from headscope.relations import RELATIONS, check_relations, relations_of
from headscope.relations.relation import Relation
from headscope.runs.given import Pattern, arrays_of, windows_of


@takes(patterns=ANYTHING, windows=ANYTHING, tokens=ANYTHING, relations=maybe(RELATIONS))
def score_patterns(
    patterns: Any,
    windows: Any,
    tokens: Any = None,
    *,
    types: Sequence[str] | None = None,
    relations: Sequence[Relation] | None = None,
    name: str = "patterns",
    seed: int = 0,
) -> Result:
    """Score attention patterns without a model; the evidence is that of `headscope.classify`.

    Args:
        patterns: in any of these forms, rows summing to 1 over keys at or before the query, or of
            an encoder's windows over all keys:
            a function that gives the array `[layer head query key]` of a window; TransformerLens'
            ActivationCache of a batch; a tuple with an array `[batch head query key]` of each
            layer, as transformers gives it; a list with an array `[layer head query key]` of each
            window; or one such array. Arrays are NumPy's, torch's, or nested lists.
        windows: the windows that they are of, from `headscope.windows`; or, with `tokens`, the
            annotated documents from `headscope.read_corpus`, None for bare tokens. What is longer
            than its pattern is cut.
        tokens: the tokens of each document as text, the first of them the beginning-of-text token
            or whatever else stands at position 0; the others spell its text. Bare tokens of the
            form `[bos, r, r]` count as repeated random tokens.
        types: head types to score, all when None.
        relations: the relations to score instead of the table's.
        name: what the run calls this model.
        seed: seeds control draws and the bootstrap.

    Returns:
        A run's data. With fewer than 8 blocks of documents it has masses and controls, but no
        intervals, q values or tags.

    Raises:
        PatternError: an array does not fit its tokens, or holds no causal attention; or the
            tokens do not spell the document.
        CorpusError: nothing in the documents can be scored for these types.
    """
    texts = windows_of(windows, tokens)
    if relations is None:
        relations = relations_of(types, both_ways=_both_ways(texts))
    check_relations(relations)
    found = survey(texts, relations)
    parts = found.parts(relations)
    tally = _tally(arrays_of(patterns, texts), texts, parts, seed)
    info = {
        "model": {"name": name, "layers": tally.layers, "heads": tally.heads},
        "types": sorted({relation.type for relation in relations}),
        "settings": {"seed": seed},
        "engine": "given patterns",
        "notes": _notes(texts),
        **found.record(parts),
    }
    return judge(tally, relations, seed=seed, info=info)


def _both_ways(windows: Sequence[Window]) -> bool:
    """Whether the windows are an encoder's.

    Raises:
        PatternError: some are, and some are not.
    """
    sides = {window.both_ways for window in windows}
    if len(sides) > 1:
        raise PatternError("some windows are an encoder's and some are not; score them apart")
    return sides == {True}


def _notes(windows: Sequence[Window]) -> list[str]:
    """Windows of a few documents that have several are dealt in stretches."""
    numbers = [window.document for window in windows if window.stimulus == "text"]
    documents = numbers.count(-1) + len({*numbers} - {-1})
    return few_documents(documents) if len(numbers) > documents else []


def _tally(
    pairs: Iterable[tuple[Pattern, Window]],
    windows: Sequence[Window],
    relations: Sequence[Relation],
    seed: int,
) -> Tally:
    """The sums over patterns, each a batch of its own; one pattern is in memory at a time."""
    tally: Tally | None = None
    blocks, profiled = deal(windows)
    for i, (array, window) in enumerate(pairs):
        layers, heads = array.shape[:2]
        if tally is None:
            tally = Tally.zeros(tuple(relation.id for relation in relations), layers, heads)
        batch = Batch([window], blocks[i : i + 1], {0: profiled[i]} if i in profiled else {})
        block, late = whole(1, len(window)), late_tiles([window])
        selection = select(batch, relations, [block], heads=heads, seed=seed)
        add_counts(tally, batch, selection)
        tokens = torch.from_numpy(window.tokens)[None]
        own = profiled_tiles(batch, [block], heads=heads)
        prepared = Prepared(batch, tokens, late, selection, own)
        for layer in range(layers):
            pattern = array[layer][None]
            rows = ((look, looked_at(pattern, look)) for look in prepared.attended)
            found = layer_sums(prepared, tally.profile, layer, rows, logarithms=False)
            add_sums(tally, batch, selection, layer, found)
    if tally is None:
        raise PatternError("no windows: there is nothing to score")
    return tally
