"""The loss on the run's own text, against full logits and counts made by hand."""

from __future__ import annotations

from collections import Counter
from math import log

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.corpus.shipped import mini_folder, synthetic_corpora
from headscope.corpus.window import Window
from headscope.measure.loss_check import (
    ROWS,
    WINDOWS,
    WORSE,
    Targets,
    TokenCounts,
    check_loss,
    draw_targets,
    token_losses,
)
from headscope.models.load import load_model
from headscope.stimuli.natural_text import TextWindows
from tests.models.every_layout import save_tiny
from tests.oracles.network import save_random


def slow_losses(folder, targets) -> list[float]:
    """Hugging Face's own logits of every token, and its cross entropy one by one."""
    plain = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    losses = []
    with torch.inference_mode():
        for target in targets:
            ids = torch.tensor(target.tokens.tolist())
            logits = plain(ids[None]).logits[0]
            for place in target.places.tolist():
                loss = torch.nn.functional.cross_entropy(logits[place - 1], ids[place])
                losses.append(float(loss))
    return losses


def windows_of(model, max_tokens: int = 1500):
    text = TextWindows(
        synthetic_corpora(), model.tokenizer, max_tokens=max_tokens, max_length=128, seed=0
    )
    return list(text)


@pytest.mark.parametrize("engine", ["fused", "eager", "lens"])
def test_losses_of_sampled_tokens_are_those_of_full_logits(engine):
    model = load_model("mini", engine=engine)
    targets = draw_targets(windows_of(model), seed=1)
    assert len(targets) == WINDOWS
    expected = slow_losses(mini_folder(), targets)
    np.testing.assert_allclose(token_losses(model, targets), expected, atol=2e-4)


def test_a_model_that_scales_its_logits_keeps_its_scale(tokenizer, tmp_path):
    save_tiny("cohere", tokenizer, tmp_path, logit_scale=0.25, max_position_embeddings=256)
    model = load_model(str(tmp_path))
    targets = draw_targets(windows_of(model, 600), seed=1)
    expected = slow_losses(tmp_path, targets)
    np.testing.assert_allclose(token_losses(model, targets), expected, atol=2e-4)


def test_only_the_rows_of_sampled_tokens_are_unembedded():
    model = load_model("mini")
    rows = []
    unembed = model.engine.network.get_output_embeddings()
    unembed.register_forward_hook(lambda module, given, out: rows.append(out.shape[1]))
    targets = [Targets(np.arange(100), np.array([1, 7, 99]))]
    token_losses(model, targets)
    assert rows == [3]
    drawn = draw_targets(windows_of(model), seed=0)
    assert all(len(each.places) <= ROWS for each in drawn)
    assert all(each.places.min() >= 1 and each.places.max() < len(each.tokens) for each in drawn)


def test_each_token_is_predicted_by_the_counts_of_all_the_others():
    model = load_model("mini")
    windows = windows_of(model, 700)
    counts = TokenCounts()
    for window in windows:
        counts.add(window)
    text = [int(token) for window in windows for token in window.tokens[1:]]
    expected = []
    for i in range(0, len(text), 7):
        others = Counter(text[:i] + text[i + 1 :])
        total, types = sum(others.values()), len(others)
        expected.append(-log((others[text[i]] + types / 1024) / (total + types)))
    found = counts.losses(np.array(text[::7]), 1024)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_windows_are_better_where_their_mean_loss_is_below_that_of_counts():
    rng = np.random.default_rng(0)
    windows = [
        Window(
            str(i),
            rng.integers(0, 9, 30),
            ("a",) * 30,
        )
        for i in range(3)
    ]
    counts = TokenCounts()
    for window in windows:
        counts.add(window)
    tokens = np.concatenate([window.tokens[1:] for window in windows])
    unigram = counts.losses(tokens, 9)
    for offsets, better in (((-0.5, 0.4, 0.0), 1), ((-0.5, -0.5, 2.0), 2)):
        losses = unigram + np.repeat(offsets, 29)
        found = check_loss(counts, windows, lambda _, x=losses: x, vocabulary=9, seed=0)
        record = found.record
        assert record["better"] == better
        assert record["model"] == pytest.approx(unigram.mean() + np.mean(offsets), abs=1e-3)
        assert record["unigram"] == pytest.approx(unigram.mean(), abs=1e-3)
        assert (record["tokens"], record["windows"]) == (87, 3)
        assert len(found.notes) == (np.mean(offsets) >= 0)


QUICK = {
    "corpus": ["controlled", "gold"],
    "types": ["positional"],
    "max_tokens": 2500,
    "examples": False,
}


def test_mini_predicts_its_text_better_than_unigrams(mini_run):
    run = hs.load(mini_run)
    loss = run.info["text_loss"]
    # mini was trained to 2.7 nats per token; counts of 3,000 tokens leave about 6
    assert 2.2 < loss["model"] < 3.2
    assert 5 < loss["unigram"] < 6.5
    assert (loss["windows"], loss["better"]) == (WINDOWS, WINDOWS)
    assert not any(WORSE in note for note in run.info["notes"])


def test_a_random_model_is_worse_than_unigrams_and_its_run_says_so(tmp_path):
    save_random("mini", tmp_path / "model", seed=0)
    run = hs.classify(str(tmp_path / "model"), out=tmp_path / "run", **QUICK)
    loss = hs.load(tmp_path / "run").info["text_loss"]
    assert loss == run.info["text_loss"]
    assert loss["model"] > log(1024) - 0.1 > loss["unigram"]
    assert any(note.startswith(WORSE) for note in run.info["notes"])
    assert (loss["windows"], loss["better"]) == (WINDOWS, 0)


def test_a_model_without_an_unembedding_is_classified_without_a_loss(monkeypatch):
    from transformers import GPT2LMHeadModel

    monkeypatch.setattr(GPT2LMHeadModel, "get_output_embeddings", lambda self: None)
    run = hs.classify("mini", **QUICK)
    assert "text_loss" not in run.info
    assert any("loss on the text is not known" in note for note in run.info["notes"])
