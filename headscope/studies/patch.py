"""Activation patching of single heads and edges between two prompts.

A patch takes one head, or one edge (a cell of its pattern), from the other prompt: either whole
(the head's output, or the attention of the edge times the value there), or its attention alone, so
that the values stay those of the prompt that runs. A task is a list of pairs of prompts; its shares
are means over the pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Annotated, Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from pydantic import Field
from scipy.special import stdtrit

from headscope.causal.prompt_pair import Patch, PromptPair, likeliest_next
from headscope.causal.rerun import Rerunner
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.heads import head_name
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.models.text_window import text_window
from headscope.options import Device, Flag, Heads, NonNegative, Source
from headscope.progress import OnProgress, Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.relations.relation import targets_of
from headscope.resolve import RunName, model_of, the_run
from headscope.runs.listing import Head, selected_heads
from headscope.runs.recorded_paths import name_of
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import TEXT as TEXT_STIMULUS
from headscope.stimuli.tasks import OptionalTask, Task, TaskRow, read_task
from headscope.studies.study import Study, study, table_columns
from headscope.studies.study_table import Command
from headscope.views.study_figure import Bars
from headscope.views.study_result import StudyResult

EDGE_HEADS = 10
LEAST_GAP = 1e-4
LISTED = 12
FEWEST_PAIRS = 8
"""Fewest pairs of a task that the model must distinguish."""
SHARES = ["recovered", "attention_recovered", "lost", "attention_lost"]
NEIGHBOURS = 8
"""Tokens shown before and after the first difference of two prompts."""
Token = Annotated[str, Field(min_length=1)]


STUDY = Study(
    command=Command(
        group="study",
        summary="Find heads and edges that decide between two prompts.",
        examples=(
            "headscope study patch runs/gpt2 --clean 'Mary and John went out. John gave it to' "
            "--corrupt 'Mary and John went out. Mary gave it to'",
            "headscope study patch atlas:smollm2 --task person --heads all --out person.csv",
            "headscope study patch atlas:smollm2 --clean 'The keys are' --corrupt 'The key is' "
            "--answer ' lost' --wrong ' missing' --heads all --out patches.csv",
        ),
    ),
    rows="head, then a row per edge (a cell of its pattern)",
    columns=table_columns("""
        kind | `head` or `edge` | what is exchanged between the prompts
        layer, head | count, ≥ 0 | layer of the head, and its number there
        tags | types joined by `;` | the head's tags in the run
        query | position, ≥ 0 | query of the edge; empty for a head
        key | position, ≥ 0 | key of the edge; empty for a head
        query_token | text | token of the clean prompt there
        key_token | text | token of the clean prompt there
        relation | `type/relation`, joined by `;` | relations of the head's types with this edge
        recovered | share | of the difference, restored by denoising; below 0 if it grows
        attention_recovered | share | the same with the part's attention alone
        lost | share | of the difference, removed by noising; below 0 if it grows
        attention_lost | share | the same with the part's attention alone
        recovered_low, recovered_high | share | ends of the 95 % interval of `recovered` over the
            pairs of a task; empty for one pair of prompts
    """),
    figure=Bars(values=("recovered", "lost"), labels=("query_token", "query", "key_token", "key")),
    encoders=False,
    bad_call={"edges": -1},
)


@study(STUDY)
def patch(
    run: RunName,
    *,
    clean: Annotated[Token | None, Field(description="Clean prompt.")] = None,
    corrupt: Annotated[
        Token | None, Field(description="Corrupt prompt with as many tokens.")
    ] = None,
    task: OptionalTask = None,
    answer: Annotated[
        Token | None,
        Field(description="Token after the clean prompt, with space. Default: the most likely."),
    ] = None,
    wrong: Annotated[
        Token | None, Field(description="Token after the corrupt prompt. Default: the most likely.")
    ] = None,
    heads: Heads = "tagged",
    edges: Annotated[
        NonNegative,
        Flag(""),
        Field(description="Maximum number of edges of a head; 0 for none."),
    ] = 8,
    progress: Progress = True,
    source: Source = None,
    device: Device = "auto",
) -> StudyResult:
    """Patch single heads and their edges between a clean and a corrupt prompt.

    The metric is the logit of `answer` minus that of `wrong` after the last token. Denoising runs
    the corrupt prompt with a part of the clean one, noising the clean prompt with a part of the
    corrupt one. Shares do not add up to 1. With a task, shares are means over its pairs of prompts;
    edges are patched if all its prompts have as many tokens.

    Raises:
        HeadscopeError: prompts of two lengths or one metric, a word of several tokens, no head, or
            neither a task nor two prompts.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
    """
    one_pair = _one_pair(task, clean, corrupt, answer, wrong)
    pairs = None if task is None else _pairs_of(read_task(task))
    run = the_run(run)
    places = selected_heads(run, heads)
    with progress_bar(progress, "patching", unit="patches") as bar:
        model = model_of(run, source=source, device=device)
        refuse_encoder(model, "study patch")
        rerunner = Rerunner(model)
        if one_pair is None:
            assert pairs is not None
            return _patch_task(run, rerunner, pairs, places, edges, bar)
        windows = _prompts(model, *one_pair)
        words = {"answer": answer, "wrong": wrong}
        compared = [
            likeliest_next(rerunner, window) if word is None else single_token(model, word, option)
            for window, (option, word) in zip(windows, words.items(), strict=True)
        ]
        pair = PromptPair.of(rerunner, windows, compared, sorted({layer for layer, _ in places}))
        one, other, names = pair.clean.metric, pair.corrupt.metric, model.tokenizer.spell(compared)
        metric = f"the logit of {names[0]!r} minus that of {names[1]!r}"
        if not abs(one - other) > LEAST_GAP * max(abs(one), abs(other)):
            raise HeadscopeError(f"{metric} is {one:.6g} after both prompts; choose other words")
        table = _table(run, pair, windows[0], places, edges, bar)
    return StudyResult(
        title=f"{name_of(model.name)}: {metric}: clean {one:+.3f}, corrupt {other:+.3f}",
        table=table,
        terminal_table=_strongest(table),
        values={"clean": one, "corrupt": other, "compared": list(names)},
        draw=STUDY.draw,
    )


def _pairs_of(task: Task) -> list[TaskRow]:
    """The rows of a task that patching needs.

    Raises:
        HeadscopeError: rows without a wrong answer or a corrupt prompt.
    """
    if not (task.compares and task.has_corrupt):
        raise HeadscopeError(f"{task.name}: patching needs wrong and corrupt in each row")
    return list(task.rows)


def _one_pair(
    task: Any, clean: str | None, corrupt: str | None, answer: str | None, wrong: str | None
) -> tuple[str, str] | None:
    """The clean and the corrupt prompt; None for a task.

    Raises:
        HeadscopeError: neither a task nor two prompts were given, or both.
    """
    if task is None and clean is not None and corrupt is not None:
        return clean, corrupt
    options = {"clean": clean, "corrupt": corrupt, "answer": answer, "wrong": wrong}
    texts = [name for name, value in options.items() if value is not None]
    if task is None:
        raise HeadscopeError(
            f"given: {', '.join(texts) or 'no prompt'}; expected clean and corrupt, or a task"
        )
    if texts:
        raise HeadscopeError(f"a task has its own prompts; leave out {', '.join(texts)}")
    return None


def _patch_task(
    run: Result,
    rerunner: Rerunner,
    pairs: Sequence[TaskRow],
    places: Sequence[Head],
    edges: int,
    progress: OnProgress,
) -> StudyResult:
    """Patch heads and edges on each pair of a task, and average their shares.

    Raises:
        HeadscopeError: the model distinguishes too few pairs.
    """
    layers = sorted({layer for layer, _ in places})
    candidates = [_spelled_pair(rerunner, pair, layers) for pair in pairs]
    usable = [pair for pair in candidates if pair is not None]
    counted = f"{len(usable)} of {len(pairs)} pairs"
    if len(usable) < FEWEST_PAIRS:
        raise HeadscopeError(
            f"{counted} have words of one token, prompts of one length and a larger metric after "
            f"the clean prompt; expected at least {FEWEST_PAIRS}"
        )
    has_edges = len({pair.length for pair in usable}) == 1 and edges > 0
    edge_count = min(EDGE_HEADS, len(places)) * edges if has_edges else 0
    steps = Steps(progress, 4 * (len(places) + edge_count) * len(usable))
    table = _mean_effects(usable, [Patch(*head) for head in places], steps)
    if has_edges:
        patches = _mean_edges(usable, _strongest_heads(table, places), edges)
        table = pd.concat([table, _mean_effects(usable, patches, steps)], ignore_index=True)
    table["tags"] = [
        run.heads.loc[head_name(row.layer, row.head), "tags"] for row in table.itertuples()
    ]
    table = table.reindex(columns=STUDY.names)
    text_columns = ["query_token", "key_token", "relation"]
    table[text_columns] = ""
    clean, corrupt = (
        float(np.mean([side.metric for side in sides]))
        for sides in zip(*((pair.clean, pair.corrupt) for pair in usable), strict=True)
    )
    return StudyResult(
        title=f"{name_of(rerunner.model.name)}: {counted}; mean metric: clean {clean:+.3f}, "
        f"corrupt {corrupt:+.3f}",
        table=table,
        terminal_table=_strongest(table),
        values={"clean": clean, "corrupt": corrupt, "pairs": len(usable)},
        draw=STUDY.draw,
    )


def _spelled_pair(rerunner: Rerunner, pair: TaskRow, layers: Sequence[int]) -> PromptPair | None:
    """A pair of a task as the model reads it; None if it cannot be compared.

    A word has several tokens, the prompts have two lengths, or the metric is not larger after the
    clean prompt.
    """
    model = rerunner.model
    try:
        windows = _prompts(model, pair.prompt, pair.corrupt)
        compared = [single_token(model, pair.answer, "answer")]
        compared.append(single_token(model, pair.wrong, "wrong"))
    except HeadscopeError:
        return None
    read = PromptPair.of(rerunner, windows, compared, layers)
    return read if read.clean.metric > read.corrupt.metric else None


def _strongest_heads(table: pd.DataFrame, places: Sequence[Head]) -> list[Head]:
    """The heads whose edges are patched: those with the largest effects, in the order of places."""
    size = table[["recovered", "lost"]].abs().max(axis=1)
    rows = size.sort_values(ascending=False, kind="stable").index[:EDGE_HEADS]
    return [places[row] for row in sorted(rows)]


def _mean_edges(pairs: Sequence[PromptPair], heads: Sequence[Head], limit: int) -> list[Patch]:
    """The edges of heads whose attention times value differs most, on average over pairs."""
    patches = []
    for layer, head in heads:
        changes = torch.stack([pair.carried_change(layer, head) for pair in pairs])
        for query, key in _largest_cells(changes.mean(0), limit):
            patches.append(Patch(layer, head, query, key))
    return patches


def _mean_effects(
    pairs: Sequence[PromptPair], patches: Sequence[Patch], steps: Steps
) -> pd.DataFrame:
    return _means_over_pairs([_effects(pair, patches, steps) for pair in pairs])


def _means_over_pairs(tables: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Mean shares of heads over the pairs of a task, with Student's interval of `recovered`."""
    shares = np.stack([table[SHARES].to_numpy(float) for table in tables])
    means = tables[0].assign(**dict(zip(SHARES, shares.mean(0).T, strict=True)))
    recovered = shares[:, :, SHARES.index("recovered")]
    count = len(tables)
    error = recovered.std(0, ddof=1) / np.sqrt(count)
    half = stdtrit(count - 1, 0.975) * error
    return means.assign(
        recovered_low=means["recovered"] - half, recovered_high=means["recovered"] + half
    )


def _prompts(model: Model, clean: str, corrupt: str) -> list[Window]:
    windows = [text_window(model, prompt) for prompt in (clean, corrupt)]
    lengths = [len(window) for window in windows]
    if lengths[0] != lengths[1]:
        first, other = (window.strings for window in windows)
        at = first_difference(first, other)
        raise HeadscopeError(
            f"the clean prompt has {lengths[0]} tokens and the corrupt one {lengths[1]}, expected "
            f"equally many; the first difference is in [[ ]]: clean: {marked(first, at)}; corrupt: "
            f"{marked(other, at)}"
        )
    return windows


def first_difference(first: Sequence[str], other: Sequence[str]) -> int:
    """Position of the first token that differs; the end of the shorter list if none does.

    >>> first_difference(["a", "b", "c"], ["a", "x"]), first_difference(["a"], ["a", "b"])
    (1, 1)
    """
    for at, (token, other_token) in enumerate(zip(first, other, strict=False)):
        if token != other_token:
            return at
    return min(len(first), len(other))


def marked(tokens: Sequence[str], at: int) -> str:
    """The tokens around a position in quotes, that one in [[ ]]; `…` stands for the others.

    >>> marked(["The", " keys", " are"], 1), marked(["The"], 1)
    ("'The' [[' keys']] ' are'", "'The' [[end]]")
    """
    start, stop = max(0, at - NEIGHBOURS), min(len(tokens), at + NEIGHBOURS + 1)
    words = []
    if start > 0:
        words.append("…")
    words += [repr(token) for token in tokens[start:at]]
    words.append(f"[[{tokens[at]!r}]]" if at < len(tokens) else "[[end]]")
    words += [repr(token) for token in tokens[at + 1 : stop]]
    if stop < len(tokens):
        words.append("…")
    return " ".join(words)


def _table(
    run: Result,
    pair: PromptPair,
    window: Window,
    places: Sequence[Head],
    edges: int,
    progress: OnProgress,
) -> pd.DataFrame:
    """A row per head, then a row per edge of the heads with the largest effects."""
    steps = Steps(progress, 4 * (len(places) + min(EDGE_HEADS, len(places)) * edges))
    heads = _effects(pair, [Patch(*head) for head in places], steps)
    strongest = _strongest_heads(heads, places) if edges else []
    patches = _mean_edges([pair], strongest, edges)
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
    return table.reindex(columns=STUDY.names)


def _effects(pair: PromptPair, patches: Sequence[Patch], steps: Steps) -> pd.DataFrame:
    table = pd.DataFrame(patches, columns=Patch._fields).astype({"query": "Int64", "key": "Int64"})
    table.insert(0, "kind", np.where(table["query"].isna(), "head", "edge"))
    clean, corrupt, size = pair.clean.metric, pair.corrupt.metric, pair.rows_at_once
    for share, denoise in (("recovered", True), ("lost", False)):
        start, end = (corrupt, clean) if denoise else (clean, corrupt)
        for prefix, attention_only in (("", False), ("attention_", True)):
            metrics: list[float] = []
            for _, rows in groupby(patches, key=lambda patch: patch.layer):
                layer = list(rows)
                for first in range(0, len(layer), size):
                    batch = layer[first : first + size]
                    metrics += pair.patched(batch, denoise=denoise, attention_only=attention_only)
                    steps.advance(len(batch))
            table[prefix + share] = (np.array(metrics, float) - start) / (end - start)
    return table


def _largest_cells(change: Float[torch.Tensor, "query key"], limit: int) -> list[tuple[int, int]]:
    """The cells with the largest changes above 0."""
    values, cells = change.flatten().sort(descending=True, stable=True)
    length = change.shape[1]
    best = cells[: int((values[:limit] > 0).sum())].tolist()
    return [divmod(cell, length) for cell in best]


def _cells_of_tags(run: Result, head: Head, window: Window) -> dict[tuple[int, int], list[str]]:
    """Relations of the head's tagged types by the cells of the clean prompt that they target."""
    rows = run.evidence[run.evidence["tagged"].astype(bool)]
    rows = rows[(rows["layer"] == head[0]) & (rows["head"] == head[1])]
    cells: dict[tuple[int, int], list[str]] = {}
    for relation in relations_of([ALL]):
        if relation.type in set(rows["type"]) and TEXT_STIMULUS.name in relation.stimuli:
            targets = targets_of(relation, window)
            for cell in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
                cells.setdefault(cell, []).append(relation.id)
    return cells


def single_token(model: Model, text: str, option: str) -> int:
    """The number of a token that is given as text.

    Raises:
        HeadscopeError: the text is several tokens, or none.
    """
    tokens = model.tokenizer.encode(Document("answer", text, ())).tokens.tolist()
    if len(tokens) != 1:
        pieces = ", ".join(map(repr, model.tokenizer.spell(tokens))) or "none"
        raise HeadscopeError(
            f"{option} {text!r:.60} is {len(tokens)} tokens ({pieces}), expected one; a word "
            "within a sentence often begins with a space"
        )
    return int(tokens[0])


def _strongest(table: pd.DataFrame) -> pd.DataFrame:
    """The heads, and the edges, with the largest effects."""
    size = table[["recovered", "lost"]].abs().max(axis=1)
    ordered = table.loc[size.sort_values(ascending=False, kind="stable").index]
    return pd.concat([ordered[ordered["kind"] == kind].head(LISTED) for kind in ("head", "edge")])
