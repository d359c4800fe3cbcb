"""The main job, from a model's name to tagged heads: load, prepare, measure, judge, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.corpus.shipped import asked_corpora
from headscope.errors import ArgumentError
from headscope.measure.plan import Plan, was_read
from headscope.measure.precision_check import PrecisionCheck, compare_precisions
from headscope.measure.run_windows import RunWindows, run_windows
from headscope.measure.tally import ReadState, Tally
from headscope.models.stream import batch_tokens_on
from headscope.options import Corpus, Model, OnMessage, Overwrite, PathName, checked
from headscope.progress import Clock, Count, OnProgress, Progress, progress_bar
from headscope.relations import Relations, check_relations, check_types, relations_of
from headscope.relations.effects import EFFECTS, Effect, effects_of, sum_names
from headscope.relations.relation import Relation
from headscope.run import Run
from headscope.runs.checkpoint import RunCheckpoint, run_facts
from headscope.runs.folder import RunFolder
from headscope.runs.record import describe_input
from headscope.runs.recorded_paths import shorten_paths
from headscope.settings import AUTO, Settings, settings_of
from headscope.statistics.early_stopping import StoppingRule
from headscope.statistics.head_lists import wanted_examples
from headscope.statistics.judge_heads import versions, weigh_run
from headscope.statistics.result import Result, RunInfo
from headscope.stimuli.natural_text import TEXT, readable

if TYPE_CHECKING:
    from headscope.measure.example import Example, ExampleRequest
    from headscope.measure.in_process import InProcess
    from headscope.measure.surrogate import SurrogateRequest, SurrogateScore
    from headscope.models.model import Model as LoadedModel


@checked
def classify(
    model: Model,
    corpus: Corpus = None,
    *,
    settings: Settings | None = None,
    relations: Relations | None = None,
    out: PathName | None = None,
    overwrite: Overwrite = False,
    progress: Progress = True,
    on_message: OnMessage = lambda line: None,
    backend: Any = None,
    **changes: Any,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    With `out` the sums so far are kept next to that folder. The same call resumes an interrupted
    run from there, and ends with the same numbers.

    Args:
        model: `mini`, `smollm2` or `minilm`, a folder in Hugging Face layout, a `.gguf` file, or a
            hub name like `gpt2`; or what is in memory: a (model, tokenizer) pair of transformers, a
            loaded model, or a TransformerBridge; see `headscope.models.load.open_model` for
            its changes.
        corpus: files or folders of CoNLL-U or plain text, or `gum`, `gold` or `controlled`, which
            ship with headscope; `gum` when None.
        settings: all other options; see `headscope.settings.Settings`.
        relations: the relations to score instead of those that ship.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already, and start again if sums of another run
            were kept.
        progress: True for a bar on a terminal or in a notebook, False for none, or a function that
            is called with the tokens done and the tokens in all.
        on_message: called with a line for the user, e.g. that a run resumes.
        backend: reader of the model; a new `InProcess` when None. It keeps the model it read last.
        changes: single settings by name, e.g. `max_tokens=10_000`, in place of those of `settings`.

    Raises:
        RunStoppedError: a KeyboardInterrupt, when sums were kept.
        HeadscopeError: the model, the corpus, the types or the folder are not usable; each kind
            has its own subclass in `headscope.errors`.
    """
    # importing a model library takes seconds: not before it is needed
    from headscope.measure.in_process import InProcess

    settings = settings_of(settings, changes)
    own_relations = None if relations is None else check_relations(relations)
    check_types(settings.types)
    corpora = asked_corpora(readable(corpus, seed=settings.seed))
    target = None if out is None else _Target(RunFolder(out), overwrite)
    with (
        nullcontext() if target is None else target.folder.locked(),
        progress_bar(progress) as bar,
    ):
        reader = backend or InProcess()
        return _classify(
            _Task(model, corpora, settings, own_relations, reader, bar, on_message, target)
        )


@dataclass(frozen=True)
class _Target:
    """The run folder to write."""

    folder: RunFolder
    overwrite: bool


@dataclass(frozen=True, eq=False)
class _Task:
    """The arguments of a run, checked, and the seconds that its steps take."""

    model: Any
    corpora: Sequence[str | Path]
    settings: Settings
    relations: Sequence[Relation] | None
    """Relations that were given instead of the table's."""
    backend: InProcess
    progress: OnProgress
    on_message: OnMessage
    target: _Target | None
    clock: Clock = field(default_factory=Clock)


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A model, and what is measured of it."""

    model: LoadedModel
    settings: Settings
    """Settings, with windows that are no longer than the model's."""
    relations: Sequence[Relation] = ()
    effects: Sequence[Effect] = ()
    precision: PrecisionCheck | None = None
    """The choice of the model's precision, where it was left to the run."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A run's windows, and its sums so far."""

    loaded: _Loaded
    windows: RunWindows
    relations: Sequence[Relation]
    """The scored relations, followed by the parts that are summed beside them."""
    info: RunInfo
    checkpoint: RunCheckpoint


class _Read:
    """Text that a run has read, as far as it is needed again, and the tokens so far."""

    def __init__(self, task: _Task, prepared: _Prepared) -> None:
        from headscope.measure.example_reader import Sample
        from headscope.measure.examples import QUICK_WINDOWS
        from headscope.measure.loss_check import TokenCounts

        settings, stopped = prepared.loaded.settings, prepared.checkpoint.model.stopped
        size = QUICK_WINDOWS if settings.quick else TEXT.example_windows
        self.sample = Sample(size, seed=settings.seed)
        self.counts = TokenCounts()
        self.stimulus_tokens: Counter[str] = Counter()
        """Tokens that the model read of each stimulus."""
        tokens = prepared.windows.most_tokens(stopped)
        self.listener = Count(task.progress, tokens)


def _classify(task: _Task) -> Run:
    loaded = _load(task)
    windows = run_windows(
        loaded.model, loaded.relations, loaded.effects, task.corpora, loaded.settings
    )
    task.clock.lap("survey")
    prepared = _prepare(task, _choose_precision(task, loaded, windows), windows)
    read = _Read(task, prepared)
    with _weights(prepared.loaded):
        prepared = replace(prepared, info=_measure(task, prepared, read))
        run = Run.of(_judge(task, prepared, read))
    if target := task.target:
        prepared.checkpoint.finish(run, report=run.report, overwrite=target.overwrite)
    return run


def _weights(loaded: _Loaded) -> AbstractContextManager[None]:
    """Shuffle the attention weights of a null model while it is read."""
    from headscope.models.null_model import null_model

    settings = loaded.settings
    if not settings.null_model:
        return nullcontext()
    return null_model(loaded.model.engine, seed=settings.seed)


def _load(task: _Task) -> _Loaded:
    """The model, once its run folder is known to be free, with the relations for its attention.

    Raises:
        ModelError: the model cannot be opened, or direct effects were requested and cannot be
            measured.
        ArgumentError: no requested type has direct effects.
        RunError: a run is in the folder.
    """
    from headscope.causal.direct_paths import direct_paths

    if target := task.target:
        target.folder.check_free(overwrite=target.overwrite)
    model = task.backend.open(task.model, **task.settings.loading())
    if task.settings.direct_effects:
        direct_paths(model)  # fails before any text is read
    longest = min(task.settings.max_length, model.longest_window)
    settings = task.settings.model_copy(update={"max_length": longest})
    relations = task.relations
    if relations is None:
        relations = relations_of(
            settings.types, model.attention_kind, quick=settings.quick, in_chat=settings.chat
        )
    task.clock.lap("load")
    direct_effects = settings.direct_effects and not task.relations
    effects = effects_of(settings.types, relations) if direct_effects else []
    if settings.direct_effects and not effects:
        types = ", ".join(dict.fromkeys(effect.type for effect in EFFECTS))
        raise ArgumentError(
            f"direct_effects was given, and no requested type has direct effects; types with "
            f"direct effects are {types}"
        )
    return _Loaded(model, settings, relations, effects)


def _choose_precision(task: _Task, loaded: _Loaded, windows: RunWindows) -> _Loaded:
    """If it is left to the run, read the text's beginning in both precisions and keep one."""
    from headscope.measure.batch_reader import measure
    from headscope.models.model import IN_MEMORY, NARROW, WIDE, reason_for_wide

    if loaded.settings.dtype != AUTO:
        return loaded
    if loaded.effects:
        return replace(loaded, precision=PrecisionCheck(WIDE, "what heads write is measured"))
    if not isinstance(task.model, str | Path):
        return replace(loaded, precision=PrecisionCheck(loaded.model.dtype, IN_MEMORY))
    if reason := reason_for_wide(loaded.model):
        return replace(loaded, precision=PrecisionCheck(WIDE, reason))
    sums: dict[str, Tally] = {}
    for dtype in (WIDE, NARROW):
        model = loaded.model if dtype == WIDE else task.backend.narrow()
        sums[dtype] = measure(
            model,
            windows.beginning,
            [],
            loaded.relations,
            seed=loaded.settings.seed,
            batch_tokens=batch_tokens_on(model.device),
        )
        task.clock.lap(f"{dtype} beginning")
    precision = compare_precisions(sums[WIDE], sums[NARROW], sum(map(len, windows.beginning)))
    if precision.dtype == WIDE:
        model = task.backend.open(task.model, **task.settings.loading())
        task.clock.lap("load again")
    return replace(loaded, model=model, precision=precision)


def _prepare(task: _Task, loaded: _Loaded, windows: RunWindows) -> _Prepared:
    """Take over the sums of an interrupted run."""
    model, settings = loaded.model, loaded.settings
    parts = windows.baselines.parts(loaded.relations)
    relations = [*parts, *loaded.effects]
    record = windows.baselines.record(relations)
    if loaded.precision is not None:
        record |= {"precision": loaded.precision.facts}
    info = replace(describe_input(model, loaded.relations, task.corpora, settings), **record)
    thresholds = {relation.id: relation.thresholds for relation in parts}
    shape = sum_names(relations), model.attention_layers, model.heads
    checkpoint = RunCheckpoint(
        None if task.target is None else task.target.folder,
        run_facts(info.to_json(), thresholds, versions()),
        windows.text,
        model=ReadState(Tally.zeros(*shape)),
    )
    if target := task.target:
        checkpoint.resume(overwrite=target.overwrite, on_message=task.on_message)
    return _Prepared(loaded, windows, relations, info, checkpoint)


def _measure(task: _Task, prepared: _Prepared, read: _Read) -> RunInfo:
    """The record of a run, whose windows the model has read."""
    from headscope.measure.loss_check import check_loss, token_losses

    loaded, windows = prepared.loaded, prepared.windows
    stopping = StoppingRule(
        loaded.relations,
        windows.baselines.facts,
        windows.expected_tokens,
        windows.others,
        stopped=prepared.checkpoint.model.stopped,
        read_all=loaded.settings.all,
    )
    task.backend.read(_plan(prepared, read, stopping))
    task.clock.lap("measure")
    text_loss, loss_notes = check_loss(
        read.counts,
        read.sample.windows,
        partial(token_losses, loaded.model),
        vocabulary=loaded.model.vocabulary_size,
        seed=loaded.settings.seed,
    )
    task.clock.lap("text loss")
    sources = loaded.model, windows.text, windows.prompts, prepared.checkpoint
    notes = [*loss_notes, *(note for source in sources for note in source.notes)]
    names = [loaded.model.name, *map(str, task.corpora)]
    return replace(
        prepared.info,
        corpora={**(prepared.info.corpora or {}), "files": windows.text.files},
        text_loss=text_loss,
        text_read=stopping.record(read.counts.tokens, windows.text.documents),
        notes=[shorten_paths(note, names) for note in notes],
    )


def _plan(prepared: _Prepared, read: _Read, stopping: StoppingRule) -> Plan:
    settings, checkpoint = prepared.loaded.settings, prepared.checkpoint
    return Plan(
        text=read.counts.watch(read.sample.watch(prepared.windows.stream)),
        others=prepared.windows.others,
        relations=prepared.relations,
        seed=settings.seed,
        model=checkpoint.model,
        save_checkpoint=checkpoint.keep,
        listener=read.listener,
        stopping=None if settings.all else stopping,
        sample=read.sample if settings.examples else None,
        stimulus_tokens=read.stimulus_tokens,
    )


def _judge(task: _Task, prepared: _Prepared, read: _Read) -> Result:
    """Tag the heads, compared with their surrogates, and cut out examples of those that are
    tagged.
    """
    loaded, checkpoint = prepared.loaded, prepared.checkpoint
    settings, relations = loaded.settings, loaded.relations
    weighed = weigh_run(
        checkpoint.model.tally,
        [*relations, *loaded.effects],
        seed=settings.seed,
        info=prepared.info,
    )
    task.clock.lap("judge")
    result = weighed.judge(
        _surrogates(prepared, read, [] if settings.quick else weighed.surrogate_requests)
    )
    task.clock.lap("surrogates")
    if settings.examples:
        requested, heads = wanted_examples(result.evidence, relations), task.backend.heads
        requested = [want for want in requested if not heads or (want.layer, want.head) in heads]
        result = replace(result, examples=tuple(_examples(prepared, read, requested)))
        task.clock.lap("examples")
    spent = {
        "tokens": checkpoint.model.tokens,
        "stimulus_tokens": dict(read.stimulus_tokens),
        "seconds": task.clock.laps,
    }
    info = result.info | {"provenance": result.info["provenance"] | spent}
    # a model that was loaded by name can be loaded again
    source = None if isinstance(task.model, str | Path) else task.model
    return replace(result, info=info, source=source)


def _surrogates(
    prepared: _Prepared, read: _Read, requests: Sequence[SurrogateRequest]
) -> list[SurrogateScore]:
    """Surrogates of some heads, fitted on windows that the model has read."""
    from headscope.measure import surrogate

    loaded, state = prepared.loaded, prepared.checkpoint.model
    text = prepared.windows.first[: read.counts.windows]
    others = [window for window in prepared.windows.others if was_read(window, state.stopped)]
    windows = [window.cut(surrogate.LONGEST) for window in (*text, *others)]
    return surrogate.score_surrogates(
        partial(surrogate.rows_of_model, loaded.model),
        surrogate.SurrogateText(
            windows, surrogate.tokens_again(state.tokens), loaded.settings.seed
        ),
        loaded.relations,
        requests,
        progress=read.listener.of_reread,
    )


def _examples(
    prepared: _Prepared, read: _Read, requests: Sequence[ExampleRequest]
) -> list[Example]:
    """Examples of some heads, cut out of the sample of text and of other windows."""
    from headscope.measure.examples import find_examples

    loaded, stopped = prepared.loaded, prepared.checkpoint.model.stopped
    synthetic = [window for window in prepared.windows.synthetic if was_read(window, stopped)]
    return find_examples(
        partial(read.sample.patterns, loaded.model),
        [*read.sample.windows, *synthetic],
        loaded.relations,
        requests,
        seed=loaded.settings.seed,
        progress=read.listener.of_reread,
    )
