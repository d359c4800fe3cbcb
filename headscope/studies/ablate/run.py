"""`ablate`: from a run to its table of causes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Unpack

import pandas as pd

from headscope.arguments import NAME, kinds_of, takes, whole
from headscope.corpus.controlled.minimal_pairs import (
    MinimalPair,
    agreement_pairs,
    anaphor_pairs,
    read_pairs,
)
from headscope.errors import ChoiceError, ModelError
from headscope.evidence.causes import judged
from headscope.evidence.result import Result
from headscope.evidence.tags import RESTING_PLACES
from headscope.measure.made import How, plan_made
from headscope.measure.of_each_document import LENGTH, edge_windows
from headscope.measure.stimuli import MOST_DOCUMENTS, TextWindows, plan_repeats
from headscope.models.encoders import refuse_encoder
from headscope.models.load import Model
from headscope.relations import head_types, relations_of
from headscope.relations.relation import Relation
from headscope.runs.listing import Head, chosen_heads
from headscope.runs.named import A_RUN, the_run
from headscope.runs.reload import Again, corpora_of, model_of
from headscope.studies.ablate.at_queries import AtQueries
from headscope.studies.ablate.edges import QUERIES, nothing, silence_edges, tags_of
from headscope.studies.ablate.effects import HOW, ablate_groups, behaviour_of
from headscope.studies.ablate.groups import Group, choose_groups, norms_of
from headscope.studies.ablate.rerun import Rerunner
from headscope.studies.ablate.result import Ablation
from headscope.studies.ablate.stimulus import (
    MADE_NEAR,
    Stimulus,
    minimal_pairs,
    near_and_away,
    repeats,
)
from headscope.studies.ablate.writes import head_writes

REPEATS, PAIRS, TEXT_TOKENS, TEXT_LENGTH, SENTENCES = 16, 128, 4_096, 128, 48
NORM_TOKENS = 1_024
"""Tokens of text on which it is measured how much each head writes."""
ONLY = ("both", "heads", "edges")
"""What is silenced: heads, the edges that tags speak of, or both."""

Progress = Callable[[int, int], None]


class Asked(Again, total=False):
    """What else may be said of what is silenced."""

    only: str
    """`heads`, `edges`, or `both`."""
    queries: int
    """At how many of its queries each tag is tested at most."""


@takes(run=A_RUN, only=NAME, queries=whole(1), **kinds_of(Again))
def ablate(
    run: Result | str | Path,
    *,
    heads: str = "tagged",
    how: str = "mean",
    pairs: str | Path | Sequence[str | Path] = (),
    seed: int = 0,
    corpus: str | Path | Sequence[str | Path] = (),
    progress: Progress = lambda done, total: None,
    **asked: Unpack[Asked],
) -> Ablation:
    """Silence heads of a run's model, and the edges that their tags speak of; see `causes.judged`.

    Heads are silenced to measure what their types predict (`ablate_groups`). Edges are silenced one
    tag at a time, at the tag's own queries (`silence_edges`).

    Args:
        run: a run or its folder, whose model is loaded again.
        heads: `tagged`, `all`, or names such as `L5H1,L6H9`.
        how: `mean`, `zero` or `resample`.
        pairs: files of minimal pairs in BLiMP's format, instead of the built-in ones for syntax.
        seed: seeds stimuli, controls and intervals.
        corpus: files or folders of text; those of the run when empty.
        progress: called with the steps done and in all.
        asked: `only`, to silence `heads` or `edges` alone; `queries`, at how many queries each tag
            is tested at most, 48 by default; `source`, the run's model, or where it is now if it
            is not where it was; `device`, `cpu`, `cuda`, …, where `auto`, the default, takes a GPU
            when there is one.

    Raises:
        ChoiceError: no such way to silence a head, or no such thing to silence.
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: a file of pairs or the run's text cannot be read.
        HeadscopeError: no such head, or none tagged.
    """
    only, queries = asked.pop("only", "both"), asked.pop("queries", QUERIES)
    if how not in HOW:
        raise ChoiceError("way to ablate", how, HOW)
    if only not in ONLY:
        raise ChoiceError("thing to silence", only, ONLY)
    run = the_run(run)
    chosen_heads(run, heads)
    files = [pairs] if isinstance(pairs, str | Path) else pairs
    given = [pair for path in files for pair in read_pairs(Path(path))]
    again: Again = asked  # what is left of it
    model = model_of(run, longest=LENGTH, **again)
    refuse_encoder(model, "ablate")
    corpora = [corpus] if isinstance(corpus, str | Path) else list(corpus)
    reading = _Reading(run, model, corpora or corpora_of(run), seed, progress)
    tables = []
    if only != "edges":
        tables.append(_heads(reading, heads, given, how))
    if only != "heads":
        tables.append(_edges(reading, heads, queries, must=only == "edges"))
    causes = judged(pd.concat(tables, ignore_index=True), _writers(run))
    return Ablation.of(run, causes)


class _Reading(NamedTuple):
    """A run with its model, and what it is asked on."""

    run: Result
    model: Model
    corpora: Sequence[str | Path]
    seed: int
    progress: Progress


def _heads(reading: _Reading, heads: str, given: Sequence[MinimalPair], how: str) -> pd.DataFrame:
    """What silencing whole heads does, each group beside others like it."""
    run, model, corpora, seed, progress = reading
    rerunner = Rerunner(model)
    length = min(TEXT_LENGTH, model.context)
    read = {"max_tokens": NORM_TOKENS, "max_length": length, "seed": seed}
    norms = norms_of(head_writes(rerunner, list(TextWindows(corpora, model.tokenizer, **read)))[0])
    groups = choose_groups(run, heads, norms, seed=seed)
    found = _stimuli(run, model, groups, given, corpora, seed)
    return ablate_groups(rerunner, found, groups, how=how, seed=seed, progress=progress)


def _edges(reading: _Reading, heads: str, queries: int, *, must: bool) -> pd.DataFrame:
    """What silencing the edges of each tag does; a table of reasons where that cannot be asked."""
    run, model, corpora, seed, progress = reading
    tagged = tags_of(run.evidence, chosen_heads(run, heads))
    tags = [tag for tag in tagged if tag.relation not in RESTING_PLACES]
    relations = [each for each in relations_of() if each.id in {tag.relation for tag in tags}]
    try:
        runner = AtQueries(model)
    except ModelError:
        if must:
            raise
        return pd.DataFrame([nothing(tag, "this model mixes tokens by more") for tag in tags])
    windows = edge_windows(model, corpora, {s for r in relations for s in r.stimuli}, seed=seed)
    measured = silence_edges(runner, windows, tags, seed=seed, queries=queries, progress=progress)
    return pd.DataFrame([each.row(seed) for each in measured])


def _writers(run: Result) -> set[Head]:
    """The heads that are tagged by what they write, where the run asked for that."""
    if run.effects is None:
        return set()
    own = run.effects[run.effects["tagged"].astype(bool)]
    return {(int(row.layer), int(row.head)) for row in own.itertuples()}


def _stimuli(
    run: Result,
    model: Model,
    groups: Sequence[Group],
    given: Sequence[MinimalPair],
    corpora: Sequence[str | Path],
    seed: int,
) -> list[Stimulus]:
    types = {group.type: behaviour_of(group.type) for group in groups}
    length = min(TEXT_LENGTH, model.context)
    found: list[Stimulus] = []
    if "repeat" in types.values():
        vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = plan_repeats(vocabulary, model.tokenizer, max_length=length, seed=seed + 1)
        found.append(repeats(windows[:REPEATS]))
    if "agreement" in types.values():
        chosen = given or agreement_pairs(PAIRS, seed=seed)
        found.append(minimal_pairs("agreement", chosen, model.tokenizer))
    if "pronoun" in types.values():
        found.append(minimal_pairs("pronoun", anaphor_pairs(PAIRS, seed=seed), model.tokenizer))
    read = {"max_length": length, "seed": seed + 1}
    if near := _near(run, types, "text"):
        text = TextWindows(corpora, model.tokenizer, max_tokens=TEXT_TOKENS, **read)
        found.append(near_and_away("text", list(text), near))
    for stimulus in MADE_NEAR:
        if near := _near(run, types, stimulus):
            how = How(model.tokenizer, model.vocabulary_size, length, seed + 1, MOST_DOCUMENTS)
            sentences = plan_made({stimulus}, how)[:SENTENCES]
            found.append(near_and_away(stimulus, sentences, near))
    return found


def _near(run: Result, types: dict[str, str], stimulus: str) -> dict[str, list[Relation]]:
    """By type, the tagged relations near whose queries this stimulus is predicted."""
    return {
        name: [r for r in head_types()[name].relations if r.id in _tagged(run, name)]
        for name, where in types.items()
        if where == stimulus and name in head_types()
    }


def _tagged(run: Result, kind: str) -> set[str]:
    """The relations of a type that some head of the run holds."""
    own = run.evidence[run.evidence["tagged"].astype(bool) & (run.evidence["type"] == kind)]
    return set(own["type"] + "/" + own["relation"]) - {*RESTING_PLACES}
