"""Dimensions of configurations, by the numbers that the published models state."""

from __future__ import annotations

import pytest
import transformers

from headscope.models.layout.dimensions import read_dimensions


def layout(kind: str, **fields):
    return read_dimensions("m", getattr(transformers, kind)(**fields))


FALCON_40B = {
    "hidden_size": 8192,
    "num_attention_heads": 128,
    "num_kv_heads": 8,
    "new_decoder_architecture": True,
}


@pytest.mark.parametrize(
    ("kind", "fields", "expected"),
    [
        # tiiuae/falcon-7b, falcon-40b and falcon-rw-1b: 71 heads on one key, 128 on 8, 32 on 32
        ("FalconConfig", {"num_attention_heads": 71, "multi_query": True}, (71, 1)),
        ("FalconConfig", FALCON_40B, (128, 8)),
        ("FalconConfig", {"num_attention_heads": 32, "multi_query": False}, (32, 32)),
        ("GPTBigCodeConfig", {"n_head": 48, "n_embd": 6144}, (48, 1)),
        ("GPTBigCodeConfig", {"n_head": 48, "n_embd": 6144, "multi_query": False}, (48, 48)),
        ("DbrxConfig", {"n_heads": 48, "attn_config": {"kv_n_heads": 8}}, (48, 8)),
    ],
)
def test_heads_on_shared_keys_are_those_of_the_published_models(kind, fields, expected):
    found = layout(kind, **fields)
    assert (found.heads, found.key_value_heads) == expected


def test_the_numbers_of_a_model_that_also_sees_are_those_of_its_text():
    text = {
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "hidden_size": 48,
        "head_dim": 16,
        "vocab_size": 99,
    }
    found = layout("Gemma3Config", text_config=text)
    assert (found.layers, found.heads, found.key_value_heads) == (3, 6, 2)
    assert (found.d_model, found.d_head, found.vocabulary) == (48, 16, 99)
