"""Texts on which heads are ablated, and the predictions in them that are scored."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray

from headscope.corpus.controlled.minimal_pairs import MinimalPair, agreement_pairs, anaphor_pairs
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.models.load import Model
from headscope.models.rerun import Score, TokenRows
from headscope.models.tokenizer import Tokenizer
from headscope.relations import all_stimuli, head_types
from headscope.relations.relation import Relation
from headscope.statistics.causes import AWAY, NEAR
from headscope.statistics.result import Result
from headscope.statistics.tags import RESTING_PLACES
from headscope.stimuli.repeat import REPEAT, repeat_windows
from headscope.stimuli.stimulus import StimulusConfig
from headscope.stimuli.text import TEXT, TextWindows

REPEATS, PAIRS, TEXT_TOKENS, TEXT_LENGTH, SENTENCES = 16, 128, 4_096, 128, 48
PAIR_MAKERS = {"agreement": agreement_pairs, "pronoun": anaphor_pairs}
MASKED_IN = 7
"""One of so many neighbouring tokens is masked: 14 %, as encoders are trained (Devlin et al. 2019,
3.1)."""


@dataclass(frozen=True, eq=False)
class ItemScore:
    """A score per item: a weighted sum of the scores of predictions.

    An item is a window or a pair of sentences; intervals come from resampling items.
    """

    behaviour: str
    types: frozenset[str]
    """Types whose heads are tested by it."""
    prediction: Int[ndarray, " term"]
    """Index of each term among the predictions of the text."""
    item: Int[ndarray, " term"]
    weight: Float[ndarray, " term"]
    per_term: bool
    """True for a mean over terms (nats per token), False for one over items (log-odds)."""

    def sums(self, scores: Float[ndarray, " prediction"]) -> tuple[ndarray, ndarray]:
        """Sum and count of each item."""
        size = int(self.item.max(initial=-1)) + 1
        sums = np.bincount(self.item, self.weight * scores[self.prediction], size)
        counts = np.bincount(self.item, minlength=size)
        return sums, counts if self.per_term else (counts > 0).astype(np.int64)


@dataclass(frozen=True, eq=False)
class AblationText:
    """Rows of tokens, padded on the right, and the predictions in them, in the order of rows."""

    name: str
    tokens: Int[ndarray, "row position"]
    lengths: Int[ndarray, " row"]
    row: Int[ndarray, " prediction"]
    position: Int[ndarray, " prediction"]
    scores: tuple[ItemScore, ...]
    labels: Int[ndarray, " prediction"] | None = None
    """Tokens that are masked in the rows; None if none is."""

    def rows(self, start: int, end: int, device: str) -> TokenRows:
        """Some of the rows as tensors."""
        inside = (self.row >= start) & (self.row < end)
        arrays = [self.tokens[start:end], self.lengths[start:end]]
        arrays += [self.row[inside] - start, self.position[inside]]
        if self.labels is not None:
            arrays.append(self.labels[inside])
        return TokenRows(*(torch.from_numpy(array).to(device) for array in arrays))


def ablation_texts(
    run: Result,
    model: Model,
    corpora: Sequence[str | Path],
    types: Collection[str],
    score: Score,
    seed: int,
) -> list[AblationText]:
    """The texts that show the behaviours of these types.

    Args:
        run: the run whose tagged relations are tested.
        model: its model.
        corpora: its text.
        types: types of the heads that are ablated.
        score: see `Rerunner.score`.
        seed: seeds the choice of text and the stimuli.
    """
    length, tokenizer = min(TEXT_LENGTH, model.context), model.tokenizer
    types_of: dict[str, list[str]] = {}
    for name in sorted(types & head_types().keys()):
        types_of.setdefault(behaviour_of(name, score), []).append(name)
    texts: list[AblationText] = []
    if members := types_of.get(REPEAT.name):
        vocabulary = tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = repeat_windows(vocabulary, tokenizer, max_length=length, seed=seed + 1)
        texts.append(repeats(windows[:REPEATS], members))
    for behaviour, make in PAIR_MAKERS.items():
        if members := types_of.get(behaviour):
            pairs = make(PAIRS, seed=seed)
            texts.append(minimal_pairs(behaviour, pairs, tokenizer, members))
    config = StimulusConfig(tokenizer, model.vocabulary_size, length, seed + 1)
    for stimulus in all_stimuli().values():
        members = types_of.get(stimulus.name, [])
        relations = {name: _tagged_relations(run, model, name) for name in members}
        if relations and stimulus is not REPEAT:
            windows = stimulus.windows(config)[:SENTENCES]
            if stimulus is TEXT:
                windows = short_windows(model, corpora, TEXT_TOKENS, seed + 1)
            texts.append(near_and_away(stimulus.name, windows, relations, score, tokenizer.mask))
    return texts


def short_windows(
    model: Model, corpora: Sequence[str | Path], max_tokens: int, seed: int
) -> list[Window]:
    """Windows of text."""
    length = min(TEXT_LENGTH, model.context)
    text = TextWindows(
        corpora, model.tokenizer, max_tokens=max_tokens, max_length=length, seed=seed
    )
    return list(text)


def behaviour_of(type_name: str, score: Score) -> str:
    """The stimulus of a type; see `headscope.relations.head_type.HeadType.behaviour`.

    An encoder's heads are tested at the queries of their relations in text, if the type's behaviour
    needs next-token predictions.
    """
    behaviour = head_types()[type_name].behaviour
    near = behaviour in all_stimuli() and behaviour != REPEAT.name
    return behaviour if score is Score.NEXT or near else TEXT.name


def _tagged_relations(run: Result, model: Model, name: str) -> list[Relation]:
    tagged = run.evidence[run.evidence["tagged"].astype(bool) & (run.evidence["type"] == name)]
    ids = set(tagged["type"] + "/" + tagged["relation"]) - {*RESTING_PLACES}
    return [r for r in head_types()[name].relations_of(model.attention_kind) if r.id in ids]


def repeats(windows: Sequence[Window], types: Collection[str]) -> AblationText:
    """Repeated random tokens: the second copy without its first token, which is unpredictable."""
    places = [
        (row, position)
        for row, window in enumerate(windows)
        for position in range(window.copy_length + 2, len(window))
    ]
    row, position = np.array(places, np.int64).reshape(-1, 2).T
    terms = np.arange(len(row)), row, np.ones(len(row))
    score = ItemScore(REPEAT.name, frozenset(types), *terms, per_term=True)
    return AblationText("repeats", *_padded([w.tokens for w in windows]), row, position, (score,))


def minimal_pairs(
    name: str, pairs: Sequence[MinimalPair], tokenizer: Tokenizer, types: Collection[str]
) -> AblationText:
    """Log-odds of the grammatical sentence; the common beginning of both sentences cancels out."""
    rows: list[ndarray] = []
    places: list[tuple[int, int]] = []
    items: list[int] = []
    weights: list[float] = []
    for item, pair in enumerate(pairs):
        both = []
        for text in (pair.good, pair.bad):
            tokens = tokenizer.encode(Document("pair", text, ())).tokens
            both.append(np.concatenate([[tokenizer.bos], tokens]))
        least = min(map(len, both))
        shared = int(np.cumprod(both[0][:least] == both[1][:least]).sum())
        for tokens, weight in zip(both, (1.0, -1.0), strict=True):
            places += [(len(rows), position) for position in range(shared, len(tokens))]
            items += [item] * (len(tokens) - shared)
            weights += [weight] * (len(tokens) - shared)
            rows.append(tokens)
    row, position = np.array(places, np.int64).reshape(-1, 2).T
    terms = np.arange(len(row)), np.array(items), np.array(weights)
    score = ItemScore(name, frozenset(types), *terms, per_term=False)
    return AblationText(name, *_padded(rows), row, position, (score,))


def near_and_away(
    name: str,
    windows: Sequence[Window],
    relations_of: dict[str, list[Relation]],
    score: Score = Score.NEXT,
    mask: int | None = None,
) -> AblationText:
    """Predictions in windows, split by whether they are made at a query of the relations.

    Args:
        name: of the stimulus.
        windows: text or sentences.
        relations_of: for each type the relations whose queries are near.
        score: `NEXT` scores each token after the first, and the one after a query is near; others
            score the query itself, masked or not.
        mask: the mask token.
    """
    places = [_scored(row, window, score) for row, window in enumerate(windows)]
    row = np.repeat(np.arange(len(windows)), [len(positions) for positions in places])
    position = np.concatenate([np.zeros(0, np.int64), *places])
    rows = [np.array(window.tokens) for window in windows]
    labels = None
    if score is Score.MASKED:
        labels = np.concatenate([tokens[at] for tokens, at in zip(rows, places, strict=True)])
        for tokens, at in zip(rows, places, strict=True):
            tokens[at] = mask
    behaviours = [names[list(Score).index(score)] for names in (NEAR, AWAY)]
    scores = []
    for type_name, relations in relations_of.items():
        flags = [_near(window, relations, score) for window in windows]
        near = np.concatenate(
            [np.zeros(0, bool), *(of[at] for of, at in zip(flags, places, strict=True))]
        )
        for behaviour, which in zip(behaviours, (near, ~near), strict=True):
            index = np.flatnonzero(which)
            if len(index):
                terms = index, row[index], np.ones(len(index))
                scores.append(ItemScore(behaviour, frozenset({type_name}), *terms, per_term=True))
    return AblationText(name, *_padded(rows), row, position, tuple(scores), labels)


def _scored(row: int, window: Window, score: Score) -> Int[ndarray, " prediction"]:
    """Scored positions of a window; of masked ones some, others in the next window."""
    step = MASKED_IN if score is Score.MASKED else 1
    return np.arange(window.begins + row % step, window.stop, step)


def _near(
    window: Window, relations: Sequence[Relation], score: Score
) -> Bool[ndarray, " position"]:
    """Flags of the positions that are scored for a query of the relations."""
    near = np.zeros(len(window), bool)
    for relation in relations:
        if window.stimulus in relation.stimuli:
            queries = relation.pairs(window).queries
            if score is Score.NEXT:  # the query predicts the token after it
                queries = queries[queries < len(window) - 1] + 1
            near[queries] = True
    return near


def _padded(rows: Sequence[ndarray]) -> tuple[Int[ndarray, "row position"], Int[ndarray, " row"]]:
    lengths = np.array([len(row) for row in rows])
    padded = np.full((len(rows), lengths.max()), rows[0][0])
    for i, row in enumerate(rows):
        padded[i, : len(row)] = row
    return padded, lengths
