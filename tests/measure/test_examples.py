"""Excerpts of examples: always the target, the strongest keys, and the mass that is left out.

Attention is Hugging Face's own; the targets of repeats are found by a loop over the tokens.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window
from headscope.measure import example_reader
from headscope.measure.batch_reader import BatchReader
from headscope.measure.example import (
    BEGINNING,
    WIDTH,
    Example,
    ExampleRequest,
    excerpt,
)
from headscope.measure.example_reader import Sample, patterns_of_window
from headscope.measure.examples import (
    DECILES,
    MIN_BEST,
    ExampleText,
    Queries,
    choose_queries,
    chosen_windows,
    find_examples,
)
from headscope.measure.reading import read
from headscope.measure.sums import Sums
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.pairs import no_pairs
from headscope.stimuli.natural_text import TextWindows
from headscope.stimuli.repeat import repeat_windows
from tests.helpers.models import eager_attention

RELATIONS = relations_of(["positional", "delimiter", "induction", "duplicate-token"])
SHOWN = [
    "induction/repeat",
    "duplicate-token/repeat",
    "induction/natural",
    "delimiter/punctuation",
    "positional/offset-1-random",
]


@pytest.fixture(scope="module")
def found(gpt2_folder):
    """Examples of a head for some relations, and the windows that they are chosen from."""
    model = load_model(str(gpt2_folder))
    corpus = data_folder() / "corpora" / "gold.conllu"
    text = TextWindows([corpus], model.tokenizer, max_tokens=1500, max_length=128, seed=0)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    repeats = repeat_windows(vocabulary, model.tokenizer, max_length=200, seed=0)
    windows = [*text, *repeats]
    names = [relation.id for relation in RELATIONS]
    wanted = [ExampleRequest(1, 2, names.index(name)) for name in SHOWN]
    examples = find_examples(
        partial(Sample(seed=0).patterns, model),
        windows,
        RELATIONS,
        wanted,
        seed=0,
    )
    sample = list(chosen_windows(windows))
    return examples, {window.name: window for window in sample}


def slow_targets(window: Window, relation: str, query: int) -> set[int]:
    tokens = window.tokens.tolist()
    earlier = [i for i in range(1, query) if tokens[i] == tokens[query]]
    if relation in ("induction/repeat", "induction/natural"):
        return {i + 1 for i in earlier if i + 1 < query}
    if relation == "duplicate-token/repeat":
        return set(earlier)
    if relation == "positional/offset-1-random":
        return {query - 1}
    own = next(r for r in RELATIONS if r.id == relation).pairs(window)
    return set(own.key[own.owner == query].tolist())


def test_every_example_shows_its_query_and_its_targets(found):
    examples, windows = found
    seen = set()
    for example in examples:
        window = windows[example.window]
        assert example.tokens == tuple(window.strings[i] for i in example.positions)
        assert example.length == len(window)
        if not example.relation:
            assert example.positions == tuple(range(min(BEGINNING, len(window))))
            continue
        query = example.positions[example.query]
        targets = slow_targets(window, example.relation, query)
        shown = {example.positions[i] for i in example.targets}
        assert shown
        assert shown <= targets
        assert len(targets - shown) == example.more_targets
        assert shown == targets or len(example.tokens) == WIDTH
        assert example.positions[0] == 0
        seen.add(example.relation)
    assert seen == set(SHOWN)
    far = [e for e in examples if e.relation == "induction/repeat"]
    assert all(e.positions[e.query] - e.positions[e.targets[0]] >= 24 for e in far)


@pytest.fixture(scope="module")
def attention(found, gpt2_folder) -> dict[str, np.ndarray]:
    """The head's attention in each window, by transformers' eager code."""
    patterns = eager_attention(gpt2_folder, found[1].values())
    return {name: own[1, 2] for name, own in zip(found[1], patterns, strict=True)}


@pytest.mark.parametrize("name", SHOWN)
def test_examples_are_of_the_tenths_of_all_queries_by_their_mass(found, attention, name):
    relation = next(relation for relation in RELATIONS if relation.id == name)
    slow: dict[tuple[str, int], float] = {}
    for window in found[1].values():
        own = relation.pairs(window) if window.stimulus in relation.stimuli else no_pairs()
        for query, key in zip(own.query.tolist(), own.key.tolist(), strict=True):
            mass = float(attention[window.name][query, key])
            slow[window.name, query] = slow.get((window.name, query), 0.0) + mass
    ordered = sorted(slow.values(), reverse=True)
    own = {example.kind: example for example in found[0] if example.relation == name}
    assert list(own) == ["best", *(f"decile {k}" for k in range(2, DECILES + 1))]
    for k, example in enumerate(own.values()):
        place = example.window, example.positions[example.query]
        assert example.mass == pytest.approx(slow[place], abs=1e-3)  # kept in half precision
        start, end = (len(ordered) * part // DECILES for part in (k, k + 1))
        end = max(MIN_BEST, end) if k == 0 else max(start + 1, end)
        assert ordered[end - 1] - 1e-3 <= example.mass <= ordered[start] + 1e-3
        assert sum(example.masses) == len(ordered)


def test_an_example_is_cut_out_of_the_models_own_attention_and_says_what_it_leaves_out(
    found, attention
):
    examples = found[0]
    for example in examples:
        a = attention[example.window]
        shown = list(example.positions)
        np.testing.assert_allclose(example.pattern, a[np.ix_(shown, shown)], atol=1e-3)
        rest = [i for i in range(len(a)) if i not in shown]
        np.testing.assert_allclose(example.elsewhere, a[np.ix_(shown, rest)].sum(1), atol=0.01)
        if not example.relation:
            continue
        row = a[shown[example.query]]
        left_out = [row[first:end].sum() for _, first, end in example.gaps]
        # patterns are kept in half precision
        assert example.left_out == pytest.approx(left_out, abs=1e-4)
        assert example.elsewhere[example.query] == pytest.approx(row[rest].sum(), abs=1e-4)
        if not example.more_targets:
            assert set(np.argsort(-row)[:3].tolist()) <= set(shown)
    assert any(sum(example.left_out) > 0.05 for example in examples)


def test_an_example_is_the_first_readable_query_behind_the_middle_of_its_tenth():
    ranks, readable = np.arange(320), {18, 19, 20, 40}
    texts = ("a" if rank % 32 in {15, 31} or rank in readable else "\ufffd" for rank in ranks)
    window = Window("0", np.arange(321), ("<bos>", *texts), stimulus="text")
    relation = next(relation for relation in RELATIONS if relation.id == "induction/natural")
    sample = ExampleText([window], [relation])  # no token repeats, so that no target is read
    queries = Queries(1 - ranks / 320, np.zeros(320, int), ranks + 1)
    chosen = choose_queries(sample, ExampleRequest(0, 0, 0), queries, np.random.default_rng(0))
    # ranks 15, 47, … lie before the middles of the tenths
    assert [each.query - 1 for each in chosen] == [15, *range(63, 320, 32)]


def test_what_a_run_kept_of_a_window_is_what_it_would_read_again(gpt2_folder, found, monkeypatch):
    model = load_model(str(gpt2_folder))
    windows = [w for w in found[1].values() if w.stimulus == "text"]
    sums = Sums.empty(model, RELATIONS)
    sums.sample = kept = Sample(3, seed=0)
    reader, sizes = BatchReader(model, RELATIONS, 0, 1024), list[int]()
    read_batch = reader.read

    def counted(prepared, sample):
        sizes.append(len(prepared.batch.windows))
        return read_batch(prepared, sample)

    monkeypatch.setattr(reader, "read", counted)
    read(reader, windows, [], sums)
    assert sizes.count(1) >= len(kept.windows) == 3
    assert max(sizes) > 1
    again = [patterns_of_window(model, window) for window in kept.windows]
    # patterns that were kept are not read again
    monkeypatch.setattr(example_reader, "patterns_of_window", None)
    for window, patterns in zip(kept.windows, again, strict=True):
        for layer in range(model.layers):
            seen = kept.patterns(model, window).of_layer(layer)
            assert np.array_equal(seen, patterns.of_layer(layer))
            assert seen.shape == (model.heads, len(window) * (len(window) + 1) // 2)


def test_patterns_are_kept_as_far_as_there_is_room_and_the_window_is_of_the_sample(monkeypatch):
    windows = [Window(str(i), np.arange(4), ("a",) * 4) for i in range(30)]
    # two windows of 10 cells, 6 heads
    monkeypatch.setattr(example_reader, "MAX_BYTES", 2 * 10 * 6 * 2)
    kept = Sample(3, seed=0)
    stream = iter(windows)

    def passed() -> Window:
        window = next(stream)
        kept.add(window)
        return window

    first, second, third = (passed() for _ in range(3))
    assert kept.begin(first, 6) is not None
    assert kept.begin(windows[3], 6) is None
    assert kept.begin(second, 6) is not None
    assert kept.begin(third, 6) is None
    last = third
    while last in (first, second, third) or not any(last is one for one in kept.windows):
        last = passed()
    assert len(kept.windows) == 3
    left = [window for window in (first, second) if kept.wants(window)]
    assert (kept.begin(last, 6) is None) == (len(left) == 2)


@pytest.mark.parametrize(("length", "is_cut"), [(5, False), (6, True)])
def test_an_excerpt_ends_with_dots_where_its_window_goes_on(length, is_cut):
    excerpt = Example(
        layer=0,
        head=0,
        relation="",
        kind="ordinary",
        mass=float("nan"),
        window="w",
        tokens=("a", "b", "c"),
        query=-1,
        targets=(),
        pattern=np.eye(3, dtype=np.float16),
        positions=(0, 1, 4),
        left_out=(),
        length=length,
    )
    assert str(excerpt).endswith("… 4:c") != is_cut
    assert str(excerpt).endswith("… 4:c …") == is_cut


def test_windows_of_examples_reach_from_the_first_to_the_last_of_a_text():
    windows = [Window(f"text#{i}", np.arange(4), ("a",) * 4) for i in range(1000)]
    numbers = [int(window.name.partition("#")[2]) for window in chosen_windows(windows)]
    assert (numbers[0], numbers[-1]) == (0, 999)
    steps = np.diff(numbers)
    assert steps.max() - steps.min() <= 1


def test_an_excerpt_shows_the_strongest_key_however_many_targets_there_are():
    row = np.full(200, 0.001)
    row[77] = 0.5
    shown = excerpt(199, np.arange(100, 140), row, 200)
    assert len(shown) == WIDTH
    assert {0, 77, 199} <= {*shown.tolist()}
