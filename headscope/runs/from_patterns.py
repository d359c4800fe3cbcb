"""Patterns from anywhere: the same evidence for arrays from another tool or a paper's data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from headscope.attention_kind import CAUSAL, AttentionKind
from headscope.corpus.window import Window
from headscope.errors import PatternError
from headscope.measure.batch_reader import attention_readers
from headscope.measure.batches import assign_blocks
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.layer_reader import ReaderConfig, read_layer, shared_requests
from headscope.measure.shadow import ShadowText, score_shadows, tokens_again
from headscope.measure.shadow_rows import rows_of_patterns
from headscope.measure.tally import Tally
from headscope.models.engines.engine import full_tile, slice_pattern
from headscope.options import Name, Names, Seed, checked
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import Relations, check_relations, relations_of
from headscope.relations.relation import Relation
from headscope.runs.external_patterns import Pattern, arrays_of, pattern_windows
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import Result, RunInfo
from headscope.stimuli.text import few_documents


@checked
def score_patterns(
    patterns: Any,
    windows: Any,
    tokens: Any = None,
    *,
    types: Names | None = None,
    relations: Relations | None = None,
    name: Name = "patterns",
    seed: Seed = 0,
    progress: Progress = True,
) -> Result:
    """Score attention patterns without a model; the evidence is that of `headscope.classify`.

    Args:
        patterns: in any of these forms, rows summing to 1 over keys at or before the query, or of
            an encoder's windows over all keys:
            a function that gives the array `[layer head query key]` of a window; TransformerLens'
            ActivationCache of a batch; a tuple or list with an array `[batch head query key]` of
            each layer, as transformers gives it; a list with an array `[layer head query key]` of
            each window; or one such array. Arrays are NumPy's, torch's, or nested lists. A batch
            is padded on the right. A list that can be read both by layer and by window is refused.
        windows: the windows that they are of, from `headscope.windows`; or, with `tokens`, the
            annotated documents from `headscope.read_corpus`, None for bare tokens. What is longer
            than its pattern is cut.
        tokens: the tokens of each document as text, the first of them the beginning-of-text token
            or whatever else stands at position 0; the others spell its text. Bare tokens of the
            form `[bos, r, r]` count as repeated random tokens.
        types: head types to score, or `all`; None leaves out those on request.
        relations: the relations to score instead of the table's.
        name: what the run calls this model.
        seed: seeds control draws and the bootstrap.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the windows done and the windows in all.

    Returns:
        A run's data. With fewer than 8 blocks of documents it has masses and controls, but no
        intervals, q values or tags.

    Raises:
        PatternError: an array does not fit its tokens, or holds no causal attention; or the
            tokens do not spell the document.
        CorpusError: nothing in the documents can be scored for these types.
    """
    texts = pattern_windows(windows, tokens)
    if relations is None:
        relations = relations_of(types, _attention_kind(texts))
    check_relations(relations)
    baselines = fit_baselines(texts, relations)
    parts = baselines.parts(relations)
    with progress_bar(progress, "scoring patterns", unit="windows", loads=False) as bar:
        steps = Steps(bar, len(texts))
        as_scored: list[Window] = []
        arrays = _noted(arrays_of(patterns, texts), as_scored)
        tally = _tally(arrays, texts, parts, seed, steps.advance)
    info = RunInfo(
        model={"name": name, "layers": tally.layers, "heads": tally.heads},
        types=sorted({relation.type for relation in relations}),
        settings={"seed": seed},
        engine="given patterns",
        notes=_notes(texts),
        **baselines.record(parts),
    )
    weighed = weigh_run(tally, relations, seed=seed, info=info)
    number = {id(window): i for i, window in enumerate(as_scored)}

    def again(sample: Sequence[Window]) -> Iterator[tuple[Pattern, Window]]:
        return arrays_of(patterns, texts, [number[id(window)] for window in sample])

    text = ShadowText(as_scored, tokens_again(sum(map(len, as_scored))), seed)
    shadows = score_shadows(rows_of_patterns(again), text, relations, weighed.shadow_requests)
    return weighed.judge(shadows)


def _noted(
    pairs: Iterable[tuple[Pattern, Window]], windows: list[Window]
) -> Iterator[tuple[Pattern, Window]]:
    """The same; windows, cut as their patterns are, are added to the list."""
    for pattern, window in pairs:
        windows.append(window)
        yield pattern, window


def _attention_kind(windows: Sequence[Window]) -> AttentionKind:
    """The kind of attention of all windows.

    Raises:
        PatternError: some have another than others.
    """
    kinds = {window.attention_kind for window in windows}
    if len(kinds) > 1:
        raise PatternError("some windows are an encoder's and some are not; score them apart")
    return kinds.pop() if kinds else CAUSAL


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
    advance: Callable[[], None],
) -> Tally:
    """The sums over patterns, each a batch of its own; one pattern is in memory at a time."""
    tally: Tally | None = None
    dealt = assign_blocks(windows)
    for i, (array, window) in enumerate(pairs):
        config = ReaderConfig(relations, seed, *array.shape[:2])
        if tally is None:
            names = tuple(relation.id for relation in relations)
            tally = Tally.zeros(names, config.layers, config.heads)
        batch = replace(dealt.take([i]), windows=[window])
        readers = [make() for make in attention_readers(batch, [full_tile(1, len(window))], config)]
        shared = shared_requests(readers)
        for layer in range(config.layers):
            pattern = array[layer][None]
            read_layer(layer, shared, (slice_pattern(pattern, request) for request, _ in shared))
        for reader in readers:
            reader.add_to(tally)
        advance()
    if tally is None:
        raise PatternError("no windows: there is nothing to score")
    return tally
