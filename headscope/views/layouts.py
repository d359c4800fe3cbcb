"""The layouts of models that headscope reads, as measured; a test measures them again."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Layout:
    """What was measured of one layout of transformers, on a tiny model with random weights."""

    name: str
    """transformers' `model_type`, as `config.json` states it."""
    examples: str = ""
    """Models of this layout by the names that people know."""
    attention: str = ""
    """What its attention has beside softmax(q·k) over all earlier tokens, and rotary positions."""
    engine: str = "fused"
    """Which engine `auto` takes."""
    differs_by: str = "< 1e-5"
    """A bound on the largest difference of any probability from transformers' own eager attention,
    on a text that is longer than windows and chunks."""
    twin: bool = True
    """Whether its matrices can be shuffled for the twin, and put back."""
    planted: str = ""
    """The tag of a head that was built by hand in a model of this layout and is found again, or of
    how many such heads each is found."""


LAYOUTS = (
    Layout("afmoe", "", "windows"),
    Layout("apertus", "Apertus"),
    Layout("arcee"),
    Layout("aria_text"),
    Layout("axk1", "", "latent attention"),
    Layout("axk2", "", "latent attention, chosen keys"),
    Layout("bailing_hybrid", "", "hybrid, latent attention"),
    Layout("bamba", "Bamba", "hybrid"),
    Layout("beam", "", "windows"),
    Layout("bert", "bert-base-uncased, bert-large", "keys on both sides", planted="5 of 5"),
    Layout("biogpt", "BioGPT"),
    Layout("bitnet", "BitNet"),
    Layout("bloom", "BLOOM, BLOOMZ", "ALiBi", planted="lexical/nearest-VERB"),
    Layout("codegen", "CodeGen"),
    Layout("cohere", "Command R"),
    Layout("cohere2", "Command R7B", "windows"),
    Layout("cohere2_moe", "", "windows"),
    Layout("cwm", "", "windows"),
    Layout("deepseek_v2", "DeepSeek-V2", "latent attention"),
    Layout("deepseek_v3", "DeepSeek-V3, R1", "latent attention"),
    Layout("deepseek_v32", "DeepSeek-V3.2", "latent attention, chosen keys"),
    Layout("diffllama"),
    Layout("distilbert", "DistilBERT", "keys on both sides"),
    Layout("dots1"),
    Layout("electra", "ELECTRA", "keys on both sides"),
    Layout("ernie4_5"),
    Layout("ernie4_5_moe"),
    Layout("exaone4", "EXAONE 4", "windows"),
    Layout("exaone_moe", "", "windows"),
    Layout("falcon", "Falcon", "ALiBi or rotary positions"),
    Layout("falcon_h1"),
    Layout("flex_olmo"),
    Layout("flint", "", "windows, a learned sink of each head"),
    Layout("fuyu"),
    Layout("gemma", "Gemma"),
    Layout("gemma2", "Gemma 2", "windows, scores capped by tanh"),
    Layout("gemma3", "Gemma 3 (the text half)", "windows"),
    Layout("gemma3_text", "Gemma 3", "windows"),
    Layout("gemma3n_text", "Gemma 3n", "windows"),
    Layout("glm", "GLM-4-9B"),
    Layout("glm4", "GLM-4"),
    Layout("glm4_moe"),
    Layout("glm4_moe_lite", "", "latent attention"),
    Layout("glm_moe_dsa", "", "latent attention, chosen keys"),
    Layout("got_ocr2"),
    Layout("gpt-sw3"),
    Layout("gpt2", "gpt2 … gpt2-xl, distilgpt2", "learned positions", planted="9 of 9"),
    Layout("gpt_bigcode", "StarCoder", "one key for all heads"),
    Layout("gpt_neo", "GPT-Neo", "every other layer local"),
    Layout("gpt_neox", "EleutherAI/pythia-70m … pythia-12b", planted="9 of 9"),
    Layout(
        "gpt_oss",
        "gpt-oss",
        "windows, a learned sink of each head",
        planted="delimiter/punctuation",
    ),
    Layout("gptj", "GPT-J"),
    Layout("granite", "Granite 3"),
    Layout("granitemoe"),
    Layout("granitemoehybrid", "Granite 4", "hybrid"),
    Layout("granitemoeshared"),
    Layout("helium", "Helium"),
    Layout("hunyuan_v1_dense"),
    Layout("hunyuan_v1_moe"),
    Layout("hy_v3"),
    Layout("hy_v4", "", "a learned sink of each head, chosen keys"),
    Layout("hyperclovax"),
    Layout("internlm3", "InternLM 3"),
    Layout("iquestcoder"),
    Layout("jais2"),
    Layout("jamba", "Jamba", "hybrid", planted="delimiter/punctuation"),
    Layout("jetmoe", "", "", engine="lens", twin=False),
    Layout("kimi_linear", "Kimi Linear", "hybrid, latent attention"),
    Layout("kolibri1", "", "windows"),
    Layout("laguna"),
    Layout("lfm2", "LFM2", "hybrid"),
    Layout("lfm2_moe", "LFM2 MoE", "hybrid"),
    Layout("lfm3", "", "hybrid, windows"),
    Layout("llama", "SmolLM2, Llama 2 and 3"),
    Layout("llama4", "Llama 4", "chunks"),
    Layout("llama4_text", "Llama 4 (text)", "chunks"),
    Layout("longcat_flash", "", "latent attention"),
    Layout("mellum"),
    Layout("minicpm3", "MiniCPM 3", "latent attention"),
    Layout("minimax", "MiniMax-01", "hybrid"),
    Layout("minimax_m2"),
    Layout("minimax_m3_vl_text"),
    Layout("ministral", "", "windows"),
    Layout("ministral3", "Ministral 3", "windows"),
    Layout("mistral", "Mistral", "windows", planted="positional/local"),
    Layout("mixtral", "Mixtral", "windows"),
    Layout("modernbert", "ModernBERT", "keys on both sides, windows"),
    Layout("modernbert-decoder", "ModernBERT decoder", "", engine="lens"),
    Layout("mpt", "MPT", "ALiBi"),
    Layout("nanochat", "nanochat"),
    Layout("nemotron", "Nemotron"),
    Layout("nemotron_h", "Nemotron-H", "hybrid"),
    Layout("olmo", "OLMo"),
    Layout("olmo2", "OLMo 2"),
    Layout("olmo3", "OLMo 3", "windows"),
    Layout("olmo_hybrid", "", "hybrid"),
    Layout("olmoe", "OLMoE"),
    Layout("openai-gpt", "GPT-1", "", engine="lens"),
    Layout("opt", "OPT", "learned positions"),
    Layout("persimmon", "Persimmon"),
    Layout("phi", "Phi-1, Phi-2"),
    Layout("phi3", "Phi-3, Phi-4", "windows"),
    Layout("phi4_multimodal", "", "windows"),
    Layout("phimoe", "Phi-3.5-MoE", "windows"),
    Layout("qwen2", "Qwen 2, Qwen 2.5"),
    Layout("qwen2_moe", "Qwen 2 MoE"),
    Layout("qwen3", "Qwen 3"),
    Layout("qwen3_5", "Qwen 3.5", "hybrid"),
    Layout("qwen3_5_moe", "", "hybrid"),
    Layout("qwen3_5_moe_text", "", "hybrid"),
    Layout("qwen3_5_text", "", "hybrid"),
    Layout("qwen3_moe", "Qwen 3 MoE"),
    Layout("qwen3_next", "Qwen3-Next", "hybrid"),
    Layout("qwen4_exp", "", "hybrid, chosen keys"),
    Layout("qwen4_exp_text", "", "hybrid, chosen keys"),
    Layout("roberta", "RoBERTa", "keys on both sides"),
    Layout("seed_oss", "Seed-OSS"),
    Layout("smollm3", "SmolLM3"),
    Layout("solar_open"),
    Layout("stablelm", "StableLM"),
    Layout("starcoder2", "StarCoder 2", "windows"),
    Layout("vaultgemma", "VaultGemma", "windows, scores capped by tanh"),
    Layout("xglm", "XGLM", "", engine="lens"),
    Layout("youtu", "", "latent attention"),
    # those with an encoder and a decoder
    Layout("bart", "BART", "three stacks, learned positions"),
    Layout(
        "marian", "Marian, OPUS-MT", "three stacks", planted="alignment/this-word, sink/source-end"
    ),
    Layout("mbart", "mBART", "three stacks, learned positions"),
    Layout("mt5", "mT5", "three stacks, biases by distance"),
    Layout("pegasus", "PEGASUS", "three stacks"),
    Layout("t5", "T5, Flan-T5", "three stacks, biases by distance"),
)
"""Of all causal layouts of the installed transformers, and of encoders, those that are read, one
line each. What is not here is refused by a sentence that says why, as far as two tiny layers can be
built of it."""
