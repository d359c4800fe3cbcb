"""What an example shows: always its target, what the query looks at most, and what it leaves out.

Attention is Hugging Face's own; the targets of repeats are found by a loop over the tokens.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from headscope.corpus.shipped import data_folder
from headscope.corpus.window import Window
from headscope.measure import query_masses, sample_patterns
from headscope.measure.batch_reader import empty_state
from headscope.measure.example import (
    BEGINNING,
    WIDTH,
    Example,
    ExampleRequest,
    excerpt,
    stretches_left_out,
)
from headscope.measure.examples import find_examples
from headscope.measure.query_masses import Queries, Reading, choose_queries
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.relations.pairs import pairs
from headscope.stimuli.repeat import repeat_windows
from headscope.stimuli.text import TextWindows

RELATIONS = relations_of(["positional", "delimiter", "induction"])
SHOWN = [
    "induction/repeat", "induction/duplicate", "induction/natural", "delimiter/punctuation",
    "positional/offset-1-random",
]  # fmt: skip


@pytest.fixture(scope="module")
def found(gpt2_folder):
    """Examples of a head for some relations, and the windows that they are cut out of."""
    model = load_model(str(gpt2_folder))
    corpus = data_folder() / "corpora" / "gold.conllu"
    text = TextWindows([corpus], model.tokenizer, max_tokens=1500, max_length=128, seed=0)
    vocabulary = model.tokenizer.ordinary_tokens(model.vocabulary_size)
    repeats = repeat_windows(vocabulary, model.tokenizer, max_length=200, seed=0)
    windows = [*text, *repeats]
    names = [relation.id for relation in RELATIONS]
    wanted = [ExampleRequest(1, 2, names.index(name)) for name in SHOWN]
    examples = find_examples(model, windows, RELATIONS, wanted, seed=0)
    return examples, {window.name: window for window in windows}


def slow_targets(window: Window, relation: str, query: int) -> set[int]:
    tokens = window.tokens.tolist()
    earlier = [i for i in range(1, query) if tokens[i] == tokens[query]]
    if relation in ("induction/repeat", "induction/natural"):
        return {i + 1 for i in earlier if i + 1 < query}
    if relation == "induction/duplicate":
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


def test_an_example_is_cut_out_of_the_models_own_attention_and_says_what_it_leaves_out(
    found, gpt2_folder
):
    from transformers import AutoModelForCausalLM

    examples, windows = found
    plain = AutoModelForCausalLM.from_pretrained(gpt2_folder, attn_implementation="eager").eval()
    for example in examples:
        with torch.inference_mode():
            tokens = torch.from_numpy(windows[example.window].tokens)[None]
            a = plain(tokens, output_attentions=True).attentions[1][0, 2].numpy()
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


def test_an_excerpt_shows_the_far_and_the_strong_and_what_stands_beside_them():
    row = np.full(151, 0.001)
    row[[40, 90]] = 0.3, 0.4
    shown = excerpt(150, np.array([40]), row, 200).tolist()
    assert {0, *range(37, 44), *range(87, 94), *range(147, 154)} <= set(shown)
    assert len(shown) == WIDTH
    assert max(shown) == 153
    # three keys in the order of their attention, the third a tie that the earliest wins
    assert excerpt(2, np.array([1]), np.array([0.2, 0.3, 0.5]), 4).tolist() == [0, 1, 2, 3]


def test_of_more_targets_than_fit_those_with_the_most_attention_are_shown():
    row = np.linspace(0, 1, 151)
    targets = np.arange(1, 150, 2)
    shown = excerpt(150, targets, row, 151)
    assert len(shown) == WIDTH
    assert set(shown.tolist()) == {0, 150, *range(149 - 2 * (WIDTH - 3), 150, 2)}


def test_stretches_left_out_lie_between_the_shown_positions():
    assert stretches_left_out([0, 5, 6, 9]) == [(1, 1, 5), (3, 7, 9)]
    assert stretches_left_out([0, 1, 2]) == stretches_left_out([]) == []


class Given(Reading):
    """Windows whose every query looks at the token before."""

    def __init__(self, sample: list[Window]) -> None:
        self.sample = sample
        place = np.arange(1, len(sample[0].tokens))
        self.targets = lambda window, relation: pairs(place, place - 1)


def reading(stimuli: list[str], strings: list[str]) -> Reading:
    """Windows of these stimuli, all of the same tokens."""
    sample = [
        Window(f"w{i}", np.arange(len(strings)), tuple(strings), stimulus=stimulus)
        for i, stimulus in enumerate(stimuli)
    ]
    return Given(sample)


def queries(places: list[tuple[int, int]]) -> Queries:
    window, query = np.array(places).T
    return Queries(np.linspace(0.9, 0.8, len(places)), window, query)


def test_natural_text_goes_before_made_sentences_and_readable_tokens_before_fragments():
    rng = np.random.default_rng(0)
    mixed = reading(["pairs", "text"], list("abcdefghijklm" * 5))
    both = queries([(w, q) for q in range(1, 65) for w in (0, 1)])
    assert {c.window for c in choose_queries(mixed, ExampleRequest(0, 0, 0), both, rng)} == {1}
    made = queries([(0, q) for q in range(1, 13)])
    assert {c.window for c in choose_queries(mixed, ExampleRequest(0, 0, 0), made, rng)} == {0}
    broken = reading(["text"], ["a", "b", "\ufffd", "c", "d", "\x07", "e", "f", " ", "g", "h"])
    own = queries([(0, q) for q in range(1, 11)])
    first = next(iter(choose_queries(broken, ExampleRequest(0, 0, 0), own, rng)))
    assert first.query == 1
    own = queries(
        [(0, q) for q in (2, 3, 5, 6, 8, 4, 9, 10)] * 4
    )  # 4 is the first whose key is whole
    assert next(iter(choose_queries(broken, ExampleRequest(0, 0, 0), own, rng))).query == 4


def test_a_line_says_where_its_stretches_stand_and_what_they_leave_out():
    pattern = np.array(
        [[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.1, 0.7, 0.1, 0], [0, 0, 0, 0.2]], np.float16
    )
    tokens = ("<s>", " a", " b", " c")
    example = Example(
        1, 2, "induction/repeat", "best", 0.7, "w#0", tokens, 2, (1,), pattern,
        positions=(0, 5, 30, 31), left_out=(0.06, 0.04), length=60, more_targets=1,
    )  # fmt: skip
    assert str(example) == (
        "induction/repeat best 0.70: <s> … 5:« a» … 30:[[ b]] c … (1 more targets, 0.10 elsewhere)"
    )
    assert example.elsewhere == pytest.approx([0, 0, 0.1, 0.8], abs=1e-3)


def test_what_a_run_kept_of_a_window_is_what_it_would_read_again(gpt2_folder, found, monkeypatch):
    from headscope.measure.batch_reader import BatchReader
    from headscope.measure.plan import Plan, read_plan

    model = load_model(str(gpt2_folder))
    windows = [w for w in found[1].values() if w.stimulus == "text"]
    kept = sample_patterns.SamplePatterns(windows[:3])
    reader, sizes = BatchReader(model, RELATIONS, 0), list[int]()

    def read(steps, twin):
        for step in steps:
            sizes.append(len(step.batch.windows))
            yield reader.read(step, reader.prepare(step.batch), kept)

    plan = Plan(windows, [], RELATIONS, 0, empty_state(model, RELATIONS), patterns=kept)
    read_plan(plan, read, batch_tokens=1024)
    assert sizes.count(1) >= 3
    assert max(sizes) > 1
    for window in windows[:3]:
        again, patterns = sample_patterns.read_patterns(model, window), kept.of(window)
        for layer in range(model.layers):
            assert np.array_equal(again.of_layer(layer), patterns.of_layer(layer))
            seen = len(window) * (len(window) + 1) // 2
            assert patterns.of_layer(layer).shape == (model.heads, seen)
    assert kept.of(windows[3]) is None
    # text that was kept is not read again
    monkeypatch.setattr(query_masses, "read_patterns", None)
    asked = (model, windows[:3], RELATIONS, [ExampleRequest(1, 2, 0)])
    examples = find_examples(*asked, seed=0, sample_patterns=kept)
    monkeypatch.undo()
    plain = find_examples(*asked, seed=0)
    assert [e.positions for e in examples] == [e.positions for e in plain] != []
    assert all(
        np.array_equal(*(e.pattern for e in both)) for both in zip(examples, plain, strict=True)
    )


def test_patterns_are_kept_as_far_as_there_is_room_and_the_window_is_of_the_sample(monkeypatch):
    first, second, third = (Window(str(i), np.arange(4), ("a",) * 4) for i in range(3))
    sample = [first, second]
    kept = sample_patterns.SamplePatterns(sample)
    monkeypatch.setattr(
        sample_patterns, "MAX_BYTES", 2 * 10 * 6 * 2
    )  # two windows of 10 cells, 6 heads
    assert kept.begin(first, 6) is kept.of(first) is not None
    assert kept.begin(third, 6) is None
    assert kept.begin(second, 6) is not None
    sample.append(third)
    assert kept.begin(third, 6) is None
    sample[0] = third
    assert kept.begin(third, 6) is not None
    assert kept.of(first) is None
    assert not kept.wants(Window("r", np.arange(4), ("a",) * 4, stimulus="repeat"))
