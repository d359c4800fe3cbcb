"""`ablate`: from a run to its table of causes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, NamedTuple, Unpack

import pandas as pd

from headscope.arguments import NAME, Default, takes
from headscope.corpus.controlled.minimal_pairs import (
    MinimalPair,
    agreement_pairs,
    anaphor_pairs,
    read_minimal_pairs,
)
from headscope.corpus.shipped import listed
from headscope.errors import ChoiceError, ModelError
from headscope.measure.progress import OnProgress, Progress, progress_bar
from headscope.measure.study_windows import LENGTH, edge_windows
from headscope.models.load import Model
from headscope.models.model_kinds import refuse_encoder
from headscope.models.rerun import WAYS_TO_SILENCE, Rerunner, Score
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Relation
from headscope.runs.listing import Head, chosen_heads
from headscope.runs.reopen_model import Again, model_of, text_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.causes import judged
from headscope.statistics.result import Result
from headscope.statistics.tags import RESTING_PLACES
from headscope.stimuli import STIMULI
from headscope.stimuli.repeat import REPEAT, repeat_windows
from headscope.stimuli.stimulus import StimulusConfig
from headscope.stimuli.text import TEXT, TextWindows
from headscope.studies.ablate.ablate_result import Ablation
from headscope.studies.ablate.ablation_effects import ablate_groups, behaviour_of
from headscope.studies.ablate.ablation_text import (
    AblationText,
    minimal_pairs,
    near_and_away,
    repeats,
)
from headscope.studies.ablate.edges import QUERIES, nothing, silence_edges, tags_of
from headscope.studies.ablate.groups import Group, choose_groups, norms_of
from headscope.studies.ablate.head_writes import head_writes
from headscope.studies.ablate.query_rerun import QueryRerunner

REPEATS, PAIRS, TEXT_TOKENS, TEXT_LENGTH, SENTENCES = 16, 128, 4_096, 128, 48
NORM_TOKENS = 1_024
"""Tokens of text on which it is measured how much each head writes."""
ONLY = ("both", "heads", "edges")
"""Things to silence: heads, the edges that tags speak of, or both."""


class AblateOptions(Again, total=False):
    """Options of `ablate` about what is silenced, and where the model is."""

    only: Annotated[str, NAME, Default("both", "Ablate heads, edges or both.")]
    queries: Annotated[int, Default(QUERIES, "Most queries at which a tag is tested.")]


@takes(run=A_RUN)
def ablate(
    run: Result | str | Path,
    *,
    heads: str = "tagged",
    how: str = "mean",
    pairs: str | Path | Sequence[str | Path] | None = None,
    seed: int = 0,
    corpus: str | Path | Sequence[str | Path] | None = None,
    progress: Progress = True,
    **options: Unpack[AblateOptions],
) -> Ablation:
    """Silence heads of a run's model, and the edges that their tags speak of; see `causes.judged`.

    Heads are silenced to measure what their types predict (`ablate_groups`). Edges are silenced one
    tag at a time, at the tag's own queries (`silence_edges`).

    Args:
        run: a run or its folder, whose model is loaded again.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        how: `mean`, `zero` or `resample`.
        pairs: minimal pairs in BLiMP's format for syntax, instead of the built-in ones.
        seed: seeds stimuli, controls and intervals.
        corpus: files or folders of text; those of the run when None.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the steps done and in all.
        options: `only`, to silence `heads` or `edges` alone; `queries`, at how many queries each
            tag is tested at most, 48 by default; `source`, the run's model, or
            where it is now if it is not where it was; `device`, `cpu`, `cuda`, …, where `auto`, the
            default, takes a GPU when there is one.

    Raises:
        ChoiceError: no such way to silence a head, or no such thing to silence.
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: a file of pairs or the run's text cannot be read.
        HeadscopeError: no such head, or none tagged.
    """
    only, queries = options.pop("only", "both"), options.pop("queries", QUERIES)
    if how not in WAYS_TO_SILENCE:
        raise ChoiceError("way to ablate", how, WAYS_TO_SILENCE)
    if only not in ONLY:
        raise ChoiceError("thing to silence", only, ONLY)
    run = the_run(run)
    chosen_heads(run, heads)
    minimal = [pair for path in listed(pairs) for pair in read_minimal_pairs(Path(path))]
    corpora = text_of(run, corpus, seed=seed)
    again: Again = options  # what is left of them
    with progress_bar(progress, "silencing", unit="steps") as bar:
        model = model_of(run, longest=LENGTH, **again)
        if only == "edges":
            refuse_encoder(model, "ablate --only edges")
        reading = _Reading(run, model, corpora, seed, bar)
        tables = []
        if only != "edges":
            tables.append(_heads(reading, heads, minimal, how))
        if only in ("both", "edges"):
            tables.append(_edges(reading, heads, queries, must=only == "edges"))
    causes = judged(pd.concat(tables, ignore_index=True), _writers(run))
    return Ablation.of(run, causes)


class _Reading(NamedTuple):
    """A run with its model, and the text of both."""

    run: Result
    model: Model
    corpora: Sequence[str | Path]
    seed: int
    progress: OnProgress


def _heads(
    reading: _Reading, heads: str, pairs: Sequence[MinimalPair], method: str
) -> pd.DataFrame:
    """Effects of silencing whole heads, each group compared with others like it."""
    run, model, corpora, seed, progress = reading
    rerunner = Rerunner(model)
    length = min(TEXT_LENGTH, model.context)
    read = {"max_tokens": NORM_TOKENS, "max_length": length, "seed": seed}
    norms = norms_of(head_writes(rerunner, list(TextWindows(corpora, model.tokenizer, **read))))
    groups = choose_groups(run, heads, norms, seed=seed)
    stimuli = _stimuli(reading, rerunner.score, groups, pairs)
    return ablate_groups(rerunner, stimuli, groups, method=method, seed=seed, progress=progress)


def _edges(reading: _Reading, heads: str, queries: int, *, must: bool) -> pd.DataFrame:
    """Effects of silencing the edges of each tag; a table of reasons where that is impossible."""
    run, model, corpora, seed, progress = reading
    tagged = tags_of(run.evidence, chosen_heads(run, heads))
    tags = [tag for tag in tagged if tag.name not in RESTING_PLACES]
    tested = {name for tag in tags for name in tag.relations}
    relations = [relation for relation in relations_of([*head_types()]) if relation.id in tested]
    try:
        runner = QueryRerunner(model)
    except ModelError:
        if must:
            raise
        reason = "this model mixes tokens by more"
        if not model.attention_kind.predicts_next:
            reason = "all tokens of an encoder see each other"
        return pd.DataFrame([nothing(tag, reason) for tag in tags])
    windows = edge_windows(model, corpora, {s for r in relations for s in r.stimuli}, seed=seed)
    measured = silence_edges(runner, windows, tags, seed=seed, queries=queries, progress=progress)
    return pd.DataFrame([effect.row(seed) for effect in measured])


def _writers(run: Result) -> set[Head]:
    """The heads that are tagged by what they write, where the run asked for that."""
    if run.effects is None:
        return set()
    tagged = run.effects[run.effects["tagged"].astype(bool)]
    return {(int(row.layer), int(row.head)) for row in tagged.itertuples()}


def _stimuli(
    reading: _Reading, score: Score, groups: Sequence[Group], pairs: Sequence[MinimalPair]
) -> list[AblationText]:
    _, model, corpora, seed, _ = reading
    types = {group.type: behaviour_of(group.type, score) for group in groups}
    length = min(TEXT_LENGTH, model.context)
    stimuli: list[AblationText] = []
    if REPEAT.name in types.values():
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = repeat_windows(vocabulary, model.tokenizer, max_length=length, seed=seed + 1)
        stimuli.append(repeats(windows[:REPEATS]))
    if "agreement" in types.values():
        agreement = pairs or agreement_pairs(PAIRS, seed=seed)
        stimuli.append(minimal_pairs("agreement", agreement, model.tokenizer))
    if "pronoun" in types.values():
        stimuli.append(minimal_pairs("pronoun", anaphor_pairs(PAIRS, seed=seed), model.tokenizer))
    near = partial(near_and_away, score=score, mask=model.tokenizer.mask)
    if relations := _relations_near(reading, types, TEXT.name):
        read = {"max_tokens": TEXT_TOKENS, "max_length": length, "seed": seed + 1}
        text = list(TextWindows(corpora, model.tokenizer, **read))
        stimuli.append(near(TEXT.name, text, relations))
    config = StimulusConfig(model.tokenizer, model.vocabulary_size, length, seed + 1)
    for row in STIMULI.values():
        if row.build is None or not row.ablation_near:
            continue
        if relations := _relations_near(reading, types, row.name):
            windows = list(row.build(config))[:SENTENCES]
            stimuli.append(near(row.name, windows, relations))
    return stimuli


def _relations_near(
    reading: _Reading, types: dict[str, str], stimulus: str
) -> dict[str, list[Relation]]:
    """By type, the tagged relations near whose queries this stimulus is scored."""
    kind = reading.model.attention_kind
    return {
        name: [
            r for r in head_types()[name].relations_of(kind) if r.id in _tagged(reading.run, name)
        ]
        for name, behaviour in types.items()
        if behaviour == stimulus and name in head_types()
    }


def _tagged(run: Result, kind: str) -> set[str]:
    """The relations of a type that some head of the run holds."""
    tagged = run.evidence[run.evidence["tagged"].astype(bool) & (run.evidence["type"] == kind)]
    return set(tagged["type"] + "/" + tagged["relation"]) - {*RESTING_PLACES}
