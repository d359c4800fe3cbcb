"""Evidence from attention patterns of another tool or of a paper's data, without a model."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import count, takewhile
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from headscope.attention_kind import CAUSAL
from headscope.corpus.align import window_of_tokens
from headscope.corpus.language import Language
from headscope.corpus.window import Window
from headscope.errors import PatternError, first_line, reported_as
from headscope.measure.batch_reader import attention_readers
from headscope.measure.batches import assign_blocks, in_stretches
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.layer_reader import ReaderConfig, read_layer, shared_requests
from headscope.measure.surrogate_rows import (
    LONGEST,
    SurrogateText,
    read_surrogate_rows,
    rows_of_patterns,
    tokens_again,
)
from headscope.measure.tally import Tally
from headscope.models.engines.engine import attends_to_hidden, full_tile, slice_pattern
from headscope.options import Name, Names, Seed, checked
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import Relations, check_relations, relations_of
from headscope.relations.reference_baselines import reference_baselines
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import WindowPairs
from headscope.settings import LanguageCode
from headscope.statistics.judge_heads import weigh_run
from headscope.statistics.result import Result, RunInfo
from headscope.statistics.surrogate import score_surrogates
from headscope.stimuli.natural_text import TEXT, few_documents
from headscope.text_patterns import TOLERANCE, given_patterns

Pattern = Float[Tensor, "layer head query key"]
Reader = Callable[[int, Window], Any]


@checked
def score_patterns(
    patterns: Any,
    windows: Any = None,
    tokens: Any = None,
    *,
    types: Names | None = None,
    relations: Relations | None = None,
    name: Name = "patterns",
    sinks: bool = False,
    language: LanguageCode | None = None,
    seed: Seed = 0,
    progress: Progress = True,
) -> Result:
    """Score attention patterns without a model; the evidence is that of `headscope.classify`.

    Args:
        patterns: attention whose rows sum to 1, in any of these forms: a function that gives the
            array `[layer head query key]` of a window; TransformerLens' ActivationCache of a batch;
            a tuple with an array `[batch head query key]` of each layer, as transformers gives it;
            a list with an array `[layer head query key]` of each window, or with one
            `[batch head query key]` of each layer; or one such array, as lists of lists too. A
            batch is padded on the right, and the model had its `attention_mask`. Also what
            `headscope.patterns` returns, and the path of a .npz or .json file with the
            patterns and the `tokens` of one text.
        windows: windows from `headscope.windows`; or, with `tokens`, the annotated documents from
            `headscope.read_corpus`, None for bare tokens. They are cut to their patterns.
        tokens: the tokens of each document as text, the first of them the token at position 0; the
            others spell its text. Bare tokens of the form `[bos, r, r]` count as repeated tokens.
        types: head types to score, or `all`; None leaves out those on request.
        relations: the relations to score instead of the table's.
        name: name of the model in the run.
        sinks: whether heads have a learned sink, as in gpt-oss: rows may then sum to less than 1.
        language: language of the text, such as `en` or `de`; None if its words are to show whether
            it is English. Other text has baselines that are chosen on it.
        seed: seed of control draws and the bootstrap.
        progress: True for a bar, False for none, or a function of the windows done and of all.

    Returns:
        A run. Fewer than 8 texts are cut into stretches of at least 32 tokens, which are the blocks
        of intervals; with fewer than 8 blocks there are no intervals, q values or tags. The run's
        `notes` state the number of blocks.

    Raises:
        PatternError: an array does not fit its tokens, or the tokens do not spell the document.
        CorpusError: nothing in the documents can be scored for these types.
    """
    # what was given, as windows with their relations
    arguments = given_patterns(patterns, windows, tokens)
    patterns = arguments.patterns
    texts = pattern_windows(arguments.windows, arguments.tokens)
    attention_kind = texts[0].attention_kind if texts else CAUSAL
    if relations is None:
        relations = relations_of(types, attention_kind)
    check_relations(relations)
    # fixed baselines are those of English
    text_language = Language(language)
    natural = [window for window in texts if window.stimulus == TEXT.name]
    for window in natural:
        text_language.add_window(window)
    is_english = text_language.is_english or not natural
    fixed = reference_baselines(attention_kind) if is_english else None
    notes = text_language.notes if natural else []
    baselines = fit_baselines(texts, relations, fixed=fixed)
    summed = baselines.summed(relations)
    # one window at a time, as patterns may be made when they are asked for
    with progress_bar(progress, "scoring patterns", unit="windows", loads=False) as bar:
        pairs = arrays_of(patterns, texts, sinks=sinks)
        steps = Steps(bar, len(texts))
        tally, scored = _tally(pairs, texts, summed, seed, sinks=sinks, advance=steps.advance)
    run_info = RunInfo(
        model={"name": name, "layers": tally.layers, "heads": tally.heads},
        types=sorted({relation.type for relation in relations}),
        settings={"seed": seed},
        engine="given patterns",
        language=text_language.record if natural else None,
        notes=[*_notes(texts, tally), *notes, *baselines.notes],
        text_read={"documents": _documents_of_text(texts)},
        **baselines.record(summed),
    )
    # verdicts, of which some wait for surrogates that read the patterns again
    weighed = weigh_run(tally, relations, seed=seed, run_info=run_info)
    requests = weighed.surrogate_requests
    if not requests:
        return weighed.judge()
    beginnings = [window.cut(LONGEST) for window in scored]
    surrogate_text = SurrogateText(
        windows=beginnings,
        choices=baselines.choices,
        tokens=tokens_again(sum(map(len, scored))),
        seed=seed,
    )
    again = _patterns_again(patterns, texts, beginnings, sinks=sinks)
    rows = read_surrogate_rows(
        partial(rows_of_patterns, again), surrogate_text, relations, requests
    )
    return weighed.judge(score_surrogates(rows, relations, requests))


def _patterns_again(
    patterns: Any, texts: Sequence[Window], beginnings: Sequence[Window], *, sinks: bool
) -> Callable[[Sequence[Window]], Iterator[Pattern]]:
    """A function that takes the patterns of some windows once more."""
    index = {id(window): i for i, window in enumerate(beginnings)}

    def again(sample: Sequence[Window]) -> Iterator[Pattern]:
        numbers = [index[id(window)] for window in sample]
        pairs = arrays_of(patterns, texts, numbers, sinks=sinks)
        return (pattern for pattern, _ in pairs)

    return again


def _notes(windows: Sequence[Window], tally: Tally) -> list[str]:
    """Notes on the blocks that intervals rest on."""
    blocks = int((tally.queries > 0).any(1).sum())
    notes = few_documents(_documents_of_text(windows), blocks)
    return notes or [f"intervals rest on {blocks} blocks at most"]


def _documents_of_text(windows: Sequence[Window]) -> int:
    """Number of documents of text; a window without a number is a document of its own."""
    numbers = [window.document for window in windows if window.stimulus == TEXT.name]
    return numbers.count(-1) + len({*numbers} - {-1})


def _tally(
    pairs: Iterable[tuple[Pattern, Window]],
    windows: Sequence[Window],
    relations: Sequence[Relation],
    seed: int,
    *,
    sinks: bool,
    advance: Callable[[], None],
) -> tuple[Tally, list[Window]]:
    """Sums over patterns, each a batch of its own, and the windows, cut as their patterns are.

    One pattern is in memory at a time.
    """
    tally: Tally | None = None
    scored: list[Window] = []
    dealt = in_stretches(assign_blocks(windows))
    for i, (array, window) in enumerate(pairs):
        scored.append(window)
        # the number of layers and heads is not known before the first pattern
        layers, heads = array.shape[:2]
        config = ReaderConfig(relations, seed, layers, heads, sinks=sinks)
        if tally is None:
            names = tuple(relation.id for relation in relations)
            tally = Tally.zeros(names, layers, heads)
        # a pattern is read like that of a model's layer
        batch = replace(dealt.take([i]), windows=[window])
        tiles = [full_tile(1, len(window))]
        makers = attention_readers(batch, [WindowPairs(window)], tiles, config)
        readers = [make() for make in makers]
        shared = shared_requests(readers)
        for layer in range(layers):
            pattern = array[layer][None]
            rows = (slice_pattern(pattern, entry.request) for entry in shared)
            read_layer(layer, shared, rows)
        for reader in readers:
            reader.add_to(tally)
        advance()
    if tally is None:
        raise PatternError("no windows: there is nothing to score")
    return tally, scored


def pattern_windows(text: Any, tokens: Any) -> list[Window]:
    """The windows of patterns: given as such, or as documents with their tokens.

    Raises:
        PatternError: they are neither, or the tokens do not spell the documents.
    """
    # windows as they are, or one of each list of tokens
    if tokens is None:
        windows = [text] if isinstance(text, Window) else _list(text)
        if not all(isinstance(window, Window) for window in windows):
            raise PatternError(
                "windows are those of hs.windows, or documents of read_corpus beside their tokens"
            )
        if len({window.attention_kind for window in windows}) > 1:
            raise PatternError("some windows are an encoder's and some are not; score them apart")
        return windows
    tokens = _list(tokens)
    if tokens and isinstance(tokens[0], str):
        text, tokens = [text], [tokens]
    documents = [None] * len(tokens) if text is None else _list(text)
    _check_one_of_each("token lists", len(tokens), documents)
    return [window_of_tokens(t, d) for t, d in zip(tokens, documents, strict=True)]


def arrays_of(
    patterns: Any,
    windows: Sequence[Window],
    numbers: Iterable[int] | None = None,
    *,
    sinks: bool = False,
) -> Iterator[tuple[Pattern, Window]]:
    """Each window with its pattern; a window that is longer than its pattern is cut.

    Args:
        patterns: in any form that `score_patterns` takes.
        windows: the windows, in the order of the patterns.
        numbers: the numbers of the wanted windows; all when None.
        sinks: whether rows may sum to less than 1.

    Raises:
        PatternError: an array does not fit its window, or holds no causal attention; or a list
            may be one by layer.
    """
    read, batched = _reader(patterns, windows)
    size: tuple[int, ...] = ()
    for i in range(len(windows)) if numbers is None else numbers:
        window = windows[i]
        where = f"patterns of document {i} ({window.name})"
        array = _array(where, read(i, window))
        if array.ndim == 4 and array.shape[2] == array.shape[3] > 0:
            if batched:
                # a mask hides the padding on the right from every query, that of the padding too;
                # without a mask it could stand on the left, and the pattern be of other tokens
                length = len(window)
                if bool((array[..., length:] > 0).any()):
                    raise PatternError(
                        f"{where}: queries attend to the padding; pad on the right and give the "
                        "model the attention_mask, or give a list with an array [layer head query "
                        "key] of each window"
                    )
                array = array[..., :length, :length]
            window = window.cut(array.shape[3])
        # the first window tells how many layers and heads all have
        fault = _fault_of(array, window, sinks=sinks)
        size = size or tuple(array.shape[:2])
        if not fault and array.shape[:2] != size:
            layers, heads = array.shape[:2]
            fault = f"{layers} layers of {heads} heads, but the first has {size[0]} of {size[1]}"
        if fault:
            raise PatternError(f"{where}: {fault}")
        yield array, window


def _reader(patterns: Any, windows: Sequence[Window]) -> tuple[Reader, bool]:
    """Getter of a window's array, and whether windows are rows of padded batches."""
    # a function gives the pattern of one window
    if callable(patterns):
        return lambda i, window: patterns(window), False
    # a cache of TransformerLens has its layers by name
    if hasattr(patterns, "cache_dict"):
        cache = patterns.cache_dict
        names = (f"blocks.{layer}.attn.hook_pattern" for layer in count())
        patterns = tuple(cache[name] for name in takewhile(cache.__contains__, names))
    parts = list(patterns) if isinstance(patterns, tuple | list) else [patterns]
    is_empty = not parts or (hasattr(patterns, "__len__") and len(_list(patterns)) == 0)
    if is_empty or any(part is None for part in parts):
        raise PatternError(
            "there are no patterns: transformers returns them only for a model loaded with "
            'attn_implementation="eager", and a cache must hold hook_pattern'
        )
    # a tuple is what transformers gives: a batch of windows for each layer
    if isinstance(patterns, tuple):
        shapes = {_shape(layer) for layer in patterns}
        if len(shapes) > 1 or len(next(iter(shapes))) != 4:
            raise PatternError(
                "a tuple of patterns has an array [batch head query key] of each layer, as "
                "transformers gives it, and a list an array [layer head query key] of each window"
            )
        _check_one_of_each(_ARRAYS, len(patterns[0]), windows)
        return lambda i, window: _stacked(patterns, i), True
    # one array of one window, or a list with an array for each
    if len(windows) == 1 and len(_shape(patterns)) == 4:
        return lambda i, window: patterns, False
    arrays = _list(patterns)
    if _is_by_layer(arrays, len(windows)):
        return lambda i, window: _stacked(arrays, i), True
    _check_one_of_each(_ARRAYS, len(arrays), windows)
    shapes = {_shape(array) for array in arrays}
    if len(arrays) > 1 and len(shapes) == 1 and next(iter(shapes))[:1] == (len(arrays),):
        raise PatternError(
            f"a list of {len(arrays)} arrays {next(iter(shapes))} for as many windows can hold an "
            "array [layer head query key] of each window, or an array [batch head query key] of "
            "each layer. For the second give tuple(patterns); for the first give a function that "
            "returns the array of a window"
        )
    return lambda i, window: arrays[i], False


def _is_by_layer(arrays: Sequence[Any], windows: int) -> bool:
    """True if the arrays can only be layers, each with all windows or, of one, without a batch."""
    shapes = {_shape(array) for array in arrays}
    shape = next(iter(shapes))
    if len(shapes) > 1 or (len(shape) == 3 and windows > 1):
        return False
    return len(shape) == 3 or (len(shape) == 4 and shape[0] == windows != len(arrays))


def _stacked(layers: Sequence[Any], number: int) -> Pattern:
    """The pattern of one window, from layers of all windows."""
    arrays = []
    for layer in layers:
        of_window = layer if len(_shape(layer)) == 3 else layer[number]
        arrays.append(_array("a layer", of_window))
    return torch.stack(arrays)


def _shape(value: Any) -> tuple[int, ...]:
    """The shape of an array or nested lists; empty for anything else."""
    try:
        return tuple(np.shape(value))
    except Exception:  # rows of several lengths, and objects that cannot be asked
        return ()


_ARRAYS = "pattern arrays (patterns by layer are a tuple, as transformers gives them)"


def _check_one_of_each(kind: str, number: int, documents: Sequence[Any]) -> None:
    """Refuse another number of arrays or token lists than of documents."""
    if number != len(documents):
        raise PatternError(
            f"{number} {kind} and {len(documents)} documents; there must be one of each"
        )


def _list(value: Any) -> list[Any]:
    """The parts of an argument that is a list or an array."""
    expected = "patterns, windows (of hs.windows) and tokens should be lists"
    with reported_as(PatternError, expected, Exception):  # an object may fail in any way
        if isinstance(value, str):
            raise TypeError("text is not a list")
        return list(value)


def _array(where: str, values: Any) -> Tensor:
    """An array as given by NumPy, torch or lists; of real numbers."""
    try:
        array = np.asarray(_without_gradients(values))
        if array.ndim == 5 and array.shape[1] == 1:  # layers of one text, with a batch axis each
            array = array[:, 0]
        # such a cast refuses text, objects and complex numbers
        return torch.as_tensor(array.astype(np.float32, casting="same_kind"))
    except Exception as error:
        # NumPy's own message on rows of several lengths does not help
        is_ragged = isinstance(values, list | tuple) and not _shape(values)
        reason = "its rows have several lengths" if is_ragged else f"{first_line(error):.200}"
        raise PatternError(
            f"{where}: not an array of numbers [layer head query key]: {reason}"
        ) from error


def _without_gradients(values: Any) -> Any:
    """Tensors, also in lists, as NumPy reads them: it knows no gradients and no bfloat16."""
    if isinstance(values, Tensor):
        return values.detach().float().cpu() if values.is_floating_point() else values
    if isinstance(values, list | tuple) and values and isinstance(values[0], Tensor):
        return [_without_gradients(value).numpy() for value in values]
    return values


def _fault_of(array: Tensor, window: Window, *, sinks: bool) -> str:
    """The fault of an array as the pattern of a window; empty for a sound one."""
    # most faults come from another order of axes or from padding: each has its own message
    shape, size = tuple(array.shape), len(window)
    if array.ndim != 4 or 0 in shape or shape[2:] != (size, size):
        return f"shape {shape}, but {size} tokens need [layer head {size} {size}]"
    # a sink of its own takes a part of a row, but no row has more than 1
    excess = (array.sum(-1) - 1).nan_to_num(nan=torch.inf)
    worst = float(excess.max() if sinks else excess.abs().max())
    if worst > TOLERANCE or bool((array < 0).any()):
        return (
            f"rows must be probabilities that sum to 1 over keys (off by {worst:.3g}); a batch of "
            "several texts must be padded on the right, and heads with a learned sink, whose rows "
            "sum to less than 1, need sinks=True"
        )
    if attends_to_hidden(array, window.attention_kind):
        return (
            "a query attends to a later key; for an encoder's patterns take the windows of "
            "hs.windows(…, attention_kind='bidirectional')"
        )
    return ""
