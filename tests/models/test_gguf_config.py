"""A model written to GGUF as llama.cpp's converter writes it is the same when it is read."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from headscope.errors import ModelError
from headscope.models.gguf_config import CONVERSION
from headscope.models.load import load_model
from headscope.models.weight_files import find_checkpoint
from headscope.models.weights import load_weights, unpacked_gguf
from tests.models.gguf_files import VOCABULARY, convert, save_gguf, sizes_of

CONTEXT, ORIGINAL = 96, 32
"""Longest text, and the longest one before the rotary positions were scaled."""
YARN = {"rope_type": "yarn", "factor": 3.0, "original_max_position_embeddings": ORIGINAL}
YARN_KEYS = {
    "rope.scaling.type": "yarn",
    "rope.scaling.factor": 3.0,
    "rope.scaling.original_context_length": ORIGINAL,
}
LINEAR = {"rope_type": "linear", "factor": 8.0}
LINEAR_KEYS = {"rope.scaling.type": "linear", "rope.scaling.factor": 8.0}
LLAMA_3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": ORIGINAL,
}


def llama_3_divisors(width: int, theta: float) -> list[float]:
    """Divisors of the frequencies as Llama 3.1's authors define them, one by one."""
    divisors = []
    for index in range(width // 2):
        wavelength = 2 * math.pi * theta ** (2 * index / width)
        if wavelength < ORIGINAL / 4:
            divisors.append(1.0)
        elif wavelength > ORIGINAL / 1:
            divisors.append(8.0)
        else:
            smooth = (ORIGINAL / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / 8 + smooth))
    return divisors


def theta(base: float, **others: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": base, **others}}


@dataclass(frozen=True)
class Converted:
    """A model before conversion, and what the converter writes beside its usual keys."""

    family: str
    config: dict[str, Any]
    keys: dict[str, Any]
    tensors: dict[str, list[float]] = field(default_factory=dict)


LONG = [1.0, 2.0, 4.0, 8.0, 16.0, 32.0]
SHORT = [1.0, 1.0, 1.5, 1.5, 2.0, 3.0]
ATTENTION_FACTOR = math.sqrt(1 + math.log(CONTEXT / ORIGINAL) / math.log(ORIGINAL))
LONG_ROPE = {
    "rope_type": "longrope",
    "long_factor": LONG,
    "short_factor": SHORT,
    "original_max_position_embeddings": ORIGINAL,
}
LONG_ROPE_KEYS = {
    "rope.scaling.attn_factor": ATTENTION_FACTOR,
    "rope.scaling.original_context_length": ORIGINAL,
    "rope.freq_base": 500.0,
}
FACTORS = {"rope_factors_short.weight": SHORT, "rope_factors_long.weight": LONG}
GEMMA_3 = {
    "full_attention": {"rope_theta": 5000.0, **LINEAR},
    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
}
WINDOW_KEYS = {"attention.sliding_window": 7}
CASES = {
    "plain": Converted("llama", theta(500.0), {"rope.freq_base": 500.0}),
    "llama 3": Converted(
        "llama",
        theta(500.0, **LLAMA_3),
        {"rope.freq_base": 500.0, "rope.dimension_count": 16},
        {"rope_freqs.weight": llama_3_divisors(16, 500.0)},
    ),
    "linear": Converted("llama", theta(10000.0, **LINEAR), LINEAR_KEYS),
    "linear without its type": Converted(
        "llama", theta(10000.0, **LINEAR), {"rope.scale_linear": 8.0}
    ),
    "yarn": Converted("llama", theta(10000.0, **YARN), YARN_KEYS),
    "yarn of Qwen": Converted("qwen2", theta(10000.0, **YARN), YARN_KEYS),
    "heads of a stated width": Converted(
        "qwen3",
        {"head_dim": 8, **theta(10000.0)},
        {"attention.key_length": 8, "attention.value_length": 8},
    ),
    "longrope": Converted(
        "phi3",
        {
            "original_max_position_embeddings": ORIGINAL,
            **theta(500.0, partial_rotary_factor=0.75, **LONG_ROPE),
        },
        {"rope.dimension_count": 12, **LONG_ROPE_KEYS},
        FACTORS,
    ),
    "window of Phi": Converted("phi3", {"sliding_window": 7}, WINDOW_KEYS),
    "partly rotary": Converted(
        "stablelm",
        theta(500.0, partial_rotary_factor=0.5),
        {"rope.freq_base": 500.0, "rope.dimension_count": 8},
    ),
    "another base": Converted("starcoder2", theta(500.0), {"rope.freq_base": 500.0}),
    "27B of Gemma 2": Converted(
        "gemma2",
        {"num_hidden_layers": 46, "query_pre_attn_scalar": 16, "head_dim": 32, "sliding_window": 7},
        {"attention.key_length": 32, "attention.value_length": 32, **WINDOW_KEYS},
    ),
    "softcap of Gemma 2": Converted(
        "gemma2",
        {"query_pre_attn_scalar": 16, "head_dim": 16, "attn_logit_softcapping": 2.0},
        {"attention.key_length": 16, "attn_logit_softcapping": 2.0},
    ),
    "Gemma 3": Converted(
        "gemma3_text",
        {
            "query_pre_attn_scalar": 32,
            "head_dim": 32,
            "sliding_window": 7,
            "rope_parameters": GEMMA_3,
            "sliding_window_pattern": 2,
        },
        {
            "attention.key_length": 32,
            "attention.sliding_window_pattern": [True, False],
            "rope.freq_base": 5000.0,
            **WINDOW_KEYS,
            **LINEAR_KEYS,
        },
    ),
    "27B of Gemma 3": Converted(
        "gemma3_text",
        {"num_hidden_layers": 62, "query_pre_attn_scalar": 16, "head_dim": 32},
        {"attention.key_length": 32, "attention.sliding_window": 4096},
    ),
}
"""Models, by what transformers' GGUF reader does not read of their files."""


def network_of(case: Converted) -> Any:
    sizes = {
        "vocab_size": VOCABULARY,
        "hidden_size": 64,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 48,
        "max_position_embeddings": CONTEXT,
        "tie_word_embeddings": case.family.startswith("gemma"),
        "pad_token_id": 0,
        "bos_token_id": 0,
        "eos_token_id": 0,
    }
    config = AutoConfig.for_model(case.family, **sizes | case.config)
    torch.manual_seed(0)
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if name.endswith(("q_proj.weight", "k_proj.weight", "qkv_proj.weight")):
                weight.mul_(12)  # patterns that are far from even
    return network


def patterns(network: Any, length: int) -> torch.Tensor:
    with torch.inference_mode():
        tokens = torch.arange(length)[None] * 7 % VOCABULARY
        return torch.stack(network(tokens, output_attentions=True).attentions)


DEEP = "27B of Gemma 3"
"""As Gemma 2's, with more layers than any other."""


@pytest.mark.parametrize(
    "title",
    [*(title for title in CASES if title != DEEP), pytest.param(DEEP, marks=pytest.mark.slow)],
)
def test_a_converted_model_has_the_patterns_of_the_model_before(tmp_path, title):
    case = CASES[title]
    original = network_of(case)
    path = convert(tmp_path / "m.gguf", original, case.keys, case.tensors)
    read, _ = load_weights("m", find_checkpoint("m", path), torch.float32)
    for length in (24, CONTEXT):  # LongRoPE has other frequencies for long texts
        expected = patterns(original, length)
        assert expected.amax(-1).mean() > 2 / length
        torch.testing.assert_close(patterns(read, length), expected, atol=1e-4, rtol=0)


STATED = {
    "rope.scaling.type": "dynamic",
    "rope.scaling.yarn_log_multiplier": 0.1,
    "rope.dimension_count": 4,
    "rope.dimension_sections": [1, 1, 2],
    "attention.value_length": 16,
    "attention.sliding_window": 16,
    "attention.scale": 0.5,
    "attention.causal": False,
    "attn_logit_softcapping": 30.0,
    "residual_scale": 0.5,
    "expert_count": 8,
    "attention.head_count": 10**9,
}
"""Keys that no Llama of transformers takes with these values."""


@pytest.mark.parametrize("key", STATED)
def test_a_key_that_is_not_understood_is_refused_by_its_name(tmp_path, key):
    path = save_gguf(tmp_path / "m.gguf", sizes_of(2), keys={key: STATED[key]})
    with pytest.raises(ModelError, match=key):
        load_weights("m", find_checkpoint("m", path), torch.float32)


@pytest.mark.parametrize("numbers", [3, 5])
def test_divisors_that_do_not_fit_the_heads_are_refused(tmp_path, numbers):
    sizes = sizes_of(2) | {"rope_freqs.weight": (numbers,)}
    path = save_gguf(tmp_path / "m.gguf", sizes)
    with pytest.raises(ModelError, match=r"rope_freqs\.weight"):
        load_weights("m", find_checkpoint("m", path), torch.float32)


def test_a_scaled_model_is_the_same_when_it_is_read_from_the_cache(
    tmp_path, tokenizer, monkeypatch
):
    monkeypatch.setenv("HEADSCOPE_CACHE", str(tmp_path / "cache"))
    file = save_gguf(tmp_path / "m.gguf", sizes_of(2), tokenizer=tokenizer, keys=YARN_KEYS)
    first = load_model(str(file)).engine.network
    second = load_model(str(file)).engine.network
    assert second.config.rope_parameters == first.config.rope_parameters
    assert first.config.rope_parameters["rope_type"] == "yarn"


def test_a_file_that_an_earlier_conversion_unpacked_is_unpacked_again(monkeypatch):
    now = unpacked_gguf("0" * 64)
    monkeypatch.setattr("headscope.models.weights.CONVERSION", CONVERSION + 1)
    assert unpacked_gguf("0" * 64) != now
