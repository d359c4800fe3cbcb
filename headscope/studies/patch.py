"""Activation patching of single heads and edges between two prompts.

A patch takes one head, or one edge (a cell of its pattern), from the other prompt: either whole
(the head's output, or the attention of the edge times the value there), or its attention alone, so
that the values stay those of the prompt that runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from pydantic import Field

from headscope.causal.prompt_pair import Patch, PromptPair, likeliest_next, logit_differences
from headscope.causal.rerun import Rerunner
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.errors import HeadscopeError
from headscope.heads import head_name
from headscope.models.families import refuse_encoder
from headscope.models.model import Model
from headscope.models.text_window import special_notes, text_window
from headscope.options import Device, Flag, Heads, NonNegative, Plain, Source
from headscope.progress import Progress, Steps, progress_bar
from headscope.relations import relations_of
from headscope.relations.head_type import ALL
from headscope.relations.relation import targets_of
from headscope.resolve import RunName, model_of, the_run
from headscope.runs.listing import Head, selected_heads
from headscope.runs.recorded_paths import name_of
from headscope.statistics.columns import rows_of_head
from headscope.statistics.result import Result
from headscope.stimuli.natural_text import TEXT as TEXT_STIMULUS
from headscope.studies.study import Command, Study, study, table_columns
from headscope.views.study_figure import Bars
from headscope.views.study_result import StudyResult

EDGE_HEADS = 10
LEAST_GAP = 1e-4
LISTED = 12
TOKENS_AT_ONCE = 2_048
"""Tokens of patched prompts that run together."""
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
    """),
    figure=Bars(values=("recovered", "lost"), labels=("query_token", "query", "key_token", "key")),
    encoders=False,
    bad_call={"edges": -1},
)


@study(STUDY)
def patch(
    run: RunName,
    *,
    clean: Annotated[Token, Field(description="Clean prompt.")],
    corrupt: Annotated[
        Token, Field(description="Corrupt prompt; one of another length is aligned at its end.")
    ],
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
    plain: Plain = False,
    progress: Progress = True,
    source: Source = None,
    device: Device = "auto",
) -> StudyResult:
    """Patch single heads and their edges between a clean and a corrupt prompt.

    The metric is the logit of `answer` minus that of `wrong` after the last token. Denoising runs
    the corrupt prompt with a part of the clean one, noising the clean prompt with a part of the
    corrupt one. Shares do not add up to 1. `task` takes many prompts.

    Prompts of unequal length are aligned at their ends, and their first tokens if these are equal.
    A patch changes positions, and cells of two positions, that correspond; the others keep their
    own activations.

    Raises:
        HeadscopeError: prompts with one metric, a word of several tokens, or no head.
        ModelError: the model cannot be loaded or intervened on.
        RunError: the run has no model, or its weights have changed.
    """
    run = the_run(run)
    places = selected_heads(run, heads)
    with progress_bar(progress, "patching", unit="patches") as bar:
        model = model_of(run, source=source, device=device).with_plain_prompts(plain)
        refuse_encoder(model, "study patch")
        rerunner = Rerunner(model)

        # both prompts, and the words whose logits are compared
        windows = [text_window(model, text) for text in (clean, corrupt)]
        compared = []
        for window, word, option in zip(windows, (answer, wrong), ("answer", "wrong"), strict=True):
            if word is None:
                compared.append(likeliest_next(rerunner, window))
            else:
                compared.append(single_token(model, word, option))

        # without a difference there is nothing to restore
        pair = PromptPair.of(rerunner, windows, {layer for layer, _ in places})
        states = torch.cat([pair.clean.run.states, pair.corrupt.run.states])
        one, other = logit_differences(rerunner, states, compared)
        names = model.tokenizer.spell(compared)
        metric = f"the logit of {names[0]!r} minus that of {names[1]!r}"
        if not abs(one - other) > LEAST_GAP * max(abs(one), abs(other)):
            raise HeadscopeError(f"{metric} is {one:.6g} after both prompts; choose other words")

        # all heads first, then edges of those with the largest effects
        steps = Steps(bar, 4 * (len(places) + min(EDGE_HEADS, len(places)) * edges))
        patching = _Patching(rerunner, pair, compared, (one, other), steps)
        table = patching.effects([Patch(*head) for head in places])
        rows = largest_first(table).index[:EDGE_HEADS]
        strongest = [places[row] for row in sorted(rows)] if edges else []
        of_edges = patching.effects(_edges(pair, strongest, edges))
        table = pd.concat([table, of_edges], ignore_index=True)

    # tags of the run, and relations that the edges belong to
    window, other_window = windows
    table["tags"] = [
        run.heads.loc[head_name(row.layer, row.head), "tags"] for row in table.itertuples()
    ]
    for name in ("query", "key"):
        table[f"{name}_token"] = [
            "" if pd.isna(position) else window.strings[int(position)] for position in table[name]
        ]
    # cells that the relations of a head's tags target: what its tags say of this prompt
    cells_of = {head: _cells_of_tags(run, head, window) for head in strongest}
    relations = []
    for row in table.itertuples():
        cells = cells_of.get((row.layer, row.head), {})
        relations.append(";".join(cells.get((row.query, row.key), ())))
    table = table.assign(relation=relations).reindex(columns=STUDY.names)
    # a terminal shows the heads, and the edges, with the largest effects
    ordered = largest_first(table)
    listed = [ordered[ordered["kind"] == kind].head(LISTED) for kind in ("head", "edge")]
    notes = [*special_notes(model, [str(clean), str(corrupt)])]
    if len(window) != len(other_window):
        at = first_difference(window.strings, other_window.strings)
        notes.append(
            "the prompts are aligned at their ends; the first difference is in [[ ]]: clean: "
            f"{marked(window.strings, at)}; corrupt: {marked(other_window.strings, at)}"
        )
    return StudyResult(
        title=f"{name_of(model.name)}: {metric}: clean {one:+.3f}, corrupt {other:+.3f}",
        table=table,
        terminal_table=pd.concat(listed),
        notes=notes,
        values={"clean": one, "corrupt": other, "compared": list(names)},
        draw=STUDY.draw,
    )


def _edges(pair: PromptPair, heads: Sequence[Head], limit: int) -> list[Patch]:
    """The edges of heads whose attention times value differs most."""
    patches = []
    positions = pair.alignment.clean.tolist()
    for layer, head in heads:
        # the cells with the largest changes above 0
        change = pair.carried_change(layer, head)
        values, cells = change.flatten().sort(descending=True, stable=True)
        length = change.shape[1]
        best = cells[: int((values[:limit] > 0).sum())].tolist()
        for query, key in (divmod(cell, length) for cell in best):
            patches.append(Patch(layer, head, positions[query], positions[key]))
    return patches


def largest_first(table: pd.DataFrame) -> pd.DataFrame:
    """Patches in the order of the larger of their two effects."""
    size = table[["recovered", "lost"]].abs().max(axis=1)
    return table.loc[size.sort_values(ascending=False, kind="stable").index]


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
    start = max(0, at - NEIGHBOURS)
    stop = min(len(tokens), at + NEIGHBOURS + 1)
    before = map(repr, tokens[start:at])
    after = map(repr, tokens[at + 1 : stop])
    middle = f"[[{tokens[at]!r}]]" if at < len(tokens) else "[[end]]"
    words = [*before, middle, *after]
    if start > 0:
        words.insert(0, "…")
    if stop < len(tokens):
        words.append("…")
    return " ".join(words)


@dataclass(frozen=True, eq=False)
class _Patching:
    """Two prompts between which activations are exchanged."""

    rerunner: Rerunner
    pair: PromptPair
    compared: Sequence[int]
    """The two tokens whose logits are compared: the answer and the wrong one."""
    untouched: tuple[float, float]
    """The metric after the clean and after the corrupt prompt."""
    steps: Steps

    def effects(self, patches: Sequence[Patch]) -> pd.DataFrame:
        """The shares of each patch, a row per patch."""
        table = pd.DataFrame(patches, columns=Patch._fields)
        table = table.astype({"query": "Int64", "key": "Int64"})
        is_head = table["query"].isna()
        table.insert(0, "kind", np.where(is_head, "head", "edge"))
        clean, corrupt = self.untouched
        for prefix, attention_only in (("", False), ("attention_", True)):
            denoised = self._metrics(patches, denoise=True, attention_only=attention_only)
            noised = self._metrics(patches, denoise=False, attention_only=attention_only)
            table[f"{prefix}recovered"] = (denoised - corrupt) / (clean - corrupt)
            table[f"{prefix}lost"] = (noised - clean) / (corrupt - clean)
        return table

    def _metrics(
        self, patches: Sequence[Patch], *, denoise: bool, attention_only: bool
    ) -> Float[np.ndarray, " patch"]:
        """The metric with each patch; patches of one layer run together."""
        base = self.pair.corrupt.run if denoise else self.pair.clean.run
        lengths = [run.run.rows.tokens.shape[1] for run in (self.pair.clean, self.pair.corrupt)]
        at_once = max(1, TOKENS_AT_ONCE // max(lengths))
        metrics: list[float] = []
        for _, rows in groupby(patches, key=lambda patch: patch.layer):
            of_layer = list(rows)
            for first in range(0, len(of_layer), at_once):
                part = of_layer[first : first + at_once]
                change = self.pair.change(part, denoise=denoise, attention_only=attention_only)
                # each patch of a layer changes a copy of the same prompt, and all run in one pass
                repeated = base.at_rows(torch.zeros(len(part), dtype=torch.long))
                states = self.rerunner.states(repeated, change)
                metrics += logit_differences(self.rerunner, states, self.compared)
                self.steps.advance(len(part))
        return np.array(metrics, float)


def _cells_of_tags(run: Result, head: Head, window: Window) -> dict[tuple[int, int], list[str]]:
    """Relations of the head's tagged types by the cells of the clean prompt that they target."""
    evidence = rows_of_head(run.evidence, *head)
    types = set(evidence.loc[evidence["tagged"].astype(bool), "type"])
    cells: dict[tuple[int, int], list[str]] = {}
    for relation in relations_of([ALL]):
        if relation.type not in types or TEXT_STIMULUS.name not in relation.stimuli:
            continue
        targets = targets_of(relation, window)
        for cell in zip(targets.query.tolist(), targets.key.tolist(), strict=True):
            names = cells.setdefault(cell, [])
            names.append(relation.id)
    return cells


def single_token(model: Model, text: str, option: str) -> int:
    """The number of a token that is given as text.

    Raises:
        HeadscopeError: the text is several tokens, or none.
    """
    tokenizer = model.tokenizer
    tokenizer.check_length(text, model.context)
    # a special token may be the answer, such as the one that ends a turn
    encoded = tokenizer.encode(Document("answer", text, ()), special=not tokenizer.plain_prompts)
    tokens = encoded.tokens.tolist()
    if len(tokens) != 1:
        pieces = ", ".join(map(repr, model.tokenizer.spell(tokens))) or "none"
        raise HeadscopeError(
            f"{option} {text!r:.60} is {len(tokens)} tokens ({pieces}), expected one; a word "
            "within a sentence often begins with a space"
        )
    return int(tokens[0])
