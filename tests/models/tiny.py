"""Every causal configuration that transformers knows, made tiny."""

from __future__ import annotations

from typing import Any

from transformers import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

UNBUILT = {
    "cohere_compass_text": "its rotary parameters are by kind of layer, and not by these",
    "dots3_note": "its heads differ by layer, from the 26th on",
    "gemma3n": "its eyes need the package timm",
    "gemma4_assistant": "its defaults contradict themselves",
    "gemma4_unified_assistant": "its layers share keys with those of another model",
    "musicgen": "transformers builds it from another configuration than its own",
    "musicgen_melody": "transformers builds it from another configuration than its own",
    "zamba": "two layers are too few to share weights",
}
"""Layouts that cannot be made tiny by the common names alone."""
ENCODERS = (
    "bert",
    "camembert",
    "distilbert",
    "electra",
    "ernie",
    "modernbert",
    "roberta",
    "xlm-roberta",
)
"""Layouts that are read as encoders."""
MODEL_TYPES = tuple(sorted({*MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, *ENCODERS} - set(UNBUILT)))
CONTEXT = 96
WINDOW = 56
"""Longer than the text on which an engine is checked when it is loaded, and shorter than the context."""
LARGEST = 3_000_000
"""Parameters of a model that is still tiny."""

WIDTH = dict.fromkeys(
    "hidden_size n_embd d_model emb_dim dim_model embedding_dim embedding_size "
    "input_embedding_size output_embedding_size word_embed_proj_dim lru_width "
    "attention_hidden_size backbone_hidden_size output_size".split(), 32
)  # fmt: skip
LAYERS = dict.fromkeys(
    "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers "
    "num_encoder_layers num_decoder_layers num_blocks num_layers_per_stack depth".split(), 2
)  # fmt: skip
HEADS = dict.fromkeys(
    "num_attention_heads n_head n_heads num_heads decoder_attention_heads attention_heads "
    "encoder_attention_heads num_encoder_attention_heads num_decoder_attention_heads "
    "swa_num_attention_heads index_n_heads mamba_n_heads n_mamba_heads mamba_num_heads "
    "linear_num_key_heads linear_num_value_heads linear_num_heads".split(), 4
)  # fmt: skip
KEY_HEADS = dict.fromkeys("num_key_value_heads num_kv_heads swa_num_key_value_heads num_query_groups "
                          "num_global_key_value_heads".split(), 2)  # fmt: skip
PER_HEAD = dict.fromkeys(
    "head_dim dim_head d_kv d_head kv_channels attention_head_dim attention_head_size "
    "global_head_dim swa_head_dim rotary_dim qk_rope_head_dim qk_nope_head_dim v_head_dim "
    "index_head_dim mamba_d_head mamba_head_dim mamba_headdim linear_key_head_dim "
    "linear_value_head_dim linear_head_dim query_pre_attn_scalar".split(), 8
)  # fmt: skip
INNER = dict.fromkeys(
    "intermediate_size ffn_dim dim_ff decoder_ffn_dim encoder_ffn_dim n_inner ffn_hidden_size dff "
    "d_inner moe_intermediate_size shared_expert_intermediate_size feed_forward_size "
    "shared_intermediate_size intermediate_size_mlp expert_ffn_hidden_size "
    "shared_experts_intermediate_size dense_intermediate_size "
    "moe_shared_expert_intermediate_size mamba_d_ssm".split(), 64
)  # fmt: skip
RANKS = dict.fromkeys(
    "q_lora_rank kv_lora_rank o_lora_rank mamba_d_state state_size ssm_state_size mamba_dt_rank "
    "time_step_rank hc_lowrank laurel_rank gated_norm_rank adapter_rank router_hidden_size "
    "chunk_size mamba_chunk_size block_size index_block_size qk_head_dim hidden_size_per_layer_input "
    "prompt_mid_dim ple_embed_dim".split(), 16
)  # fmt: skip
EXPERTS = dict.fromkeys(
    "num_experts num_local_experts n_routed_experts moe_num_experts zero_expert_num".split(), 4
)  # fmt: skip
CHOSEN = dict.fromkeys(
    "num_experts_per_tok num_experts_per_token moe_k moe_topk index_topk_blocks hc_mult".split(), 2
)  # fmt: skip
GROUPS = dict.fromkeys("n_group topk_group num_expert_group n_groups mamba_n_groups "
                       "mamba_ngroups o_groups".split(), 1)  # fmt: skip
POSITIONS = dict.fromkeys(
    "max_position_embeddings n_positions n_ctx max_seq_len seq_length max_sequence_length "
    "max_target_positions max_source_positions context_length "
    "model_max_length".split(), CONTEXT
)  # fmt: skip
WINDOWS = dict.fromkeys(
    "sliding_window window_size local_attention attention_window_size attention_chunk_size "
    "sliding_window_size local_attention_window_len".split(), WINDOW
)  # fmt: skip
VOCABULARY = dict.fromkeys(
    "vocab_size decoder_vocab_size unpadded_vocab_size vocab_size_per_layer_input pronunciation_vocab_size "
    "shape_vocab_size ngram_vocab_size_base encoder_hash_byte_group_vocab".split(), 320
)  # fmt: skip
TOKENS = dict.fromkeys("pad_token_id bos_token_id eos_token_id decoder_start_token_id "
                       "forced_eos_token_id cls_token_id sep_token_id".split(), 0)  # fmt: skip
SMALL = WIDTH | LAYERS | HEADS | KEY_HEADS | PER_HEAD | INNER | RANKS | EXPERTS | CHOSEN | GROUPS
SMALL |= POSITIONS | WINDOWS | VOCABULARY | TOKENS

LINEAR_AND_FULL = {"layer_types": ["linear_attention", "full_attention"]}
CONV_AND_FULL = {"layer_types": ["conv", "full_attention"]}
SPECIAL: dict[str, dict[str, Any]] = {
    "bailing_hybrid": LINEAR_AND_FULL,
    "bamba": {"mamba_d_head": 16, "attn_layer_indices": [1]},
    "bloom": {"seq_length": CONTEXT},
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4},
        "ffn_config": {"ffn_hidden_size": 32, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "distilbert": {"dim": 32, "hidden_dim": 64},
    "dots1": {"n_shared_experts": 1},
    "dots3_note_text": {"num_key_value_heads": 4},
    "falcon_h1": {"mamba_d_head": 16},
    "cohere_compass_text": {"layer_types": ["full_attention", "sliding_attention"]},
    "gemma3n_text": {"num_kv_shared_layers": 1},
    "gemma4_unified_text": {"num_kv_shared_layers": 0},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]], "attention_layers": ["global", "local"]},
    "granitemoehybrid": {"mamba_d_head": 16, **LINEAR_AND_FULL},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "kimi_linear": LINEAR_AND_FULL,
    "lfm2": CONV_AND_FULL,
    "lfm2_moe": CONV_AND_FULL,
    "lfm3": {"layer_types": ["conv", "sliding_attention"]},
    "mamba2": {"head_dim": 16},
    "minimax_m3_vl_text": {"layer_types": ["full_attention", "minimax_m3_sparse"]},
    "qwen3_next": LINEAR_AND_FULL,
    "qwen3_5_text": LINEAR_AND_FULL,
    "qwen3_5_moe_text": LINEAR_AND_FULL,
    "qwen4_exp_text": {
        "layer_types": ["linear_attention", "indexed_attention"], "indexer_n_heads": 2,
        "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 16,
        "indexer_compress_ratio": 4,
    },
    "reformer": {
        "is_decoder": True, "attn_layers": ["local", "lsh"], "axial_pos_shape": [8, 8],
        "axial_pos_embds_dim": [16, 16],
    },
    "zamba": {"layers_block_type": ["linear_attention", "hybrid"]},
    "zamba2": {"layers_block_type": ["linear_attention", "hybrid"]},
    "xmod": {"default_language": "en_XX"},
    "zaya": {"num_experts_per_tok": 1},
}  # fmt: skip
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
