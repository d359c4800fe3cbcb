"""The main job, from a model's name to tagged heads: load, prepare, measure, judge, write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import PlainValidator

from headscope.corpus.shipped import asked_corpora
from headscope.measure.plan import Plan, was_read
from headscope.measure.precision_check import PrecisionCheck, compare_precisions
from headscope.measure.run_windows import RunWindows, run_windows
from headscope.measure.tally import ReadState, Tally
from headscope.models.families import refuse_encoder
from headscope.models.stream import batch_tokens_on
from headscope.options import Corpus, Model, OnMessage, Overwrite, PathName, checked
from headscope.progress import Clock, Count, OnProgress, Progress, progress_bar
from headscope.relations import Relations, check_relations, check_types, relations_of
from headscope.relations.effects import Effect, effects_of, sum_names
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
from headscope.stimuli.document_order import readable
from headscope.stimuli.text import TEXT

if TYPE_CHECKING:
    from headscope.measure.in_process import InProcess
    from headscope.models.model import Model


def _reader(value: Any) -> Any:
    if value is not None and not hasattr(value, "find_examples"):
        raise ValueError("should be a reader of models, such as InProcess()")
    return value


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
    tell: OnMessage = lambda line: None,
    backend: Annotated[Any, PlainValidator(_reader)] = None,
    **changes: Any,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    With `out` the sums so far are kept beside that folder, and a run that was broken off goes on
    from there when it is called again in the same way; it ends with the same numbers.

    Args:
        model: `mini`, `smollm2` or `minilm`, a folder in Hugging Face layout, a `.gguf` file, or a
            hub name like `gpt2`; or what is in memory: a (model, tokenizer) pair of transformers, a
            loaded model, or a TransformerBridge; see `headscope.models.load.open_model` for
            its changes.
        corpus: files or folders of CoNLL-U or plain text, or `gum`, `gold` or `controlled`, which
            ship with headscope; `gum` when None.
        settings: what else is asked for; see `headscope.settings.Settings`.
        relations: the relations to score instead of the table's, for types of one's own.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already, and start anew where sums of another run
            were kept.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the tokens done and the tokens in all.
        tell: called with a line for the user, e.g. that a run goes on.
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
        task = _Task(model, corpora, settings, own_relations, backend or InProcess(), bar)
        result, prepared = _classify(task, _open(task, target), target, tell)
        return _write(result, prepared.target, prepared.checkpoint)


class _Task:
    """The arguments of a run, checked, and the seconds that its steps take."""

    def __init__(
        self,
        model: Any,
        corpora: Sequence[str | Path],
        settings: Settings,
        relations: Sequence[Relation] | None,
        backend: InProcess,
        progress: OnProgress,
    ) -> None:
        self.model, self.corpora, self.settings = model, corpora, settings
        self.relations = relations
        """Those that were given instead of the table's."""
        self.backend, self.progress = backend, progress
        self.clock = Clock()


@dataclass(frozen=True)
class _Target:
    """The run folder to write."""

    folder: RunFolder
    overwrite: bool


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A model, and what is measured of it."""

    model: Model
    settings: Settings
    """With windows that are no longer than the model's."""
    relations: Sequence[Relation] = ()
    effects: Sequence[Effect] = ()
    precision: PrecisionCheck | None = None
    """The choice of the model's precision, where it was left to the run."""


@dataclass(frozen=True, eq=False)
class _Prepared:
    """A run's windows, and its sums so far."""

    windows: RunWindows
    relations: Sequence[Relation]
    """The scored relations, followed by the parts that are summed beside them."""
    info: RunInfo
    checkpoint: RunCheckpoint
    target: _Target | None


class _Read:
    """Text that a run has read, as far as it is needed again."""

    def __init__(self, settings: Settings) -> None:
        from headscope.measure.example_reader import Sample
        from headscope.measure.examples import QUICK_WINDOWS
        from headscope.measure.loss_check import TokenCounts

        size = QUICK_WINDOWS if settings.quick else TEXT.example_windows
        self.sample = Sample(size, seed=settings.seed)
        self.counts = TokenCounts()
        self.stimulus_tokens: Counter[str] = Counter()
        """Tokens that the model read of each stimulus."""


def _open(task: _Task, target: _Target | None) -> Model:
    """The model, once its run folder is known to be free.

    Raises:
        ModelError: the model cannot be opened, or is an encoder and what its heads write was asked
            for.
        RunError: a run is in the folder.
    """
    if target is not None:
        unfinished = target.folder.checkpoint.is_file()
        target.folder.check_free(overwrite=target.overwrite or unfinished)
    model = task.backend.open(task.model, **task.settings.loading())
    if task.settings.writes:
        refuse_encoder(model, "classify --writes")
    return model


def _classify(
    task: _Task, model: Model, target: _Target | None, on_message: Callable[[str], None]
) -> tuple[Result, _Prepared]:
    """The result, and what it was prepared from."""
    loaded = _choose(task, model)
    windows = run_windows(model, loaded.relations, loaded.effects, task.corpora, loaded.settings)
    task.clock.lap("survey")
    loaded = _choose_precision(task, loaded, windows)
    prepared = _prepare(task, loaded, windows, target, on_message)
    read, listener = _Read(loaded.settings), _listener(task, loaded, prepared)
    info = _measure(task, loaded, prepared, read, listener)
    return _judge(task, loaded, replace(prepared, info=info), read, listener), prepared


def _choose(task: _Task, model: Model) -> _Loaded:
    """Choose the relations and effects that a model can be asked."""
    longest = min(task.settings.max_length, model.longest_window)
    settings = task.settings.model_copy(update={"max_length": longest})
    relations = _relations(task, model)
    task.clock.lap("load")
    writes = settings.writes and not task.relations
    effects = effects_of(settings.types, relations) if writes else []
    return _Loaded(model, settings, relations, effects)


def _relations(task: _Task, model: Model) -> Sequence[Relation]:
    """Those that were given, or those of the types for the model's kind of attention."""
    if task.relations is not None:
        return task.relations
    settings = task.settings
    return relations_of(
        settings.types, model.attention_kind, quick=settings.quick, in_chat=settings.chat
    )


def _choose_precision(task: _Task, loaded: _Loaded, windows: RunWindows) -> _Loaded:
    """Where it is left to the run, read the text's beginning in both precisions and keep one."""
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


def _prepare(
    task: _Task,
    loaded: _Loaded,
    windows: RunWindows,
    target: _Target | None,
    on_message: Callable[[str], None],
) -> _Prepared:
    """Take over the sums of a run that was broken off."""
    model, settings = loaded.model, loaded.settings
    parts = windows.baselines.parts(loaded.relations)
    relations = [*parts, *loaded.effects]
    record = windows.baselines.record(relations)
    if loaded.precision is not None:
        record |= {"precision": loaded.precision.facts}
    info = replace(describe_input(model, loaded.relations, task.corpora, settings), **record)
    rules = {relation.id: relation.rule for relation in parts}
    shape = sum_names(relations), model.attention_layers, model.heads
    checkpoint = RunCheckpoint(
        None if target is None else target.folder,
        run_facts(info.to_json(), rules, versions()),
        windows.text,
        model=ReadState(Tally.zeros(*shape)),
        twin=ReadState(Tally.zeros(*shape)),
        every=settings.keep_every,
    )
    if target is not None:
        overwrite = checkpoint.resume(overwrite=target.overwrite, on_message=on_message)
        target = replace(target, overwrite=overwrite)
    return _Prepared(windows, relations, info, checkpoint, target)


def _listener(task: _Task, loaded: _Loaded, prepared: _Prepared) -> Count:
    stopped = prepared.checkpoint.model.stopped
    tokens = prepared.windows.most_tokens(stopped, with_twin=loaded.settings.twin)
    return Count(task.progress, tokens, task.clock)


def _measure(
    task: _Task, loaded: _Loaded, prepared: _Prepared, read: _Read, listener: Count
) -> RunInfo:
    """The record of a run, whose windows the model and its twin have read."""
    settings, windows, checkpoint = loaded.settings, prepared.windows, prepared.checkpoint
    stopping = StoppingRule(
        loaded.relations,
        windows.baselines.facts,
        windows.expected_tokens,
        windows.others,
        stopped=checkpoint.model.stopped,
        read_all=settings.all,
    )
    plan = Plan(
        text=read.counts.watch(read.sample.watch(windows.stream)),
        synthetic=windows.others,
        relations=prepared.relations,
        seed=settings.seed,
        model=checkpoint.model,
        twin=checkpoint.twin if settings.twin else None,
        save_checkpoint=checkpoint.keep,
        listener=listener,
        stopping=None if settings.all else stopping,
        sample=read.sample if settings.examples else None,
        stimulus_tokens=read.stimulus_tokens,
    )
    task.backend.read(plan)
    task.clock.lap("twin" if settings.twin else "measure")
    text_loss, loss_notes = _check_loss(task, loaded, read)
    sources = loaded.model, windows.text, windows.prompts, checkpoint
    notes = [*loss_notes, *(note for source in sources for note in source.notes)]
    names = [loaded.model.name, *map(str, task.corpora)]
    return replace(
        prepared.info,
        corpora={**(prepared.info.corpora or {}), "files": windows.text.files},
        text_loss=text_loss,
        text_read=stopping.record(read.counts.tokens),
        notes=[shorten_paths(note, names) for note in notes],
    )


def _check_loss(
    task: _Task, loaded: _Loaded, read: _Read
) -> tuple[dict[str, float | None] | None, list[str]]:
    """The model's loss on the text that it has read, and notes for the reader."""
    from headscope.measure.loss_check import check_loss

    loss = check_loss(
        read.counts,
        read.sample.windows,
        task.backend.token_losses,
        vocabulary=loaded.model.vocabulary_size,
        seed=loaded.settings.seed,
    )
    task.clock.lap("text loss")
    return loss


def _judge(
    task: _Task, loaded: _Loaded, prepared: _Prepared, read: _Read, listener: Count
) -> Result:
    """Tag the heads, compared with their shadows, and cut out examples of those that are tagged."""
    settings, checkpoint = loaded.settings, prepared.checkpoint
    weighed = weigh_run(
        checkpoint.model.tally,
        [*loaded.relations, *loaded.effects],
        seed=settings.seed,
        info=prepared.info,
        twin=checkpoint.twin.tally if settings.twin else None,
    )
    task.clock.lap("judge")
    stopped = checkpoint.model.stopped
    windows, again = prepared.windows, prepared.windows.first[: read.counts.windows]
    shadows = task.backend.score_shadows(
        [*again, *(window for window in windows.others if was_read(window, stopped))],
        loaded.relations,
        [] if settings.quick else weighed.shadow_requests,
        tokens=checkpoint.model.tokens,
        seed=settings.seed,
        progress=listener.of_reread,
    )
    task.clock.lap("shadows")
    result = weighed.judge(shadows)
    if settings.examples:
        synthetic = [window for window in windows.synthetic if was_read(window, stopped)]
        examples = task.backend.find_examples(
            read.sample,
            synthetic,
            loaded.relations,
            wanted_examples(result.evidence, loaded.relations),
            seed=settings.seed,
            progress=listener.of_reread,
        )
        result = replace(result, examples=tuple(examples))
        task.clock.lap("examples")
    spent = {
        "tokens": checkpoint.model.tokens,
        "stimulus_tokens": dict(read.stimulus_tokens),
        "seconds": task.clock.laps,
    }
    info = result.info | {"provenance": result.info["provenance"] | spent}
    return replace(result, info=info, source=loaded.model.origin)


def _write(result: Result, target: _Target | None, checkpoint: RunCheckpoint) -> Run:
    """The run, written to its folder where there is one."""
    run = Run.of(result)
    if target is not None:
        checkpoint.finish(run, report=run.report, overwrite=target.overwrite)
    return run
