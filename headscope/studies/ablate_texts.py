"""Texts on which heads are ablated, and the predictions in them that are scored."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

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

    @classmethod
    def mean_over_terms(
        cls,
        behaviour: str,
        types: Collection[str],
        prediction: Int[ndarray, " term"],
        item: Int[ndarray, " term"],
    ) -> ItemScore:
        """The score of a window: the mean over its predictions."""
        weight = np.ones(len(prediction))
        return cls(behaviour, types, prediction, item, weight, per_term=True)

    def sums(self, scores: Float[ndarray, " prediction"]) -> Float[ndarray, " item"]:
        """Weighted sum of each item's terms."""
        weighted = self.weight * scores[self.prediction]
        return np.bincount(self.item, weighted, self._size)

    @property
    def counts(self) -> Int[ndarray, " item"]:
        """Divisor of the sums for a mean: terms of each item, or items."""
        terms = np.bincount(self.item, minlength=self._size)
        return terms if self.per_term else (terms > 0).astype(np.int64)

    @property
    def _size(self) -> int:
        return int(self.item.max(initial=-1)) + 1


class ScoredPosition(NamedTuple):
    """A scored prediction: a row of tokens, and a position in it."""

    row: int
    position: int


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
            part = slice(start, start + size)
            # predictions are numbered by rows of the whole text, and here by those of the batch
            inside = (rows.row >= start) & (rows.row < start + size)
            labels = None
            if rows.labels is not None:
                labels = rows.labels[inside].to(device)
            yield TokenRows(
                tokens=rows.tokens[part].to(device),
                lengths=rows.lengths[part].to(device),
                row=(rows.row[inside] - start).to(device),
                position=rows.position[inside].to(device),
                labels=labels,
            )


def ablation_texts(
    run: Result,
    model: Model,
    corpora: Sequence[str | Path],
    types: Collection[str],
    score: Score,
    seed: int,
) -> list[AblationText]:
    """The texts that show the behaviours of these types, at the tagged relations of a run."""
    length = min(TEXT_LENGTH, model.context)
    tokenizer = model.tokenizer
    # types by the behaviour that shows them
    types_of: dict[str, list[str]] = {}
    for name in sorted(types & head_types().keys()):
        types_of.setdefault(behaviour_of(name, score), []).append(name)
    # repeats and minimal pairs, which are made for the purpose
    texts: list[AblationText] = []
    if members := types_of.get(REPEAT.name):
        vocabulary = tokenizer.ordinary_tokens(model.vocabulary_size)
        windows = repeat_windows(vocabulary, tokenizer, max_length=length, seed=seed + 1)
        texts.append(repeats(windows[:REPEATS], members))
    for behaviour, make in PAIR_MAKERS.items():
        if members := types_of.get(behaviour):
            pairs = make(PAIRS, seed=seed)
            texts.append(minimal_pairs(behaviour, pairs, tokenizer, members))
    # in text and other stimuli, at queries of the tagged relations
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    tags = set(tagged["type"] + "/" + tagged["relation"]) - {*SINK_RELATIONS}
    config = StimulusConfig(tokenizer, model.vocabulary_size, length, seed + 1, corpora=corpora)
    for stimulus in all_stimuli().values():
        members = types_of.get(stimulus.name)
        if not members or stimulus is REPEAT:
            continue
        if stimulus is TEXT:
            windows = short_windows(model, corpora, TEXT_TOKENS, seed + 1)
        else:
            windows = stimulus.windows(config)[:SENTENCES]
        # a type's other relations say nothing about the queries at which its heads were tagged
        tagged_relations = {}
        for name in members:
            relations = head_types()[name].relations_of(model.attention_kind)
            tagged_relations[name] = [relation for relation in relations if relation.id in tags]
        texts.append(near_and_away(windows, tagged_relations, score, tokenizer.mask))
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
    scored = []
    for row, window in enumerate(windows):
        second_copy = range(window.copy_length + 2, len(window))
        scored += [ScoredPosition(row, position) for position in second_copy]
    prediction = np.arange(len(scored))
    score = ItemScore.mean_over_terms(REPEAT.name, types, prediction, _rows_of(scored))
    rows = _token_rows([window.tokens for window in windows], scored)
    return AblationText(rows, [score])


def minimal_pairs(
    name: str, pairs: Sequence[MinimalPair], tokenizer: Tokenizer, types: Collection[str]
) -> AblationText:
    """Log-odds of the grammatical sentence; the common beginning of both sentences cancels out."""
    sentences: list[ndarray] = []
    scored: list[ScoredPosition] = []
    for pair in pairs:
        good = _sentence(pair.good, tokenizer)
        bad = _sentence(pair.bad, tokenizer)
        # the pair differs from here on
        least = min(len(good), len(bad))
        is_same = good[:least] == bad[:least]
        shared = int(np.cumprod(is_same).sum())
        for tokens in (good, bad):
            row = len(sentences)
            scored += [ScoredPosition(row, position) for position in range(shared, len(tokens))]
            sentences.append(tokens)
    # rows of good and bad sentences alternate
    row_of_term = _rows_of(scored)
    is_good = row_of_term % 2 == 0
    score = ItemScore(
        behaviour=name,
        types=types,
        prediction=np.arange(len(scored)),
        item=row_of_term // 2,
        weight=np.where(is_good, 1.0, -1.0),
        per_term=False,
    )
    return AblationText(_token_rows(sentences, scored), [score])


def _sentence(text: str, tokenizer: Tokenizer) -> Int[ndarray, " position"]:
    tokens = tokenizer.encode(Document("pair", text, ())).tokens
    return np.concatenate([[tokenizer.bos], tokens])


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
    scored = []
    for row, window in enumerate(windows):
        # of masked positions some, others in the next window
        step = MASKED_IN if score is Score.MASKED else 1
        for position in range(window.begins + row % step, window.stop, step):
            scored.append(ScoredPosition(row, position))
    rows = [np.array(window.tokens) for window in windows]
    # masked tokens are predicted where they were
    labels = None
    if score is Score.MASKED:
        labels = np.array([rows[target.row][target.position] for target in scored])
        for target in scored:
            rows[target.row][target.position] = mask
    # for each type the predictions at queries of its relations, and the others
    items = _rows_of(scored)
    scores = []
    for type_name, relations in relations_of.items():
        flags = [_near(window, relations, score) for window in windows]
        is_near = np.array([flags[target.row][target.position] for target in scored], bool)
        predictions = {
            near_behaviour(score): np.flatnonzero(is_near),
            away_behaviour(score): np.flatnonzero(~is_near),
        }
        for behaviour, index in predictions.items():
            if len(index):
                types = {type_name}
                scores.append(ItemScore.mean_over_terms(behaviour, types, index, items[index]))
    return AblationText(_token_rows(rows, scored, labels), scores)


def near_behaviour(score: Score) -> str:
    """The behaviour of predictions at queries of a relation."""
    return f"{_PREFIXES[score]}near"


def away_behaviour(score: Score) -> str:
    """The behaviour of predictions elsewhere."""
    return f"{_PREFIXES[score]}away"


_PREFIXES = {Score.NEXT: "", Score.MASKED: "masked-", Score.STATE: "state-"}
"""Prefixes of the names in `headscope.statistics.causes.NEAR` and `AWAY`."""


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


def _rows_of(scored: Sequence[ScoredPosition]) -> Int[ndarray, " place"]:
    return np.array([target.row for target in scored], np.int64)


def _token_rows(
    rows: Sequence[ndarray], scored: Sequence[ScoredPosition], labels: ndarray | None = None
) -> TokenRows:
    tensors = [torch.from_numpy(row) for row in rows]
    positions = np.array([target.position for target in scored], np.int64)
    return TokenRows(
        tokens=pad_sequence(tensors, batch_first=True, padding_value=int(rows[0][0])),
        lengths=torch.tensor([len(row) for row in rows]),
        row=torch.from_numpy(_rows_of(scored)),
        position=torch.from_numpy(positions),
        labels=None if labels is None else torch.from_numpy(labels),
    )
