"""The layouts of transformers that headscope reads, a row each, and what is stated of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind


@dataclass(frozen=True)
class ModelLayout:
    """A layout of transformers. On a tiny model with random weights each attention probability
    differs from transformers' own eager attention by less than 1e-5.
    """

    model_type: str
    """The `model_type` of `config.json`."""
    examples: str = ""
    """Models of this layout by the names that people know."""
    attention: str = ""
    """Differences of its attention from softmax(q·k) over all earlier tokens with rotary
    positions."""
    attention_kind: AttentionKind = CAUSAL
    positions_after_padding: bool = False
    """Positions are counted from the one after the padding token's number."""
    engine: str = "fused"
    """The engine that `auto` takes."""


def _encoder(model_type: str, examples: str, attention: str = "", **fields: Any) -> ModelLayout:
    """BERT and its relatives."""
    attention = attention or "keys on both sides"
    return ModelLayout(model_type, examples, attention, BIDIRECTIONAL, **fields)


LAYOUTS = (
    ModelLayout("apertus", "Apertus"),
    ModelLayout("bamba", "Bamba", "hybrid"),
    _encoder("bert", "bert-base-uncased, bert-large"),
    ModelLayout("biogpt", "BioGPT"),
    ModelLayout("bitnet", "BitNet"),
    ModelLayout("bloom", "BLOOM, BLOOMZ", "ALiBi", engine="eager"),
    _encoder("camembert", "CamemBERT", positions_after_padding=True),
    ModelLayout("codegen", "CodeGen"),
    ModelLayout("cohere", "Command R"),
    ModelLayout("cohere2", "Command R7B", "windows"),
    _encoder("data2vec-text", "data2vec (text)", positions_after_padding=True),
    ModelLayout("deepseek_v2", "DeepSeek-V2", "latent attention"),
    ModelLayout("deepseek_v3", "DeepSeek-V3, R1", "latent attention"),
    _encoder("distilbert", "DistilBERT"),
    _encoder("electra", "ELECTRA"),
    _encoder("ernie", "ERNIE 1.0 to 3.0"),
    _encoder("esm", "ESM-2", engine="eager", positions_after_padding=True),
    ModelLayout("exaone", "EXAONE 3"),
    ModelLayout("exaone4", "EXAONE 4", "windows"),
    ModelLayout("gemma", "Gemma"),
    ModelLayout("gemma2", "Gemma 2", "windows, scores capped by tanh"),
    ModelLayout("gemma3", "Gemma 3 (the text half)", "windows"),
    ModelLayout("gemma3_text", "Gemma 3", "windows"),
    ModelLayout("gemma3n_text", "Gemma 3n", "windows, layers share keys and values"),
    ModelLayout("gemma4", "Gemma 4 (the text half)", "windows, layers share keys and values"),
    ModelLayout("gemma4_text", "Gemma 4", "windows, layers share keys and values"),
    ModelLayout("glm", "GLM-4-9B"),
    ModelLayout("glm4", "GLM-4"),
    ModelLayout("gpt2", "gpt2 … gpt2-xl, distilgpt2", "learned positions"),
    ModelLayout("gpt_bigcode", "StarCoder", "one key for all heads"),
    ModelLayout("gpt_neo", "GPT-Neo", "every other layer local"),
    ModelLayout("gpt_neox", "EleutherAI/pythia-70m … pythia-12b"),
    ModelLayout("gpt_oss", "gpt-oss", "windows, a learned sink of each head"),
    ModelLayout("gptj", "GPT-J"),
    ModelLayout("granite", "Granite 3"),
    ModelLayout("granitemoehybrid", "Granite 4", "hybrid"),
    ModelLayout("helium", "Helium"),
    ModelLayout("internlm3", "InternLM 3"),
    ModelLayout("jamba", "Jamba", "hybrid"),
    ModelLayout("kimi_linear", "Kimi Linear", "hybrid, latent attention"),
    ModelLayout("lfm2", "LFM2", "hybrid"),
    ModelLayout("lfm2_moe", "LFM2 MoE", "hybrid"),
    ModelLayout("llama", "SmolLM2, Llama 2 and 3"),
    ModelLayout("llama4", "Llama 4", "chunks"),
    ModelLayout("llama4_text", "Llama 4 (text)", "chunks"),
    _encoder("luke", "LUKE", engine="eager", positions_after_padding=True),
    ModelLayout("mimo_v2_flash", "MiMo-V2-Flash", "windows, a learned sink of their heads"),
    ModelLayout("minicpm3", "MiniCPM 3", "latent attention"),
    ModelLayout("minimax", "MiniMax-01", "hybrid"),
    ModelLayout("ministral3", "Ministral 3", "windows"),
    ModelLayout("mistral", "Mistral", "windows"),
    ModelLayout("mixtral", "Mixtral", "windows"),
    _encoder("modernbert", "ModernBERT", "keys on both sides, windows"),
    ModelLayout("modernbert-decoder", "ModernBERT decoder", "windows"),
    _encoder(
        "mpnet",
        "all-mpnet-base-v2",
        "keys on both sides, position bias",
        engine="eager",
        positions_after_padding=True,
    ),
    ModelLayout("mpt", "MPT", "ALiBi", engine="eager"),
    ModelLayout("nanochat", "nanochat"),
    ModelLayout("nemotron", "Nemotron"),
    ModelLayout("nemotron_h", "Nemotron-H", "hybrid"),
    ModelLayout("olmo", "OLMo"),
    ModelLayout("olmo2", "OLMo 2"),
    ModelLayout("olmo3", "OLMo 3", "windows"),
    ModelLayout("olmoe", "OLMoE"),
    ModelLayout("openai-gpt", "GPT-1", engine="eager"),
    ModelLayout("opt", "OPT", "learned positions"),
    ModelLayout("persimmon", "Persimmon"),
    ModelLayout("phi", "Phi-1, Phi-2"),
    ModelLayout("phi3", "Phi-3, Phi-4", "windows"),
    ModelLayout("phimoe", "Phi-3.5-MoE", "windows"),
    ModelLayout("qwen2", "Qwen 2, Qwen 2.5"),
    ModelLayout("qwen2_moe", "Qwen 2 MoE"),
    ModelLayout("qwen3", "Qwen 3"),
    ModelLayout("qwen3_5", "Qwen 3.5", "hybrid"),
    ModelLayout("qwen3_moe", "Qwen 3 MoE"),
    ModelLayout("qwen3_next", "Qwen3-Next", "hybrid"),
    _encoder("roberta", "RoBERTa", positions_after_padding=True),
    _encoder("roberta-prelayernorm", "RoBERTa-PreLayerNorm", positions_after_padding=True),
    ModelLayout("sarvam_moe", "Sarvam"),
    ModelLayout("seed_oss", "Seed-OSS"),
    ModelLayout("smollm3", "SmolLM3"),
    ModelLayout("stablelm", "StableLM"),
    ModelLayout("starcoder2", "StarCoder 2", "windows"),
    ModelLayout("vaultgemma", "VaultGemma", "windows, scores capped by tanh"),
    ModelLayout("xglm", "XGLM", engine="eager"),
    _encoder("xlm-roberta", "XLM-RoBERTa", positions_after_padding=True),
    _encoder("xlm-roberta-xl", "XLM-RoBERTa-XL", positions_after_padding=True),
)
"""Layouts of well-known models, causal ones and encoders. Any other decoder is tried, and refused
by a sentence that says why."""


def find_layout(model_type: str) -> ModelLayout | None:
    """The row of a model type, if there is one.

    >>> find_layout("bloom").attention
    'ALiBi'
    """
    return next((row for row in LAYOUTS if row.model_type == model_type), None)
