"""`explain`: from a model and text to a rule for each head, and to the model that runs on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Unpack

import torch
from jaxtyping import Float
from torch import Tensor

from headscope.arguments import KINDS, NAME, either, kinds_of, maybe, takes, whole
from headscope.errors import ArgumentError, ChoiceError
from headscope.evidence.result import Result
from headscope.measure.text_loss import network_of
from headscope.models.engines.fused import attention_layers
from headscope.models.load import Model
from headscope.relations import RELATIONS, relations_of
from headscope.relations.relation import Relation
from headscope.runs.named import A_MODEL, A_RUN, Named
from headscope.runs.reload import corpora_of, model_or_run
from headscope.studies.explain.catalogue import Catalogue, Rows, pack
from headscope.studies.explain.feature import Lexicon
from headscope.studies.explain.fit import Texts
from headscope.studies.explain.layer import Fitting, explain_layer
from headscope.studies.explain.losses import Heads, groups_of, run_losses
from headscope.studies.explain.patterns import Patterns
from headscope.studies.explain.reading import queries_and_keys, read_layers
from headscope.studies.explain.resting import resting_tokens
from headscope.studies.explain.result import Explanation
from headscope.studies.explain.rules import LayerRules
from headscope.studies.explain.select import Selector
from headscope.studies.explain.texts import LENGTH, STEP, Read, read_texts

FEATURES, RANK, WINDOWS = 8, 4, 56
EACH = ("none", "all", "type", "layer", "head")
"""What is run on rules: nothing, all heads together, also the heads of each type that a run found,
also each layer, also each layer and head."""


class Asked(Named, total=False):
    """What else may be said of an explanation."""

    each: str
    """What runs on rules: one of `EACH`."""
    relations: Sequence[Relation] | None
    """Relations of one's own, beside those of the table."""
    seed: int
    """Seeds the choice of files."""


@takes(
    model=either(A_RUN, A_MODEL),
    features=whole(1, 64),
    rank=whole(0, 64),
    windows=whole(8),
    each=NAME,
    relations=maybe(RELATIONS),
    seed=KINDS["seed"],
    **kinds_of(Named),
)
def explain(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    features: int = FEATURES,
    rank: int = RANK,
    windows: int = WINDOWS,
    progress: Callable[[int, int], None] = lambda done, total: None,
    **asked: Unpack[Asked],
) -> Explanation:
    """Say what each head does as one small rule, judge it, and run the model on its rules.

    A rule is softmax over keys of a weighed sum of at most so many named features of (query, key).
    It is fitted to the head's attention by cross-entropy on half of the documents, its features
    are chosen on a quarter, and what it explains is judged on the rest.

    Args:
        model: a run or its folder, a name as for `classify`, or a loaded model.
        corpus: files or folders of text; those of the run, or what ships, when empty.
        features: most features of a rule.
        rank: of the content term, a q·k product of few dimensions from the layer's input, which
            is told apart from the rule; 0 for none.
        windows: windows of text to fit, choose and judge on together.
        progress: called with the steps done and in all.
        asked: `each`, what runs on rules: `none`, `all` heads together (the default), also those
            of each `type` of a run, also each `layer`, also each `head`; `relations` of one's own,
            beside those of the table; `seed`, which seeds the choice of files; `revision` and
            `device`, for a name.

    Raises:
        ModelError: the model cannot be loaded, or does not run under the fused engine.
        CorpusError: the text cannot be read, or is too short.
        ChoiceError: no such thing to run.
        ArgumentError: a number is out of range; heads by type, but no run says which those are.
    """
    each, relations = asked.get("each", "all"), asked.get("relations") or ()
    if each not in EACH:
        raise ChoiceError("thing to run on rules", each, EACH)
    named: Named = {"revision": asked.get("revision"), "device": asked.get("device", "auto")}
    loaded, run = model_or_run(model, longest=LENGTH, **named)
    network_of(loaded)
    if run is None and each == "type":
        raise ArgumentError("each is 'type', and only a run knows types: classify the model first")
    types = {} if run is None else _types(run)
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if run is not None and not corpora:
        corpora = [*corpora_of(run)]
    read = read_texts(loaded, corpora, windows=windows, seed=asked.get("seed", 0))
    lexicon = Lexicon.of(read.fitted, resting_tokens(loaded.engine, read.fitted, loaded.device))
    catalogue = Catalogue(lexicon, [*relations_of(), *relations])
    fitting = fitting_of(catalogue, read, features, rank)
    steps = _Steps(_steps(loaded, each, len(types), rank), progress)
    patterns = fit_rules(loaded, catalogue, fitting, steps.advance)
    losses = None
    if each != "none":
        losses = run_losses(patterns, read.run, groups_of(patterns, each, types), steps.advance)
    return Explanation.of(loaded.name, patterns.rules, losses, read.notes, rank=rank)


def fit_rules(
    model: Model, catalogue: Catalogue, fitting: Fitting, advance: Callable[[], None]
) -> Patterns:
    """The rules of every layer, in one forward pass over all windows."""
    engine: Any = model.engine
    rows = fitting.texts.rows
    modules = attention_layers(engine.network)
    rules: dict[int, LayerRules] = {}
    means: dict[int, Tensor] = {}

    def take(
        layer: int,
        pattern: Float[Tensor, "window head query key"],
        stream: Float[Tensor, "window position d_model"] | None,
    ) -> None:
        vectors = None
        if fitting.rank and stream is not None:
            found = queries_and_keys(modules[layer], engine.stated, stream)
            vectors = (found[0].cpu(), found[1].cpu())
        own = pattern[rows.window, :, rows.query].permute(1, 0, 2).float()
        attention = own / own.sum(-1, keepdim=True)
        rules[layer] = explain_layer(fitting, layer, attention, vectors)
        fitted = int(rows.window[fitting.texts.chosen - 1]) + 1
        means[layer] = _mean(pattern[:fitted].float(), rows)
        advance()

    read_layers(engine, rows.windows, model.device, take)
    return Patterns(catalogue, rules, means, engine.network, engine.stated)


def _mean(pattern: Tensor, rows: Rows) -> Float[Tensor, "head place place"]:
    """The mean over windows that are long enough for the query; even where none is.

    For windows of up to `LENGTH` tokens.
    """
    lengths = torch.tensor([len(window) for window in rows.windows[: len(pattern)]])
    real = (torch.arange(pattern.shape[2]) < lengths[:, None]).float()
    found = torch.einsum("whqk,wq->hqk", pattern, real)
    even = torch.ones(LENGTH, LENGTH).tril()
    means = (even / even.sum(-1, keepdim=True)).repeat(len(found), 1, 1)
    size = pattern.shape[-1]
    total = found.sum(-1, keepdim=True)
    means[:, :size, :size] = torch.where(total > 0, found / total, means[:, :size, :size])
    return means


def fitting_of(catalogue: Catalogue, read: Read, features: int, rank: int) -> Fitting:
    """The features of all windows, ready to be weighed."""
    rows = Rows.of(read.windows, STEP)
    packed = pack(catalogue, rows)
    parts = (read.fitted, (*read.fitted, *read.choosing))
    fitted, chosen = (sum(len(range(1, len(w), STEP)) for w in part) for part in parts)
    texts = Texts(rows, packed, fitted, chosen)
    resting = catalogue.lexicon.resting
    return Fitting(texts, Selector(packed, rows, fitted), features, rank, resting)


def _types(run: Result) -> dict[str, Heads]:
    """The heads of each primary type, by layer."""
    found: dict[str, Heads] = {}
    for row in run.heads.itertuples():
        found.setdefault(str(row.primary), {}).setdefault(int(row.layer), []).append(int(row.head))
    return found


def _steps(model: Model, each: str, types: int, rank: int) -> int:
    """Layers to fit, and passes over the text to run."""
    layers, heads = model.layers, model.layers * model.heads
    # untouched, and all heads in every way; each group by uniform patterns and by its rules
    together = 0 if each == "none" else 5 + (rank > 0)
    groups = {"type": types, "layer": layers, "head": layers + heads}.get(each, 0)
    return layers + together + 2 * groups


class _Steps:
    """Counts layers and passes for the progress bar."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def advance(self) -> None:
        """One step more."""
        self.done += 1
        self.progress(self.done, self.total)
