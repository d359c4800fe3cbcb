"""Ablation: the effects of ablating a run's heads, and of knocking out the edges of their tags.

`headscope.statistics.causes.BEHAVIOURS` describes what is measured when a head is ablated. An
encoder's heads are tested at the queries of their relations: by the log-probability of masked
tokens, or, without a head for masked tokens, by how far the last state moves.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import log
from textwrap import shorten
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy import ndarray
from pydantic import Field

from headscope.causal.head_set import by_distance, mean_outputs, output_norms
from headscope.causal.intervention import HeadsSet
from headscope.causal.rerun import CleanRun, Rerunner, Score, TokenRows
from headscope.corpus.window import Window
from headscope.errors import RunError
from headscope.heads import head_name
from headscope.models.stream import batch_tokens_on, in_batches, padded_tokens
from headscope.options import Device, Heads, Positive, RunCorpus, Seed, Source
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.resolve import RunName, model_of, text_of, the_run
from headscope.runs.listing import ALL_HEADS, Head, selected_heads, tagged_types
from headscope.statistics.causes import AWAY, COMPETENT, UNTESTED, judged
from headscope.statistics.ratio import estimate
from headscope.statistics.result import Result
from headscope.studies.ablate_edges import QUERIES, edge_effects, tags_of
from headscope.studies.ablate_texts import (
    AblationText,
    ItemScore,
    ablation_texts,
    near_behaviour,
    short_windows,
)
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Bars
from headscope.views.study_result import StudyResult

CONTROLS = 5
"""Heads that each head is compared with; with fewer there is no verdict."""
TERMINAL = [
    *("layer", "head", "type", "relation", "behaviour", "effect", "ci_low", "ci_high", "control"),
    *("q_value", "direction", "verdict"),
]
DIRECTIONS = (
    "direction: an effect of a head below 0 is harm; an effect of a tag is a divergence, always "
    "above 0, and a loss of the next token beyond the control's is harm"
)
NORM_TOKENS = 1_024
"""Tokens on which the norms of heads' outputs are measured."""


STUDY = Study(
    command=Command(
        group="top",
        summary="Measure what breaks without heads.",
        examples=(
            "headscope ablate runs/mini --only edges",
            "headscope ablate runs/mini --heads L5H3 --how zero",
        ),
        out="Write the table to this .csv file, too or instead if the run cannot be written.",
    ),
    rows="head × behaviour, then a row per tag",
    columns=table_columns("""
        kind | `head` or `tag` | the whole head, or the edges of one tag
        layer, head | count, ≥ 0 | layer of the head, and its number there
        type | a head type | type that the head is tagged with
        behaviour | `repeat`, `agreement`, `pronoun`, `near`, `away` or `edges`; of an encoder
            `masked-near`, `masked-away`, `state-near` or `state-away` | measured at repeated
            tokens, the agreeing verb or pronoun, tokens after the relation's queries (`near`), all
            others (`away`), or a tag's queries (`edges`); in encoders by masks or last states
        how | `mean`, `zero` or `to the sink` | replaced the output, or for a tag took its attention
        n | predictions, ≥ 0 | tokens or pairs measured; for a tag, its queries
        clean | nats | mean log-probability per token, or log-odds of a pair, of the whole model
        ablated | nats | the same with the head ablated, or the edges knocked out
        effect | nats | `ablated` − `clean`; for a tag KL divergence of the next-token distribution
        ci_low, ci_high | nats | ends of the effect's 95 % interval
        control | nats | mean effect of matched heads without the type; for a tag the divergence if
            as much other attention of its layer is moved
        control_low, control_high | nats | range of these heads; for a tag its 95 % interval
        relation | a relation's name | the tag's relation or general label; empty for heads
        moved | share, 0 to 1 | for a tag: mean attention that was moved, over its queries
        excess | nats | effect − control
        excess_low, excess_high | nats | ends of its 95 % interval over windows, pairs or documents
        times | ratio, > 0 | for a tag: geometric mean of the divergence divided by the control's
        times_low, times_high | ratio, > 0 | ends of its 95 % interval
        loss | nats | for a tag: decrease of the log-probability of the token that follows
        loss_excess | nats | that decrease minus the control's
        loss_low, loss_high | nats | ends of its 95 % interval over blocks
        q_value | 0 to 1 | one-sided test that the effect exceeds the control's, Benjamini–Hochberg
            over the table; for a tag twice the smaller p of the tests on `times` and `loss_excess`
        verdict | text | `causal effect`, `direct effect alone`, `no effect detected`, or
            `not tested: ` with the reason; empty for `away`, `masked-away` and `state-away`
        direction | `harm`, `help` or `unclear` | for a head the side of 0 of its interval, where an
            effect below 0 is harm; for a tag that of `loss_low` and `loss_high`, above 0 is harm
    """),
    figure=Bars(values=("effect", "control"), labels=("type", "relation", "behaviour")),
    bad_call={"how": "median"},
)


@study(STUDY)
def ablate(
    run: RunName,
    *,
    heads: Heads = "tagged",
    how: Annotated[
        Literal["mean", "zero"], Field(description="Replace outputs by their mean or by zero.")
    ] = "mean",
    only: Annotated[
        Literal["both", "heads", "edges"],
        Field(description="Ablate heads, move the attention of their tags (edges), or both."),
    ] = "both",
    queries: Annotated[
        Positive, Field(description="Maximum number of queries at which a tag is tested.")
    ] = QUERIES,
    seed: Seed = 0,
    corpus: RunCorpus = None,
    progress: Progress = True,
    source: Source = None,
    device: Device = "auto",
) -> StudyResult:
    """Measure the effects of ablating heads, and of knocking out the edges of their tags.

    `headscope.statistics.causes.judged` describes the verdicts.

    Raises:
        RunError: the run has no model, or its weights have changed.
        ModelError: the model cannot be loaded or intervened on.
        CorpusError: the run's text cannot be read.
        HeadscopeError: no such head, none tagged, or a head without a tag whose edges alone are to
            be knocked out.
    """
    # heads and edges are chosen before the model loads
    run = the_run(run)
    selection = selected_heads(run, heads)
    check_testable(run, heads, selection, only=only)
    corpora = text_of(run, corpus, seed=seed)
    tables = []
    with progress_bar(progress, "ablating", unit="steps") as bar:
        model = model_of(run, source=source, device=device)
        if only != "edges":
            # heads beside similar ones, on the text that shows what their types do
            # controls are heads of similar depth and size of output, because a head that writes
            # more breaks more
            rerunner = Rerunner(model)
            windows = short_windows(model, corpora, NORM_TOKENS, seed)
            norms = output_norms(rerunner, clean_runs(rerunner, windows))
            tested = heads_with_controls(run, heads, norms)
            types = {head.type for head in tested}
            texts = ablation_texts(run, model, corpora, types, rerunner.score, seed)
            table = ablate_heads(rerunner, texts, tested, method=how, seed=seed, progress=bar)
            tables.append(table)
        if only != "heads":
            tags = tags_of(run.evidence, selection)
            table = edge_effects(model, corpora, tags, queries=queries, seed=seed, progress=bar)
            tables.append(table)
    # each effect with its verdict
    direct = run.heads[run.heads["direct_effects"].fillna("") != ""]
    direct_heads = set(zip(direct["layer"], direct["head"], strict=True))
    causes = judged(pd.concat(tables, ignore_index=True), direct_heads)
    tests = causes[~causes["behaviour"].isin(AWAY)]
    return StudyResult(
        title=f"{run.name}: effects of ablating heads and of knocking out the edges of tags, nats",
        table=causes,
        terminal_table=tests[TERMINAL],
        notes=[DIRECTIONS],
        draw=partial(STUDY.draw, table=tests),
    )


def check_testable(run: Result, heads: str, selection: Sequence[Head], *, only: str) -> None:
    """Refuse heads that no test applies to, by their names.

    Raises:
        RunError: such a head was selected by its name or its tag, or no head can be tested.
    """
    tags = [] if only == "heads" else tags_of(run.evidence, selection)
    with_edges = {(tag.layer, tag.head) for tag in tags}
    has_behaviours = only != "edges" and bool(tagged_types(run))
    untestable = [head for head in selection if not has_behaviours and head not in with_edges]
    # of all heads those that can be tested are; heads that were named must all be testable
    is_partial = heads == ALL_HEADS and len(untestable) < len(selection)
    if not untestable or is_partial:
        return
    names = shorten(", ".join(head_name(*head) for head in untestable), 200)
    if only == "edges":
        reason = "no tag whose edges can be knocked out; --only heads ablates them"
    else:
        reason = "no test, because no head of this run has a tag other than a sink"
    raise RunError(f"{names}: {reason}")


class HeadOfType(NamedTuple):
    """A head that is ablated as one of a type."""

    head: Head
    type: str
    controls: tuple[Head, ...]
    """Heads without the type that are most similar in depth and output norm."""


def heads_with_controls(run: Result, heads: str, norms: Mapping[Head, float]) -> list[HeadOfType]:
    """Heads to ablate, each for every type that it is tagged with; see `selected_heads`.

    Untagged heads are tested for all types that some head of the run is tagged with.
    """
    types = tagged_types(run)
    rows = []
    for head in selected_heads(run, heads):
        of_head = [name for name, members in types.items() if head in members]
        for name in of_head or sorted(types):
            pool = [other for other in norms if other not in types[name] and other != head]
            nearest = by_distance(head, pool, norms)[:CONTROLS]
            rows.append(HeadOfType(head, name, tuple(nearest)))
    return rows


def clean_runs(rerunner: Rerunner, windows: Sequence[Window]) -> Iterator[CleanRun]:
    """Untouched runs of windows, the longest first."""
    device = rerunner.model.device
    nothing = torch.zeros(0, dtype=torch.long)
    by_length = sorted(windows, key=len, reverse=True)
    for batch in in_batches(by_length, batch_tokens_on(device)):
        tokens = padded_tokens(batch).to(device)
        lengths = torch.tensor([len(window) for window in batch])
        yield rerunner.clean(TokenRows(tokens, lengths, nothing, nothing))


def ablate_heads(
    rerunner: Rerunner,
    texts: Sequence[AblationText],
    heads: Sequence[HeadOfType],
    *,
    method: str,
    seed: int,
    progress: OnProgress = lambda done, total: None,
) -> pd.DataFrame:
    """Ablate each head; a row of the table of causes per head × behaviour, yet without a verdict.

    `verdict` has the reason why there will be none: the clean model is not above chance (an even
    choice of a pair, or one token of the vocabulary), or there are too few controls.
    """
    # each text shows the behaviour of some types, at which their heads are ablated
    tests = [_TextTests.of(text, heads) for text in texts]
    steps = Steps(progress, sum(len(test.ablated) for test in tests))
    rows = []
    scored: set[HeadOfType] = set()
    for test in tests:
        scores = _scores(rerunner, test.text, test.ablated, method)
        steps.advance(len(test.ablated))
        for head, score in test.pairs:
            scored.add(head)
            row = _row(head, score, scores, seed)
            chance = -log(rerunner.model.vocabulary_size) if score.per_term else 0.0
            above_chance = row.pop("clean_low") > chance + COMPETENT
            # the distance of a clean state from itself is 0
            able = above_chance or rerunner.score is Score.STATE
            rows.append(row | {"how": method, "verdict": _reason(head, able=able)})
    # every head has a row, so that none is missing without a reason
    near = near_behaviour(rerunner.score)
    for head in heads:
        if head not in scored:
            # the text has no prediction for the type of this head
            rows.append(
                {
                    "kind": "head",
                    "layer": head.head[0],
                    "head": head.head[1],
                    "type": head.type,
                    "behaviour": near,
                    "n": 0,
                    "relation": "",
                    "p_value": np.nan,
                    "verdict": f"{UNTESTED}: the text has no prediction for this type",
                }
                | {"how": method}
            )
    return pd.DataFrame(rows)


@dataclass(frozen=True, eq=False)
class _TextTests:
    """A text, and the heads that are tested on it."""

    text: AblationText
    pairs: Sequence[tuple[HeadOfType, ItemScore]]
    """Heads, each with a score that its type is tested by."""

    @classmethod
    def of(cls, text: AblationText, heads: Sequence[HeadOfType]) -> _TextTests:
        """The tests of those heads whose type the text shows."""
        pairs = []
        for head in heads:
            pairs += [(head, score) for score in text.scores if head.type in score.types]
        return cls(text, pairs)

    @property
    def ablated(self) -> list[Head]:
        """The tested heads and their controls, each once."""
        heads: set[Head] = set()
        for tested, _ in self.pairs:
            heads |= {tested.head, *tested.controls}
        return sorted(heads)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Scores of a text's predictions."""

    clean: Float[ndarray, " prediction"]
    """Values of the untouched model."""
    without: Mapping[Head, Float[ndarray, " prediction"]]
    """Values with each head ablated."""


def _scores(rerunner: Rerunner, text: AblationText, heads: Sequence[Head], method: str) -> _Scores:
    # each head replaced by its mean output over these texts, or by 0
    batches = list(text.batches(rerunner.model.device))
    values = mean_outputs(rerunner, batches)
    if method == "zero":
        values = {layer: torch.zeros_like(mean) for layer, mean in values.items()}
    # scores of the same predictions, so that each change is a difference of pairs
    clean_parts: list[torch.Tensor] = []
    parts: dict[Head, list[torch.Tensor]] = {head: [] for head in heads}
    # batch by batch, as the streams of all would not fit into memory
    for rows in batches:
        clean = rerunner.clean(rows)
        clean_parts.append(rerunner.scores(clean))
        for layer, head in heads:
            value = values[layer][:, [head]]
            without_head = HeadsSet({layer: [head]}, {layer: value})
            parts[layer, head].append(rerunner.scores(clean, without_head))
    return _Scores(
        clean=_joined(clean_parts),
        without={head: _joined(of_head) for head, of_head in parts.items()},
    )


def _joined(parts: Sequence[torch.Tensor]) -> ndarray:
    return torch.cat(list(parts)).double().cpu().numpy()


def _reason(head: HeadOfType, *, able: bool) -> str:
    """The reason why there is no verdict; empty if there can be one."""
    if not able:
        return f"{UNTESTED}: the model cannot do it"
    if len(head.controls) < CONTROLS:
        return f"{UNTESTED}: fewer than {CONTROLS} heads to compare with"
    return ""


def _row(
    head: HeadOfType,
    score: ItemScore,
    scores: _Scores,
    seed: int,
) -> dict[str, Any]:
    # the change by this head, beside that by random heads of its layer
    before = score.sums(scores.clean)
    counts = score.counts
    lost = score.sums(scores.without[head.head]) - before
    others = [score.sums(scores.without[control]) - before for control in head.controls]
    effect = estimate(lost, counts, seed=seed)
    effects = [float(control.sum() / counts.sum()) for control in others]
    beyond = np.full(len(lost), np.nan)
    if others:
        beyond = lost - np.mean(others, 0)
    # a loss is below 0
    excess = estimate(-beyond, counts, seed=seed)
    # a model that cannot do it without ablation has nothing to lose
    untouched = estimate(before, counts, seed=seed)
    return {
        "kind": "head",
        "layer": head.head[0],
        "head": head.head[1],
        "type": head.type,
        "behaviour": score.behaviour,
        "n": int(counts.sum()),
        "clean": untouched.mean,
        "clean_low": untouched.low,
        "ablated": untouched.mean + effect.mean,
        "effect": effect.mean,
        "ci_low": effect.low,
        "ci_high": effect.high,
        "control": np.mean(effects) if effects else np.nan,
        "control_low": min(effects, default=np.nan),
        "control_high": max(effects, default=np.nan),
        "relation": "",
        "excess": -excess.mean,
        "excess_low": -excess.high,
        "excess_high": -excess.low,
        "p_value": excess.p_value,
    }
