"""Patterns from anywhere: the same evidence for arrays from another tool or a paper's data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.batches import Batch
from headscope.corpus.align import Cuts, TokenizedDocument, cut_windows
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.deal import deal
from headscope.engine import whole
from headscope.errors import PatternError
from headscope.judge import judge
from headscope.reading import add_counts, add_sums, layer_sums
from headscope.relations import check_relations, relations_of
from headscope.relations.relation import Relation
from headscope.run import Run
from headscope.selection import select
from headscope.tally import Tally

TOLERANCE = 1e-2
"""How far a row's sum may be from 1: what half-precision storage loses over a long row."""
_MARKS = str.maketrans({"Ġ": " ", "▁": " ", "Ċ": "\n"})  # how vocabularies write blanks


def score_patterns(
    patterns: Any,
    document: Document | Sequence[Document | None] | None,
    tokens: Sequence[str] | Sequence[Sequence[str]],
    *,
    types: Sequence[str] | None = None,
    relations: Sequence[Relation] | None = None,
    name: str = "patterns",
    seed: int = 0,
    out: str | Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Score attention patterns without a model; the evidence is that of `headscope.classify`.

    Args:
        patterns: one array `[layer head query key]` per document (NumPy, torch, or lists), or
            one array for one document. Rows sum to 1 and look back only.
        document: the annotated text of each array, from `headscope.read_corpus`; None for bare
            tokens, on which positional, delimiter and induction relations can be scored.
        tokens: the tokens of each array as text, the first of them the beginning-of-text token
            or whatever else stands at position 0. With a document, the others spell its text.
            Bare tokens of the form `[bos, r, r]` count as repeated random tokens.
        types: head types to score, all when None.
        relations: the relations to score instead of the table's.
        name: what the run calls this model.
        seed: seeds control draws and the bootstrap.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already.

    Returns:
        A run. With fewer than 8 blocks of documents it has masses and controls, but no
        intervals, q values or tags.

    Raises:
        PatternError: an array does not fit its tokens, or holds no causal attention; or the
            tokens do not spell the document.
        CorpusError: nothing in the documents can be scored for these types.
    """
    arrays, windows = _pair_up(patterns, document, tokens)
    relations = relations_of(types) if relations is None else check_relations(relations)
    tally = _tally(arrays, windows, relations, seed)
    info = {
        "model": {"name": name, "layers": tally.layers, "heads": tally.heads},
        "types": sorted({relation.type for relation in relations}),
        "settings": {"seed": seed},
        "engine": "given patterns",
        "notes": [],
    }
    run = judge(tally, relations, seed=seed, info=info)
    if out is not None:
        run.save(out, overwrite=overwrite)
    return run


def _tally(
    arrays: Sequence[Tensor],
    windows: Sequence[Window],
    relations: Sequence[Relation],
    seed: int,
) -> Tally:
    """The sums over arrays `[layer head query key]`, each a batch of its own."""
    layers, heads = arrays[0].shape[:2]
    tally = Tally.zeros(tuple(relation.id for relation in relations), layers, heads)
    blocks, profiled = deal(windows)
    for i, (array, window) in enumerate(zip(arrays, windows, strict=True)):
        batch = Batch([window], blocks[i : i + 1], [0] if i in profiled else [])
        block = whole(1, len(window))
        selection = select(batch, relations, [block], heads=heads, seed=seed)
        if selection is not None:
            add_counts(tally, selection)
        for layer in range(layers):
            rows = [(block, array[layer][None])]
            sums = layer_sums(batch, selection, tally.profile, layer, rows, logarithms=False)
            if selection is not None and sums is not None:
                add_sums(tally, selection, layer, sums)
    return tally


def window_of_tokens(tokens: Sequence[str], document: Document | None = None) -> Window:
    """A window of tokens that are given as text; the first stands at position 0.

    Raises:
        PatternError: the tokens do not spell the document's text.
    """
    strings = tuple(str(token).translate(_MARKS) for token in tokens)
    numbers = {string: i for i, string in enumerate(dict.fromkeys(strings))}
    ids = np.array([numbers[string] for string in strings], np.int64)
    if document is None:
        n = _copy_length(ids)
        stimulus = "repeat" if n else "text"
        return Window("tokens", ids, strings, copy_length=n, stimulus=stimulus)
    offsets = np.array(list(_spell_out(strings[1:], document)), np.int64).reshape(-1, 2)
    tokenized = TokenizedDocument(document, ids[1:], strings[1:], offsets)
    (window,) = cut_windows(
        tokenized, int(ids[0]), strings[0], max_length=len(strings), cuts=Cuts()
    )
    return window


def _copy_length(ids: np.ndarray) -> int:
    n, odd = divmod(len(ids) - 1, 2)
    return n if n and not odd and np.array_equal(ids[1 : n + 1], ids[n + 1 :]) else 0


def _spell_out(strings: Sequence[str], document: Document) -> Iterator[tuple[int, int]]:
    """Where each token stands in the document's text; blanks may differ."""
    text, place = document.text, 0
    for number, string in enumerate(strings, start=1):
        start = None
        for char in string:
            if char.isspace():
                continue
            while place < len(text) and text[place].isspace():
                place += 1
            if place == len(text) or text[place] != char:
                rest = repr(text[place : place + 12]) if place < len(text) else "its end"
                raise PatternError(
                    f"{document.name}: token {number} is {string!r}, but the text goes on "
                    f"with {rest}"
                )
            start = place if start is None else start
            place += 1
        yield (place, place) if start is None else (start, place)
    if text[place:].strip():
        raise PatternError(
            f"{document.name}: the tokens end before the text does, at {text[place : place + 12]!r}"
        )


def _pair_up(
    patterns: Any, document: Any, tokens: Any
) -> tuple[list[Float[Tensor, "layer head query key"]], list[Window]]:
    """Arrays and windows side by side, one of each per document, checked."""
    if len(tokens) and isinstance(tokens[0], str):
        patterns, document, tokens = [patterns], [document], [tokens]
    documents = [None] * len(tokens) if document is None else list(document)
    if not len(patterns) or not len(patterns) == len(documents) == len(tokens):
        raise PatternError(
            f"{len(patterns)} pattern arrays, {len(documents)} documents and {len(tokens)} token "
            "lists; there must be one of each for every document"
        )
    windows = [window_of_tokens(t, d) for t, d in zip(tokens, documents, strict=True)]
    arrays = [torch.as_tensor(np.asarray(p), dtype=torch.float32) for p in patterns]
    for i, (array, window) in enumerate(zip(arrays, windows, strict=True)):
        _check(array, window, arrays[0], f"patterns of document {i} ({window.name})")
    return arrays, windows


def _check(array: Tensor, window: Window, first: Tensor, where: str) -> None:
    shape = tuple(array.shape)
    if array.ndim != 4 or shape[2:] != (len(window), len(window)):
        raise PatternError(
            f"{where}: shape {shape}, but {len(window)} tokens need [layer head {len(window)} "
            f"{len(window)}]"
        )
    if shape[:2] != tuple(first.shape[:2]):
        raise PatternError(f"{where}: {shape[0]} layers × {shape[1]} heads, unlike the first array")
    worst = float((array.sum(-1) - 1).abs().nan_to_num(nan=torch.inf).max())
    if worst > TOLERANCE or bool((array < 0).any()):
        raise PatternError(
            f"{where}: rows must be probabilities that sum to 1 over keys (off by {worst:.3g})"
        )
    if bool(array.triu(1).any()):
        raise PatternError(
            f"{where}: a query attends to a later key; headscope reads causal attention"
        )
