"""Models outside the table of layouts end in one sentence; flags that turn a decoder around do too."""

from __future__ import annotations

import pytest
from transformers import AutoModel, AutoModelForCausalLM
from transformers.models.auto import modeling_auto as auto

from headscope.errors import ModelError
from headscope.models.families import READ, check_family
from headscope.models.layout.table import LAYOUTS
from headscope.models.load import load_model, open_model
from tests.models.tiny import tiny_config

LISTED = {row.model_type for row in LAYOUTS}
CAUSAL = set(auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
ENCODERS = sorted({*auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES} - LISTED)
BOTH = sorted({*auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES} - LISTED - CAUSAL)


def save(network, tokenizer, folder) -> str:
    network.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize("model_type", [*ENCODERS, *BOTH, "clip", "vit"])
def test_what_is_no_decoder_and_not_in_the_table_is_refused_by_its_type(model_type):
    with pytest.raises(ModelError, match=f"^m: {model_type} is (an encoder|a model|not)") as error:
        check_family("m", {"model_type": model_type})
    assert READ in str(error.value)


@pytest.mark.parametrize("model_type", sorted(LISTED | (CAUSAL - {*ENCODERS})))
def test_a_decoder_or_a_listed_encoder_passes(model_type):
    check_family("m", {"model_type": model_type})


@pytest.mark.parametrize("model_type", ["albert", "whisper"])
@pytest.mark.parametrize("in_memory", [False, True])
def test_the_sentence_names_the_type_and_what_is_read(model_type, in_memory, tokenizer, tmp_path):
    network = AutoModel.from_config(tiny_config(model_type))
    source = (network, tokenizer) if in_memory else save(network, tokenizer, tmp_path)
    with pytest.raises(ModelError, match=f": {model_type} is ") as error:
        open_model(source)
    assert str(error.value).endswith(READ)
    assert "\n" not in str(error.value)


def test_an_unread_decoder_is_refused_with_the_families_that_are_read(tokenizer, tmp_path):
    network = AutoModelForCausalLM.from_config(tiny_config("gemma3n_text"))
    with pytest.raises(ModelError, match="cannot read gemma3n_text: ") as error:
        load_model(save(network, tokenizer, tmp_path))
    assert str(error.value).endswith(READ)


def test_a_flag_that_lets_tokens_see_later_ones_is_named_and_pictures_alone_are_no_matter():
    with pytest.raises(ModelError, match="sets is_causal to False"):
        check_family("m", {"model_type": "gpt2", "is_causal": False})
    part = {"model_type": "gemma3_text", "use_bidirectional_attention": True}
    with pytest.raises(ModelError, match="use_bidirectional_attention to True"):
        check_family("m", {"model_type": "gemma3", "text_config": part})
    check_family("m", {"model_type": "gemma3_text", "use_bidirectional_attention": "vision"})
    check_family("m", {"model_type": "bert", "is_causal": False})
