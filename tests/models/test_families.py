"""Models outside the table of layouts end in one sentence."""

from __future__ import annotations

import pytest
from transformers import AutoModel
from transformers.models.auto import modeling_auto as auto

from headscope.errors import ModelError
from headscope.models.families import READ, check_family
from headscope.models.layout.table import LAYOUTS
from headscope.models.load import open_model
from tests.models.tiny import tiny_config

LISTED = {row.model_type for row in LAYOUTS}
CAUSAL = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
ENCODERS = {*auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES}
BOTH = sorted({*auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES} - LISTED - CAUSAL)


@pytest.mark.parametrize("model_type", [*BOTH, "clip", "vit"])
def test_what_is_no_decoder_and_not_in_the_table_is_refused_by_its_type(model_type):
    with pytest.raises(ModelError, match=f"^m: {model_type}") as error:
        check_family("m", {"model_type": model_type})
    assert READ in str(error.value)


@pytest.mark.parametrize("model_type", sorted(LISTED | CAUSAL | ENCODERS - {*BOTH}))
def test_a_decoder_or_an_encoder_passes(model_type):
    check_family("m", {"model_type": model_type})


@pytest.mark.parametrize(
    ("model_type", "entries", "reason"),
    [
        ("falcon", {"alibi": True}, "ALiBi"),
        ("deepseek_v32", {"index_topk": 64}, "index"),
    ],
)
def test_a_decoder_whose_attention_is_another_is_refused(model_type, entries, reason):
    with pytest.raises(ModelError, match=rf"^m: {model_type}.*{reason}"):
        check_family("m", {"model_type": model_type} | entries)


@pytest.mark.parametrize("model_type", ["t5", "whisper"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_a_network_of_such_a_type_is_refused_by_the_same_sentence(
    model_type, in_memory, tokenizer, tmp_path
):
    network = AutoModel.from_config(tiny_config(model_type))
    network.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match=model_type) as error:
        open_model((network, tokenizer) if in_memory else tmp_path)
    assert str(error.value).endswith(READ)
    assert "\n" not in str(error.value)
