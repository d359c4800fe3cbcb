"""Heads of a run in TransformerLens: its tools take their names, and hooks ablate them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GPT2LMHeadModel

import headscope as hs
from headscope.corpus.shipped import data_folder, mini_folder
from headscope.errors import ModelError
from headscope.models.load import load_model
from headscope.runs.listing import selected_heads

INDUCTION = {1: [0], 5: [1, 3, 5, 6]}
TEXT = data_folder() / "corpora" / "gold.conllu"


@pytest.fixture(scope="module")
def run() -> hs.Run:
    return hs.load("atlas:mini")


@pytest.fixture(scope="module")
def bridge():
    return load_model("mini", engine="lens").bridge


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(1, 1024, (2, 24)))


def by_hand(tokens: torch.Tensor, values) -> torch.Tensor:
    """Logits of the plain network with the induction heads' outputs set before W_O."""
    network = GPT2LMHeadModel.from_pretrained(mini_folder()).eval()

    def set_heads(layer, numbers):
        def hook(module, inputs):
            z = inputs[0].clone().view(*inputs[0].shape[:2], 8, 32)
            for number in numbers:
                z[:, :, number] = values(layer, number)
            return (z.flatten(2),)

        return hook

    for layer, numbers in INDUCTION.items():
        projection = network.transformer.h[layer].attn.c_proj
        projection.register_forward_pre_hook(set_heads(layer, numbers))
    with torch.no_grad():
        return network(tokens).logits


def test_heads_are_named_by_type_relation_and_name(run):
    assert selected_heads(run, "induction") == [(1, 0), (5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "induction/repeat") == [(5, 1), (5, 3), (5, 5), (5, 6)]
    assert selected_heads(run, "L5H1,4.3") == [(5, 1), (4, 3)]
    assert len(selected_heads(run, "all")) == 48
    assert set(selected_heads(run, "induction")) < set(selected_heads(run, "tagged"))


def test_hooks_that_zero_heads_do_what_the_plain_network_does_without_them(run, bridge, tokens):
    hooks = run.hooks("induction", how="zero")
    assert [name for name, _ in hooks] == ["blocks.1.attn.hook_z", "blocks.5.attn.hook_z"]
    with torch.no_grad():
        logits = bridge.run_with_hooks(tokens, fwd_hooks=hooks)
        untouched = bridge(tokens)
    expected = by_hand(tokens, lambda layer, number: 0.0)
    assert (untouched - expected).abs().max() > 1
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)


def means_by_hand() -> dict[tuple[int, int], torch.Tensor]:
    """Each head's mean output over the same text, the first token of every window left out."""
    network = GPT2LMHeadModel.from_pretrained(mini_folder()).eval()
    seen: dict[int, list[torch.Tensor]] = {layer: [] for layer in INDUCTION}
    for layer, outputs in seen.items():
        projection = network.transformer.h[layer].attn.c_proj
        projection.register_forward_pre_hook(
            lambda module, inputs, outputs=outputs: outputs.append(inputs[0][0, 1:])
        )
    for window in hs.windows(TEXT, "mini", max_tokens=1024):
        with torch.no_grad():
            network(torch.from_numpy(window.tokens)[None])
    return {
        (layer, number): torch.cat(seen[layer]).mean(0).view(8, 32)[number]
        for layer, numbers in INDUCTION.items()
        for number in numbers
    }


def test_hooks_set_heads_to_their_mean_over_a_text(run, bridge, tokens):
    hooks = run.hooks("induction", how="mean", corpus=TEXT)
    with torch.no_grad():
        logits = bridge.run_with_hooks(tokens, fwd_hooks=hooks)
    means = means_by_hand()
    expected = by_hand(tokens, lambda *place: means[place])
    torch.testing.assert_close(logits, expected, atol=1e-4, rtol=0)
    zero = by_hand(tokens, lambda *place: 0.0)
    assert (expected - zero).abs().max() > 0.1


def test_a_bridge_with_folded_biases_gives_its_own_means(run, bridge):
    """Folding moves the values' biases from z to the output: a raw bridge's means would be off."""
    folded = load_model("mini", engine="lens").bridge
    folded.enable_compatibility_mode()
    outputs = []
    for window in hs.windows(TEXT, "mini", max_tokens=1024):
        with torch.no_grad():
            ids = torch.from_numpy(window.tokens)[None]
            _, cache = folded.run_with_cache(ids, names_filter="blocks.1.attn.hook_z")
        outputs.append(cache["blocks.1.attn.hook_z"][0, 1:, 0])
    mean = torch.cat(outputs).mean(0)

    def value(**options) -> torch.Tensor:
        ((_, ablate),) = run.hooks("L1H0", corpus=TEXT, **options)
        return ablate(torch.zeros(1, 1, 8, 32), hook=None)[0, 0, 0]

    torch.testing.assert_close(value(bridge=folded), mean, atol=1e-5, rtol=0)
    assert (value() - mean).abs().max() > 1e-3


def test_a_bridge_of_another_shape_is_refused(run, gpt2_folder):
    other = load_model(str(gpt2_folder), engine="lens").bridge
    with pytest.raises(ModelError, match="this is another model"):
        run.hooks("induction", bridge=other)
