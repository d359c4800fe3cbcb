"""The width of stored matrices, and sums of half precision."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from headscope.models.checkpoint import find_checkpoint
from headscope.models.engines.attention import softmax_attend
from tests.helpers.models import save_model


def test_the_widest_matrix_says_how_wide_a_checkpoint_is(tokenizer, tmp_path):
    save_model("llama", tokenizer, tmp_path / "wide")
    assert find_checkpoint("wide", tmp_path / "wide").stored_bits() == 32
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "wide", dtype=torch.bfloat16)
    for module, bits in ((None, 16), (model.model.norm, 16), (model.model.layers[1].mlp, 32)):
        if module is not None:
            module.to(torch.float32)
        model.save_pretrained(tmp_path)
        assert find_checkpoint("other", tmp_path).stored_bits() == bits


@pytest.mark.parametrize(
    ("kind", "bits"),
    [("Q8_0", 16), ("F16", 16), ("BF16", 16), ("F32", 32)],  # another matrix has 16
)
def test_a_gguf_file_is_as_wide_as_its_widest_matrix(tmp_path, kind, bits):
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    wide = np.ones((2, 64), np.float32)
    of_kind = gguf.GGMLQuantizationType[kind]
    writer.add_tensor("norm.weight", np.ones(64, np.float32))
    writer.add_tensor("half.weight", wide.astype(np.float16))
    writer.add_tensor("odd.weight", gguf.quants.quantize(wide, of_kind), raw_dtype=of_kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert {tensor.name: tensor.tensor_type for tensor in gguf.GGUFReader(path).tensors}[
        "odd.weight"
    ] == of_kind
    assert find_checkpoint(kind, path).stored_bits() == bits


def test_log_sum_exps_of_half_precision_are_in_single_precision():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (
        torch.randn(2, 3, 40, 16, generator=generator).to(torch.bfloat16) for _ in range(3)
    )
    _, normaliser = softmax_attend(query, key, value, 0.25)
    assert normaliser.dtype == torch.float32
    scores = query.double() @ key.double().transpose(-1, -2) * 0.25
    scores = scores.masked_fill(torch.ones(40, 40).triu(1).bool(), -torch.inf)
    assert torch.allclose(normaliser.double(), scores.logsumexp(-1), atol=1e-4)
