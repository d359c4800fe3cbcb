"""One head built by hand in each kind of attention: what it looks at is found, by its tag.

That it looks at the nearest, at few, or at nothing where there is nothing to find, is the work of
what the layout has beside its queries and keys.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import (
    BloomConfig,
    BloomForCausalLM,
    GptOssConfig,
    GptOssForCausalLM,
    JambaConfig,
    JambaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import headscope as hs
from data.corpora.make import controlled_corpus
from headscope.models.engines.engine import stream_patterns
from headscope.models.layout.table import LAYOUTS
from headscope.models.load import load_model
from tests.oracles.calibrate import DOCUMENTS, SEED, planted_vocabulary
from tests.oracles.words import FEATURES, features, save_tokenizer

HEADS, WIDTH, CONTEXT = 8, 16, 256
D_MODEL = HEADS * WIDTH
TRAITS, FILLER = len(FEATURES), len(FEATURES)
ROTARY = {"rope_type": "default", "rope_theta": 1e12}
SLOW = WIDTH // 2 - 1
"""The channel that rotary embedding turns by less than a thousandth over all positions."""
LLAMA_LIKE = {
    "num_hidden_layers": 1, "bos_token_id": 0, "eos_token_id": 0, "hidden_size": D_MODEL, "num_attention_heads": HEADS, "num_key_value_heads": HEADS,
    "head_dim": WIDTH, "intermediate_size": 8, "max_position_embeddings": CONTEXT,
    "rope_parameters": ROTARY,
}  # fmt: skip


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("text") / "controlled.conllu"
    text = controlled_corpus(DOCUMENTS, seed=SEED)
    file.write_text(text, encoding="utf-8")
    return file, planted_vocabulary(text)


def embedding(words: list[str]) -> torch.Tensor:
    """Features of each word, and a filler that makes all of one length; again with the other sign."""
    table = np.zeros((len(words), D_MODEL))
    table[:, :TRAITS] = features(words)
    table[:, FILLER] = np.sqrt(10 - table[:, :TRAITS].sum(1))
    half = D_MODEL // 2
    table[:, half : half + FILLER + 1] = -table[:, : FILLER + 1]
    return torch.tensor(table, dtype=torch.float32)


LENGTH = (2 * 10 / D_MODEL) ** 0.5
"""The root mean square of every word's embedding, by which norms divide."""


def emptied(model, words: list[str]) -> dict[str, torch.Tensor]:
    """The parameters of a model whose heads ask nothing, with its embedding."""
    state = model.state_dict()
    for name, tensor in state.items():
        tensor.fill_(float("norm" in name and name.endswith("weight")))
    model.get_input_embeddings().weight.data.copy_(embedding(words))
    return state


def look_for(feature: str, query, key, channel: int = 0) -> None:
    """Rows of Q and K of one head: any query, keys with the feature, by 60 nats of score."""
    query[channel, FILLER] = 1.0
    query[channel, :TRAITS] = 0.0
    key[channel, FEATURES.index(feature)] = 60 * WIDTH**0.5 * LENGTH**2 / 3


def bloom(words: list[str], head: int) -> BloomForCausalLM:
    """BLOOM, whose first head's slope is a half of a nat per token, and whose last one's is 1/256."""
    model = BloomForCausalLM(
        BloomConfig(
            vocab_size=len(words), hidden_size=D_MODEL, n_layer=1, n_head=HEADS,
            seq_length=CONTEXT, bos_token_id=0, eos_token_id=0,
        )
    )  # fmt: skip
    joined = emptied(model, words)["transformer.h.0.self_attention.query_key_value.weight"]
    by_head = joined.view(HEADS, 3, WIDTH, D_MODEL)
    look_for("verb", by_head[head, 0], by_head[head, 1])
    return model


def mistral(words: list[str], window: int) -> MistralForCausalLM:
    """Mistral with heads that look at all that they see alike."""
    config = MistralConfig(vocab_size=len(words), sliding_window=window, **LLAMA_LIKE)
    model = MistralForCausalLM(config)
    emptied(model, words)
    return model


def gpt_oss(words: list[str], sink: float) -> GptOssForCausalLM:
    config = GptOssConfig(
        vocab_size=len(words), layer_types=["full_attention"], num_local_experts=2,
        num_experts_per_tok=1, **LLAMA_LIKE,
    )  # fmt: skip
    model = GptOssForCausalLM(config)
    state, at = emptied(model, words), "model.layers.0.self_attn"
    look_for("punctuation", state[f"{at}.q_proj.weight"], state[f"{at}.k_proj.weight"], SLOW)
    state[f"{at}.sinks"].fill_(sink)
    return model


def jamba(words: list[str], layer: int) -> JambaForCausalLM:
    """Jamba without positions, and with attention in one of its four layers."""
    config = JambaConfig(
        vocab_size=len(words), hidden_size=D_MODEL, num_hidden_layers=4, num_attention_heads=HEADS,
        num_key_value_heads=HEADS, intermediate_size=8, max_position_embeddings=CONTEXT,
        attn_layer_period=4, attn_layer_offset=layer, num_experts=1, num_experts_per_tok=1,
        mamba_d_state=4, mamba_dt_rank=4, bos_token_id=0, eos_token_id=0, pad_token_id=0,
    )  # fmt: skip
    model = JambaForCausalLM(config)
    state, at = emptied(model, words), f"model.layers.{layer}.self_attn"
    look_for("punctuation", state[f"{at}.q_proj.weight"], state[f"{at}.k_proj.weight"])
    return model


def tags_of(model, corpus, folder, **settings) -> set[tuple[str, str]]:
    """Heads with their tags."""
    file, words = corpus
    model.save_pretrained(folder)
    save_tokenizer(words, folder, context=CONTEXT)
    types = ["lexical", "delimiter", "positional"]
    run = hs.classify(str(folder), file, max_tokens=3000, max_length=200, types=types, **settings)
    assert run.info["engine"] == "fused"
    tagged = run.evidence[run.evidence["tagged"].astype(bool)]
    return {
        (f"L{row.layer}H{row.head}", f"{row.type}/{row.relation}") for row in tagged.itertuples()
    }


PLANTED = {layout.model_type: layout.planted for layout in LAYOUTS}
"""Tags that are found again, by the table of layouts."""


def test_alibi_makes_a_verb_head_one_of_the_nearest_verb(corpus, tmp_path):
    nearest, last = PLANTED["bloom"], HEADS - 1
    assert ("L0H0", nearest) in tags_of(bloom(corpus[1], 0), corpus, tmp_path / "steep")
    flat = tags_of(bloom(corpus[1], last), corpus, tmp_path / "flat")
    assert (f"L0H{last}", nearest) not in flat


def test_a_window_makes_a_head_that_asks_nothing_a_local_one(corpus, tmp_path):
    # the twin has the same windows and looks as near: it is not learned
    short = tags_of(mistral(corpus[1], 5), corpus, tmp_path / "short", twin=False)
    assert short == {(f"L0H{head}", PLANTED["mistral"]) for head in range(HEADS)}
    assert not tags_of(mistral(corpus[1], CONTEXT), corpus, tmp_path / "long", twin=False)


def test_a_sink_takes_what_finds_nothing(corpus, tmp_path):
    words = corpus[1]
    model = gpt_oss(words, sink=30.0)
    assert ("L0H0", PLANTED["gpt_oss"]) in tags_of(model, corpus, tmp_path)
    loaded, seen = load_model(str(tmp_path)), []
    ids = [0, *(words.index(w) for w in "the king lost a ring . he".split())]
    stream_patterns(loaded.engine, torch.tensor([ids]), lambda _, p: seen.append(p[0, 0]))
    sums = seen[0].sum(-1)
    assert float(sums[:6].max()) < 1e-3  # before the full stop the sink has everything
    assert float(sums[6:].min()) > 0.999
    assert float(seen[0][7, 6]) > 0.999


def test_a_head_of_a_hybrid_is_found_under_its_layer_s_own_number(corpus, tmp_path):
    tags = tags_of(jamba(corpus[1], layer=2), corpus, tmp_path)
    assert ("L2H0", PLANTED["jamba"]) in tags
    assert {head for head, _ in tags} == {"L2H0"}
