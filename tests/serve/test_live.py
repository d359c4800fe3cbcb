"""Answers about a sentence must equal transformers' own model, changed by hand."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from headscope.causal.head_set import SETS
from headscope.causal.intervention import ablated
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.errors import HeadscopeError
from headscope.models.load import load_model
from headscope.serve.answers import SIDE, head_answer, pictures
from headscope.serve.live import MOST_TOKENS, Live

TEXT = "the old keys were in the house and she told them that the old keys were hers"


def ids_of(folder) -> torch.Tensor:
    backend = AutoTokenizer.from_pretrained(folder)
    return torch.tensor([[backend.bos_token_id, *backend(TEXT)["input_ids"]]])


def own_model(folder, change=lambda network: None):
    network = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()
    change(network)
    with torch.no_grad():
        return network(ids_of(folder), output_attentions=True)


def losses(folder, out) -> np.ndarray:
    ids = ids_of(folder)[0]
    return -out.logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0].numpy()


def test_every_pattern_is_the_models_own(model_folder):
    live = Live(load_model(str(model_folder)))
    own = torch.stack(own_model(model_folder).attentions)[:, 0]
    assert torch.allclose(live.read(TEXT).patterns, own, atol=1e-5)
    told = head_answer(live, TEXT, "L1H2")
    assert torch.allclose(torch.tensor(told["matrix"]), own[1, 2], atol=1e-5)


def test_losses_and_the_likeliest_tokens_are_the_models_own(model_folder):
    live = Live(load_model(str(model_folder)))
    out = own_model(model_folder)
    found = live.read(TEXT).predictions
    assert np.allclose(found.losses, losses(model_folder, out), atol=1e-4)
    shares = out.logits[0, -1].softmax(-1)
    best = shares.topk(5)
    words = [AutoTokenizer.from_pretrained(model_folder).decode([i]) for i in best.indices]
    assert [word for word, _ in found.best[-1]] == words
    assert np.allclose([share for _, share in found.best[-1]], best.values, atol=1e-4)


def test_a_head_that_writes_nothing_is_what_ablating_it_makes_of_the_model(gpt2_folder):
    def change(network):
        # L0H1 writes by rows 8 to 15 of W_O, which is [in out] in GPT-2
        network.transformer.h[0].attn.c_proj.weight.data[8:16] = 0

    live = Live(load_model(str(gpt2_folder)))
    found = live.without(TEXT, ["L0H1"], "zero")
    own = losses(gpt2_folder, own_model(gpt2_folder, change))
    assert np.allclose(found.losses, own, atol=1e-4)
    assert abs(found.losses.mean() - live.read(TEXT).predictions.losses.mean()) > 1e-3


def test_random_sets_are_other_heads_and_none_where_too_few_are_left(gpt2_folder):
    live = Live(load_model(str(gpt2_folder)))
    heads = ["L0H1", "L1H0"]
    by_pair = {
        frozenset(pair): live.without(TEXT, pair).losses.mean()
        for pair in combinations(["L0H0", "L0H2", "L0H3", "L1H1", "L1H2", "L1H3"], 2)
    }
    losses_of_sets = live.random_sets(TEXT, heads)
    assert len(losses_of_sets) == SETS
    for loss in losses_of_sets:
        assert min(abs(loss - other) for other in by_pair.values()) < 1e-4
    every_head = [f"L{layer}H{head}" for layer in range(2) for head in range(4)]
    assert live.random_sets(TEXT, every_head) == []


def test_the_mean_is_the_one_that_ablate_takes(gpt2_folder):
    live = Live(load_model(str(gpt2_folder)))
    found = live.without(TEXT, ["L0H1", "1.3", "L0H1", "L0H0"])
    rerunner = Rerunner(load_model(str(gpt2_folder)))
    ids = ids_of(gpt2_folder)
    place = torch.arange(1, ids.shape[1])
    clean = rerunner.clean(TokenRows(ids, torch.tensor([ids.shape[1]]), place * 0, place))
    without = ablated("mean", clean, {0: [0, 1], 1: [3]})
    assert np.allclose(found.losses, -rerunner.scores(clean, without), atol=1e-5)


def test_a_long_text_is_refused_with_the_number_that_fits(tokenizer, tmp_path):
    from tests.helpers.models import save_model

    live = Live(load_model(str(save_model("llama", tokenizer, tmp_path, context=1024))))
    assert live.most == MOST_TOKENS
    words = "x" * (MOST_TOKENS - 1)
    assert len(live.read(words).tokens) == MOST_TOKENS
    with pytest.raises(HeadscopeError, match=f"{MOST_TOKENS + 1}.*{MOST_TOKENS}"):
        live.read(words + "x")


def test_pictures_of_long_texts_keep_the_largest_and_stay_causal():
    pattern = np.tril(np.random.default_rng(0).random((1, 1, 201, 201)))
    small = pictures(pattern)[0, 0]
    assert small.shape == (SIDE, SIDE)
    assert not np.triu(small, 1).any()
    assert small.max() == pattern[..., 1:, 1:].max()
    assert math.isclose(small[0, 0], pattern[0, 0, 1:4, 1:4].max())
