"""The main job, from a model's name to tagged heads, on one screen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headscope.api import Run
from headscope.arguments import MODEL, Kind, made_by, maybe, takes
from headscope.corpus.code.excerpts import holds_code
from headscope.corpus.languages import foreign_languages
from headscope.corpus.shipped import asked_corpora
from headscope.corpus.window import Window
from headscope.evidence.judge import judge, versions
from headscope.evidence.outlook import Looks
from headscope.evidence.ranking import wanted_examples
from headscope.measure.backend import Backend
from headscope.measure.effect_names import effect_names
from headscope.measure.made import How, plan_made
from headscope.measure.plan import Plan, was_read
from headscope.measure.progress import Clock, Count, Progress
from headscope.measure.prompts import plan_prompts
from headscope.measure.schedule import portion
from headscope.measure.stimuli import (
    Most,
    TextWindows,
    plan_built,
    synthetic_documents,
)
from headscope.measure.survey import Survey, survey
from headscope.measure.tally import Pass, Tally
from headscope.measure.translations import TranslationWindows
from headscope.relations import RELATIONS, check_relations, check_types
from headscope.relations.asked import LONG
from headscope.relations.relation import Relation
from headscope.relations.writes import Effect, effects_of
from headscope.runs.checkpoint import Checkpoint
from headscope.runs.facts import describe_input
from headscope.runs.lock import CHECKPOINT, workplace
from headscope.runs.place import check_free
from headscope.runs.resume import resume, run_facts
from headscope.runs.shareable import named
from headscope.runs.stacked import asked_of, classify_stacks
from headscope.runs.store import save_by
from headscope.settings import Settings, settings_of

if TYPE_CHECKING:
    from headscope.models.load import Model

SURVEYED = 200_000
"""Tokens of a run's text by which simple rules are chosen; they are in memory at once."""

LOOKED_THROUGH = 2
"""Times the asked tokens that are looked through for further contested queries."""
LOOKED_THROUGH_CODE = 20
"""The same of files of code, which are annotated as they are read, and rarely ask some things."""


def _backend(value: Any) -> Any:
    if not isinstance(value, Backend):
        raise TypeError
    return value


@takes(
    model=MODEL,
    settings=maybe(made_by("hs.Settings(…)", Settings)),
    relations=maybe(RELATIONS),
    backend=maybe(Kind("what reads a model, such as InProcess()", _backend)),
)
def classify(
    model: Any,
    corpus: str | Path | Sequence[str | Path] = (),
    *,
    settings: Settings | None = None,
    relations: Sequence[Relation] | None = None,
    out: str | Path | None = None,
    overwrite: bool = False,
    progress: Progress = lambda done, total: None,
    tell: Callable[[str], None] = lambda line: None,
    backend: Backend | None = None,
    **changes: Any,
) -> Run:
    """Run a model over annotated text and tag every head with what it does.

    With `out` the sums so far are kept beside that folder, and a run that was broken off goes on
    from there when it is called again in the same way; it ends with the same numbers.

    Args:
        model: `mini`, a folder in Hugging Face layout, a `.gguf` file, or a hub name like `gpt2`;
            or what is in memory: a (model, tokenizer) pair of transformers, a loaded model, or a
            TransformerBridge; see `headscope.models.sources.open_model` for what is changed of it.
        corpus: files or folders of CoNLL-U or plain text, or `gum`, `gold` or `controlled`, which
            ship with headscope; `gum` when empty.
        settings: what else is asked for; see `headscope.settings.Settings`.
        relations: the relations to score instead of the table's, for types of one's own.
        out: where to write the run folder; nothing is written when None.
        overwrite: replace a run that is there already, and start anew where sums of another run
            were kept.
        progress: called with the tokens done and the tokens in all.
        tell: called with a line for the user, e.g. that a run goes on.
        backend: what loads and reads the model; this process when None.
        changes: single settings by name, e.g. `max_tokens=10_000`, in place of those of `settings`.

    Raises:
        RunStoppedError: a KeyboardInterrupt, when sums were kept.
        HeadscopeError: the model, the corpus, the types or the folder are not usable; each kind
            has its own subclass in `headscope.errors`.
    """
    # importing a model library takes seconds: not before it is needed
    from headscope.measure.examples import Sample
    from headscope.measure.in_process import InProcess
    from headscope.measure.sanity import TokenCounts, sanity

    settings = settings_of(settings, changes)
    backend = backend or InProcess()
    own = None if relations is None else check_relations(relations)
    check_types(settings.types)
    corpora = asked_corpora(corpus)
    seed, clock = settings.seed, Clock()
    with _place(out) as work:
        if out is not None and work is not None:
            check_free(Path(out), overwrite=overwrite or (work / CHECKPOINT).is_file())
        opened = backend.open(model, **settings.loading())
        if opened.stacks:
            one = partial(classify, backend=backend, progress=progress)
            whole = Run.of(classify_stacks(opened, corpora, settings, own, one))
            if out is not None and work is not None:
                save_by(work, whole, Path(out), report=whole.report, overwrite=overwrite)
            return whole
        settings = replace(settings, max_length=min(settings.max_length, opened.longest_window))
        relations = asked_of(opened, settings, own)
        clock.lap("load")
        writes = settings.writes and not (own or opened.both_ways)  # encoders predict no next token
        effects = effects_of(settings.types, relations) if writes else []
        text, synthetic = windows_of(opened, relations, corpora, settings)
        prompts = plan_prompts(opened.tokenizer, effects, settings.max_length, seed=seed)
        synthetic += prompts.windows
        # what may be left out of a reading must not be counted on
        first = [each for each in synthetic if settings.all or portion(each) == 0]
        coming, found = _surveyed(text, first, relations, opened, settings)
        parts = found.parts(relations)
        clock.lap("survey")
        info = describe_input(opened, relations, corpora, settings) | found.record(parts)
        info["parts"] += effect_names(effects)
        checkpoint = _checkpoint(work, opened, parts, effects, info, text)
        checkpoint.every = settings.keep_every
        if out is not None:
            overwrite = resume(checkpoint, Path(out), overwrite=overwrite, tell=tell)
        sample, counts = Sample(seed=seed), TokenCounts()
        beside = [*synthetic, *found.further, *found.built]
        watch = Count(progress, text, sum(map(len, beside)), clock)
        ended = checkpoint.model.ended
        looks = Looks(relations, found.facts, _coming(text), beside, ended=ended, all=settings.all)
        backend.read(
            Plan(
                text=counts.watch(sample.watch(coming)),
                synthetic=beside,
                relations=parts,
                seed=seed,
                model=checkpoint.model,
                twin=checkpoint.twin if settings.twin else None,
                keep=checkpoint.keep,
                watch=watch,
                looks=looks.tokens,
                enough=None if settings.all else looks.enough,
                effects=effects,
            )
        )
        clock.lap("twin" if settings.twin else "measure")
        text_loss, unsound = sanity(
            counts,
            () if opened.stack else sample.windows,  # half a model predicts nothing
            backend.token_losses,
            vocabulary=opened.vocabulary_size,
            seed=seed,
        )
        clock.lap("text loss")
        info |= text_loss
        info["corpora"]["files"] = text.files
        info["text_read"] = looks.facts(counts.tokens)
        notes = [*unsound, *opened.notes, *text.notes, *prompts.notes, *checkpoint.notes]
        info["notes"] = [named(note, [opened.name, *map(str, corpora)]) for note in notes]
        result = judge(
            checkpoint.model.tally,
            relations,
            seed=seed,
            info=info,
            twin=checkpoint.twin.tally if settings.twin else None,
            effects=effects,
        )
        clock.lap("judge")
        if settings.examples:
            windows = [*sample.windows, *(each for each in synthetic if was_read(each, ended))]
            wanted = wanted_examples(result.evidence, relations)
            shown = backend.find_examples(
                windows, relations, wanted, seed=seed, progress=watch.of_examples
            )
            result = replace(result, examples=tuple(shown))
            clock.lap("examples")
        result = replace(result, source=opened.origin)
        result.info["provenance"] |= {
            "tokens": checkpoint.model.tokens,
            "seconds": clock.laps,
        }
        run = Run.of(result)
        if out is not None and work is not None:
            save_by(work, run, Path(out), report=run.report, overwrite=overwrite)
            checkpoint.remove()
    return run


def _surveyed(
    text: TextWindows,
    synthetic: Sequence[Window],
    relations: Sequence[Relation],
    model: Model,
    settings: Settings,
) -> tuple[Iterator[Window], Survey]:
    """The windows of text, none of them read by the model yet, and what they say of rules."""
    coming, tokens = iter(text), settings.max_tokens
    first = list(_up_to(coming, SURVEYED))
    code = any(holds_code(window.arrows) for window in first)
    asked = settings.built and not (model.target or foreign_languages(text.paths.values()))
    built = plan_built(model.tokenizer, settings.max_length, code=code) if asked else ()
    through = tokens * (LOOKED_THROUGH_CODE if code else LOOKED_THROUGH)
    more, room = _up_to(text.further(), through), tokens // (2 if code else 4)
    found = survey([*first, *synthetic], relations, more, built, room=room)
    return chain(first, coming), found


def _coming(text: TextWindows) -> int:
    """Tokens of the whole text, as far as that is known before it is read."""
    return text.tokens if text.tokens < SURVEYED else text.max_tokens


def _up_to(windows: Iterator[Window], tokens: int) -> Iterator[Window]:
    """The next windows, up to a number of tokens."""
    while tokens > 0 and (window := next(windows, None)) is not None:
        tokens -= len(window)
        yield window


def windows_of(
    model: Model,
    relations: Sequence[Relation],
    corpora: Sequence[str | Path],
    settings: Settings,
) -> tuple[TextWindows, list[Window]]:
    """The windows of text that a run reads, and those of the other stimuli.

    Raises:
        CorpusError: a corpus does not exist, or is none.
    """
    stimuli = {stimulus for relation in relations for stimulus in relation.stimuli}
    length, seed = min(settings.max_length, model.longest_window), settings.seed
    most: Most = {"max_tokens": settings.max_tokens, "max_documents": settings.documents}
    if model.target is not None:
        sides = model.tokenizer, model.target
        return TranslationWindows(corpora, *sides, max_length=min(length, LONG // 2), **most), []
    text = TextWindows(
        corpora if "text" in stimuli else (),
        model.tokenizer,
        max_length=length,
        seed=seed,
        **most,
    )
    count = synthetic_documents(settings.max_tokens)
    how = How(model.tokenizer, model.vocabulary_size, length, seed, count)
    return text, plan_made(stimuli, how)


def _place(out: str | Path | None) -> AbstractContextManager[Path | None]:
    """Where the run's unfinished files lie; nowhere when it is not written."""
    return nullcontext() if out is None else workplace(Path(out))


def _checkpoint(
    work: Path | None,
    model: Model,
    relations: Sequence[Relation],
    effects: Sequence[Effect],
    info: dict[str, Any],
    text: TextWindows,
) -> Checkpoint:
    """A run of which nothing is done yet."""
    rules = {relation.id: relation.rule for relation in relations}
    shape = ((*rules, *effect_names(effects)), model.attention_layers, model.heads)
    model_pass, twin_pass = (Pass(Tally.zeros(*shape)) for _ in range(2))
    return Checkpoint(work, run_facts(info, rules, versions()), text, model_pass, twin_pass)
