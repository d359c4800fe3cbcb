"""`explain`: from a model and text to a rule for each head, and to the model that runs on them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

from headscope.arguments import FLAG, KINDS, NAME, either, kinds_of, maybe, takes, whole
from headscope.errors import ArgumentError, ChoiceError
from headscope.evidence.result import Result
from headscope.measure.text_loss import network_of
from headscope.models.load import Model
from headscope.models.shuffled import check_twin
from headscope.relations import RELATIONS, relations_of
from headscope.relations.relation import Relation
from headscope.runs.named import A_MODEL, A_RUN, Named
from headscope.runs.reload import corpora_of, model_or_run
from headscope.studies.explain.catalogue import Catalogue
from headscope.studies.explain.feature import Lexicon
from headscope.studies.explain.fitting import fit_rules, fitting_of
from headscope.studies.explain.layer import Fitting
from headscope.studies.explain.losses import Heads, groups_of, run_losses
from headscope.studies.explain.resting import resting_tokens
from headscope.studies.explain.result import Explanation, Found
from headscope.studies.explain.smaller import sizes_below
from headscope.studies.explain.texts import LENGTH, read_texts
from headscope.studies.explain.twin import twin_rules

FEATURES, RANK, WINDOWS = 8, 4, 56
EACH = ("none", "all", "size", "type", "layer", "head")
"""What is run on rules: nothing, all heads together, also on smaller rules of each size, also the
heads of each type that a run found, also each layer, also each layer and head."""


class Asked(Named, total=False):
    """What else may be said of an explanation."""

    each: str
    """What runs on rules: one of `EACH`."""
    relations: Sequence[Relation] | None
    """Relations of one's own, beside those of the table."""
    seed: int
    """Seeds the choice of files, and the twin."""
    twin: bool
    """Whether to explain the twin too, whose attention weights are shuffled."""


@takes(
    model=either(A_RUN, A_MODEL),
    features=whole(1, 64),
    rank=whole(0, 64),
    windows=whole(8),
    each=NAME,
    relations=maybe(RELATIONS),
    seed=KINDS["seed"],
    twin=FLAG,
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
        asked: `each`, what runs on rules: `none`, `all` heads together (the default), also
            smaller rules of each `size`, of each `type` of a run, also each `layer`, also each
            `head`; `relations` of one's own, beside those of the table; `seed`, which seeds the
            choice of files; `twin`, off to leave it out; `revision` and `device`, for a name.

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
    primary = {} if run is None else _primary(run)
    types = _types(primary)
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    if run is not None and not corpora:
        corpora = [*corpora_of(run)]
    read = read_texts(loaded, corpora, windows=windows, seed=asked.get("seed", 0))
    lexicon = Lexicon.of(read.fitted, resting_tokens(loaded.engine, read.fitted, loaded.device))
    catalogue = Catalogue(lexicon, [*relations_of(), *relations])
    fitting = fitting_of(catalogue, read, features, rank)
    wants_twin = asked.get("twin", True)
    if wants_twin:
        check_twin(loaded.engine)
    steps = _Steps(_steps(loaded, each, len(types), fitting) + wants_twin, progress)
    patterns = fit_rules(loaded, catalogue, fitting, steps.advance)
    losses = None
    if each != "none":
        losses = run_losses(patterns, read.run, groups_of(patterns, each, types), steps.advance)
    twin = None
    if wants_twin:
        twin = twin_rules(loaded, catalogue, read, fitting, seed=asked.get("seed", 0))
        steps.advance()
    rules = Found(patterns.rules, twin, losses, primary)
    return Explanation.of(loaded.name, rules, read.notes, features=features, rank=rank)


def _primary(run: Result) -> dict[tuple[int, int], str]:
    """The primary type of each head."""
    return {(int(row.layer), int(row.head)): str(row.primary) for row in run.heads.itertuples()}


def _types(primary: Mapping[tuple[int, int], str]) -> dict[str, Heads]:
    """The heads of each primary type, by layer."""
    found: dict[str, Heads] = {}
    for (layer, head), name in primary.items():
        found.setdefault(name, {}).setdefault(layer, []).append(head)
    return found


def _steps(model: Model, each: str, types: int, fitting: Fitting) -> int:
    """Layers to fit, and passes over the text to run."""
    layers, heads = model.layers, model.layers * model.heads
    # untouched, and all heads in every way; each group by uniform patterns and by its rules
    together = 0 if each == "none" else 5 + (fitting.rank > 0)
    sizes = len(sizes_below(fitting.features)) if each == "size" else 0
    groups = {"type": types, "layer": layers, "head": layers + heads}.get(each, 0)
    return layers + together + sizes + 2 * groups


class _Steps:
    """Counts layers and passes for the progress bar."""

    def __init__(self, total: int, progress: Callable[[int, int], None]) -> None:
        self.done, self.total, self.progress = 0, total, progress

    def advance(self) -> None:
        """One step more."""
        self.done += 1
        self.progress(self.done, self.total)
