"""The same-answer control: what a head writes when the token that it looks at is another.

A head that is tagged by what it writes raises an answer, the tokens of its effect, over control
tokens. If it reads the answer off the token that it looks at, the answer must lose its lift when
that token alone is exchanged, and the answer that belongs to the new token must gain it. What stays
of the lift was no word on that token: a constant, a position, the rest of the text. Quirke 2026
(arXiv 2606.08292) calls prompts that share the answer and not what it is computed from the
same-answer control, and shows that heads which pass ablation and patching fail it.

The new token is one that the head looks at from another of its own queries, so that class,
frequency and place are those of its own tokens. The head's attention is held as it was on the
untouched text: only values change, so that a head that looks away from the new token cannot pass by
that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy import ndarray
from torch import Tensor

from headscope.corpus.window import Window
from headscope.heads import head_name
from headscope.measure.block_assignment import assign_blocks
from headscope.measure.logit_effects import PREDICTED
from headscope.measure.progress import OnProgress
from headscope.measure.tally import MIN_BLOCKS
from headscope.models.engines.engine import QueryRows, Request, SelfEntries
from headscope.models.frozen_norm_path import DirectPaths, direct_paths
from headscope.models.load import Model
from headscope.relations.effect import MIN_ATTENTION, Effect
from headscope.relations.relation import find
from headscope.statistics.causes import REPLACED, SAME_ANSWER, UNTESTED
from headscope.stimuli.text import TEXT
from headscope.studies.ablate.ablation_effects import by_block, estimate
from headscope.studies.ablate.edges import FEWEST, QUERIES

PER_WINDOW = 24
"""Queries of a window of text at which it is seen what a head looks at."""
BATCH_TOKENS = 2_048
GATED = 1e-2
"""Share of its length by which attention times values may miss a head's output."""


class WriteTag(NamedTuple):
    """One tag by what a head writes."""

    layer: int
    head: int
    effect: Effect


@dataclass(frozen=True, eq=False)
class AnsweredQuery:
    """One query of a tag at which its head looks at one token, on the untouched text."""

    window: int
    query: int
    key: int
    token: int
    """The one that it looks at."""
    answer: Int[ndarray, " answer"]
    """The tokens of the effect."""
    control: Int[ndarray, " control"]
    attention: Float[Tensor, " key"]
    output: Float[Tensor, " d_value"]
    """The head's, which is its attention times the values."""
    scale: float
    """What the last norm, and a norm behind the attention, multiply by."""
    new_token: int = -1
    new_answer: Int[ndarray, " new"] = field(default_factory=lambda: np.zeros(0, np.int64))
    """What belongs to the new token: the answer at the query whose token it is."""


@dataclass(frozen=True, eq=False)
class AnswerLifts:
    """Lifts of one tag at each of its queries, in logits; times −1 for a tag that lowers."""

    tag: WriteTag
    block: Int[ndarray, " query"]
    lift: Float[ndarray, " query"]
    """Of the answer over its control tokens, on the untouched text."""
    same_answer: Float[ndarray, " query"]
    """The same of the same answer where another token is looked at."""
    new_before: Float[ndarray, " query"]
    """What the head adds to the answer that belongs to the other token, on the untouched text."""
    new_after: Float[ndarray, " query"]
    """The same where the other token is looked at."""
    reason: str = ""
    """Why it could not be tested."""

    def row(self, seed: int) -> dict[str, object]:
        """Its row of the table of causes, before it is judged."""
        layer, head, effect = self.tag
        lift, remaining, change, gain = (
            estimate(*by_block(values, self.block), seed=seed)
            for values in (
                self.lift,
                self.same_answer,
                self.same_answer - self.lift,
                self.new_after - self.new_before,
            )
        )
        leaving = estimate(*by_block(self.lift - self.same_answer, self.block), seed=seed)
        return {
            "kind": "write",
            "layer": layer,
            "head": head,
            "type": effect.type,
            "heads": head_name(layer, head),
            "behaviour": SAME_ANSWER,
            "how": REPLACED,
            "n": len(self.block),
            "clean": lift.mean,
            "ablated": remaining.mean,
            "effect": change.mean,
            "ci_low": change.low,
            "ci_high": change.high,
            "control": np.nan,
            "control_low": np.nan,
            "control_high": np.nan,
            "relation": effect.name,
            "excess": gain.mean,
            "excess_low": gain.low,
            "excess_high": gain.high,
            # both must hold: what leaves, and what comes
            "p_value": max(leaving.p_value, gain.p_value),
            "verdict": self._reason(lift.low),
        }

    def _reason(self, lift_low: float) -> str:
        documents = len(np.unique(self.block))
        if self.reason:
            return f"{UNTESTED}: {self.reason}"
        if len(self.block) < FEWEST or documents < MIN_BLOCKS:
            return f"{UNTESTED}: it looks at one token at {len(self.block)} queries in " + (
                f"{documents} documents"
            )
        if not lift_low > 0:
            return f"{UNTESTED}: it shows no lift where it looks at one token"
        return ""


def same_answer_lifts(
    model: Model,
    windows: Sequence[Window],
    tags: Sequence[WriteTag],
    *,
    seed: int,
    queries: int = QUERIES,
    progress: OnProgress = lambda done, total: None,
) -> list[AnswerLifts]:
    """Lifts of each tag's answer with the token that the head looks at, and with another.

    Args:
        model: of the fused engine.
        windows: of every stimulus that the effects ask by.
        tags: what to test.
        seed: seeds which queries are taken, and which tokens are exchanged.
        queries: at how many queries each tag is tested at most, dealt over documents.
        progress: called with the windows done and in all.

    Raises:
        ModelError: no path from its heads to the logits is known.
    """
    paths = direct_paths(model)
    blocks, _ = assign_blocks(windows)
    tested = [number for number, tag in enumerate(tags) if not tag.effect.of_keys]
    candidates: dict[int, list[AnsweredQuery]] = {number: [] for number in tested}
    for index, window in enumerate(windows):
        tag_queries = _tag_queries(
            window, [(number, tags[number].effect) for number in tested], [seed, index]
        )
        if tag_queries:
            _read_window(model, paths, (index, window), tag_queries, tags, candidates)
        progress(index + 1, 2 * len(windows))
    results = []
    for number, tag in enumerate(tags):
        reason = "it is a change of scores and not of logits" if tag.effect.of_keys else ""
        if not reason and number not in candidates:
            reason = "its layer's output is more than attention times values"
        rng = np.random.default_rng([seed, number])
        of_prompts = tag.effect.top_key is None
        exchanged_queries = (
            []
            if reason
            else _exchanged(candidates[number], blocks, queries, rng, of_prompts=of_prompts)
        )
        lifts = _lifts(model, paths, windows, tag, exchanged_queries)
        block = np.array([blocks[item.window] for item in exchanged_queries], np.int64)
        results.append(AnswerLifts(tag, block, *lifts, reason=reason))
        progress(len(windows) * (len(tags) + number + 1) // len(tags), 2 * len(windows))
    return results


class _TagQueries(NamedTuple):
    """Queries of one tag in a window, with the tokens of the effect.

    There are no such tokens where a head's own look says which they are.
    """

    number: int
    queries: Int[ndarray, " query"]
    tokens: Mapping[int, tuple[ndarray, ndarray]]


def _tag_queries(
    window: Window, effects: Sequence[tuple[int, Effect]], seed: Sequence[int]
) -> list[_TagQueries]:
    tag_queries = []
    for number, effect in effects:
        if effect.top_key is not None:
            if window.stimulus == TEXT.name and len(window) > 2:
                rng = np.random.default_rng(seed)
                places = np.arange(2, len(window))
                queries = np.sort(rng.choice(places, min(PER_WINDOW, len(places)), replace=False))
                tag_queries.append(_TagQueries(number, queries, {}))
            continue
        cells = find(effect, window, seed)
        if cells is not None:
            tokens = {
                int(query): (
                    cells.targets.key[cells.targets.query == query],
                    cells.controls.key[cells.controls.query == query],
                )
                for query in np.unique(cells.targets.query)
            }
            tag_queries.append(_TagQueries(number, np.array(sorted(tokens)), tokens))
    return tag_queries


def _read_window(
    model: Model,
    paths: DirectPaths,
    numbered: tuple[int, Window],
    tag_queries: Sequence[_TagQueries],
    tags: Sequence[WriteTag],
    candidates: dict[int, list[AnsweredQuery]],
) -> None:
    """Adds the queries of a window at which a tag's head looks at one token to `candidates`.

    A tag is taken out of it whose head's output is more than its attention times the values.
    """
    index, window = numbered
    queries = np.unique(np.concatenate([item.queries for item in tag_queries]))
    layers = {tags[item.number].layer for item in tag_queries}
    rows: dict[int, Tensor] = {}
    values: dict[int, Tensor] = {}
    outputs: dict[int, tuple[Tensor, Tensor]] = {}
    streams: dict[int, Tensor] = {}

    def on_layer(layer: int, read: Iterable[Any]) -> None:
        attention, (_, value) = read
        if layer in layers:
            rows[layer] = _plain(model, attention)[0]
            if value is not None:
                values[layer] = value

    def take(layer: int, z: Tensor, scale: Tensor) -> None:
        outputs[model.attention_layers[layer]] = z, scale

    def stream(layer: int, entering: Tensor) -> None:
        streams[model.attention_layers[layer]] = entering.float()

    requests: list[Request] = [QueryRows(0, queries), SelfEntries(0, np.arange(len(window)))]
    tokens = torch.from_numpy(window.tokens)[None].to(model.device)
    with torch.inference_mode(), paths.watching(torch.from_numpy(queries), take, stream) as end:
        model.engine.run(tokens, requests, on_layer, on=True)
    if end.scale is None:
        raise RuntimeError("the pass has not reached the last norm")
    text = np.unique(window.tokens[1 : window.stop])
    for item in tag_queries:
        layer, head, effect = tags[item.number]
        z, scale = outputs[layer]
        if layer not in values or not _is_product(rows[layer][head], values[layer], z, head):
            candidates.pop(item.number, None)
        if item.number not in candidates:
            continue
        likely = _predicted(paths, streams[layer], text) if _needs_predicted(effect) else None
        seen_tokens: set[int] = set()
        for query in item.queries.tolist():
            position = int(np.searchsorted(queries, query))
            attention = rows[layer][head, position, : query + 1]
            strongest, key = attention[1:].max(0)
            token = int(window.tokens[int(key) + 1])
            if not strongest > MIN_ATTENTION or (likely and not likely(position, token)):
                continue
            if effect.top_key is not None and token in seen_tokens:
                continue  # each distinct token of a text counts alike
            seen_tokens.add(token)
            copied = np.array([token]), text[text != token]
            answer, control = item.tokens.get(query, copied)
            size = float(scale[position] * end.scale[position])
            candidates[item.number].append(
                AnsweredQuery(
                    *(index, query, int(key) + 1, token, answer, control),
                    *(attention.cpu(), z[position, head].cpu(), size),
                )
            )


def _plain(model: Model, attention: Tensor) -> Tensor:
    return attention.float().exp() if model.engine.logarithms else attention.float()


def _is_product(attention: Tensor, value: Tensor, z: Tensor, head: int) -> bool:
    """True where a head's outputs are its attention times the values, and no more."""
    product = attention @ _of_head(value, head, z.shape[1:])[: attention.shape[1]]
    return bool((product - z[:, head]).norm() <= GATED * z[:, head].norm())


def _of_head(
    value: Float[Tensor, "position width"], head: int, shape: Sequence[int]
) -> Float[Tensor, "position d_value"]:
    """The values of a head's group, of those of all groups side by side."""
    heads, width = shape
    groups = value.shape[1] // width
    return value.float().view(len(value), groups, width)[:, head // (heads // groups)]


def _needs_predicted(effect: Effect) -> bool:
    return effect.top_key is not None and effect.top_key.predicted


def _predicted(paths: DirectPaths, stream: Tensor, text: Int[ndarray, " token"]) -> Any:
    """Says of a place and a token whether few of the text's are likelier by the logit lens."""
    logits = stream @ paths.directions(torch.from_numpy(text)).to(stream.device).T

    def is_likely(position: int, token: int) -> bool:
        logit = logits[position, int(np.searchsorted(text, token))]
        return bool((logits[position] > logit).sum() <= PREDICTED * len(text))

    return is_likely


def _exchanged(
    candidates: Sequence[AnsweredQuery],
    blocks: Int[ndarray, " window"],
    limit: int,
    rng: np.random.Generator,
    *,
    of_prompts: bool,
) -> list[AnsweredQuery]:
    """Queries dealt over blocks, each with a token that the head looks at from another of them.

    Neither that token nor, if there is such a query, its answer is one of the query's own answer,
    or of its control where the effect names it; where that is all other tokens of the text, one
    among many does no harm.
    """
    order = [candidates[position] for position in rng.permutation(len(candidates)).tolist()]
    turn: dict[int, int] = {}
    ranked = []
    for item in order:
        block = int(blocks[item.window])
        turn[block] = turn.get(block, -1) + 1
        ranked.append((turn[block], item))
    exchanged_queries = [item for _, item in sorted(ranked, key=lambda pair: pair[0])]
    exchanged: list[AnsweredQuery] = []
    for position, item in enumerate(exchanged_queries):
        excluded = {
            item.token,
            *item.answer.tolist(),
            *(item.control.tolist() if of_prompts else ()),
        }
        others = [
            other
            for other in exchanged_queries[position + 1 :] + exchanged_queries[:position]
            if other.token not in excluded
        ]
        answer = {*item.answer.tolist()}
        # of two answers the other one is the control; one that is the same everywhere has no other,
        # and only what leaves can be seen
        ranks = [
            2 * bool(answer & {*other.answer.tolist()}) + bool(excluded & {*other.answer.tolist()})
            for other in others
        ]
        other = others[ranks.index(min(ranks))] if others else None
        if other is not None:
            exchanged.append(replace(item, new_token=other.token, new_answer=other.answer))
        if len(exchanged) == limit:
            break
    return exchanged


def _lifts(
    model: Model,
    paths: DirectPaths,
    windows: Sequence[Window],
    tag: WriteTag,
    queries: Sequence[AnsweredQuery],
) -> tuple[ndarray, ndarray, ndarray, ndarray]:
    """The four lifts of `AnswerLifts`."""
    if not queries:
        return tuple(np.zeros(0) for _ in range(4))  # type: ignore[return-value]
    layer, head, effect = tag
    row = model.attention_layers.index(layer)
    sides = [(item.answer, item.control, item.new_answer) for item in queries]
    tokens = np.unique(np.concatenate([side for triple in sides for side in triple]))
    through = paths.through_heads(row, paths.directions(torch.from_numpy(tokens)))[:, head].cpu()
    lifts = np.zeros((4, len(queries)))
    for number, after in _outputs_after(model, windows, tag, queries):
        item = queries[number]
        on_answer, on_control, on_new = (
            through[np.searchsorted(tokens, side)].mean(0) for side in sides[number]
        )
        lifts[:, number] = [
            float(item.output @ (on_answer - on_control)),
            float(after @ (on_answer - on_control)),
            float(item.output @ on_new),
            float(after @ on_new),
        ]
    scales = np.array([item.scale for item in queries])
    first, second, third, fourth = lifts * scales * effect.sign
    return first, second, third, fourth


def _outputs_after(
    model: Model, windows: Sequence[Window], tag: WriteTag, queries: Sequence[AnsweredQuery]
) -> Iterator[tuple[int, Float[Tensor, " d_value"]]]:
    """Each query's number, and the head's output there after the exchange.

    Its attention is that of the untouched text, its values are those of the changed one.
    """
    layer, head, _ = tag
    order = sorted(range(len(queries)), key=lambda number: queries[number].query)
    at_once = max(1, BATCH_TOKENS // (queries[order[-1]].query + 1))
    shape = model.heads, len(queries[0].output)
    for start in range(0, len(order), at_once):
        numbers = order[start : start + at_once]
        rows = np.zeros((len(numbers), queries[numbers[-1]].query + 1), np.int64)
        for row, number in zip(rows, numbers, strict=True):
            item = queries[number]
            row[: item.query + 1] = windows[item.window].tokens[: item.query + 1]
            row[item.key] = item.new_token
        requests = [
            SelfEntries(position, np.arange(rows.shape[1])) for position in range(len(rows))
        ]
        values: list[Tensor] = []

        def on_layer(
            read_layer: int, read: Iterable[tuple[Tensor, Tensor]], to: list[Tensor] = values
        ) -> None:
            if read_layer == layer:
                to += [value.float().cpu() for _, value in read]

        with torch.inference_mode():
            model.engine.run(torch.from_numpy(rows).to(model.device), requests, on_layer, layer + 1)
        for number, value in zip(numbers, values, strict=True):
            attention = queries[number].attention
            yield number, attention @ _of_head(value, head, shape)[: len(attention)]
