"""Texts on which heads are ablated, and the predictions in them that are scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from torch.nn.utils.rnn import pad_sequence

from headscope.causal.rerun import Score, TokenRows
from headscope.corpus.document import Document
from headscope.corpus.window import Window
from headscope.models.model import Model
from headscope.models.tokenizer import Tokenizer
from headscope.relations import all_stimuli, head_types
from headscope.relations.relation import Relation
from headscope.statistics.causes import AWAY, NEAR
from headscope.statistics.result import Result
from headscope.statistics.tags import SINK_RELATIONS
from headscope.stimuli.natural_text import TEXT, TextWindows
from headscope.stimuli.prompts import MinimalPair, agreement_pairs, anaphor_pairs
from headscope.stimuli.repeat import REPEAT, repeat_windows
from headscope.stimuli.stimulus import StimulusConfig

BATCH_TOKENS = 2_048
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
    types: Collection[str]
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
    """Rows of tokens, the predictions in them in the order of rows, and their scores."""

    rows: TokenRows
    scores: Sequence[ItemScore]

    def batches(self, device: str) -> Iterator[TokenRows]:
        """Rows that run together, of `BATCH_TOKENS` tokens."""
        rows = self.rows
        # an even number, because the two sentences of a pair are neighbours
        size = max(2, BATCH_TOKENS // rows.tokens.shape[1] // 2 * 2)
        for start in range(0, len(rows.tokens), size):
            end = start + size
            inside = (rows.row >= start) & (rows.row < end)
            tensors = [rows.tokens[start:end], rows.lengths[start:end]]
            tensors += [rows.row[inside] - start, rows.position[inside]]
            if rows.labels is not None:
                tensors.append(rows.labels[inside])
            yield TokenRows(*(tensor.to(device) for tensor in tensors))


def ablation_texts(
    run: Result,
    model: Model,
    corpora: Sequence[str | Path],
    types: Collection[str],
    score: Score,
    seed: int,
) -> list[AblationText]:
    """The texts that show the behaviours of these types, at the tagged relations of a run."""
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
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    tags = set(tagged["type"] + "/" + tagged["relation"]) - {*SINK_RELATIONS}
    kind = model.attention_kind
    config = StimulusConfig(tokenizer, model.vocabulary_size, length, seed + 1, corpora=corpora)
    for stimulus in all_stimuli().values():
        members = types_of.get(stimulus.name, [])
        relations = {
            name: [r for r in head_types()[name].relations_of(kind) if r.id in tags]
            for name in members
        }
        if relations and stimulus is not REPEAT:
            windows = stimulus.windows(config)[:SENTENCES]
            if stimulus is TEXT:
                windows = short_windows(model, corpora, TEXT_TOKENS, seed + 1)
            texts.append(near_and_away(windows, relations, score, tokenizer.mask))
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


def repeats(windows: Sequence[Window], types: Collection[str]) -> AblationText:
    """Repeated random tokens: the second copy without its first token, which is unpredictable."""
    places = [
        (row, position)
        for row, window in enumerate(windows)
        for position in range(window.copy_length + 2, len(window))
    ]
    items = np.array([row for row, _ in places], np.int64)
    terms = np.arange(len(places)), items, np.ones(len(places))
    score = ItemScore(REPEAT.name, types, *terms, per_term=True)
    return AblationText(_token_rows([w.tokens for w in windows], places), [score])


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
    terms = np.arange(len(places)), np.array(items), np.array(weights)
    score = ItemScore(name, types, *terms, per_term=False)
    return AblationText(_token_rows(rows, places), [score])


def near_and_away(
    windows: Sequence[Window],
    relations_of: dict[str, list[Relation]],
    score: Score = Score.NEXT,
    mask: int | None = None,
) -> AblationText:
    """Predictions in windows, split by whether they are made at a query of the relations.

    With `Score.NEXT` each token after the first is scored, and the one after a query is near; other
    scores are of the query itself, masked or not.

    Args:
        windows: text or sentences.
        relations_of: for each type the relations whose queries are near.
        score: see `Score`.
        mask: the mask token.
    """
    places = [(i, at) for i, window in enumerate(windows) for at in _scored(i, window, score)]
    rows = [np.array(window.tokens) for window in windows]
    labels = None
    if score is Score.MASKED:
        labels = np.array([rows[row][position] for row, position in places])
        for row, position in places:
            rows[row][position] = mask
    items = np.array([row for row, _ in places], np.int64)
    behaviours = [names[list(Score).index(score)] for names in (NEAR, AWAY)]
    scores = []
    for type_name, relations in relations_of.items():
        flags = [_near(window, relations, score) for window in windows]
        near = np.array([flags[row][position] for row, position in places], bool)
        for behaviour, mask_of_terms in zip(behaviours, (near, ~near), strict=True):
            index = np.flatnonzero(mask_of_terms)
            if len(index):
                terms = index, items[index], np.ones(len(index))
                scores.append(ItemScore(behaviour, {type_name}, *terms, per_term=True))
    return AblationText(_token_rows(rows, places, labels), scores)


def _scored(row: int, window: Window, score: Score) -> range:
    """Scored positions of a window; of masked ones some, others in the next window."""
    step = MASKED_IN if score is Score.MASKED else 1
    return range(window.begins + row % step, window.stop, step)


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


def _token_rows(
    rows: Sequence[ndarray], places: Sequence[tuple[int, int]], labels: ndarray | None = None
) -> TokenRows:
    tensors = list(map(torch.from_numpy, rows))
    tokens = pad_sequence(tensors, batch_first=True, padding_value=int(rows[0][0]))
    row, position = torch.from_numpy(np.array(places, np.int64).reshape(-1, 2).T)
    masked = None if labels is None else torch.from_numpy(labels)
    return TokenRows(tokens, torch.tensor(list(map(len, rows))), row, position, masked)
