"""The tally against a slow, separate loop over what Hugging Face's own models return."""

from __future__ import annotations

import csv
import json
from itertools import permutations

import numpy as np
import pytest

from headscope.corpus.shipped import data_folder
from headscope.measure.reading import sum_cells
from headscope.measure.selection import find_all
from headscope.measure.tally import Tally
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.types.delimiter import kinds_of
from headscope.relations.window_pairs import WindowPairs
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.repeat import repeat_windows
from tests.helpers.models import eager_attention

OWN_TESTS = ("discourse", "tense")
RELATIONS = [each for each in relations_of(["all"]) if each.type not in OWN_TESTS]
INDEX = {relation.id: i for i, relation in enumerate(RELATIONS)}
with (data_folder() / "word_pairs.csv").open(encoding="utf-8", newline="") as rows:
    PAIRS = {
        (*words, row["relation"])
        for row in csv.DictReader(rows)
        for words in permutations((row["first"].lower(), row["second"].lower()))
    }
ENGINES = {"gpt2": "lens", "gpt_neox": "eager", "llama": "fused"}
"""By layout: tests of engines compare each layout's tally by all of them."""


@pytest.fixture(scope="module")
def loaded(model_folder):
    layout = json.loads((model_folder / "config.json").read_text())["model_type"]
    return load_model(str(model_folder), device="cpu", engine=ENGINES[layout])


@pytest.fixture(scope="module")
def windows(loaded, annotated):
    # a few thousand tokens, which are letters to a tiny vocabulary
    text = list(TextWindows(annotated, loaded.tokenizer, max_tokens=2400, max_length=250, seed=0))
    vocabulary = loaded.tokenizer.ordinary_tokens(loaded.vocabulary_size)
    return text + repeat_windows(vocabulary, loaded.tokenizer, max_length=250, seed=0)[:4]


@pytest.fixture(scope="module")
def tally(loaded, windows):
    return tally_of(loaded, windows)


def tally_of(model, windows, batch_tokens=1500) -> Tally:
    text = [window for window in windows if window.stimulus == "text"]
    rest = [window for window in windows if window.stimulus != "text"]
    return sum_cells(model, text, rest, RELATIONS, seed=0, batch_tokens=batch_tokens)


@pytest.fixture(scope="module")
def attentions(model_folder, windows):
    """[layer head query key] of every window, one window at a time, from transformers alone."""
    return eager_attention(model_folder, windows)


def slow_targets(window, relation) -> dict[int, set[int]]:
    """Query to keys, by plain loops over the window's tables."""
    found: dict[int, set[int]] = {}
    n, words, mentions = len(window), window.words, window.mentions

    def add(query: int, keys) -> None:
        keys = {int(k) for k in keys if k < query or relation.name == "offset-0"}
        if keys:
            found.setdefault(int(query), set()).update(keys)

    if relation.name == "local":
        for q in range(2, n):
            add(q, range(max(1, q - 4), q))
    elif relation.type in ("positional", "far"):
        d = int(relation.name.split("-")[1])
        for q in range(1 + d, window.copy_length + 1 if window.copy_length else n):
            found[q] = {q - d}
    elif relation.name == "first-token":
        for q in range(1, n):
            add(q, [0])
    elif relation.type == "lexical":
        for q in range(len(words)):
            for k in slow_lexical(words, q, relation.name):
                if words.last[k] < words.first[q]:
                    add(words.last[q], range(words.first[k], words.last[k] + 1))
            pieces = range(words.first[q], words.last[q] + 1)
            for i, piece in enumerate(pieces):
                if relation.name == "in-word":
                    add(piece, pieces[:i])
                elif relation.name == "first-piece" and i > 1:
                    add(piece, pieces[:1])
    elif relation.type == "delimiter":
        kinds = kinds_of(window)
        for q in range(1, n):
            add(q, [k for k in range(1, q) if relation.name in kinds[k]])
    elif relation.name == "repeat":
        for q in range(1, n):
            same = [k for k in range(1, q) if window.tokens[k] == window.tokens[q]]
            if q > window.copy_length and same:
                add(q, [same[0] + (relation.type == "induction")])
    elif relation.name == "natural":
        for q in range(1, n):
            add(q, [k + 1 for k in range(1, q - 1) if window.tokens[k] == window.tokens[q]])
    elif relation.type == "syntactic":
        label, direction = relation.name.rsplit(":", 1)
        for dependent, head in enumerate(words.head):
            own = words.deprel[dependent]
            own = own if f"syntactic/{own}:dep>head" in INDEX else own.split(":")[0]
            if head < 0 or own != label:
                continue
            q, k = (head, dependent) if direction == "head>dep" else (dependent, head)
            if words.last[k] < words.last[q]:
                add(words.last[q], range(words.first[k], words.last[k] + 1))
    elif relation.type == "coreference":
        for q in range(len(mentions)):
            for k in range(len(mentions)):
                same = mentions.entity[q] == mentions.entity[k]
                eligible = {
                    "pronoun": mentions.personal[q]
                    and not mentions.pronoun[k]
                    and mentions.surface[q] != mentions.surface[k],
                    "nominal": not mentions.pronoun[q]
                    and not mentions.pronoun[k]
                    and not mentions.shared[q, k],
                    "chain": True,
                    "same-word": mentions.lemma[q] == mentions.lemma[k],
                }[relation.name]
                if same and eligible and mentions.last[k] < mentions.first[q]:
                    add(mentions.last[q], range(mentions.first[k], mentions.last[k] + 1))
    elif relation.type == "semantic":
        for q in range(len(words)):
            for k in range(q):
                near = words.sentence[q] - words.sentence[k] <= 1
                pair = (words.lemma[q], words.lemma[k], relation.name)
                alike = words.upos[q].replace("PROPN", "NOUN") == words.upos[k].replace(
                    "PROPN", "NOUN"
                )
                content = words.upos[q] in ("NOUN", "PROPN", "VERB", "ADJ")
                if near and alike and content and pair in PAIRS and words.last[k] < words.first[q]:
                    add(words.last[q], range(words.first[k], words.last[k] + 1))
    return found


def slow_sink_positions(window, a) -> list[list[int]]:
    """One or two early keys of each layer that the last 16 queries attend to most."""
    n = len(window)
    if n < 64:
        return [[] for _ in a]
    found = []
    for layer in a:
        columns = layer[:, n - 16 :].mean((0, 1))
        order = sorted(range(1, n // 2), key=lambda k: -columns[k])[:2]
        found.append([k for k in order if columns[k] >= 0.08])
    return found


def slow_lexical(words, q: int, name: str) -> list[int]:
    """The words that a word should look at."""
    if name == "duplicate":
        same = (words.lemma[q], words.upos[q])
        if words.upos[q] in ("PUNCT", "SYM"):
            return []
        return [k for k in range(q) if (words.lemma[k], words.upos[k]) == same]
    wanted = words.upos[q] if name == "same-class" else name.removeprefix("nearest-")
    return [k for k in range(q) if words.upos[k] == wanted][-1:]


@pytest.fixture(scope="module")
def slow(windows, attentions):
    """Mass, control mass, hits and queries of each relation, one window at a time."""
    shape = (len(RELATIONS), *attentions[0].shape[:2])
    target, control, hits = np.zeros(shape), np.zeros(shape), np.zeros(shape)
    queries = np.zeros(len(RELATIONS))
    for window, a in zip(windows, attentions, strict=True):
        drawn = dict(find_all(WindowPairs(window), RELATIONS, 0))
        rested = a.copy()
        for layer, sinks in enumerate(slow_sink_positions(window, a)):
            rested[layer, :, :, sinks] = -1
            i = INDEX["sink/position"]
            late = range(len(a[0, 0]) - 16, len(a[0, 0]))
            if window.stimulus == "text" and len(window) >= 64:
                queries[i] += 16 if layer == 0 else 0
                for q in late:
                    others = [k for k in range(1, q + 1) if k not in sinks]
                    target[i, layer] += a[layer, :, q, sinks].sum(0)
                    each = a[layer][:, q, others].mean(-1)
                    control[i, layer] += each * len(sinks)
        best = rested[..., 1:].argmax(-1) + 1
        for i, relation in enumerate(RELATIONS):
            if window.stimulus not in relation.stimuli or i not in drawn:
                continue
            controls = drawn[i].controls
            # a query for which no control could be drawn does not count
            owners = set(controls.owner.tolist())
            cells = np.zeros(a.shape[-2:], bool)
            for query, keys in slow_targets(window, relation).items():
                if query in owners:
                    queries[i] += 1
                    cells[query, sorted(keys)] = True
            target[i] += a[:, :, cells].sum(-1)
            cells[:, 0] = False
            hits[i] += cells[np.arange(len(window)), best].sum(-1)
            control[i] += a[:, :, controls.query, controls.key] @ controls.weight
    return target, control, hits, queries


def test_the_tally_equals_a_slow_loop_over_output_attentions(tally, slow):
    target, control, hits, queries = slow
    assert tally.queries.sum(0).tolist() == queries.tolist()
    found = {RELATIONS[i].type for i in np.flatnonzero(queries)}
    assert found >= {"positional", "delimiter", "induction", "syntactic", "coreference"}
    n = np.maximum(queries, 1)[:, None, None]
    assert np.abs(tally.target.sum(0) / n - target / n).max() < 1e-5
    assert np.abs(tally.control.sum(0) / n - control / n).max() < 1e-5
    # the arg-max of two keys that differ in the last bit may fall on either
    assert np.abs(tally.hits.sum(0) - hits).max() <= 1
    assert hits.max() > 100


def totals(tally: Tally) -> list[np.ndarray]:
    n = np.maximum(tally.queries.sum(0), 1)[:, None, None]
    return [getattr(tally, name).sum(0) / n for name in ("target", "control", "hits")]


@pytest.mark.parametrize(("step", "batch_tokens"), [(1, 1), (-1, 1500)])
def test_batch_size_and_document_order_change_nothing(loaded, windows, tally, step, batch_tokens):
    other = tally_of(loaded, windows[::step], batch_tokens)
    assert np.array_equal(other.queries.sum(0), tally.queries.sum(0))
    for a, b in zip(totals(other), totals(tally), strict=True):
        assert np.abs(a - b).max() < 1e-5
