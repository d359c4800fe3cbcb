"""Hybrids with random weights: four layers, of which the second and the last have attention."""

from __future__ import annotations

from pathlib import Path

from transformers import AutoModelForCausalLM

from tests.helpers.models import save_uneven
from tests.models.tiny import tiny_config

WITH, WITHOUT = (1, 3), (0, 2)
_KINDS = ["linear_attention", "full_attention"] * 2
_LAYERS = {
    "jamba": {"num_hidden_layers": 4},
    "qwen3_next": {"num_hidden_layers": 4, "layer_types": _KINDS},
}


def save_hybrid(model_type: str, tokenizer, folder: Path) -> Path:
    """Written as transformers writes it, with weights that let heads attend unevenly."""
    stated = tiny_config(model_type).to_dict() | _LAYERS[model_type] | {"vocab_size": 400}
    stated |= {"mlp_only_layers": []} if model_type == "qwen3_next" else {}
    config = type(tiny_config(model_type))(**stated)
    network = AutoModelForCausalLM.from_config(config)
    return save_uneven(network, tokenizer, folder)
