"""Studies that change a running model, in layouts with more than a causal softmax(q·k)."""

from __future__ import annotations

import pytest
import torch

from headscope.causal.intervention import HeadsScaled, ablated
from headscope.causal.loss import network_of
from headscope.causal.rerun import Rerunner, TokenRows
from headscope.models.engines.engine import stream_patterns
from headscope.models.load import load_model
from tests.models.every_layout import save_tiny
from tests.models.tiny import CONTEXT

LAYOUTS = ("deepseek_v3", "gpt_neo", "gpt_oss", "mistral")
TOKENS = torch.arange(2 * CONTEXT).view(2, -1) % 300


@pytest.fixture(scope="module", params=LAYOUTS)
def model(request, tokenizer, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param)
    save_tiny(request.param, tokenizer, folder)
    return load_model(str(folder), engine="fused")


def stream(network) -> torch.Tensor:
    with torch.inference_mode():
        return network.base_model(TOKENS, use_cache=False).last_hidden_state.clone()


def own_patterns(model) -> dict[int, torch.Tensor]:
    found: dict[int, torch.Tensor] = {}
    stream_patterns(model.engine, TOKENS, lambda i, p: found.update({i: p.clone()}))
    return found


@torch.no_grad()
def test_each_window_may_have_its_own_mask_of_heads(model):
    network = network_of(model)
    mask = torch.ones(2, 2, 4)
    mask[1, 1, 0] = 0
    before = stream(network)
    with HeadsScaled.by_row(model, mask).applied(model):
        mixed = stream(network)
    with HeadsScaled.by_row(model, mask[:, 1]).applied(model):
        masked = stream(network)
    assert torch.allclose(mixed[0], before[0], atol=1e-4)
    assert torch.allclose(mixed[1], masked[1], atol=1e-4)
    assert not torch.allclose(masked[1], before[1], atol=1e-2)
    assert torch.equal(stream(network), before)


def test_layers_run_again_from_an_ablated_head_give_what_a_mask_gives(model):
    rerunner = Rerunner(model)
    where = torch.tensor([0, 1, 1]), torch.tensor([90, 5, 95])
    rows = TokenRows(TOKENS, torch.tensor([CONTEXT, CONTEXT]), *where)
    clean = rerunner.clean(rows)
    without = rerunner.scores(clean, ablated("zero", clean, {1: [2]}))
    mask = torch.ones(2, 4)
    mask[1, 2] = 0
    network = network_of(model)
    with torch.inference_mode(), HeadsScaled.by_row(model, mask).applied(model):
        logits = network.get_output_embeddings()(stream(network)[where[0], where[1] - 1])
        wanted = TOKENS[where][:, None]
        expected = logits.log_softmax(-1).gather(1, wanted)[:, 0]
    assert torch.allclose(without, expected, atol=1e-3)
    assert not torch.allclose(without, rerunner.scores(clean), atol=1e-3)
