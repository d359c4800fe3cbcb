"""Logits that headscope computes from a stream are those of transformers, however large."""

from __future__ import annotations

import pytest
import torch

from headscope.causal.loss import logit_map, logits_of, loss
from headscope.causal.moved_attention import ALL, Moves, move_attention
from headscope.causal.prompt_pair import PromptPair, likeliest_next, logit_differences
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.causal.task_prompts import TaskPrompts
from headscope.causal.task_runner import TaskRunner
from headscope.errors import ModelError
from headscope.measure.study_windows import text_windows
from headscope.models.load import load_model
from headscope.models.text_window import text_window
from headscope.stimuli.tasks import read_task
from tests.models.every_layout import own_network, save_tiny

LAYOUTS = {
    "gemma2": {"final_logit_softcapping": 5.0},
    "nanochat": {"final_logit_softcapping": 2.0},
    "cohere": {"logit_scale": 0.25},
    "granite": {"logits_scaling": 0.125},
    "minicpm3": {"dim_model_base": 8},
    "gptj": {},  # its unembedding has a bias
}
LARGE = 12.0
TEXT, OTHER = "the old keys were in the house", "the new keys were at the house"


@pytest.fixture(scope="module", params=LAYOUTS)
def models(request, tokenizer, tmp_path_factory):
    """A model with large logits, and the network of transformers."""
    folder = tmp_path_factory.mktemp(request.param)
    fields = LAYOUTS[request.param]
    save_tiny(request.param, tokenizer, folder, vocab_size=len(tokenizer), **fields)
    network = own_network(folder, request.param)
    with torch.no_grad():
        head = network.get_output_embeddings()
        head.weight.mul_(LARGE)
        if head.bias is not None:
            head.bias.normal_(0, 5, generator=torch.Generator().manual_seed(0))
    network.save_pretrained(folder)
    return load_model(str(folder)), own_network(folder, request.param)


def own_logits(network, window):
    with torch.no_grad():
        return network(torch.from_numpy(window.tokens)[None]).logits[0].double()


def close(found, expected):
    torch.testing.assert_close(
        torch.as_tensor(found).double(), torch.as_tensor(expected).double(), atol=2e-3, rtol=1e-3
    )


def test_the_loss_is_that_of_transformers(models, story):
    model, network = models
    windows = text_windows(model, story, max_tokens=60)
    expected = []
    for window in windows:
        logs = own_logits(network, window)[:-1].log_softmax(-1)
        following = torch.from_numpy(window.tokens[1:])[:, None]
        expected.append(-logs.gather(1, following).sum())
    close(loss(model, windows).nats, torch.stack(expected))


def test_distributions_and_the_likeliest_token_are_those_of_transformers(models):
    model, network = models
    window = text_window(model, TEXT)
    own = own_logits(network, window)
    rerunner = Rerunner(model)
    ids = torch.from_numpy(window.tokens)[None]
    nothing = torch.zeros(0, dtype=torch.long)
    clean = rerunner.clean(TokenRows(ids, torch.tensor([len(window)]), nothing, nothing))
    close(rerunner.distributions(clean, None), own.log_softmax(-1))
    assert likeliest_next(rerunner, window) == int(own[-1].argmax())


def test_the_metric_of_a_pair_of_prompts_is_a_difference_of_own_logits(models):
    model, network = models
    windows = [text_window(model, text) for text in (TEXT, OTHER)]
    rerunner = Rerunner(model)
    pair = PromptPair.of(rerunner, windows, [0])
    for window, prompt in zip(windows, (pair.clean, pair.corrupt), strict=True):
        last = own_logits(network, window)[-1]
        (found,) = logit_differences(rerunner, prompt.run.states, [40, 60])
        close(found, last[40] - last[60])


def test_the_metric_of_a_task_is_a_difference_of_own_log_probabilities(models):
    model, network = models
    rows = [{"prompt": text, "answer": " and", "wrong": " old"} for text in (TEXT, OTHER)]
    prompts = TaskPrompts.of(read_task(rows), model)
    runner = TaskRunner(Rerunner(model), prompts, metric="difference", method="zero")
    expected = torch.zeros(2, dtype=torch.double)
    for one in prompts.continuations:
        tokens = torch.tensor([*one.tokens, one.labels[-1]])
        with torch.no_grad():
            logs = network(tokens[None]).logits[0].double().log_softmax(-1)
        start = len(tokens) - len(one.labels)
        own = logs[start - 1 : -1].gather(1, tokens[start:, None]).sum()
        expected[one.prompt] += one.sign * own
    close(runner.clean, expected)


def test_single_tokens_that_run_alone_have_own_log_probabilities(models):
    model, network = models
    window = text_window(model, TEXT)
    query = torch.arange(3, 6).numpy()
    none = query[:0]
    moves = Moves(
        query=query, layer=query * 0 - 1, head=query * 0 - 1, draw=query * 0 + ALL, item=none,
        key=none,
    )  # fmt: skip
    changed = move_attention(Rerunner(model), window.tokens, moves)
    logs = own_logits(network, window).log_softmax(-1)
    close(changed.clean, [logs[at, window.tokens[at + 1]] for at in query])


def test_logits_of_some_tokens_are_those_among_all(models):
    model, network = models
    window = text_window(model, TEXT)
    own = own_logits(network, window)
    with torch.no_grad():
        states = network.base_model(torch.from_numpy(window.tokens)[None]).last_hidden_state[0]
    engine_network = model.engine.network
    close(logits_of(engine_network, states).detach(), own)
    close(logits_of(engine_network, states, [7, 90, 3]).detach(), own[:, [7, 90, 3]])
    assert own.abs().max() > 1.5
    cap = logit_map(engine_network).cap
    assert cap is None or own.abs().max() > 0.9 * cap


def clamp_logits(_, inputs, output):
    output.logits = output.logits.clamp(-50, 50)
    return output


def move_logits(_, inputs, output):
    output.logits = output.logits + torch.linspace(0, 1, output.logits.shape[-1])
    return output


def half_of_them(_, inputs, output):
    output.logits = output.logits / 2
    return output


@pytest.mark.parametrize("change", [clamp_logits, move_logits, half_of_them])
def test_what_a_configuration_does_not_name_is_refused_though_logits_are_small(
    change, tokenizer, tmp_path
):
    save_tiny("llama", tokenizer, tmp_path, vocab_size=len(tokenizer))
    model = load_model(str(tmp_path))
    network = model.engine.network
    with torch.no_grad():
        network.lm_head.weight.mul_(0.05)
        assert network(torch.arange(9)[None]).logits.abs().max() < 1
    network.register_forward_hook(change)
    with pytest.raises(ModelError, match="logits"):
        Rerunner(model)
