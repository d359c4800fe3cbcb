"""`--dtype auto`: when half precision is tried, when it is kept, and that a run says so."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

import headscope as hs
from headscope.measure import precision_check
from headscope.measure.precision_check import compare_precisions
from headscope.measure.tally import Tally
from headscope.models import model as module
from headscope.models.checkpoint import find_checkpoint
from headscope.models.engines.attention import softmax_attend
from headscope.runs.resolve import model_of
from tests.helpers.models import save_model

ASKED = {"types": ["positional", "induction"], "max_tokens": 900, "examples": False}


@pytest.fixture(scope="module")
def narrow_folder(tokenizer, tmp_path_factory) -> Path:
    """A model whose heads spread their attention widely, stored as bfloat16."""
    folder = tmp_path_factory.mktemp("narrow") / "model"
    save_model("llama", tokenizer, folder, spread=0.12)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    model.to(torch.bfloat16).save_pretrained(folder)
    return folder


@pytest.fixture
def native(monkeypatch) -> None:
    """A processor that multiplies bfloat16, whatever this one does."""
    monkeypatch.setattr(module, "multiplies_natively", lambda device: True)


def classified(folder: Path, dtype: str, out: Path | None = None) -> hs.Run:
    return hs.classify(str(folder), "gold", dtype=dtype, out=out, progress=False, **ASKED)


def sums(target: np.ndarray, queries: np.ndarray) -> Tally:
    tally = Tally.zeros(tuple(f"t/r{i}" for i in range(target.shape[1])), 1, target.shape[-1])
    blocks = len(target)
    tally.target[:blocks], tally.queries[:blocks] = target, queries
    return tally


def test_the_widest_matrix_says_how_wide_a_checkpoint_is(narrow_folder, gpt2_folder, tmp_path):
    assert find_checkpoint("narrow", narrow_folder).stored_bits() == 16
    assert find_checkpoint("wide", gpt2_folder).stored_bits() == 32
    model = AutoModelForCausalLM.from_pretrained(narrow_folder, dtype=torch.bfloat16)
    model.model.norm.to(torch.float32)
    model.save_pretrained(tmp_path)
    assert find_checkpoint("norm", tmp_path).stored_bits() == 16
    model.model.layers[1].mlp.to(torch.float32)
    model.save_pretrained(tmp_path)
    assert find_checkpoint("one layer", tmp_path).stored_bits() == 32


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


def test_rounding_is_tolerated_up_to_both_bounds():
    rng = np.random.default_rng(0)
    queries = np.full((4, 30), 10)
    wide = rng.uniform(0.2, 0.6, (4, 30, 1, 50)) * 10
    check = compare_precisions(sums(wide, queries), sums(wide, queries), 512)
    assert (check.dtype, check.mean_difference, check.tokens) == ("bfloat16", 0.0, 512)
    assert check.masses == 30 * 50

    small = sums(wide + 10 * 0.001, queries)
    check = compare_precisions(sums(wide, queries), small, 512)
    assert check.dtype == "bfloat16"
    assert check.mean_difference == pytest.approx(0.001)

    check = compare_precisions(sums(wide, queries), sums(wide + 10 * 0.002, queries), 512)
    assert check.dtype == "float32"
    assert check.mean_difference == pytest.approx(0.002)

    one = wide.copy()
    one[:, 7, 0, 9] += 10 * 0.06
    check = compare_precisions(sums(wide, queries), sums(one, queries), 512)
    assert check.dtype == "float32"
    assert check.largest_difference == pytest.approx(0.06)
    assert check.mean_difference < precision_check.MEAN_DIFFERENCE


def test_masses_of_few_queries_are_not_compared():
    queries = np.zeros((4, 2), int)
    queries[:, 0], queries[0, 1] = 10, 19
    wide = np.ones((4, 2, 1, 3))
    other = wide.copy()
    other[0, 1] += 19
    check = compare_precisions(sums(wide, queries), sums(other, queries), 512)
    assert (check.dtype, check.masses) == ("bfloat16", 3)
    queries[:, 0] = 1
    check = compare_precisions(sums(wide, queries), sums(other, queries), 512)
    assert (check.dtype, check.tokens) == ("float32", 0)


def test_what_is_no_number_is_no_small_difference():
    queries, wide = np.full((2, 1), 30), np.ones((2, 1, 1, 2))
    broken = wide.copy()
    broken[0, 0, 0, 1] = np.nan
    check = compare_precisions(sums(wide, queries), sums(broken, queries), 512)
    assert check.dtype == "float32"
    assert "overflow" in check.reason
    assert not {"mean_difference", "largest_difference"} & {*check.facts}


def test_it_is_the_run_that_bfloat16_gives_and_gives_it_again(narrow_folder, native, tmp_path):
    runs = [classified(narrow_folder, "auto", tmp_path / f"auto{i}") for i in range(2)]
    asked = classified(narrow_folder, "bfloat16", tmp_path / "asked")
    facts = runs[0].info["precision"]
    assert runs[0].info["model"]["dtype"] == facts["dtype"] == "bfloat16"
    assert facts["tokens"] >= precision_check.TOKENS
    assert 0 < facts["mean_difference"] <= facts["mean_bound"]
    assert facts["mean_difference"] <= facts["largest_difference"] <= facts["largest_bound"]
    assert "precision" not in asked.info
    for name in ("evidence.csv", "heads.csv", "sums.npz"):
        one, again, other = (
            (tmp_path / f / name).read_bytes() for f in ("auto0", "auto1", "asked")
        )
        assert one == again == other


def test_single_precision_is_kept_where_rounding_is_too_large(
    narrow_folder, native, monkeypatch, tmp_path
):
    monkeypatch.setattr(precision_check, "MEAN_DIFFERENCE", 1e-9)
    run = classified(narrow_folder, "auto", tmp_path / "auto")
    classified(narrow_folder, "float32", tmp_path / "asked")
    assert run.info["model"]["dtype"] == "float32"
    assert run.info["precision"]["reason"] == "rounding is too large"
    for name in ("evidence.csv", "heads.csv"):
        assert (tmp_path / "auto" / name).read_bytes() == (tmp_path / "asked" / name).read_bytes()


@pytest.mark.parametrize(
    ("folder", "changes", "is_native", "reason"),
    [
        ("gpt2_folder", {}, True, "its weights are stored in 32 bits"),
        ("narrow_folder", {}, False, "this cpu has no instructions for bfloat16"),
        ("narrow_folder", {"engine": "lens"}, True, "the lens engine keeps a model as it is"),
    ],
)
def test_half_precision_is_not_even_tried(request, monkeypatch, folder, changes, is_native, reason):
    monkeypatch.setattr(module, "multiplies_natively", lambda device: is_native)
    path = str(request.getfixturevalue(folder))
    run = hs.classify(path, "gold", dtype="auto", progress=False, **ASKED | changes)
    assert run.info["precision"] == {"dtype": "float32", "reason": reason}
    assert run.info["model"]["dtype"] == "float32"


def test_a_model_in_memory_stays_as_it_is(narrow_folder, tokenizer, native):
    network = AutoModelForCausalLM.from_pretrained(narrow_folder, dtype=torch.float32)
    run = hs.classify((network, tokenizer), "gold", dtype="auto", progress=False, **ASKED)
    assert run.info["model"]["dtype"] == run.info["precision"]["dtype"] == "float32"
    assert "in memory" in run.info["precision"]["reason"]
    network.to(torch.bfloat16)
    run = hs.classify((network, tokenizer), "gold", dtype="auto", progress=False, **ASKED)
    assert run.info["model"]["dtype"] == run.info["precision"]["dtype"] == "bfloat16"


@pytest.mark.parametrize(("asked", "again"), [("auto", "float32"), ("bfloat16", "bfloat16")])
def test_the_model_of_a_run_that_chose_is_read_again_in_single_precision(
    narrow_folder, native, tmp_path, asked, again
):
    run = classified(narrow_folder, asked, tmp_path / "run")
    assert run.info["model"]["dtype"] == "bfloat16"
    assert model_of(hs.load(tmp_path / "run")).dtype == again


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
