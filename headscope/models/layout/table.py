"""The layouts of transformers that headscope reads, a row each: where a layer keeps its queries,
keys, values and outputs, and what was measured of it.

`projections.py` takes the matrices apart, with one function for each `Split`. Norms and masks have
no names here: a norm is recognised by what it computes (`direct_paths.py`), and a mask comes with
every call of a layer's attention (`engines/attention.py`), but of layouts with `own_code`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from headscope.attention_kind import BIDIRECTIONAL, CAUSAL, AttentionKind

BUFFER = re.compile(
    r"(?:.*\.)?(?:attn|attention|self_attn|self_attention)(?:\.attention|\.self)?"
    r"\.(?:masked_)?bias"
    r"|.*inv_freq|(?:.*\.)?position_ids|rope_(?:freqs|factors_\w+)(?:\.weight)?"
)
"""Causal masks, positions and rotary frequencies, which old files store beside the parameters."""


@dataclass(frozen=True)
class LayerTensors:
    """Biases, norms and feed-forward matrices of a layer, and learned positions of the model.

    Biases are as transformers' own modelling code sets them, not only as the papers describe them.
    """

    qkv_bias: bool
    o_bias: bool
    feed_forward_bias: bool
    feed_forward_matrices: int
    """2: up and down; 3: gate, up and down (SwiGLU)."""
    norm_vectors: int
    """Vectors of d_model in a layer's norms: 2 for a LayerNorm (scale and shift), 1 for RMSNorm."""
    final_norm_vectors: int
    learned_positions: bool


GPT2 = LayerTensors(
    qkv_bias=True,
    o_bias=True,
    feed_forward_bias=True,
    feed_forward_matrices=2,
    norm_vectors=4,
    final_norm_vectors=2,
    learned_positions=True,
)
LLAMA = LayerTensors(
    qkv_bias=False,
    o_bias=False,
    feed_forward_bias=False,
    feed_forward_matrices=3,
    norm_vectors=2,
    final_norm_vectors=1,
    learned_positions=False,
)


def gpt2_tensors(_: Any) -> LayerTensors:
    """GPT-2's, whatever the configuration says."""
    return GPT2


def gpt_neox_tensors(config: Any) -> LayerTensors:
    """GPT-NeoX's: rotary positions, and biases of attention by the configuration."""
    bias = config.attention_bias
    return replace(GPT2, learned_positions=False, qkv_bias=bias, o_bias=bias)


def llama_tensors(config: Any) -> LayerTensors:
    """Llama's, with the biases that the configuration says."""
    return replace(
        LLAMA,
        qkv_bias=config.attention_bias,
        o_bias=config.attention_bias,
        feed_forward_bias=config.mlp_bias,
    )


def mistral_tensors(_: Any) -> LayerTensors:
    """Mistral's: Llama's without biases."""
    return LLAMA


def qwen2_tensors(_: Any) -> LayerTensors:
    """Qwen 2's: Llama's with biases of queries, keys and values."""
    return replace(LLAMA, qkv_bias=True)


class Split(Enum):
    """Order of the rows of W_Q, W_K and W_V; `projections.py` has a function for each."""

    SEPARATE = "a matrix for queries, one for keys, one for values"
    BLOCKS = "one matrix: all queries, then all keys, then all values"
    BY_KEY_HEAD = "one matrix: for each key head its queries, its key, its value"
    CODEGEN = "one matrix of four parts: each with queries, values, keys"
    FACTORS = "factors of latent attention, each a matrix of its own (DeepSeek-V2, 2.1)"


@dataclass(frozen=True)
class Projections:
    """Modules of a layer's attention that hold W_Q, W_K and W_V."""

    modules: tuple[str, ...]
    """Attributes of the attention, for Q, K and V or for the one that holds all three; of `FACTORS`
    those that a layer may have, the last one always."""
    split: Split = Split.SEPARATE
    attention_class: str = ""
    """Class of the attention; empty where the names of the modules say enough."""


Q_PROJ = Projections(("q_proj", "k_proj", "v_proj"))
BERT = Projections(("self.query", "self.key", "self.value"))
DISTILBERT = Projections(("q_lin", "k_lin", "v_lin"))
C_ATTN = Projections(("c_attn",), Split.BLOCKS)
STARCODER = Projections(("c_attn",), Split.BY_KEY_HEAD, attention_class="GPTBigCodeAttention")
QUERY_KEY_VALUE = Projections(("query_key_value",), Split.BY_KEY_HEAD)
WQKV = Projections(("Wqkv",), Split.BLOCKS)
QKV_PROJ = Projections(("qkv_proj",), Split.BLOCKS)
CODEGEN = Projections(("qkv_proj",), Split.CODEGEN, attention_class="CodeGenAttention")
LATENT = Projections(
    ("q_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj"), Split.FACTORS
)


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
    projections: Projections | None = Q_PROJ
    """W_Q, W_K and W_V; None where there are none for all tokens."""
    output: str = "o_proj"
    """Module of W_O within the attention; BERT's within the parent of its attention."""
    own_code: str = ""
    """Class and method that compute attention where transformers' attention interface is not
    called; `engines/fused.py` has a replacement for each."""
    unnumbered: str = ""
    """Class of the attention where it is not told the number of its layer."""
    attention_kind: AttentionKind = CAUSAL
    unbounded: bool = False
    """Positions are distances alone (ALiBi), and the configuration may state no context."""
    positions_after_padding: bool = False
    """Positions are counted from the one after the padding token's number."""
    tensors: Callable[[Any], LayerTensors] | None = None
    """A layer's biases and norms by a configuration, where they are known."""
    engine: str = "fused"
    """The engine that `auto` takes."""
    twin: bool = True
    """The matrices can be shuffled for the null model, and put back."""
    planted: str = ""
    """Tag of a head that was built by hand in a model of this layout and is found again, or of
    how many such heads each is found."""


def _bert(model_type: str, examples: str, **fields: Any) -> ModelLayout:
    """BERT and its relatives."""
    return ModelLayout(
        model_type,
        examples,
        "keys on both sides",
        projections=BERT,
        output="output.dense",
        attention_kind=BIDIRECTIONAL,
        **fields,
    )


LAYOUTS = (
    ModelLayout("afmoe", "", "windows"),
    ModelLayout("apertus", "Apertus"),
    ModelLayout("apertus1p5_text", "Apertus 1.5 (text)"),
    ModelLayout("arcee"),
    ModelLayout("aria_text"),
    ModelLayout("axk1", "", "latent attention", projections=LATENT),
    ModelLayout("bailing_hybrid", "", "hybrid, latent attention", projections=LATENT),
    ModelLayout("bamba", "Bamba", "hybrid"),
    ModelLayout("beam", "", "windows"),
    _bert("bert", "bert-base-uncased, bert-large", planted="5 of 5"),
    ModelLayout("biogpt", "BioGPT", output="out_proj"),
    ModelLayout("bitnet", "BitNet"),
    ModelLayout(
        "bloom",
        "BLOOM, BLOOMZ",
        "ALiBi",
        projections=QUERY_KEY_VALUE,
        output="dense",
        own_code="BloomAttention.forward",
        unbounded=True,
        planted="lexical/nearest-VERB",
    ),
    _bert("camembert", "CamemBERT", positions_after_padding=True),
    ModelLayout(
        "codegen",
        "CodeGen",
        projections=CODEGEN,
        output="out_proj",
    ),
    ModelLayout("cohere", "Command R"),
    ModelLayout("cohere2", "Command R7B", "windows"),
    ModelLayout("cohere2_moe", "", "windows"),
    ModelLayout("cwm", "", "windows"),
    ModelLayout("deepseek_v2", "DeepSeek-V2", "latent attention", projections=LATENT),
    ModelLayout("deepseek_v3", "DeepSeek-V3, R1", "latent attention", projections=LATENT),
    ModelLayout("diffllama"),
    ModelLayout(
        "distilbert",
        "DistilBERT",
        "keys on both sides",
        projections=DISTILBERT,
        output="out_lin",
        unnumbered="DistilBertSelfAttention",
        attention_kind=BIDIRECTIONAL,
    ),
    ModelLayout("dots1"),
    _bert("electra", "ELECTRA"),
    _bert("ernie", "ERNIE 1.0 to 3.0"),
    ModelLayout("ernie4_5"),
    ModelLayout("ernie4_5_moe"),
    ModelLayout("exaone", "EXAONE 3"),
    ModelLayout("exaone4", "EXAONE 4", "windows"),
    ModelLayout("exaone_moe", "", "windows"),
    ModelLayout(
        "falcon",
        "Falcon",
        "ALiBi or rotary positions",
        projections=QUERY_KEY_VALUE,
        output="dense",
        own_code="FalconAttention.forward",
    ),
    ModelLayout("falcon_h1"),
    ModelLayout("flex_olmo"),
    ModelLayout("flint", "", "windows, a learned sink of each head"),
    ModelLayout("fuyu", projections=QUERY_KEY_VALUE, output="dense"),
    ModelLayout("gemma", "Gemma"),
    ModelLayout("gemma2", "Gemma 2", "windows, scores capped by tanh"),
    ModelLayout("gemma3", "Gemma 3 (the text half)", "windows"),
    ModelLayout("gemma3_text", "Gemma 3", "windows"),
    ModelLayout("glm", "GLM-4-9B"),
    ModelLayout("glm4", "GLM-4"),
    ModelLayout("glm4_moe"),
    ModelLayout("glm4_moe_lite", "", "latent attention", projections=LATENT),
    ModelLayout("got_ocr2"),
    ModelLayout("gpt-sw3", projections=C_ATTN, output="c_proj"),
    ModelLayout(
        "gpt2",
        "gpt2 … gpt2-xl, distilgpt2",
        "learned positions",
        projections=C_ATTN,
        output="c_proj",
        tensors=gpt2_tensors,
        planted="9 of 9",
    ),
    ModelLayout(
        "gpt_bigcode", "StarCoder", "one key for all heads", projections=STARCODER, output="c_proj"
    ),
    ModelLayout(
        "gpt_neo",
        "GPT-Neo",
        "every other layer local",
        output="out_proj",
        own_code="GPTNeoSelfAttention._attn",
    ),
    ModelLayout(
        "gpt_neox",
        "EleutherAI/pythia-70m … pythia-12b",
        projections=QUERY_KEY_VALUE,
        output="dense",
        tensors=gpt_neox_tensors,
        planted="9 of 9",
    ),
    ModelLayout(
        "gpt_oss",
        "gpt-oss",
        "windows, a learned sink of each head",
        planted="delimiter/punctuation",
    ),
    ModelLayout("gptj", "GPT-J", output="out_proj"),
    ModelLayout("granite", "Granite 3"),
    ModelLayout("granitemoe"),
    ModelLayout("granitemoehybrid", "Granite 4", "hybrid"),
    ModelLayout("granitemoeshared"),
    ModelLayout("helium", "Helium"),
    ModelLayout("hunyuan_v1_dense"),
    ModelLayout("hunyuan_v1_moe"),
    ModelLayout("hy_v3"),
    ModelLayout("hyperclovax"),
    ModelLayout("internlm3", "InternLM 3"),
    ModelLayout("iquestcoder"),
    ModelLayout("jais2"),
    ModelLayout("jamba", "Jamba", "hybrid", planted="delimiter/punctuation"),
    ModelLayout("jetmoe", projections=None, engine="lens", twin=False),
    ModelLayout("kimi_linear", "Kimi Linear", "hybrid, latent attention", projections=LATENT),
    ModelLayout("kolibri1", "", "windows"),
    ModelLayout("laguna"),
    ModelLayout("lara_mini", "Lara 4 Mini", "hybrid, windows"),
    ModelLayout("lfm2", "LFM2", "hybrid", output="out_proj"),
    ModelLayout("lfm2_moe", "LFM2 MoE", "hybrid", output="out_proj"),
    ModelLayout("lfm3", "", "hybrid, windows"),
    ModelLayout("llama", "SmolLM2, Llama 2 and 3", tensors=llama_tensors),
    ModelLayout("llama4", "Llama 4", "chunks"),
    ModelLayout("llama4_text", "Llama 4 (text)", "chunks"),
    ModelLayout("longcat_flash", "", "latent attention", projections=LATENT),
    ModelLayout("mellum"),
    ModelLayout("minicpm3", "MiniCPM 3", "latent attention", projections=LATENT),
    ModelLayout("minimax", "MiniMax-01", "hybrid"),
    ModelLayout("minimax_m2"),
    ModelLayout("ministral", "", "windows"),
    ModelLayout("ministral3", "Ministral 3", "windows"),
    ModelLayout(
        "mistral", "Mistral", "windows", tensors=mistral_tensors, planted="positional/local"
    ),
    ModelLayout("mixtral", "Mixtral", "windows"),
    ModelLayout(
        "modernbert",
        "ModernBERT",
        "keys on both sides, windows",
        projections=WQKV,
        output="Wo",
        attention_kind=BIDIRECTIONAL,
    ),
    ModelLayout("modernbert-decoder", "ModernBERT decoder", output="Wo", engine="lens"),
    ModelLayout("moss_transcribe_diarize", "MOSS-Transcribe-Diarize (the text half)"),
    ModelLayout(
        "mpt", "MPT", "ALiBi", projections=WQKV, output="out_proj", own_code="MptAttention.forward"
    ),
    ModelLayout("nanochat", "nanochat"),
    ModelLayout("nemotron", "Nemotron"),
    ModelLayout("nemotron_h", "Nemotron-H", "hybrid"),
    ModelLayout("olmo", "OLMo"),
    ModelLayout("olmo2", "OLMo 2"),
    ModelLayout("olmo3", "OLMo 3", "windows"),
    ModelLayout("olmo_hybrid", "", "hybrid"),
    ModelLayout("olmoe", "OLMoE"),
    ModelLayout("openai-gpt", "GPT-1", projections=C_ATTN, output="c_proj", engine="lens"),
    ModelLayout("opt", "OPT", "learned positions", output="out_proj"),
    ModelLayout("persimmon", "Persimmon", projections=QUERY_KEY_VALUE, output="dense"),
    ModelLayout("phi", "Phi-1, Phi-2", output="dense"),
    ModelLayout("phi3", "Phi-3, Phi-4", "windows", projections=QKV_PROJ),
    ModelLayout("phi4_multimodal", "", "windows", projections=QKV_PROJ),
    ModelLayout("phimoe", "Phi-3.5-MoE", "windows"),
    ModelLayout("qwen2", "Qwen 2, Qwen 2.5", tensors=qwen2_tensors),
    ModelLayout("qwen2_moe", "Qwen 2 MoE"),
    ModelLayout("qwen3", "Qwen 3"),
    ModelLayout("qwen3_5", "Qwen 3.5", "hybrid"),
    ModelLayout("qwen3_5_moe", "", "hybrid"),
    ModelLayout("qwen3_5_moe_text", "", "hybrid"),
    ModelLayout("qwen3_5_text", "", "hybrid"),
    ModelLayout("qwen3_moe", "Qwen 3 MoE"),
    ModelLayout("qwen3_next", "Qwen3-Next", "hybrid"),
    ModelLayout("qwen4_exp", "", "hybrid, chosen keys"),
    ModelLayout("qwen4_exp_text", "", "hybrid, chosen keys"),
    _bert("roberta", "RoBERTa", positions_after_padding=True),
    ModelLayout("sarvam_mla", "", "latent attention", projections=LATENT),
    ModelLayout("sarvam_moe", "Sarvam"),
    ModelLayout("seed_oss", "Seed-OSS"),
    ModelLayout("smollm3", "SmolLM3"),
    ModelLayout("solar_open"),
    ModelLayout("stablelm", "StableLM"),
    ModelLayout("starcoder2", "StarCoder 2", "windows"),
    ModelLayout("vaultgemma", "VaultGemma", "windows, scores capped by tanh"),
    ModelLayout("xglm", "XGLM", output="out_proj", engine="lens"),
    _bert("xlm-roberta", "XLM-RoBERTa", positions_after_padding=True),
    ModelLayout("youtu", "", "latent attention", projections=LATENT),
)
"""Layouts of the installed transformers that headscope reads, causal ones and encoders. What is
not here is tried, and refused by a sentence that says why."""


def find_layout(model_type: str) -> ModelLayout | None:
    """The row of a model type; None if there is none.

    >>> find_layout("gpt_neox").projections.split.value
    'one matrix: for each key head its queries, its key, its value'
    """
    return next((row for row in LAYOUTS if row.model_type == model_type), None)
