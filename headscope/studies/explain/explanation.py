"""`explain`: from a model and text to a rule for each head, and to the model that runs on them.

Resting columns are features too: late queries of a layer leave much of their attention on a few
early keys, whatever they are. Which keys those are hangs on their tokens: an early "the", the space
before a number. So tokens are what a rule asks for, and the text alone says where they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Unpack

import numpy as np

from headscope.arguments import FLAG, NAME, Default, either, maybe, takes, whole
from headscope.corpus.window import Window
from headscope.errors import ArgumentError, ChoiceError
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.measure.sink_columns import find_sink_columns, late_tiles
from headscope.models.batching import ALL_TOGETHER
from headscope.models.load import Model
from headscope.models.loss import changeable_network_of
from headscope.models.null_model import check_null_model
from headscope.models.stream import LayerAttention, stream_attention
from headscope.relations import RELATIONS, relations_of
from headscope.relations.relation import Relation
from headscope.relations.types import ALL
from headscope.runs.reopen_model import model_or_run, text_of
from headscope.runs.resolve import A_MODEL, A_RUN, Named, run_named
from headscope.statistics.result import Result
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.explain_result import Explanation
from headscope.studies.explain.feature import TokenFacts
from headscope.studies.explain.fitting import (
    LENGTH,
    fit_rules,
    fitting_of,
    read_split_windows,
    twin_rules,
)
from headscope.studies.explain.layer_fit import Fitting, sizes_below
from headscope.studies.explain.patterns import Heads, groups_of, run_losses

FEATURES, RANK, WINDOWS = 8, 4, 56
GROUPINGS = ("none", "all", "size", "type", "layer", "head")
"""Choices of what runs on rules: nothing, all heads together, also on smaller rules of each size,
also the heads of each type that a run found, also each layer, also each layer and head."""


class ExplainOptions(Named, total=False):
    """Options of `explain` about what runs on rules, and which model."""

    each: Annotated[
        Literal["none", "all", "size", "type", "layer", "head"],
        NAME,
        Default(
            "all", "What to run on rules: all heads, also smaller rules, each type, layer, head."
        ),
    ]
    relations: Annotated[Sequence[Relation] | None, maybe(RELATIONS)]
    """Relations of one's own, beside those of the table."""
    seed: Annotated[int, Default(0)]
    """Seeds the choice of files, and the twin."""
    twin: Annotated[
        bool, FLAG, Default(True, "Explain the twin, whose attention weights are shuffled, too.")
    ]


@takes(model=either(A_RUN, A_MODEL), features=whole(1, 64), rank=whole(0, 64), windows=whole(8))
def explain(
    model: Any,
    corpus: str | Path | Sequence[str | Path] | None = None,
    *,
    features: int = FEATURES,
    rank: int = RANK,
    windows: int = WINDOWS,
    progress: Progress = True,
    **options: Unpack[ExplainOptions],
) -> Explanation:
    """Say what each head does as one small rule, judge it, and run the model on its rules.

    A rule is softmax over keys of a weighed sum of at most so many named features of (query, key).
    It is fitted to the head's attention by cross-entropy on half of the documents, its features
    are chosen on a quarter, and what it explains is judged on the rest.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; those of the run, or what ships, when None.
        features: most features of a rule.
        rank: of the content term beside the rule; 0 for none. That term is a q·k product of few
            dimensions from the layer's input.
        windows: windows of text to fit, choose and judge on together.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the steps done and in all.
        options: `each`, what runs on rules: `none`, `all` heads together (the default), also
            smaller rules of each `size`, of each `type` of a run, also each `layer`, also each
            `head`; `relations` of one's own, beside those of the table; `seed`, which seeds the
            choice of files; `twin`, off to leave it out; `revision` and `device`, for a name.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        CorpusError: the text cannot be read, or is too short.
        ChoiceError: no such thing to run.
        ArgumentError: a number is out of range; heads by type, but no run says which those are.
    """
    each, relations = options.get("each", "all"), options.get("relations") or ()
    if each not in GROUPINGS:
        raise ChoiceError("thing to run on rules", each, GROUPINGS)
    load_options: Named = {
        "revision": options.get("revision"),
        "device": options.get("device", "auto"),
    }
    stored_run = run_named(model, revision=load_options["revision"])
    corpora = text_of(stored_run, corpus, seed=options.get("seed", 0))
    with progress_bar(progress, "explaining heads", unit="steps") as bar:
        loaded, run = model_or_run(
            model if stored_run is None else stored_run, longest=LENGTH, **load_options
        )
        changeable_network_of(loaded)  # refuses before any text is read
        if run is None and each == "type":
            raise ArgumentError(
                "each is 'type', and only a run knows types: classify the model first"
            )
        primary = {} if run is None else _primary(run)
        types = _types(primary)
        read = read_split_windows(loaded, corpora, windows=windows, seed=options.get("seed", 0))
        lexicon = TokenFacts.of(read.fitted, resting_tokens(loaded, read.fitted))
        catalogue = Catalogue(lexicon, [*relations_of([ALL], loaded.attention_kind), *relations])
        fitting = fitting_of(catalogue, read, features, rank)
        wants_twin = options.get("twin", True)
        if wants_twin:
            check_null_model(loaded.engine)
        steps = Steps(bar, _steps(loaded, each, len(types), fitting) + wants_twin)
        patterns = fit_rules(loaded, catalogue, fitting, steps.advance)
        losses = None
        if each != "none":
            losses = run_losses(patterns, read.run, groups_of(patterns, each, types), steps.advance)
        twin = None
        if wants_twin:
            twin = twin_rules(loaded, catalogue, read, fitting, seed=options.get("seed", 0))
            steps.advance()
    return Explanation.of(patterns, fitting, losses, twin=twin, primary=primary, notes=read.notes)


def _primary(run: Result) -> dict[tuple[int, int], str]:
    """The primary type of each head."""
    return {(int(row.layer), int(row.head)): str(row.primary) for row in run.heads.itertuples()}


def _types(primary: Mapping[tuple[int, int], str]) -> dict[str, Heads]:
    """The heads of each primary type, by layer."""
    heads_of_type: dict[str, Heads] = {}
    for (layer, head), name in primary.items():
        heads_of_type.setdefault(name, {}).setdefault(layer, []).append(head)
    return heads_of_type


def _steps(model: Model, grouping: str, types: int, fitting: Fitting) -> int:
    """Layers to fit, and passes over the text to run."""
    layers, heads = model.layers, model.layers * model.heads
    # untouched, and all heads in every way; each group by uniform patterns and by its rules
    together = 0 if grouping == "none" else 5 + (fitting.rank > 0)
    sizes = len(sizes_below(fitting.features)) if grouping == "size" else 0
    groups = {"type": types, "layer": layers, "head": layers + heads}.get(grouping, 0)
    return layers + together + sizes + 2 * groups


OFTEN = 0.1
"""Of the windows of a layer in which a token is a resting column: less is that text's own."""
FEWEST = 3
"""Windows in which it must be one in any case."""
READ = 16
"""Windows that are read to find them: what a layer rests on shows in most of them."""


def resting_tokens(model: Model, windows: Sequence[Window]) -> dict[int, frozenset[int]]:
    """The tokens that a model's layers rest on, by layer; layers that rest on none are left out.

    Columns are those of `find_sink_columns`. Token 1 is a place and has a feature of its own.

    Args:
        model: a model that runs under the fused engine.
        windows: text that is fitted; so many as are read are taken evenly among them.
    """
    windows = windows[:: -(-len(windows) // READ)]
    tiles = late_tiles(windows)
    by_layer: dict[int, frozenset[int]] = {}
    if not tiles:
        return by_layer

    def add(attention: LayerAttention) -> None:
        rows = zip(tiles, attention.rows, strict=True)
        resting = find_sink_columns(windows, rows, logarithms=attention.logarithms)
        tokens = Counter(
            int(token)
            for window, columns in zip(windows, resting.columns, strict=True)
            for token in np.unique(window.tokens[columns[columns > 1]])
        )
        least = max(FEWEST, OFTEN * len(tiles))
        often = frozenset(token for token, count in tokens.items() if count >= least)
        if often:
            by_layer[attention.layer] = often

    stream_attention(model, windows, lambda _: tiles, add, batch_tokens=ALL_TOGETHER)
    return by_layer
