"""An entry of config.json that no model can have is refused by its name, its value, and what would do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import headscope as hs
from headscope.errors import ModelError
from headscope.models.config_values import check_values
from headscope.models.load import load_model
from tests.helpers.models import edit_config, save_model

NAN, INF = float("nan"), float("inf")
SHARE = "a number from 0 to 1"
WHOLE = "a whole number of at least 1"
BITS = "a whole number of at most 64 bits"
GPT2 = [
    # every number that transformers multiplies by, divides by or draws by
    ("layer_norm_epsilon", NAN, f"nan; it should be {SHARE}"),
    ("layer_norm_epsilon", INF, f"inf; it should be {SHARE}"),
    ("layer_norm_epsilon", 1e300, f"1e+300; it should be {SHARE}"),
    ("layer_norm_epsilon", -1e-5, f"-1e-05; it should be {SHARE}"),
    ("attn_pdrop", NAN, f"nan; it should be {SHARE}"),
    ("embd_pdrop", 5, f"5; it should be {SHARE}"),
    ("resid_pdrop", -0.5, f"-0.5; it should be {SHARE}"),
    ("initializer_range", NAN, "nan; it should be a finite number"),
    ("initializer_range", INF, "inf; it should be a finite number"),
    ("initializer_range", 1e300, "1e+300; it should be a number of at most 3.4e+38"),
    ("n_inner", -1, f"-1; it should be {WHOLE}"),
    ("n_positions", 10**30, f"{10**30}; it should be {BITS}"),
    ("pad_token_id", 10**30, f"{10**30}; it should be {BITS}"),
    ("eos_token_id", [0, 10**50], f"[0, {10**50}]; it should be {BITS}"),
    ("bos_token_id", 0.5, "0.5; it should be a whole number or a list of them"),
    # entries of the wrong type
    ("architectures", 5, "5; it should be a list of names, such as GPT2LMHeadModel"),
    ("architectures", "GPT2LMHeadModel",
     "'GPT2LMHeadModel'; it should be a list of names, such as GPT2LMHeadModel"),
    ("architectures", {}, "{}; it should be a list of names, such as GPT2LMHeadModel"),
    ("architectures", [5], "[5]; it should be a list of names, such as GPT2LMHeadModel"),
    ("model_type", 5, "5; it should be a name, such as gpt2"),
    ("model_type", [], "[]; it should be a name, such as gpt2"),
    ("dtype", "x", "'x'; it should be the name of a precision, such as float32"),
    ("dtype", 5, "5; it should be the name of a precision, such as float32"),
    ("torch_dtype", [], "[]; it should be the name of a precision, such as float32"),
    ("rope_parameters", 5, "5; it should be a group in braces"),
    ("rope_scaling", "x", "'x'; it should be a group in braces"),
    ("text_config", 5, "5; it should be a group in braces"),
    ("id2label", [], "[]; it should be a group in braces"),
    ("auto_map", "x", "'x'; it should be a group in braces"),
    ("layer_types", "x", "'x'; it should be a list of names, such as full_attention"),
]  # fmt: skip
LLAMA = [
    ("rope_theta", NAN, "nan; it should be a number above 0"),
    ("rope_theta", 0.0, "0.0; it should be a number above 0"),
    ("rope_theta", "nosuch", "'nosuch'; it should be a number above 0"),
    ("rope_type", 5, "5; it should be a name, such as default"),
    ("factor", INF, "inf; it should be a finite number"),
]


@pytest.fixture
def folder(gpt2_folder, tmp_path) -> Path:
    return Path(shutil.copytree(gpt2_folder, tmp_path / "m"))


@pytest.fixture(scope="module")
def llama_folder(tokenizer, tmp_path_factory) -> Path:
    return save_model("llama", tokenizer, tmp_path_factory.mktemp("llama"))


def refused(path: Path) -> str:
    """The message with which a model is refused by loading and by counting its parameters alike."""
    messages = []
    for call in (lambda: load_model(str(path)), lambda: hs.anatomy(str(path))):
        with pytest.raises(ModelError) as error:
            call()
        messages.append(str(error.value).removeprefix(f"{path}: "))
    assert messages[0] == messages[1]
    return messages[0]


@pytest.mark.parametrize(("key", "value", "said"), GPT2)
def test_an_entry_that_no_model_can_have_is_named(folder, key, value, said):
    edit_config(folder, **{key: value})
    assert refused(folder) == f"its configuration gives {key} as {said}"


@pytest.mark.parametrize(("key", "value", "said"), LLAMA)
def test_an_entry_within_a_group_is_named_by_its_path(llama_folder, tmp_path, key, value, said):
    folder = Path(shutil.copytree(llama_folder, tmp_path / "m"))
    edit_config(folder, rope_parameters={"rope_theta": 10000.0, "rope_type": "default", key: value})
    assert refused(folder) == f"its configuration gives rope_parameters.{key} as {said}"


def test_published_entries_that_look_odd_are_taken(folder):
    """Mamba 2 states an infinity, Falcon a whole number for a share, and old files a null."""
    check_values(
        "m: its configuration",
        {
            "time_step_limit": [0.0, INF], "attention_dropout": 0, "classifier_dropout": None,
            "architectures": None, "rope_scaling": None, "torch_dtype": "torch.bfloat16",
            "pad_token_id": -1, "eos_token_id": [1, 2], "rope_theta": 1000000,
            "quantization_config": {"dtype": {"_type": "torch.dtype"}},
        },
    )  # fmt: skip
    edit_config(folder, architectures=None, eos_token_id=[0], pad_token_id=-1)
    assert load_model(str(folder)).layers == 2


def test_an_activation_that_transformers_does_not_know_is_named_with_those_it_knows(folder):
    from transformers.activations import ACT2CLS

    edit_config(folder, activation_function="nosuch")
    with pytest.raises(ModelError) as error:
        load_model(str(folder))
    assert str(error.value) == (
        f"{folder}: its configuration gives activation_function as 'nosuch', which transformers "
        f"does not know; choose from: {', '.join(sorted(ACT2CLS))}"
    )


def test_a_rotary_kind_that_transformers_does_not_know_is_named_with_those_it_knows(
    llama_folder, tmp_path
):
    folder = Path(shutil.copytree(llama_folder, tmp_path / "m"))
    edit_config(folder, rope_parameters={"rope_theta": 10000.0, "rope_type": "nosuch"})
    with pytest.raises(
        ModelError, match=r"gives rope_parameters\.rope_type as 'nosuch', which"
    ) as e:
        load_model(str(folder))
    assert str(e.value).endswith("; choose from: default, dynamic, linear, llama3, longrope, "
                                 "proportional, yarn")  # fmt: skip


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "is not JSON: Expecting value: line 1 column 1 (char 0); download it again, or save "
              "the model with transformers' save_pretrained"),
        (b"\xff\xfe", "is not JSON: 'utf-8' codec can't decode byte 0xff in position 0: invalid start "
                      "byte; download it again, or save the model with transformers' save_pretrained"),
        (b"[]", "is no configuration but []; it should be a group of entries in braces, as "
                "save_pretrained of transformers writes it"),
        (b"5", "is no configuration but 5; it should be a group of entries in braces, as "
               "save_pretrained of transformers writes it"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_configuration_is_named(folder, content, said):
    (folder / "config.json").write_bytes(content)
    assert refused(folder) == f"config.json {said}"


@pytest.mark.parametrize("layout", ["gpt2", "llama"])
def test_attention_that_is_nan_is_called_so_where_the_model_is_in_memory(
    layout, gpt2_folder, llama_folder
):
    path = {"gpt2": gpt2_folder, "llama": llama_folder}[layout]
    network = AutoModelForCausalLM.from_pretrained(path)
    with torch.no_grad():
        next(network.parameters()).fill_(float("nan"))
    with pytest.raises(
        ModelError, match="layer 0 gives attention that is NaN on a short text: a n"
    ):
        hs.classify((network, AutoTokenizer.from_pretrained(path)), "gold", max_tokens=100)


def test_what_is_stated_in_a_configuration_is_not_changed_by_checking_it(folder):
    before = (folder / "config.json").read_text()
    load_model(str(folder))
    assert json.loads((folder / "config.json").read_text()) == json.loads(before)
