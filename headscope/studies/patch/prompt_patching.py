"""`patch`: what single heads, and single edges of them, do on one prompt."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby, product
from pathlib import Path
from typing import Annotated, Unpack

import numpy as np
import pandas as pd

from headscope.arguments import CALL, TEXT, Default, maybe, takes, whole
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.heads import head_name
from headscope.measure.progress import Progress, progress_bar
from headscope.measure.progress_steps import Steps
from headscope.models.load import Model
from headscope.models.model_kinds import refuse_encoder
from headscope.models.rerun import Rerunner
from headscope.relations import relations_of
from headscope.relations.relation import targets_of
from headscope.runs.listing import Head, selected_heads
from headscope.runs.reopen_model import Again, model_of
from headscope.runs.resolve import A_RUN, the_run
from headscope.statistics.result import Result
from headscope.stimuli.text import TEXT as TEXT_STIMULUS
from headscope.studies.patch.patch_result import COLUMNS, Patching
from headscope.studies.patch.prompt_runs import (
    LogitDifference,
    Metric,
    Patch,
    PromptPair,
    likeliest_next,
    single_token,
)
from headscope.views.show import check_unicode, text_window

EDGE_HEADS = 10
"""Heads whose edges are patched: those with the largest effects."""
LEAST_GAP = 1e-4
"""Least difference of the metric between the prompts, as a share of its larger value: shares of a
smaller one would be rounding."""
LEAST_EFFECT = 0.05
"""Share of the difference from which on it is said whether a part carries the answer; ours."""
CARRIED = 0.75
"""Share of its effect that a part which carries the answer must keep with the third prompt; ours. A
part that knows the words of both others alone, and is silent after the third, keeps half of it."""


class PatchOptions(Again, total=False):
    """Options of `patch` about what is measured, and where the model is."""

    answer: Annotated[str | None, maybe(TEXT), Default(None)]
    """The token, with its space, that should follow the clean prompt; the model's own when None."""
    wrong: Annotated[str | None, maybe(TEXT), Default(None)]
    """The token that should follow the corrupt prompt; the model's own when None."""
    metric: Annotated[Metric | None, maybe(CALL), Default(None)]
    """A function of logits `[1, position, vocabulary]` instead of the logit difference."""
    same_answer: Annotated[str | None, maybe(TEXT), Default(None)]
    """A third prompt of as many tokens that leads to the clean one's answer by other words."""


@takes(run=A_RUN, clean=TEXT, corrupt=TEXT, edges=whole(0))
def patch(
    run: Result | str | Path,
    *,
    clean: str,
    corrupt: str,
    heads: str = "tagged",
    edges: int = 8,
    progress: Progress = True,
    **options: Unpack[PatchOptions],
) -> Patching:
    """Exchange heads, and edges of them, between a clean and a corrupt prompt.

    This is activation patching. Each head is taken from the other prompt by itself: its output at
    every token, and then its attention alone. So are single edges (a query and a key) of the heads
    with the largest effects. Denoising runs the corrupt prompt and says what a part restores;
    noising runs the clean one and says what is lost.

    Args:
        run: a run or its folder, whose model is loaded again.
        clean: a prompt whose next token is of interest.
        corrupt: a prompt of as many tokens that leads to another next token.
        heads: `tagged`, `all`, a type or a relation of tags, or names such as `L5H1,L6H9`.
        edges: most edges of a head; 0 for none. They are those that carry the most different
            things in the two prompts.
        progress: True for a bar where a person waits, False for none, or a function that is called
            with the patches done and in all.
        options: `answer` and `wrong`, the tokens whose logits are compared after the last token, by
            default those that the model finds likeliest after each prompt; `metric`, a function of
            logits `[1, position, vocabulary]` instead; `same_answer`, a third prompt, by which it
            is said of each part whether it carries the answer or the clean prompt's words;
            `source` and `device`, as for `ablate`.

    Raises:
        HeadscopeError: the prompts differ in their numbers of tokens, or nowhere; the metric is the
            same for both, or for the third not much like the clean one's; a word is several
            tokens; no such head, or none is tagged.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
    """
    run = the_run(run)
    places = selected_heads(run, heads)
    words = [options.pop("answer", None), options.pop("wrong", None)]
    third = options.pop("same_answer", None)
    prompts = {"clean": clean, "corrupt": corrupt}
    if third is not None:
        prompts["same-answer"] = third
    for typed in (*prompts.values(), *words):
        check_unicode(typed or "")
    metric = options.pop("metric", None)
    if metric is not None and any(words):
        raise HeadscopeError("a metric reads the logits itself: leave out answer and wrong")
    again: Again = options  # what is left of them
    with progress_bar(progress, "patching", unit="patches") as bar:
        model = model_of(run, **again)
        refuse_encoder(model, "study patch")
        rerunner = Rerunner(model)
        windows = _prompts(model, prompts)
        names: tuple[str, ...] = ()
        if metric is None:
            compared = _compared(rerunner, windows[:2], words)
            metric, names = LogitDifference(*compared), tuple(model.tokenizer.spell(compared))
        pair = PromptPair.of(rerunner, windows, metric, sorted({layer for layer, _ in places}))
        _check_gap(pair)
        if pair.same_answer is not None:
            _check_same_answer(pair, pair.same_answer.metric)
        reruns = 4 if pair.same_answer is None else 6
        steps = Steps(bar, reruns * (len(places) + min(EDGE_HEADS, len(places)) * edges))
        table = _table(run, pair, windows[0], places, edges, steps)
    same = None if pair.same_answer is None else pair.same_answer.metric
    return Patching(model.name, table, pair.clean.metric, pair.corrupt.metric, names, same)


def _prompts(model: Model, prompts: Mapping[str, str]) -> list[Window]:
    """The prompts in order, each of as many tokens as the others and different from them."""
    windows = {name: text_window(model, prompt) for name, prompt in prompts.items()}
    for (name, first), (other_name, second) in combinations(windows.items(), 2):
        one, other = first.tokens, second.tokens
        if len(one) != len(other):
            apart = next(
                (i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b),
                min(len(one), len(other)) - 1,
            )
            pieces = ["".join(window.strings[apart : apart + 4]) for window in (first, second)]
            raise HeadscopeError(
                f"the {name} prompt has {len(one)} tokens and the {other_name} one {len(other)}; "
                f"patches go from a token to the one in the same place, so both need as many. They "
                f"differ from {pieces[0]!r} and {pieces[1]!r} on"
            )
        if (one == other).all():
            raise HeadscopeError(
                f"the {name} and the {other_name} prompt are the same tokens: there is nothing to "
                "exchange"
            )
    return list(windows.values())


def _compared(
    rerunner: Rerunner, windows: Sequence[Window], words: Sequence[str | None]
) -> list[int]:
    """The two tokens whose logits are compared: those that were named, or the model's own."""
    tokens = [
        likeliest_next(rerunner, window)
        if word is None
        else single_token(rerunner.model, word, option)
        for word, window, option in zip(words, windows, ("answer", "wrong"), strict=True)
    ]
    if tokens[0] == tokens[1]:
        (token,) = rerunner.model.tokenizer.spell(tokens[:1])
        raise HeadscopeError(
            f"answer and wrong are both {token!r}, so that their logits do not differ; where a "
            "token is not given it is the model's likeliest: give both with --answer and --wrong"
        )
    return tokens


def _check_gap(pair: PromptPair) -> None:
    """Refuse prompts that the metric does not tell apart."""
    one, other = pair.clean.metric, pair.corrupt.metric
    gap, size = abs(one - other), max(abs(one), abs(other))
    if not np.isfinite(gap) or gap <= LEAST_GAP * size or gap == 0:
        raise HeadscopeError(
            f"the metric is {one:.6g} for the clean prompt and {other:.6g} for the corrupt one: "
            "there is no difference of which a head could restore a share"
        )


def _check_same_answer(pair: PromptPair, metric: float) -> None:
    """Refuse a third prompt after which the metric is not much like the clean one's."""
    share = (metric - pair.corrupt.metric) / (pair.clean.metric - pair.corrupt.metric)
    if not share >= CARRIED:
        raise HeadscopeError(
            f"the metric is {metric:.6g} for the same-answer prompt, {pair.clean.metric:.6g} for "
            f"the clean one and {pair.corrupt.metric:.6g} for the corrupt one: the model does not "
            "give it the clean prompt's answer; another prompt with that answer would do"
        )


def _table(
    run: Result,
    pair: PromptPair,
    window: Window,
    places: Sequence[Head],
    edges: int,
    steps: Steps,
) -> pd.DataFrame:
    """A row per head, then a row per edge of the heads with the largest effects."""
    heads = _effects(pair, [Patch(*head) for head in places], steps)
    largest = heads[["recovered", "lost"]].abs().max(axis=1).sort_values(ascending=False)
    strongest = [places[row] for row in sorted(largest.index[:EDGE_HEADS])] if edges else []
    patches = [
        Patch(layer, head, *cell)
        for layer, head in strongest
        for cell in _edges_of(pair, layer, head, edges)
    ]
    table = pd.concat([heads, _effects(pair, patches, steps)], ignore_index=True)
    table["tags"] = [
        run.heads.loc[head_name(row.layer, row.head), "tags"] for row in table.itertuples()
    ]
    for column in ("query", "key"):
        table[f"{column}_token"] = [
            "" if pd.isna(at) else window.strings[int(at)] for at in table[column]
        ]
    held = {head: _cells_of_tags(run, head, window) for head in strongest}
    table["relation"] = [
        ";".join(held.get((row.layer, row.head), {}).get((row.query, row.key), ()))
        for row in table.itertuples()
    ]
    return table[COLUMNS]


def _effects(pair: PromptPair, patches: Sequence[Patch], steps: Steps) -> pd.DataFrame:
    """The reruns of each patch, in the order of the patches."""
    numbers = {
        (denoise, attention_only): _reruns(
            pair, patches, steps, denoise=denoise, attention_only=attention_only
        )
        for denoise, attention_only in product((True, False), (False, True))
    }
    table = pd.DataFrame(patches, columns=Patch._fields).astype({"query": "Int64", "key": "Int64"})
    clean, corrupt = pair.clean.metric, pair.corrupt.metric
    table.insert(0, "kind", np.where(table["query"].isna(), "head", "edge"))
    for denoise, name, share in ((True, "denoised", "recovered"), (False, "noised", "lost")):
        start = corrupt if denoise else clean
        whole_value, attention_value = (
            np.array(numbers[denoise, attention_only], float) for attention_only in (False, True)
        )
        gap = (clean - corrupt) if denoise else (corrupt - clean)
        table[name] = whole_value
        table[share] = (whole_value - start) / gap
        table[f"attention_{share}"] = (attention_value - start) / gap
    return _with_same_answer(table, pair, patches, steps)


def _reruns(
    pair: PromptPair,
    patches: Sequence[Patch],
    steps: Steps,
    *,
    denoise: bool,
    attention_only: bool = False,
) -> list[float]:
    """The metric with each patch by itself."""
    values: list[float] = []
    for _, rows in groupby(patches, key=lambda patch: patch.layer):
        for batch in _batches(list(rows), pair.rows_at_once):
            values += pair.patched(batch, denoise=denoise, attention_only=attention_only)
            steps.advance(len(batch))
    return values


def _with_same_answer(
    table: pd.DataFrame, pair: PromptPair, patches: Sequence[Patch], steps: Steps
) -> pd.DataFrame:
    """The table with what each part of the third prompt does in the corrupt and the clean one."""
    third, clean, corrupt = pair.same_answer, pair.clean, pair.corrupt
    if third is None:
        return table.assign(same_recovered=np.nan, same_lost=np.nan, carries_answer="")
    gap = clean.metric - corrupt.metric
    into_corrupt = _reruns(replace(pair, clean=third), patches, steps, denoise=True)
    into_clean = _reruns(replace(pair, corrupt=third), patches, steps, denoise=False)
    table["same_recovered"] = (np.array(into_corrupt, float) - corrupt.metric) / gap
    table["same_lost"] = (clean.metric - np.array(into_clean, float)) / gap
    restores, costs = table["recovered"] >= LEAST_EFFECT, table["lost"] >= LEAST_EFFECT
    brings = table["same_recovered"] >= CARRIED * table["recovered"]
    keeps = table["same_lost"] <= (1 - CARRIED) * table["lost"]
    carries = (~restores | brings) & (~costs | keeps)
    words = np.where(carries, "yes", "no")
    return table.assign(carries_answer=np.where(restores | costs, words, ""))


def _batches(patches: Sequence[Patch], size: int) -> Iterator[Sequence[Patch]]:
    for start in range(0, len(patches), size):
        yield patches[start : start + size]


def _edges_of(pair: PromptPair, layer: int, head: int, limit: int) -> list[tuple[int, int]]:
    """The edges of a head that carry the most different things; none that carry the same."""
    change = pair.carried_change(layer, head)
    values, cells = change.flatten().sort(descending=True, stable=True)
    length = change.shape[1]
    best = cells[: int((values[:limit] > 0).sum())].tolist()
    return [divmod(cell, length) for cell in best]


def _cells_of_tags(run: Result, head: Head, window: Window) -> dict[tuple[int, int], list[str]]:
    """By cell of the clean prompt the relations that hold it, of the types of a head's tags."""
    rows = run.evidence[run.evidence["tagged"].astype(bool)]
    rows = rows[(rows["layer"] == head[0]) & (rows["head"] == head[1])]
    cells: dict[tuple[int, int], list[str]] = {}
    for relation in relations_of():
        if relation.type in set(rows["type"]) and TEXT_STIMULUS.name in relation.stimuli:
            targets = targets_of(relation, window)
            for cell in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
                cells.setdefault(cell, []).append(relation.id)
    return cells
