"""The check of a layout: its own patterns, or one sentence that says why not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from headscope.errors import ModelError
from headscope.models.engines.engine import stream_patterns
from headscope.models.layout.projections import (
    find_projections,
    number_layers,
    output_projection,
    projection_modules,
)
from headscope.models.layout.table import LAYOUTS, ModelLayout
from headscope.models.load import load_model
from headscope.models.null_model import null_model
from tests.models.batch_independence import check_batches
from tests.models.tiny import CONTEXT, ENCODERS, LARGEST, tiny_config

LONGEST_SENTENCE = 500
UNMEASURED = ("examples", "attention", "planted", "own_code", "unnumbered", "tensors",
              "positions_after_padding", "unbounded")  # fmt: skip
ROWS = {layout.model_type: layout for layout in LAYOUTS}


def save_tiny(model_type: str, tokenizer, folder: Path, **more: object) -> None:
    """A tiny model with random weights that let heads attend unevenly, and `more` of its fields.

    What transformers itself cannot build from tiny numbers is skipped with its reason.
    """
    try:
        config = tiny_config(model_type)
        for name, value in more.items():
            setattr(config, name, value)
        with torch.device("meta"):
            empty = kind_of(model_type).from_config(config)
        size = sum(weights.numel() for weights in empty.parameters())
        if size > LARGEST:
            raise ValueError(f"{size:,} parameters")
        network = kind_of(model_type).from_config(config)
    except Exception as error:
        pytest.skip(f"transformers cannot build it tiny: {str(error).splitlines()[0]}")
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weights in network.named_parameters():
            uneven = weights.dim() > 1 or name.endswith("sinks")
            if uneven and weights.is_floating_point():
                weights.normal_(0, 0.25, generator=generator)
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def kind_of(model_type: str):
    """The class of transformers that loads such a model."""
    return AutoModelForMaskedLM if model_type in ENCODERS else AutoModelForCausalLM


def own_network(folder: Path, model_type: str = ""):
    """The model as transformers itself loads it, with attention that gives its patterns."""
    return kind_of(model_type).from_pretrained(folder, attn_implementation="eager").eval()


def own_attention(folder: Path, tokens, model_type: str = "") -> list[torch.Tensor]:
    """Attention by transformers itself; of a hybrid by those layers that have whole patterns."""
    return attention_of(own_network(folder, model_type), tokens, model_type)


def attention_of(network, tokens, model_type: str = "") -> list[torch.Tensor]:
    """Each layer's pattern, of a model that is loaded already."""
    how = {} if model_type in ENCODERS else {"use_cache": False}
    with torch.no_grad():
        found = network.base_model(tokens, output_attentions=True, **how)
    size = tokens.shape[-1]
    return [each for each in found.attentions if each is not None and each.shape[-1] == size]


def patterns(model, tokens) -> list[torch.Tensor]:
    """Each layer's that has one, in order."""
    seen: dict[int, torch.Tensor] = {}
    stream_patterns(model.engine, tokens, lambda layer, p: seen.update({layer: p.clone()}))
    assert sorted(seen) == list(model.attention_layers)
    return [seen[layer] for layer in sorted(seen)]


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


def check_layout(model_type: str, tokenizer, folder: Path) -> None:
    save_tiny(model_type, tokenizer, folder)
    stated = ROWS.get(model_type)
    try:
        model = load_model(str(folder))
    except ModelError as error:
        message = str(error)
        assert stated is None, message
        assert str(folder) in message
        assert "\n" not in message
        assert len(message) < LONGEST_SENTENCE + len(str(folder))
        return
    # RoBERTa and its relatives count positions from behind the number of their padding
    context = CONTEXT - (model_type in ("camembert", "roberta", "xlm-roberta"))
    tokens = torch.randint(1, 300, (2, context), generator=torch.Generator().manual_seed(1))
    network = own_network(folder, model_type)
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
