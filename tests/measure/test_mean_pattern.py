"""The mean pattern of the first tokens: the plain mean over texts, read in any pieces."""

from __future__ import annotations

import numpy as np
import pytest

import headscope as hs
from headscope.measure.reading import sum_cells
from headscope.measure.tally import SIDE
from headscope.models.load import load_model
from headscope.relations import relations_of
from headscope.stimuli.repeat import REPEAT
from headscope.stimuli.stimulus import StimulusConfig
from tests.helpers.models import eager_attention


def score(lengths: list[int], seed: int = 0):
    """A run of random patterns of texts of these lengths, and the patterns."""
    rng = np.random.default_rng(seed)
    patterns, tokens = [], []
    for length in lengths:
        a = np.tril(rng.random((2, 3, length, length)))
        patterns.append(a / a.sum(-1, keepdims=True))
        tokens.append(["<s>", *(f"w{i} " for i in range(length - 1))])
    return hs.score_patterns(patterns, None, tokens), patterns


def test_it_is_the_mean_over_texts_of_each_row_that_they_have():
    run, patterns = score([40, 30, 12, 9, 20, *[25] * 5])
    expected = np.zeros((2, 3, SIDE, SIDE))
    for query in range(1, SIDE):
        # of ten texts every second one is profiled
        rows = [a[:, :, query, : query + 1] for a in patterns[::2] if a.shape[-1] > query]
        expected[:, :, query, : query + 1] = np.mean(rows, axis=0)
    np.testing.assert_allclose(run.means, expected, atol=1e-6)


def repeated(n: int, documents: int = 10, seed: int = 1):
    """A run whose L0H1 looks from a repeat's second copy at the token after the first's, and rests
    in its first copy and in texts; L0H0 looks at the token before, and rests on repeats."""
    rng = np.random.default_rng(seed)
    tokens, patterns = [], []
    for document in range(2 * documents):
        repeat = document % 2
        size = 2 * n + 1
        words = [f"w{document}-{i}" for i in range(n if repeat else 2 * n)]
        a = np.zeros((1, 2, size, size))
        place = np.arange(1, size)
        if repeat:
            second = np.arange(n + 1, size)
            a[0, 1, second, second - n + 1] = rng.uniform(0.7, 0.9, n)
        else:
            a[0, 0, place, place - 1] = 0.9
        a[..., 0] += 1 - a.sum(-1)
        patterns.append(a)
        tokens.append(["<s>", *(words * 2 if repeat else words)])
    return hs.score_patterns(patterns, None, tokens), patterns[1::2]


@pytest.mark.parametrize("n", [30, 8])
def test_a_head_of_repeats_is_drawn_on_both_copies_of_them(n):
    run, patterns = repeated(n)
    assert run.heads.loc["L0H1", "primary"] == "induction"
    assert run.heads.loc["L0H0", "primary"] == "positional"
    # the first 12 positions, and the first 12 of the second copy, as far as there are so many
    places = [*range(12), *range(n + 1, n + 13)]
    slots = [i for i, at in enumerate(places) if (at <= n if i < 12 else at < 2 * n + 1)]
    expected = np.zeros((SIDE, SIDE))
    for query in slots[1:]:
        for key in slots:
            if key <= query:
                cells = [a[0, 1, places[query], places[key]] for a in patterns]
                expected[query, key] = np.mean(cells)
    assert set(run.pictures) == {(0, 1)}
    assert run.pictures[0, 1].stimulus == "repeat"
    np.testing.assert_allclose(run.pictures[0, 1].pattern, expected, atol=1e-6)
    assert run.means[0, 1, 1:, 1:].max() == 0


def test_a_run_folder_keeps_the_pictures_of_heads_that_are_drawn_on_other_stimuli_alone(tmp_path):
    run, _ = repeated(30)
    run.save(tmp_path / "run")
    loaded = hs.load(tmp_path / "run")
    assert loaded.pictures.keys() == run.pictures.keys()
    kept = loaded.pictures[0, 1]
    assert kept.stimulus == "repeat"
    np.testing.assert_allclose(kept.pattern, run.pictures[0, 1].pattern, atol=1e-3)


def test_a_models_pictures_are_the_mean_of_its_own_patterns(gpt2_folder):
    """Hugging Face's own eager attention, on the same repeats."""
    model = load_model(str(gpt2_folder))
    config = StimulusConfig(model.tokenizer, model.vocabulary_size, 64, 0, 9)
    windows = REPEAT.windows(config)
    tally = sum_cells(model, [], windows, relations_of(["induction"]), seed=0, batch_tokens=256)
    sums, counts = np.zeros((SIDE, SIDE)), np.zeros(SIDE)
    profiled = windows[:8]  # of each stimulus the first eight documents
    for window, patterns in zip(profiled, eager_attention(gpt2_folder, profiled), strict=True):
        own = patterns[1, 2]
        places = [*range(12), *range(window.copy_length + 1, window.copy_length + 13)]
        for query in range(1, SIDE):
            counts[query] += 1
            for key in range(query + 1):
                sums[query, key] += own[places[query], places[key]]
    found = tally.profile.stimulus_mean[0, 1, 2].reshape(SIDE, SIDE)
    np.testing.assert_array_equal(tally.profile.stimulus_queries[0], counts)
    np.testing.assert_allclose(found, sums, atol=1e-4)
