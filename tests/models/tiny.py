"""Configurations of the layouts that headscope reads, and of some that it does not, made tiny."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING

from headscope.attention_kind import BIDIRECTIONAL
from headscope.models.layout.table import LAYOUTS

ENCODERS = tuple(row.model_type for row in LAYOUTS if row.attention_kind == BIDIRECTIONAL)
FUSED_ENCODERS = tuple(
    row.model_type for row in LAYOUTS if row.engine == "fused" and row.model_type in ENCODERS
)
UNREAD = ("deepseek_v32", "mamba", "rwkv")
"""Layouts of decoders that headscope refuses, each for another reason."""
MODEL_TYPES = (*(row.model_type for row in LAYOUTS), *UNREAD)
CONTEXT = 96
WINDOW = 56
"""Longer than the text on which a loaded engine is checked, and shorter than the context."""

WIDTH = dict.fromkeys(
    "hidden_size n_embd d_model embedding_size word_embed_proj_dim attention_hidden_size".split(),
    32,
)
LAYERS = dict.fromkeys("num_hidden_layers n_layer n_layers num_layers num_blocks depth".split(), 2)
HEADS = dict.fromkeys(
    "num_attention_heads n_head n_heads num_heads attention_heads index_n_heads mamba_n_heads "
    "mamba_num_heads linear_num_key_heads linear_num_value_heads linear_num_heads".split(),
    4,
)
KEY_HEADS = dict.fromkeys("num_key_value_heads num_kv_heads".split(), 2)
PER_HEAD = dict.fromkeys(
    "head_dim kv_channels rotary_dim qk_rope_head_dim qk_nope_head_dim v_head_dim index_head_dim "
    "mamba_d_head mamba_head_dim linear_key_head_dim linear_value_head_dim linear_head_dim "
    "query_pre_attn_scalar".split(),
    8,
)
INNER = dict.fromkeys(
    "intermediate_size ffn_dim n_inner ffn_hidden_size moe_intermediate_size "
    "shared_expert_intermediate_size shared_intermediate_size intermediate_size_mlp "
    "expert_ffn_hidden_size moe_shared_expert_intermediate_size mamba_d_ssm".split(),
    64,
)
RANKS = dict.fromkeys(
    "q_lora_rank kv_lora_rank mamba_d_state state_size ssm_state_size mamba_dt_rank "
    "time_step_rank hc_lowrank laurel_rank chunk_size mamba_chunk_size block_size qk_head_dim "
    "hidden_size_per_layer_input ple_embed_dim".split(),
    16,
)
EXPERTS = dict.fromkeys(
    "num_experts num_local_experts n_routed_experts moe_num_experts zero_expert_num".split(), 4
)
CHOSEN = dict.fromkeys("num_experts_per_tok num_experts_per_token moe_k moe_topk".split(), 2)
GROUPS = dict.fromkeys("n_group topk_group num_expert_group n_groups mamba_n_groups".split(), 1)
POSITIONS = dict.fromkeys(
    "max_position_embeddings n_positions n_ctx max_seq_len seq_length max_source_positions "
    "context_length model_max_length".split(),
    CONTEXT,
)
WINDOWS = dict.fromkeys(
    "sliding_window window_size local_attention attention_chunk_size".split(), WINDOW
)
VOCABULARY = dict.fromkeys(
    "vocab_size vocab_size_per_layer_input ngram_vocab_size_base".split(), 320
)
TOKENS = dict.fromkeys(
    "pad_token_id bos_token_id eos_token_id decoder_start_token_id cls_token_id "
    "sep_token_id".split(),
    0,
)
SMALL = WIDTH | LAYERS | HEADS | KEY_HEADS | PER_HEAD | INNER | RANKS | EXPERTS | CHOSEN | GROUPS
SMALL |= POSITIONS | WINDOWS | VOCABULARY | TOKENS

LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"]}
CONV_AND_FULL = {"layer_types": ["conv", "full_attention"]}
SPECIAL: dict[str, dict[str, Any]] = {
    "bamba": {"mamba_d_head": 16, "attn_layer_indices": [1]},
    "bloom": {"seq_length": CONTEXT},
    "distilbert": {"dim": 32, "hidden_dim": 64},
    "dots1": {"n_routed_experts": 4, "n_shared_experts": 1, "num_experts_per_tok": 2},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_d_head": 16},
    "flaubert": {"emb_dim": 32, "n_words": 320},
    "gemma3n_text": {"num_kv_shared_layers": 1},
    "gemma4_text": {
        "num_hidden_layers": 4,
        "num_kv_shared_layers": 2,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "attention_k_eq_v": True,
        "global_head_dim": 16,
        "num_global_key_value_heads": 1,
    },
    "big_bird": {"attention_type": "original_full"},
    "cohere_compass_text": {
        "layer_types": ["sliding_attention", "full_attention"],
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10_000.0}
            for kind in ("sliding_attention", "full_attention")
        },
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 10_000.0, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 64, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gpt_bigcode": {"num_key_value_heads": 1},
    "gpt_neo": {
        "attention_types": [[["global", "local"], 1]],
        "attention_layers": ["global", "local"],
    },
    "granitemoehybrid": {"mamba_d_head": 16, **LINEAR_AND_FULL},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": LINEAR_AND_FULL,
    "lfm2": CONV_AND_FULL,
    "lfm2_moe": CONV_AND_FULL,
    "luke": {"entity_vocab_size": 8, "entity_emb_size": 8},
    "mamba2": {"num_heads": 8, "head_dim": 8},
    "mpnet": {"pad_token_id": 1},  # its code states it
    "qwen3_next": LINEAR_AND_FULL,
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_5_moe_text": LINEAR_AND_FULL,
    "qwen4_exp_text": LINEAR_AND_FULL,
    "lfm3": CONV_AND_FULL,
    "recurrent_gemma": {"num_hidden_layers": 3},
    "reformer": {
        "axial_pos_embds": False,
        "attn_layers": ["local", "lsh"],
        "local_attn_chunk_length": 16,
        "lsh_attn_chunk_length": 16,
    },
    "xlm": {"emb_dim": 32, "n_words": 320},
    "zamba": {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
        "n_mamba_heads": 2,
    },
    "zamba2": {
        "num_hidden_layers": 4,
        "layers_block_type": ["mamba", "hybrid"] * 2,
        "attention_hidden_size": 64,
        "attention_head_dim": 16,
    },
    "zaya": {"num_experts_per_tok": 1},
    "esmc": {"num_key_value_heads": 4},
    "whisper": {"encoder_attention_heads": 4, "decoder_attention_heads": 4},
}
"""Fields that must fit together beyond the common names, by model type."""


def tiny_config(model_type: str) -> Any:
    """A configuration of two layers, four heads and a width of 32, where the layout allows it."""
    return _small(CONFIG_MAPPING[model_type], model_type)


def _small(kind: Any, model_type: str) -> Any:
    special = SPECIAL.get(model_type, {})
    fields = _fields(kind, special)
    chosen = {name: value for name, value in SMALL.items() if name in fields}
    if "kv_lora_rank" in fields:
        chosen["num_key_value_heads"] = (
            4  # every head has a key of its own, unpacked from few numbers
        )
    for name, part in getattr(kind, "sub_configs", {}).items():
        stated = fields.get(name)
        if isinstance(stated, dict) and name not in special:
            part_type = stated.get("model_type") or name
            chosen[name] = _small(
                CONFIG_MAPPING[part_type] if part.__name__ == "AutoConfig" else part, part_type
            ).to_dict()
    return kind(**(chosen | special))


def _fields(kind: Any, special: dict[str, Any]) -> dict[str, Any]:
    """Fields of a kind of configuration, by its defaults where they go together."""
    try:
        return dict(kind().to_dict())
    except ValueError:
        return dict(kind(**special).to_dict())
