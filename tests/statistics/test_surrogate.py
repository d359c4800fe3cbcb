"""Surrogates: what has the surface alone falls by them, and what knows more stands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, partial

import numpy as np
import pytest
import torch

import headscope as hs
from headscope.attention_kind import BIDIRECTIONAL
from headscope.corpus.window import Window
from headscope.measure.surface import Surface
from headscope.measure.surrogate_rows import (
    SurrogateRequest,
    SurrogateText,
    read_surrogate_rows,
    rows_of_patterns,
)
from headscope.progress import silent
from headscope.relations import relations_of
from headscope.relations.relation import Relation
from headscope.statistics import surrogate as surrogate_module
from headscope.statistics.surrogate import (
    PRIOR,
    ROUNDS,
    SurrogateScore,
    fit,
    predict,
    score_surrogates,
)
from tests.helpers.prose import gum_windows, prose_windows

LEAST = {False: 0.2, True: 0.5}
"""Least share of causal heads, and of heads that see both ways."""
NOUNS = ("NOUN", "PROPN")
Choice = np.ndarray
"""Words that each word attends to, word × word."""


def relation(name: str) -> Relation:
    return next(r for r in relations_of(["all"]) if r.id == name)


@cache
def text(two_sided: bool = False) -> list[Window]:
    windows = prose_windows(12_000)
    kind = {"attention_kind": BIDIRECTIONAL} if two_sided else {}
    return [replace(window, **kind) for window in windows]


def steps(window: Window) -> np.ndarray:
    place = np.arange(len(window.words))
    return place[None, :] - place[:, None]


def last_noun_of_the_next_four(window: Window) -> Choice:
    near = (steps(window) >= 1) & (steps(window) <= 4)
    return last(near & np.isin(window.words.upos, NOUNS))


def content_word_before_the_last_preposition(window: Window) -> Choice:
    """Choice of nouns alone; the preposition is the last before the noun."""
    upos = window.words.upos
    adposition = np.where(upos == "ADP", np.arange(len(upos)), -1)
    nearest = np.append(-1, np.maximum.accumulate(adposition)[:-1])
    content = np.isin(upos, (*NOUNS, "VERB", "ADJ"))
    before = np.arange(len(upos))[None, :] < nearest[:, None]
    return last(before & content & np.isin(upos, NOUNS)[:, None])


def last(choices: Choice) -> Choice:
    single = np.zeros_like(choices)
    rows = np.flatnonzero(choices.any(1))
    single[rows, choices.shape[1] - 1 - choices[rows, ::-1].argmax(1)] = True
    return single


def knows(name: str, window: Window) -> Choice:
    """The targets of a relation, the last of each word."""
    targets = relation(name).pairs(window)
    table = np.zeros((len(window.words),) * 2, bool)
    words = Surface(window, np.empty(0, np.int64))
    table[
        np.searchsorted(window.words.last, targets.query),
        words.word[words.item_of_token[targets.key]],
    ] = True
    return last(table)


def pattern(window: Window, choice: Choice, noise: float) -> np.ndarray:
    """Rows at the last tokens of words; elsewhere, and where nothing is chosen, token 0."""
    rows = np.zeros((len(window),) * 2, np.float32)
    for query, key in zip(*np.nonzero(choice), strict=True):
        inside = slice(window.words.first[key], window.words.last[key] + 1)
        rows[window.words.last[query], inside] = 1 / (inside.stop - inside.start)
    rows[rows.sum(1) == 0, 0] = 1
    rows /= rows.sum(1, keepdims=True)  # two words may end in one token
    even = np.ones_like(rows) if window.attention_kind.sees_future else np.tri(len(window))
    return np.asarray((1 - noise) * rows + noise * even / even.sum(1, keepdims=True), np.float32)


def scored(patterns, windows, asked, progress) -> SurrogateScore:
    """The score of the only head of some patterns."""
    requests = [SurrogateRequest(layer=0, head=0, relation=0)]
    text = SurrogateText(windows, choices={}, tokens=12_000, seed=0)
    read = partial(rows_of_patterns, patterns)
    rows = read_surrogate_rows(read, text, [asked], requests, progress=progress)
    (score,) = score_surrogates(rows, [asked], requests, progress=progress).values()
    return score


def surrogate_of(windows, choose, name, *, noise=0.2):
    def patterns(chosen):
        for window in chosen:
            yield torch.from_numpy(pattern(window, choose(window), noise)[None, None])

    steps = []
    score = scored(
        patterns, windows, relation(name), lambda done, total: steps.append((done, total))
    )
    assert steps == sorted(steps)
    assert not steps or steps[-1][0] == steps[-1][1]
    return score


@pytest.mark.parametrize(
    ("rule", "two_sided", "name"),
    [
        (last_noun_of_the_next_four, True, "syntactic/det:dep>head"),
        (last_noun_of_the_next_four, True, "syntactic/obj:head>dep"),
        (content_word_before_the_last_preposition, False, "syntactic/nmod:dep>head"),
    ],
)
def test_a_lazy_head_knows_no_more_than_its_surrogate(rule, two_sided, name):
    """Each is right at a third of the queries and more, and no baseline's name says it."""
    score = surrogate_of(text(two_sided), rule, name)
    assert score.mass > 0.25
    assert score.beyond < LEAST[two_sided]


@pytest.mark.parametrize("noise", [0.0, 0.7])
@pytest.mark.parametrize(
    ("two_sided", "name"),
    [
        (True, "syntactic/nsubj:head>dep"),
        (True, "syntactic/obj:head>dep"),
        (False, "syntactic/nmod:dep>head"),
        (False, "coreference/pronoun"),
    ],
)
def test_a_head_that_reads_the_annotation_knows_more_than_its_surrogate(two_sided, name, noise):
    score = surrogate_of(text(two_sided), lambda window: knows(name, window), name, noise=noise)
    assert score.low > LEAST[two_sided]
    assert score.beyond == pytest.approx(1, abs=0.05)


def test_a_surrogate_is_that_of_a_slow_loop():
    rng = np.random.default_rng(1)
    sizes = np.array([2, 4, 3])
    views = [rng.integers(0, 3, 9), rng.integers(0, 2, 9)]
    rows = [range(2), range(2, 6), range(6, 9)]
    attention = rng.random(9)
    for row in rows:
        attention[list(row)] /= attention[list(row)].sum()
    logits = [0.0] * 9
    for _ in range(ROUNDS):
        surrogate = _rows(logits, rows)
        for view in views:
            for label in range(int(view.max()) + 1):
                cells = [cell for cell in range(9) if view[cell] == label]
                goal = sum(attention[cell] for cell in cells) + PRIOR
                step = goal / (sum(surrogate[cell] for cell in cells) + PRIOR)
                for cell in cells:
                    logits[cell] += np.log(step)
                    surrogate[cell] *= step
    weights = fit(views, sizes, torch.from_numpy(attention).float()[:, None])
    assert predict(weights, views, sizes)[:, 0].tolist() == pytest.approx(_rows(logits, rows))


def _rows(logits: list[float], rows: list[range]) -> list[float]:
    surrogate = [0.0] * len(logits)
    for row in rows:
        total = sum(np.exp(logits[cell]) for cell in row)
        for cell in row:
            surrogate[cell] = np.exp(logits[cell]) / total
    return surrogate


def test_the_score_is_that_of_a_slow_loop(monkeypatch):
    """Scores of an even surrogate, as before its first round: it prefers no word to another."""
    monkeypatch.setattr(surrogate_module, "ROUNDS", 0)
    windows, name, noise = text()[:6], "syntactic/nsubj:head>dep", 0.4

    def choose(window: Window) -> Choice:
        """Half of the targets."""
        choice = knows(name, window)
        choice[::2] = last_noun_of_the_last_three(window)[::2]
        return choice

    queries = []
    for window in windows:
        queries += list(queries_by_hand(window, name, pattern(window, choose(window), noise)))
    targets = Counter(upos for query in queries for upos in query.target_classes)
    candidates = [upos for upos, count in targets.items() if count >= 0.05 * targets.total()]
    alone, preferred = [], []
    for query in queries:
        others = [value for upos, value in query.others if upos in candidates]
        alone.append(not others)
        if others:
            preferred.append(max(query.targets) > max(others))
    score = surrogate_of(windows, choose, name, noise=noise)
    assert score.mass == pytest.approx(np.mean([query.even_mass for query in queries]))
    assert score.hit_rate == pytest.approx(np.mean(alone))
    assert score.wrong == len(preferred)
    assert 0.2 < score.beyond < 0.9
    assert score.beyond == pytest.approx(np.mean(preferred))
    assert score.low < score.beyond < score.high


@dataclass(frozen=True)
class QueryByHand:
    """A head's attention on the words before a query."""

    targets: list[float]
    target_classes: list[str]
    others: list[tuple[str, float]]
    """Part of speech and attention of all words that are no targets."""
    even_mass: float
    """Share of the keys that are targets."""


def queries_by_hand(window: Window, name: str, rows: np.ndarray) -> Iterator[QueryByHand]:
    items = Surface(window, np.empty(0, np.int64))
    targets = relation(name).pairs(window)
    for query in np.unique(targets.query).tolist():
        keys = {int(items.item_of_token[k]) for k in targets.key[targets.query == query]}
        own = int(items.item_of_token[query])
        attention = [0.0] * (own + 1)
        for token in range(query + 1):
            attention[items.item_of_token[token]] += float(rows[query, token])
        classes = [str(window.words.upos[items.word[item]]) for item in range(own)]
        words = [item for item in range(own) if items.word[item] >= 0]
        yield QueryByHand(
            targets=[attention[key] for key in keys],
            target_classes=[classes[key] for key in keys],
            others=[(classes[item], attention[item]) for item in words if item not in keys],
            even_mass=len(keys) / (own + 1),
        )


def last_noun_of_the_last_three(window: Window) -> Choice:
    near = (steps(window) <= -1) & (steps(window) >= -3)
    return last(near & np.isin(window.words.upos, NOUNS))


def test_a_head_that_is_right_at_one_of_many_targets_knows_more(monkeypatch):
    """It has 0.5 on the first mention of an entity, and 0.3 on the word that an even surrogate
    picks: the first of the window."""
    monkeypatch.setattr(surrogate_module, "ROUNDS", 0)
    chain = relation("coreference/chain")

    def patterns(windows):
        for window in windows:
            rows = np.zeros((len(window),) * 2, np.float32)
            targets = chain.pairs(window)
            for query in range(len(window)):
                keys = targets.key[targets.query == query]
                rows[query, keys.min() if len(keys) else 0] += 0.5
                rows[query, 0] += 0.2
                rows[query, window.words.first[0] if query >= window.words.first[0] else 0] += 0.3
            yield torch.from_numpy(rows[None, None])

    windows = [window for window in text() if window.words.last[0] == window.words.first[0]]
    score = scored(patterns, windows, chain, silent)
    assert score.hit_rate < 0.5
    assert score.beyond == 1


def test_a_lazy_head_of_given_patterns_loses_its_tag_by_its_surrogate():
    det = relation("syntactic/det:dep>head")
    windows = [replace(window, attention_kind=BIDIRECTIONAL) for window in gum_windows(20_000)]

    def patterns(window: Window) -> np.ndarray:
        lazy, true = last_noun_of_the_next_four(window), knows(det.id, window)
        return np.stack([pattern(window, choice, 0.1) for choice in (lazy, true)])[None]

    run = hs.score_patterns(patterns, windows, relations=[det], progress=False)
    assert run.evidence["tagged"].tolist() == [False, True]
    assert (run.evidence["beyond_surrogate"] >= LEAST[True]).tolist() == [False, True]
