"""A streaming head's attention: against a slow loop, and against the model's own where all is kept."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.measure.study_windows import text_windows
from headscope.models.engines.log_attention import PLAIN, ScoreTerms
from headscope.models.load import load_model
from headscope.models.loss import loss, network_of
from headscope.studies.streaming import streaming_heads as module
from headscope.studies.streaming.far import far_of
from headscope.studies.streaming.streaming_heads import SinkWindow, StreamingHeads, attend_within

LAYERS = 2
SMALL = SinkWindow(2, 5)


def seen_by_loop(length: int, kept: SinkWindow) -> np.ndarray:
    seen = np.zeros((length, length), bool)
    for query in range(length):
        for key in range(query + 1):
            if key < kept.sinks or key > query - kept.recent:
                seen[query, key] = True
    return seen


def attention_by_loop(query, key, value, scale, seen, sink=None):
    """Row by row, head by head, with keys of their group."""
    heads, length, _ = query.shape
    size = heads // key.shape[0]
    output, far = np.zeros((heads, length, value.shape[-1])), np.zeros((heads, length))
    for head in range(heads):
        for row in range(length):
            scores = key[head // size, : row + 1] @ query[head, row] * scale
            whole = np.exp(scores)
            beside = 0.0 if sink is None else np.exp(sink[head])
            own = whole * seen[row, : row + 1]
            output[head, row] = own @ value[head // size, : row + 1] / (own.sum() + beside)
            far[head, row] = 1 - (own.sum() + beside) / (whole.sum() + beside)
    return output, far


def drawn(heads: int, length: int, seed: int):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(1, heads, length, 8, generator=generator)


@pytest.mark.parametrize(
    "kept",
    [SMALL, SinkWindow(0, 1), SinkWindow(0, 7), SinkWindow(4, 64), SinkWindow(9, 3)],
    ids=str,
)
@pytest.mark.parametrize("with_sink", [False, True])
def test_attention_over_kept_keys_equals_a_slow_loop(kept, with_sink, monkeypatch):
    monkeypatch.setattr(module, "ROWS", 6)  # so that a tile begins in the middle of the text
    query, key, value = drawn(4, 23, 0), drawn(2, 23, 1), drawn(2, 23, 2)
    sink = torch.tensor([0.3, -1.0, 2.0, 0.0]) if with_sink else None
    found, _ = attend_within(query, key, value, 0.5, ScoreTerms(sink=sink), kept)
    arrays = [x[0].double().numpy() for x in (query, key, value)]
    learned = None if sink is None else sink.numpy()
    expected, _ = attention_by_loop(*arrays, 0.5, seen_by_loop(23, kept), learned)
    assert found[0].numpy() == pytest.approx(expected, abs=1e-5)


def test_a_models_own_mask_stays_in_force(monkeypatch):
    monkeypatch.setattr(module, "ROWS", 6)
    query, key, value = drawn(2, 20, 0), drawn(2, 20, 1), drawn(2, 20, 2)
    own = seen_by_loop(20, SinkWindow(0, 9))  # a window without sinks
    bias = torch.zeros(1, 1, 20, 20).masked_fill(~torch.from_numpy(own), -torch.inf)
    found, _ = attend_within(query, key, value, 0.5, ScoreTerms(bias), SinkWindow(2, 5))
    arrays = [x[0].double().numpy() for x in (query, key, value)]
    expected, _ = attention_by_loop(*arrays, 0.5, own & seen_by_loop(20, SinkWindow(2, 5)))
    assert found[0].numpy() == pytest.approx(expected, abs=1e-5)


def test_nothing_is_hidden_where_everything_is_kept():
    query, key, value = drawn(4, 30, 0), drawn(4, 30, 1), drawn(4, 30, 2)
    found, _ = attend_within(query, key, value, 0.5, PLAIN, SinkWindow(4, 26))
    whole = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, scale=0.5
    )
    assert torch.allclose(found, whole, atol=1e-5)


@pytest.fixture(scope="module")
def model(model_folder):
    return load_model(str(model_folder))


@torch.no_grad()
def logits(network, tokens):
    return network(tokens, use_cache=False).logits


def test_a_window_as_long_as_the_text_loses_nothing(model, story):
    windows = text_windows(model, story)
    before = loss(model, windows)
    every = {layer: range(model.key_value_heads) for layer in range(LAYERS)}
    longest = max(len(window) for window in windows)
    for heads in (every, {0: [0]}, {1: [1]}):
        streaming = StreamingHeads(heads, model.key_value_heads, SinkWindow(4, longest - 4))
        assert loss(model, windows, streaming).nats == pytest.approx(before.nats, rel=1e-6)
    streaming = StreamingHeads(every, model.key_value_heads, SMALL)
    assert loss(model, windows, streaming).nats != pytest.approx(before.nats, rel=1e-3)
    assert loss(model, windows).nats.tolist() == before.nats.tolist()


@pytest.mark.parametrize("layer", [0, 1])
def test_one_head_streaming_equals_its_output_replaced_by_hand(model, model_folder, layer):
    """By hand: the masked softmax of transformers' eager pattern, put in before W_O."""
    network = network_of(model)
    tokens = torch.randint(1, 90, (2, 24), generator=torch.Generator().manual_seed(0))
    chosen = model.key_value_heads - 1
    size = model.heads // model.key_value_heads
    with StreamingHeads({layer: [chosen]}, model.key_value_heads, SMALL).applied(model):
        found = logits(network, tokens)
    by_hand = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    original = torch.nn.functional.softmax
    seen, calls = torch.from_numpy(seen_by_loop(24, SMALL)), [0]

    def softmax(scores, *more, **named):
        """Layer by layer a model calls softmax once, on the masked scores of all heads."""
        if calls[0] == layer:
            scores = scores.clone()
            own = slice(chosen * size, (chosen + 1) * size)
            scores[:, own] = scores[:, own].masked_fill(~seen, -torch.inf)
        calls[0] += 1
        return original(scores, *more, **named)

    torch.nn.functional.softmax = softmax
    try:
        expected = logits(by_hand, tokens)
    finally:
        torch.nn.functional.softmax = original
    assert calls[0] == LAYERS
    assert torch.allclose(found, expected, atol=1e-4)
    assert not torch.allclose(found, logits(network, tokens), atol=1e-3)


def test_far_mass_and_change_equal_patterns_and_weights_by_hand(model, model_folder, story):
    windows = hs.windows(story, model.tokenizer, max_length=60, max_tokens=150)
    windows = [window for window in windows if len(window) > SMALL.reach]
    found = far_of(model, windows, SMALL)
    eager = AutoModelForCausalLM.from_pretrained(model_folder, attn_implementation="eager").eval()
    size = model.heads // model.key_value_heads
    mass, change, queries = np.zeros(found.mass.shape), np.zeros(found.change.shape), 0
    for window in windows:
        tokens = torch.from_numpy(window.tokens)[None]
        caught = {}
        hooks = [
            module.register_forward_pre_hook(
                lambda _, given, layer=layer, caught=caught: caught.setdefault(
                    layer, given[0][0].clone()
                )
            )
            for layer, module in enumerate(outputs(eager))
        ]
        with torch.no_grad():
            told = eager(tokens, output_attentions=True, output_hidden_states=True, use_cache=False)
        for hook in hooks:
            hook.remove()
        seen = torch.from_numpy(seen_by_loop(len(window), SMALL))
        rows = slice(SMALL.reach, None)
        queries += len(window) - SMALL.reach
        for layer in range(LAYERS):
            pattern = told.attentions[layer][0]
            outside = (pattern * ~seen).sum(-1)[:, rows].sum(-1)
            mass[layer] += outside.view(-1, size).mean(1).numpy()
            with StreamingHeads({layer: [0]}, model.key_value_heads, SMALL).applied(model):
                streamed = z_of(network_of(model), tokens, layer)
            apart = outputs_of(eager, layer, caught[layer]) - outputs_of(eager, layer, streamed)
            length = told.hidden_states[layer][0].norm(dim=-1)
            change[layer, 0] += (apart.norm(dim=-1) / length)[rows].sum().item()
    assert found.mass == pytest.approx(mass / queries, abs=1e-5)
    assert found.change[:, 0] == pytest.approx(change[:, 0] / queries, rel=1e-3)
    assert found.visible_keys.tolist() == [max(map(len, windows))] * LAYERS


def outputs(network):
    """Each layer's W_O."""
    from headscope.models.layout.modules import attention_modules
    from headscope.models.layout.projections import output_projection

    return [output_projection(layer) for layer in attention_modules(network)]


@torch.no_grad()
def outputs_of(network, layer, z):
    return outputs(network)[layer](z)


@torch.no_grad()
def z_of(network, tokens, layer):
    caught = []
    hook = outputs(network)[layer].register_forward_pre_hook(
        lambda _, given: caught.append(given[0][0].clone())
    )
    network.base_model(tokens, use_cache=False)
    hook.remove()
    return caught[0]
