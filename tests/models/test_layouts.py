"""The layouts of the table, and some that are refused."""

from __future__ import annotations

import pytest
import torch

from headscope.errors import ModelError
from headscope.models.layout.table import find_layout
from headscope.models.load import load_model
from headscope.models.null_model import null_model
from tests.models.every_layout import attention_of, check_batches, own_network, patterns, save_tiny
from tests.models.tiny import CONTEXT, ENCODERS, MODEL_TYPES, tiny_config

LONGEST_SENTENCE = 500


def check_null_model(model, tokens, own: list[torch.Tensor]) -> None:
    """Check that shuffled matrices change what every head does, and are put back."""
    with null_model(model.engine, seed=1):
        shuffled = patterns(model, tokens)
    for before, other, after in zip(own, shuffled, patterns(model, tokens), strict=True):
        assert float((before - other).abs().amax((0, 2, 3)).min()) > 0.05
        assert torch.equal(before, after)


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_layout_shows_its_own_attention_or_is_refused_in_one_sentence(
    model_type, tokenizer, tmp_path
):
    save_tiny(model_type, tokenizer, tmp_path)
    stated = find_layout(model_type)
    try:
        model = load_model(str(tmp_path))
    except ModelError as error:
        message = str(error)
        assert stated is None, message
        assert str(tmp_path) in message
        assert "\n" not in message
        assert len(message) < LONGEST_SENTENCE + len(str(tmp_path))
        return
    context = CONTEXT
    if stated is not None and stated.positions_after_padding:
        context -= 1 + (tiny_config(model_type).pad_token_id or 0)
    tokens = torch.randint(1, 300, (2, context), generator=torch.Generator().manual_seed(1))
    network = own_network(tmp_path, model_type)
    seen, own = patterns(model, tokens), attention_of(network, tokens, model_type)
    assert (model.context, model.attention_kind.sees_future) == (context, model_type in ENCODERS)
    assert [each.shape for each in seen] == [each.shape for each in own]
    assert max(float((a - b).abs().max()) for a, b in zip(seen, own, strict=True)) < 1e-5
    assert stated is not None, f"headscope/models/layout/table.py has no row for {model_type}"
    assert model.engine.name == stated.engine
    assert ("hybrid" in stated.attention) == bool(model.others)
    assert ("sink" in stated.attention) == getattr(model.engine, "sinks", False)
    check_null_model(model, tokens, seen)
    check_batches(model)
    # a test of even attention would prove little
    assert max(float(pattern[..., 20:, :].max(-1).values.mean()) for pattern in own) > 0.08
