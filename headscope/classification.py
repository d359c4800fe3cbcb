"""The main job, from a model's name to tagged heads.

`classify_heads` has seven steps. These values go from one step to another:

================= ============================================== ===================
value             made in                                        used in
================= ============================================== ===================
`Model`           1 load; 4 may load the model in half precision 1 to 6
relations         1 load                                         2 to 6
`Text`            2 prepare: all windows of the run              3 to 6
`FittedBaselines` 3 fit baselines                                5, 6
`RunInfo`         4 choose precision; 6 adds what was read       5 (checkpoint), 6
`Sums`            5 measure: the sums of all attention           6
`Result`          6 read again and judge                         7 save
================= ============================================== ===================
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from headscope.causal.direct_paths import direct_paths
from headscope.causal.haystack_answers import chance_of, haystack_answers
from headscope.corpus.window import Window
from headscope.errors import ArgumentError
from headscope.measure.batch_reader import BatchReader
from headscope.measure.example_reader import Sample
from headscope.measure.examples import QUICK_WINDOWS
from headscope.measure.fit_baselines import fit_baselines
from headscope.measure.precision_check import PrecisionCheck, compare_precisions
from headscope.measure.reading import read, sum_cells
from headscope.measure.second_reading import SecondReading
from headscope.measure.sums import Sums
from headscope.measure.surrogate_rows import SurrogateRequest
from headscope.measure.tally import Tally
from headscope.measure.text import Text, prepare_text
from headscope.models.last_model import LastModel
from headscope.models.model import IN_MEMORY, NARROW, WIDE, reason_for_wide
from headscope.models.model import Model as LoadedModel
from headscope.models.null_model import null_model
from headscope.models.stream import batch_tokens_on
from headscope.options import OnMessage
from headscope.progress import Clock, Count, OnProgress
from headscope.relations import check_types, relations_of
from headscope.relations.effects import EFFECTS, effects_among, effects_of, of_attention
from headscope.relations.relation import Relation
from headscope.relations.window_pairs import KeptPairs
from headscope.runs.checkpoint import RunCheckpoint, run_identity
from headscope.runs.record import describe_input
from headscope.runs.recorded_paths import shorten_paths
from headscope.settings import AUTO, Settings
from headscope.statistics.early_stopping import StoppingRule
from headscope.statistics.haystack_lengths import accuracies, refused_lengths
from headscope.statistics.head_lists import wanted_examples
from headscope.statistics.judge_heads import versions, weigh_run
from headscope.statistics.result import Result, RunInfo
from headscope.statistics.surrogate import SurrogateScore, score_surrogates
from headscope.stimuli.haystack import HAYSTACK, length_of
from headscope.stimuli.natural_text import TEXT, few_documents


@dataclass(frozen=True, eq=False)
class Session:
    """Model, checkpoint and listeners of a run."""

    models: LastModel
    checkpoint: RunCheckpoint
    on_progress: OnProgress
    on_message: OnMessage
    report: Callable[[Result], str]
    """Makes the HTML report that is written with the run."""
    clock: Clock = field(default_factory=Clock)
    """Seconds that the steps take."""


def classify_heads(
    name: Any,
    corpora: Sequence[str | Path],
    settings: Settings,
    own_relations: Sequence[Relation] | None,
    session: Session,
) -> Result:
    """The tags of a model's heads; see `headscope.run.classify`.

    An interrupted run that is started again does all steps again, but in step 5 the model reads
    only what is not in its checkpoint; see `headscope.runs.checkpoint`.
    """
    # 1. load
    loaded = _load(name, settings, session)
    longest = min(settings.max_length, loaded.longest_window)
    length_notes = []
    if settings.max_length > longest and "max_length" in settings.model_fields_set:
        length_notes = [
            f"windows have at most {longest} tokens, the most that are read of {loaded.name}"
        ]
    settings = settings.model_copy(update={"max_length": longest})
    relations = _scored_relations(loaded, settings, own_relations)
    session.clock.lap("load")

    # 2. prepare
    text = prepare_text(loaded, relations, corpora, settings)
    text, haystack_notes = _answered(loaded, text, settings)

    # 3. fit baselines
    pairs = KeptPairs()
    baselines = fit_baselines(
        text.surveyed, relations, text.challenge, fixed=text.fixed_baselines, pairs=pairs
    )
    text = text.needed_by(baselines)
    session.clock.lap("survey")

    # 4. choose precision
    model, precision = _choose_precision(name, loaded, text, relations, settings, session)
    summed = baselines.summed(relations)
    run_info = describe_input(model, of_attention(relations), corpora, settings)
    run_info = replace(run_info, precision=precision, **baselines.record(summed))

    # 5. measure: into empty sums, or into those that an interrupted run with this input has kept
    sums = Sums.empty(model, summed)
    size = QUICK_WINDOWS if settings.quick else TEXT.example_windows
    sums.sample = Sample(size, seed=settings.seed, keeps_patterns=settings.examples)
    thresholds = {relation.id: relation.thresholds for relation in of_attention(summed)}
    identity = run_identity(run_info.to_json(), thresholds, versions())
    session.checkpoint.begin(identity, text.natural, sums, on_message=session.on_message)
    stopping = StoppingRule(
        of_attention(relations),
        baselines.rates,
        text.expected_tokens,
        text.others,
        read_all=text.reads_all,
    )
    listener = Count(session.on_progress, text.most_tokens(sums.stopped))
    again = SecondReading(
        model=model,
        text=text,
        relations=relations,
        baselines=baselines,
        sums=sums,
        seed=settings.seed,
        progress=listener.of_reread,
    )
    shuffled: AbstractContextManager[None] = nullcontext()
    if settings.null_model:
        shuffled = null_model(model.engine, seed=settings.seed)
    with shuffled:
        read(
            BatchReader(model, summed, settings.seed, pairs=pairs),
            text.stream,
            text.others,
            sums,
            stopping=None if settings.all else stopping,
            keep=session.checkpoint.keep,
            listener=listener,
        )
        del pairs  # those of stimuli that were stopped early
        session.checkpoint.keep(at_end=True)
        session.clock.lap("measure")

        # 6. read again and judge: the loss, surrogates of some heads, examples of tagged heads
        notes = [*length_notes, *haystack_notes, *baselines.notes]
        run_info = _describe_reading(run_info, again, stopping, corpora, notes)
        session.clock.lap("text loss")
        result = _judge(again, run_info, settings, session)

    # 7. save
    # a model that was loaded by name can be loaded again
    source = None if isinstance(name, str | Path) else name
    result = replace(result, source=source)
    session.checkpoint.finish(result, report=partial(session.report, result))
    return result


def _load(name: Any, settings: Settings, session: Session) -> LoadedModel:
    """The model, once its run folder is known to be free.

    Raises:
        ModelError: the model cannot be opened, or direct effects were requested and cannot be
            measured.
        RunError: a run is in the folder.
    """
    session.checkpoint.check_free()
    model = session.models.open(name, **settings.loading())
    if settings.direct_effects:
        direct_paths(model)  # fails before any text is read
    return model


def _scored_relations(
    model: LoadedModel, settings: Settings, own_relations: Sequence[Relation] | None
) -> list[Relation]:
    """The relations for the model's attention, and the direct effects behind them.

    Raises:
        ArgumentError: direct effects were requested, and no requested type has them.
    """
    relations = own_relations
    if relations is None:
        relations = relations_of(
            settings.types,
            model.attention_kind,
            quick=settings.quick,
            in_chat=settings.chat,
            in_haystack=settings.haystack is not None,
        )
        for name, head_type in check_types(settings.types).items():
            # a type about the chat template alone has no relations without it
            is_asked = name in (settings.types or ())
            if is_asked and not head_type.relations and not settings.chat:
                raise ArgumentError(
                    f"the type {name} reads conversations in the model's chat template: add --chat"
                )
        if settings.haystack and not any(HAYSTACK.name in row.stimuli for row in relations):
            raise ArgumentError(
                "haystack was given, and no requested type of causal heads reads haystacks: add "
                "the type retrieval"
            )
    if not settings.direct_effects:
        return list(relations)
    # relations of the user's own have no effects that are known
    effects = effects_of(settings.types, relations) if own_relations is None else []
    if not effects:
        types = ", ".join(dict.fromkeys(effect.type for effect in EFFECTS))
        raise ArgumentError(
            f"direct_effects was given, and no requested type has direct effects; types with "
            f"direct effects are {types}"
        )
    return [*relations, *effects]


def _answered(model: LoadedModel, text: Text, settings: Settings) -> tuple[Text, list[str]]:
    """The text without haystacks of a length at which the model cannot answer, and notes."""
    # the null model answers nothing, and all its tags are to be counted
    haystacks = [window for window in text.synthetic if window.stimulus == HAYSTACK.name]
    if not haystacks or settings.null_model:
        return text, []
    names = settings.haystack or ()
    answers = haystack_answers(model, haystacks, names)
    refused = refused_lengths(accuracies(answers, seed=settings.seed), chance_of(names))
    readable: list[Window] = []
    for window in text.synthetic:
        if window.stimulus != HAYSTACK.name or length_of(window, names) not in refused:
            readable.append(window)
    return replace(text, synthetic=readable), list(refused.values())


def _choose_precision(
    name: Any,
    loaded: LoadedModel,
    text: Text,
    relations: Sequence[Relation],
    settings: Settings,
    session: Session,
) -> tuple[LoadedModel, dict[str, Any] | None]:
    """If it is left to the run, read the text's beginning in both precisions and keep one.

    Returns:
        The model in this precision, and the choice as `run.json` states it; None if the precision
        was named.
    """
    # no measurement is needed where one precision is out of the question
    if settings.dtype != AUTO:
        return loaded, None
    if effects_among(relations):
        return loaded, PrecisionCheck(WIDE, "what heads write is measured").record
    if not isinstance(name, str | Path):
        return loaded, PrecisionCheck(loaded.dtype, IN_MEMORY).record
    if reason := reason_for_wide(loaded):
        return loaded, PrecisionCheck(WIDE, reason).record
    # both precisions read the same beginning, and the narrow one must give the same sums
    sums: dict[str, Tally] = {}
    for dtype in (WIDE, NARROW):
        model = loaded if dtype == WIDE else session.models.narrow()
        sums[dtype] = sum_cells(
            model,
            text.beginning,
            [],
            relations,
            seed=settings.seed,
            batch_tokens=batch_tokens_on(model.device),
        )
        session.clock.lap(f"{dtype} beginning")
    precision = compare_precisions(sums[WIDE], sums[NARROW], sum(map(len, text.beginning)))
    if precision.dtype == WIDE:
        # the weights were narrowed in place
        model = session.models.open(name, **settings.loading())
        session.clock.lap("load again")
    return model, precision.record


def _describe_reading(
    run_info: RunInfo,
    again: SecondReading,
    stopping: StoppingRule,
    corpora: Sequence[str | Path],
    further_notes: Sequence[str],
) -> RunInfo:
    """The record of a run with what was read, notes on it, and the model's loss, measured here."""
    # what the run was made from is known before reading, what it read only now
    model, text, sums = again.model, again.text, again.sums
    loss = again.text_loss()
    # notes of all parts, in the order in which they were read
    sources = (loss, model, text.natural, text.language, text.prompts, sums)
    notes = [note for source in sources if source is not None for note in source.notes]
    notes += further_notes
    names = [model.name, *map(str, corpora)]
    documents, blocks = text.natural.documents, sums.text_blocks
    notes += few_documents(documents, blocks)
    text_read = stopping.record(sums.token_counts.tokens, documents, sums.stopped)
    return replace(
        run_info,
        corpora={**(run_info.corpora or {}), "files": text.natural.files},
        language=None if text.language is None else text.language.record,
        text_loss=loss.record,
        text_read={**text_read, "blocks": blocks},
        notes=[shorten_paths(note, names) for note in notes],
    )


def _judge(again: SecondReading, run_info: RunInfo, settings: Settings, session: Session) -> Result:
    """Tag the heads, compared with their surrogates, and cut out examples of those that are
    tagged.
    """
    clock, sums = session.clock, again.sums
    weighed = weigh_run(sums.tally, again.relations, seed=settings.seed, run_info=run_info)
    clock.lap("judge")
    # surrogates are fitted for the heads that depend on them alone
    surrogates: dict[SurrogateRequest, SurrogateScore] = {}
    if not settings.quick:
        requests = weighed.surrogate_requests
        rows = again.surrogate_rows(requests)
        surrogates = score_surrogates(rows, again.relations, requests, progress=again.progress)
        del rows  # as large as the attention of all these heads
    result = weighed.judge(surrogates)
    clock.lap("surrogates")
    if settings.examples:
        # a run of some heads alone shows theirs
        example_requests = wanted_examples(result.evidence, of_attention(again.relations))
        if heads := session.models.heads:
            example_requests = [
                request for request in example_requests if (request.layer, request.head) in heads
            ]
        examples = again.examples(example_requests)
        result = replace(result, examples=tuple(examples))
        clock.lap("examples")
    # times and tokens are known at the end alone
    spent = {
        "tokens": sums.tokens,
        "stimulus_tokens": dict(sums.stimulus_tokens),
        "seconds": clock.laps,
    }
    provenance = result.info["provenance"] | spent
    return replace(result, info=result.info | {"provenance": provenance})
