"""Every causal layout and encoder that transformers knows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from headscope.errors import ModelError
from headscope.models.layout.projections import (
    find_projections,
    number_layers,
    output_projection,
    projection_modules,
)
from headscope.models.layout.table import LAYOUTS, ModelLayout
from headscope.models.load import load_model
from headscope.models.null_model import null_model
from tests.models.every_layout import attention_of, check_batches, own_network, patterns, save_tiny
from tests.models.tiny import CONTEXT, ENCODERS, MODEL_TYPES

LONGEST_SENTENCE = 500
UNMEASURED = ("examples", "attention", "planted", "own_code", "unnumbered", "tensors",
              "positions_after_padding", "unbounded")  # fmt: skip
ROWS = {layout.model_type: layout for layout in LAYOUTS}


def has_twin(model, tokens, own: list[torch.Tensor]) -> bool:
    """Test if its shuffled matrices change what every head does, and are put back."""
    try:
        with null_model(model.engine, seed=1):
            twin = patterns(model, tokens)
    except ModelError:
        return False
    for before, other, after in zip(own, twin, patterns(model, tokens), strict=True):
        assert float((before - other).abs().amax((0, 2, 3)).min()) > 0.05
        assert torch.equal(before, after)
    return True


def placement(network, row: ModelLayout) -> dict[str, object]:
    """Places of a network's matrices; as its row says where no attention says its layer."""
    number_layers(network)
    forms = set()
    for module in projection_modules(network):
        if find_projections(module) is None and row.projections is None:
            continue
        output = output_projection(module)
        (name,) = [name for name, inner in module.named_modules() if inner is output]
        forms.add((find_projections(module), name))
    if not forms:
        return {"projections": row.projections, "output": row.output}
    ((projections, output),) = forms
    return {"projections": projections, "output": output}


@pytest.mark.parametrize("model_type", MODEL_TYPES)
def test_a_layout_shows_its_own_attention_or_is_refused_in_one_sentence(
    model_type, tokenizer, tmp_path
):
    save_tiny(model_type, tokenizer, tmp_path)
    stated = ROWS.get(model_type)
    try:
        model = load_model(str(tmp_path))
    except ModelError as error:
        message = str(error)
        assert stated is None, message
        assert str(tmp_path) in message
        assert "\n" not in message
        assert len(message) < LONGEST_SENTENCE + len(str(tmp_path))
        return
    # RoBERTa and its relatives count positions from behind the number of their padding
    context = CONTEXT - (model_type in ("camembert", "roberta", "xlm-roberta"))
    tokens = torch.randint(1, 300, (2, context), generator=torch.Generator().manual_seed(1))
    network = own_network(tmp_path, model_type)
    seen, own = patterns(model, tokens), attention_of(network, tokens, model_type)
    assert (model.context, model.attention_kind.sees_future) == (context, model_type in ENCODERS)
    assert [each.shape for each in seen] == [each.shape for each in own]
    assert max(float((a - b).abs().max()) for a, b in zip(seen, own, strict=True)) < 1e-5
    assert stated is not None, f"headscope/models/layout/table.py has no row for {model_type}"
    measured = ModelLayout(
        model_type,
        engine=model.engine.name,
        twin=has_twin(model, tokens, seen),
        attention_kind=model.attention_kind,
        **placement(network, stated),
    )
    assert replace(measured, **{name: getattr(stated, name) for name in UNMEASURED}) == stated
    assert ("hybrid" in stated.attention) == bool(model.others)
    assert ("sink" in stated.attention) == getattr(model.engine, "sinks", False)
    check_batches(model)
    # a test of even attention would prove little
    assert max(float(pattern[..., 20:, :].max(-1).values.mean()) for pattern in own) > 0.08
